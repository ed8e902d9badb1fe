//! What goes into the image besides its description: memory, and files that are carried.

use super::CheckpointError;
use crate::capture::{Captured, InodeBytes, InodeSource, MemoryPiece, MemoryRange};
use crate::image::{ByteSource, ImageWriter, Part, Ranges, Zeros};
use crate::pages::{PageKinds, PageTables, PagesError};
use crate::progress::Progress;
use crate::snapshot::{InodeId, MappingKind};
use crate::tracee::{HostPid, Memory};
use loader::layout::Space;
use nix::errno::Errno;
use nix::unistd::{Whence, lseek64};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;

/// Memory as a source of bytes.
struct MemoryBytes<'a>(&'a Memory);

impl ByteSource for MemoryBytes<'_> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read(at, buf)
    }
}

/// Stores what is (or is not) to be copied while the job is frozen: ranges of its memory, and files that are carried.
pub(super) fn store(
    writer: &mut ImageWriter,
    captured: &Captured,
    pids: &[HostPid],
    from: &[(HostPid, &Memory)],
    frozen: bool,
    progress: &mut dyn Progress,
) -> Result<(), CheckpointError> {
    let memory: Vec<MemoryBytes<'_>> = from.iter().map(|(_, memory)| MemoryBytes(memory)).collect();
    let mut parts = vec![];
    let pages = from.iter().enumerate().map(|(index, (pid, _))| {
        let [whole, changed] = [false, true].map(|only_changed| {
            let plan = captured
                .memory_plan
                .get(index)
                .map_or(&[][..], Vec::as_slice);
            PagesOf::new(*pid, plan, frozen, only_changed)
        });
        Ok([whole?, changed?])
    });
    let pages = pages.collect::<Result<Vec<_>, PagesError>>()?;
    let vdsos: Vec<_> = (0..from.len())
        .map(|index| vdso(captured, index, frozen))
        .collect();
    for (index, source) in memory.iter().enumerate() {
        let [whole, changed] = &pages[index];
        let parts_of_process: [(&dyn Ranges, Zeros); 3] = [
            (whole, Zeros::Dropped),
            (changed, Zeros::Kept),
            (&vdsos[index], Zeros::Dropped),
        ];
        for (ranges, zeros) in parts_of_process {
            parts.push((
                Space::Process(index as u32),
                ranges,
                source as &dyn ByteSource,
                zeros,
            ));
        }
    }
    let wanted = |source: &InodeSource| source.while_frozen == frozen && source.len > 0;
    let inodes = captured.inode_sources.iter();
    let inodes: Vec<_> = inodes.filter(|(_, source)| wanted(source)).collect();
    let mapped: Vec<PiecesOfMemory<'_>> = inodes
        .iter()
        .map(|(_, source)| match &source.bytes {
            InodeBytes::File(_) => &[][..],
            InodeBytes::Memory(pieces) => pieces,
        })
        .map(|pieces| PiecesOfMemory { pieces, pids, from })
        .collect();
    let in_files: Vec<_> = inodes
        .iter()
        .map(|(_, inode)| match &inode.bytes {
            InodeBytes::File(file) => data_of(file, inode.len),
            InodeBytes::Memory(_) => {
                let all = || std::iter::once(0..inode.len).collect();
                inode.there.clone().unwrap_or_else(all)
            }
        })
        .collect();
    for (((InodeId(id), inode), mapped), ranges) in inodes.iter().zip(&mapped).zip(&in_files) {
        let source: &dyn ByteSource = match &inode.bytes {
            InodeBytes::File(file) => &**file,
            InodeBytes::Memory(_) => mapped,
        };
        parts.push((Space::Inode(*id), ranges, source, Zeros::Dropped));
    }
    let parts = parts.into_iter();
    let parts = parts.map(|(space, ranges, source, zeros)| Part::new(space, ranges, source, zeros));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let total: u64 = parts.iter().map(Part::bytes).sum();
    if total > 0 {
        progress.begin("writing memory", Some(total));
        let progress = RefCell::new(progress);
        writer.store_parts(&parts, &|bytes| progress.borrow_mut().advance(bytes))?;
    }
    Ok(())
}

