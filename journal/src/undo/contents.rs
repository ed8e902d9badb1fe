//! Contents: the old size, the old bytes, holes where there were holes.

use super::Work;
use crate::format::record::{ObjectId, ROOT};
use crate::format::segment;
use crate::inode::Kind;
use crate::past::Piece;
use crate::reserve::own_descriptor;
use crate::{JournalError, fault};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

impl Work<'_> {
    /// The number of files whose contents were put back.
    pub(super) fn put_contents_back(&mut self) -> Result<usize, JournalError> {
        let mut sources = HashMap::new();
        let changed: Vec<(ObjectId, u64)> = self
            .past
            .attributes
            .values()
            .map(|record| (record.object, record.size))
            .filter(|(id, _)| *id != ROOT && self.past.is_old(*id))
            .collect();
        let mut count = 0;
        for (id, size) in changed {
            // What had no name at the mark is not there.
            let Some(found) = self.find(id)? else {
                continue;
            };
            let pieces = self.past.pieces.remove(&id).unwrap_or_default();
            if found.seen.kind != Kind::File || (pieces.is_empty() && found.seen.print.size == size)
            {
                continue;
            }
            let path = self.state.path(id);
            let failed = |errno| JournalError::io("put back the contents of", &path, errno);
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let name = own_descriptor(&found.handle);
            let file = rustix::fs::open(name, flags, Mode::empty()).map_err(failed)?;
            fault::at("resize")?;
            rustix::fs::ftruncate(&file, size).map_err(failed)?;
            for piece in &pieces {
                fault::at("resize")?;
                let source = self.source(&mut sources, piece.segment)?;
                put_piece(&file, source, piece, size).map_err(failed)?;
            }
            count += 1;
        }
        Ok(count)
    }

    fn source<'s>(
        &self,
        sources: &'s mut HashMap<u64, File>,
        number: u64,
    ) -> Result<&'s File, JournalError> {
        use std::collections::hash_map::Entry;
        match sources.entry(number) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(place) => {
                let path = segment::path(&self.state.dir, number);
                let file = File::open(&path);
                Ok(place.insert(file.map_err(|error| JournalError::io("open", path, error))?))
            }
        }
    }
}

/// Writes the parts of a piece that count, up to the end of the file.
fn put_piece(file: &OwnedFd, source: &File, piece: &Piece, size: u64) -> Result<(), Errno> {
    let record = &piece.record;
    for part in &piece.parts {
        let part = part.start..part.end.min(record.offset + record.len).min(size);
        let mut hole = part.start;
        let mut data_position = piece.data_position;
        for (offset, len) in &record.runs {
            let run = clip(*offset..offset + len, &part);
            if !run.is_empty() {
                punch(file, hole..run.start)?;
                let mut data = vec![0; (run.end - run.start) as usize];
                let position = data_position + (run.start - offset);
                source
                    .read_exact_at(&mut data, position)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                write_all(file, &data, run.start)?;
                hole = run.end;
            }
            data_position += len;
        }
        punch(file, hole..part.end)?;
    }
    Ok(())
}

fn clip(range: Range<u64>, to: &Range<u64>) -> Range<u64> {
    let start = range.start.clamp(to.start, to.end.max(to.start));
    start..range.end.clamp(start, to.end.max(start))
}

/// Makes a hole, by zeros where there can be none. fallocate(2).
fn punch(file: &OwnedFd, range: Range<u64>) -> Result<(), Errno> {
    if range.is_empty() {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, range.start, range.end - range.start) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = vec![0; 64 << 10];
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(zeros.len() as u64);
                write_all(file, &zeros[..len as usize], at)?;
                at += len;
            }
            Ok(())
        }
        punched => punched,
    }
}

fn write_all(file: &OwnedFd, mut data: &[u8], mut at: u64) -> Result<(), Errno> {
    while !data.is_empty() {
        match rustix::io::pwrite(file, data, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                data = &data[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
