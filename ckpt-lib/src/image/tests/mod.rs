//! Tests of whole images on disk.

mod chains;
mod damage;
mod round_trip;
mod writing;

use super::{
    ByteSource, Bytes, Committed, Image, ImageError, ImageParts, ImageWriter, VerifyReport,
    WriteOptions,
};
use crate::loader_code;
use crate::plan::{Arg, Operations, OpsBuilder, StreamIndex};
use crate::snapshot::{Process, SnapshotV1, Thread};
use loader::layout::{PAGE, Space};
use loader::ops::{Expect, Fill, OpsHeader, StreamKind};
use std::io;
use std::ops::Range;
use std::path::Path;

pub(super) const HOLE: Range<u64> = 0x10_0000_0000..0x10_1000_0000;
pub(super) const BASE: u64 = 0x7f00_0000_0000;

/// Memory made up of bytes, from `start` on.
pub(super) struct Memory {
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
}

impl Memory {
    /// Pages of pseudo-random bytes but where `zero` says so.
    pub(super) fn new(pages: usize, seed: u64, zero: impl Fn(usize) -> bool) -> Self {
        let mut state = seed | 1;
        let mut bytes = vec![0; pages * PAGE as usize];
        for (index, page) in bytes.chunks_mut(PAGE as usize).enumerate() {
            if zero(index) {
                continue;
            }
            for word in page.chunks_mut(8) {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                // Half of it compresses.
                let value = if index % 2 == 0 { state } else { state >> 60 };
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        Memory { start: BASE, bytes }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }
}

impl ByteSource for Memory {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let from = at
            .checked_sub(self.start)
            .ok_or(io::ErrorKind::InvalidInput)? as usize;
        let bytes = self
            .bytes
            .get(from..from + buf.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

pub(super) fn operations() -> Operations {
    let mut ops = OpsBuilder::new(OpsHeader::default());
    // Two processes that have everything mapped but the hole.
    for process in 0..2 {
        let stream = ops.stream(StreamKind::Process, 1 + process, StreamIndex(0));
        for range in [PAGE..HOLE.start, HOLE.end..0x7fff_ffff_f000] {
            let args = [range.start, range.end - range.start, 3, 0x32, u64::MAX, 0].map(Arg::Value);
            let nr = 9;
            ops.call(stream, "all", nr, &args, Expect::Success, 0);
        }
        ops.push(stream, &Fill { process }, &[]);
    }
    ops.finish().expect("finishes")
}

pub(super) fn commit(writer: ImageWriter) -> Result<Committed, ImageError> {
    let snapshot = SnapshotV1 {
        processes: vec![Process {
            pid: 1,
            threads: vec![Thread::default()],
            ..Process::default()
        }],
        ..SnapshotV1::default()
    };
    let meta = Image::encode_snapshot(&snapshot).expect("encodes");
    let loader = loader_code::link(HOLE.start).expect("links");
    writer.commit(&ImageParts {
        platform: "LINUX X86_64 test",
        ops: Bytes::from(&operations()),
        meta: Bytes::from(&meta[..]),
        loader: &loader,
        hole: HOLE,
    })
}

/// Everything that anybody does who wants to use an image.
pub(super) fn check(path: &Path) -> Result<VerifyReport, ImageError> {
    Image::open(path)?.verify(&mut |_| {})
}

pub(super) fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// An image of one process with this memory.
pub(super) fn image_of(path: &Path, memory: &Memory, options: WriteOptions) -> Committed {
    let mut writer = ImageWriter::create(path, options).expect("creates");
    let ranges = [memory.range()];
    writer
        .store(Space::Process(0), &ranges, memory, &|_| {})
        .expect("stores");
    commit(writer).expect("commits")
}