/// The pages of a process that have contents, as its page tables say when they are asked for: it stands still.
struct PagesOf<'a> {
    tables: Option<PageTables>,
    /// In order.
    plan: Vec<&'a MemoryRange>,
    kinds: PageKinds,
}

impl<'a> PagesOf<'a> {
    fn new(
        pid: HostPid,
        plan: &'a [MemoryRange],
        frozen: bool,
        only_changed: bool,
    ) -> Result<Self, PagesError> {
        let wanted = |range: &&MemoryRange| {
            (range.while_frozen, range.only_changed) == (frozen, only_changed)
        };
        let mut plan: Vec<_> = plan.iter().filter(wanted).collect();
        plan.sort_unstable_by_key(|range| range.addresses.start);
        let first = plan.first().map(|range| range.addresses.start);
        let tables = first.map(|address| PageTables::open(pid, address));
        let kinds = match only_changed {
            true => PageKinds::PrivateFile,
            false => PageKinds::Anonymous,
        };
        Ok(PagesOf {
            tables: tables.transpose()?,
            plan,
            kinds,
        })
    }
}

impl Ranges for PagesOf<'_> {
    fn some(&self, from: u64) -> io::Result<Option<(Vec<Range<u64>>, u64)>> {
        let Some(tables) = &self.tables else {
            return Ok(None);
        };
        let first = self
            .plan
            .partition_point(|range| range.addresses.end <= from);
        for range in &self.plan[first..] {
            let mut at = range.addresses.start.max(from);
            while at < range.addresses.end {
                let some = tables.some(at..range.addresses.end, self.kinds);
                let (found, end) = some.map_err(io::Error::other)?;
                if !found.is_empty() {
                    return Ok(Some((found, end)));
                }
                at = end;
            }
        }
        Ok(None)
    }
}

/// The vDSO's own text, for machines whose vDSO is another.
fn vdso(captured: &Captured, index: usize, frozen: bool) -> Vec<Range<u64>> {
    let mappings = captured.snapshot.processes[index].memory.mappings.iter();
    let vdso = mappings.filter(|mapping| mapping.kind == MappingKind::Vdso && !frozen);
    vdso.map(|mapping| mapping.start..mapping.end).collect()
}

/// Where a file has bytes: a sparse one may be larger than any disk.
fn data_of(file: &File, len: u64) -> Vec<Range<u64>> {
    const PAGE: u64 = 4096;
    let seek = |from: u64, whence| {
        let offset = i64::try_from(from).unwrap_or(i64::MAX);
        lseek64(file, offset, whence).map(i64::cast_unsigned)
    };
    let mut data: Vec<Range<u64>> = vec![];
    let mut at = 0;
    while at < len {
        let start = match seek(at, Whence::SeekData) {
            Ok(start) => start,
            Err(Errno::ENXIO) => break,
            // It does not say: all of it.
            Err(_) => at,
        };
        let end = seek(start, Whence::SeekHole).unwrap_or(len).max(start + 1);
        let start = start / PAGE * PAGE;
        let end = end.next_multiple_of(PAGE).min(len);
        match data.last_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ if start < end => data.push(start..end),
            _ => {}
        }
        at = end.max(at + 1);
    }
    data
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_not_read_and_nothing_else_is_left_out() {
        let len = 1 << 43;
        let file = nix::sys::memfd::memfd_create(c"sparse", nix::sys::memfd::MFdFlags::empty());
        let file = File::from(file.expect("makes"));
        file.set_len(len).expect("grows");
        assert_eq!(data_of(&file, len), []);
        for at in [5, (1 << 40) + 4095, len - 3] {
            file.write_all_at(b"abc", at).expect("writes");
        }
        let (page, far) = (4096, 1 << 40);
        let expected = [0..page, far..far + 2 * page, len - page..len];
        assert_eq!(data_of(&file, len), expected);
        assert_eq!(data_of(&file, 4), [0..4]);
        let plain = tempfile::tempfile().expect("makes");
        plain.write_all_at(&[1; 10_000], 0).expect("writes");
        assert_eq!(data_of(&plain, 10_000), [0..10_000]);
    }
}
