//! What goes into the image besides its description: memory, and files that are carried.

use super::CheckpointError;
use crate::capture::{Captured, InodeBytes, InodeSource, MemoryPiece, MemoryRange};
use crate::image::{ByteSource, ImageError, ImageWriter, Part, Ranges, SpaceName, Told, Zeros};
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
    let mut pages = vec![];
    for (index, (pid, _)) in from.iter().enumerate() {
        for only_changed in [false, true] {
            pages.push(PagesOf::new(captured, index, *pid, frozen, only_changed)?);
        }
    }
    for (index, (source, [whole, changed])) in memory.iter().zip(pages.as_chunks().0).enumerate() {
        let space = Space::Process(index as u32);
        for (ranges, zeros) in [(whole, Zeros::Dropped), (changed, Zeros::Kept)] {
            parts.push((
                space,
                ranges as &dyn Ranges,
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
    for (index, (source, [whole, changed])) in memory.iter().zip(pages.as_chunks().0).enumerate() {
        for pages in [whole, changed] {
            pages.outlives(Space::Process(index as u32), source)?;
        }
    }
    Ok(())
}

/// The pages of a process that have contents, as its page tables say when they are asked for: it stands still.
struct PagesOf {
    /// All ranges, if they are few.
    few: Option<Vec<Range<u64>>>,
    /// Where the first of them begins.
    first: Option<u64>,
    tables: Option<PageTables>,
    /// In order; those of the vDSO's text, which machines need whose vDSO is another, are all there.
    plan: Vec<(Range<u64>, Option<PageKinds>)>,
}

impl PagesOf {
    fn new(
        captured: &Captured,
        index: usize,
        pid: HostPid,
        frozen: bool,
        only_changed: bool,
    ) -> Result<Self, PagesError> {
        let kinds = match only_changed {
            true => PageKinds::PrivateFile,
            false => PageKinds::Anonymous,
        };
        let plan = captured
            .memory_plan
            .get(index)
            .map_or(&[][..], Vec::as_slice);
        let wanted = |range: &&MemoryRange| {
            (range.while_frozen, range.only_changed) == (frozen, only_changed)
        };
        let wanted = plan.iter().filter(wanted);
        let mut plan: Vec<_> = wanted
            .map(|range| (range.addresses.clone(), Some(kinds)))
            .collect();
        let first = plan.first().map(|(range, _)| range.start);
        let tables = first.map(|address| PageTables::open(pid, address));
        if !frozen && !only_changed {
            let mappings = captured.snapshot.processes[index].memory.mappings.iter();
            let vdso = mappings.filter(|mapping| mapping.kind == MappingKind::Vdso);
            plan.extend(vdso.map(|mapping| (mapping.start..mapping.end, None)));
        }
        plan.sort_unstable_by_key(|(range, _)| range.start);
        let mut pages = PagesOf {
            few: None,
            first: None,
            tables: tables.transpose()?,
            plan,
        };
        pages.ask_if_few()?;
        Ok(pages)
    }

    fn ask_if_few(&mut self) -> Result<(), PagesError> {
        const FEW: usize = 8 << 10;
        let (mut all, mut from) = (vec![], 0);
        while let Some(told) = self.ask(from)? {
            self.first = self.first.or(told.ranges.first().map(|range| range.start));
            // Who tells them all at once has them in memory anyway, and would take as long for the next.
            let some = all.len() < FEW || told.ranges.len() >= FEW;
            if !some {
                return Ok(());
            }
            all.extend(told.ranges);
            from = told.up_to;
        }
        self.few = Some(all);
        Ok(())
    }

    /// Whether the process is there yet. The page tables of one that has died tell of no pages, and no error.
    fn outlives(&self, space: Space, source: &dyn ByteSource) -> Result<(), ImageError> {
        let Some(at) = self.first else { return Ok(()) };
        let read = source.read_at(at, &mut [0]);
        read.map_err(|source| ImageError::Source {
            space: SpaceName(space),
            at,
            len: 1,
            source,
        })
    }

    /// Asks for some of them, as [`Ranges::some`].
    fn ask(&self, from: u64) -> Result<Option<Told>, PagesError> {
        let first = self.plan.partition_point(|(range, _)| range.end <= from);
        for (range, kinds) in &self.plan[first..] {
            let mut at = range.start.max(from);
            let (Some(tables), Some(kinds)) = (&self.tables, *kinds) else {
                return Ok(Some(Told {
                    ranges: vec![at..range.end],
                    up_to: range.end,
                }));
            };
            while at < range.end {
                let (ranges, up_to) = tables.some(at..range.end, kinds)?;
                if !ranges.is_empty() {
                    return Ok(Some(Told { ranges, up_to }));
                }
                at = up_to;
            }
        }
        Ok(None)
    }
}

impl Ranges for PagesOf {
    fn some(&self, from: u64) -> io::Result<Option<Told>> {
        match &self.few {
            Some(all) => all.some(from),
            None => self.ask(from).map_err(io::Error::other),
        }
    }
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
