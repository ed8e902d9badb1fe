//! What goes into the image besides its description: memory, and files that are carried.

use super::CheckpointError;
use crate::capture::{Captured, InodeBytes, InodeSource, MemoryPiece, MemoryRange};
use crate::image::{ByteSource, ImageWriter};
use crate::pages::{self, PageKinds, PagesError};
use crate::progress::Progress;
use crate::snapshot::{InodeId, MappingKind};
use crate::tracee::{HostPid, Memory};
use loader::layout::Space;
use std::cell::RefCell;
use std::io;
use std::ops::Range;

/// Memory as a source of bytes.
struct MemoryBytes<'a>(&'a Memory);

impl ByteSource for MemoryBytes<'_> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read(at, buf)
    }
}

/// Stores the ranges of each process that are (or are not) to be copied while frozen.
pub(super) fn store_memory(
    writer: &mut ImageWriter,
    captured: &Captured,
    from: &[(HostPid, &Memory)],
    frozen: bool,
    progress: &mut dyn Progress,
) -> Result<(), CheckpointError> {
    for (index, (pid, memory)) in from.iter().enumerate() {
        let mut ranges: Vec<Range<u64>> = vec![];
        let mut changed: Vec<Range<u64>> = vec![];
        let plan = captured
            .memory_plan
            .get(index)
            .map_or(&[][..], Vec::as_slice);
        for range in plan.iter().filter(|range| range.while_frozen == frozen) {
            let kept = if range.only_changed {
                &mut changed
            } else {
                &mut ranges
            };
            kept.extend(resident(*pid, range)?);
        }
        if !frozen {
            // The vDSO's own text, for machines whose vDSO is another.
            let mappings = captured.snapshot.processes[index].memory.mappings.iter();
            let vdso = mappings.filter(|mapping| mapping.kind == MappingKind::Vdso);
            ranges.extend(vdso.map(|mapping| mapping.start..mapping.end));
        }
        let space = Space::Process(index as u32);
        let source = MemoryBytes(memory);
        for (ranges, zeros) in [(ranges, Zeros::Dropped), (changed, Zeros::Kept)] {
            let step = "writing memory";
            store(writer, step, space, &ranges, &source, zeros, progress)?;
        }
    }
    Ok(())
}

fn resident(pid: HostPid, range: &MemoryRange) -> Result<Vec<Range<u64>>, PagesError> {
    let kinds = if range.only_changed {
        PageKinds::PrivateFile
    } else {
        PageKinds::Anonymous
    };
    pages::resident(pid, range.addresses.clone(), kinds)
}

/// Stores the contents of inodes that are (or are not) to be copied while frozen.
pub(super) fn store_inodes(
    writer: &mut ImageWriter,
    captured: &Captured,
    pids: &[HostPid],
    from: &[(HostPid, &Memory)],
    frozen: bool,
    progress: &mut dyn Progress,
) -> Result<(), CheckpointError> {
    let sources = captured.inode_sources.iter();
    for (InodeId(id), source) in sources.filter(|(_, source)| source.while_frozen == frozen) {
        let InodeSource { bytes, len, .. } = source;
        if *len == 0 {
            continue;
        }
        let whole = 0..*len;
        let ranges = std::slice::from_ref(&whole);
        let space = Space::Inode(*id);
        let (what, zeros) = ("writing files", Zeros::Dropped);
        match bytes {
            InodeBytes::File(file) => {
                store(writer, what, space, ranges, &**file, zeros, progress)?;
            }
            InodeBytes::Memory(pieces) => {
                let source = PiecesOfMemory { pieces, pids, from };
                store(writer, what, space, ranges, &source, zeros, progress)?;
            }
        }
    }
    Ok(())
}

/// An inode whose bytes are read through the mappings that show it.
struct PiecesOfMemory<'a> {
    pieces: &'a [MemoryPiece],
    pids: &'a [HostPid],
    from: &'a [(HostPid, &'a Memory)],
}

impl ByteSource for PiecesOfMemory<'_> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        let end = at + buf.len() as u64;
        for piece in self.pieces {
            let from = at.max(piece.offset);
            let to = end.min(piece.offset + piece.len);
            let process = self.pids.iter().position(|pid| pid.0 == piece.pid);
            let memory = process.and_then(|process| self.from.get(process));
            let Some((_, memory)) = memory else { continue };
            if from < to {
                let part = &mut buf[(from - at) as usize..(to - at) as usize];
                memory.read(piece.address + (from - piece.offset), part)?;
            }
        }
        Ok(())
    }
}

/// What becomes of pages of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeros {
    /// The restart finds zeros where nothing is stored.
    Dropped,
    /// It would find a file's bytes.
    Kept,
}

/// Stores ranges and tells of the progress from this thread.
fn store(
    writer: &mut ImageWriter,
    step: &str,
    space: Space,
    ranges: &[Range<u64>],
    source: &dyn ByteSource,
    zeros: Zeros,
    progress: &mut dyn Progress,
) -> Result<(), CheckpointError> {
    let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if total == 0 {
        return Ok(());
    }
    progress.begin(step, Some(total));
    let progress = RefCell::new(progress);
    let tell = |bytes| progress.borrow_mut().advance(bytes);
    match zeros {
        Zeros::Dropped => writer.store(space, ranges, source, &tell)?,
        Zeros::Kept => writer.store_with_zeros(space, ranges, source, &tell)?,
    }
    Ok(())
}
