//! Which ranges of memory become segments of a core, and where their bytes come from.
//!
//! A mapping is one segment, unless it has a gap without contents too long to be a hole of the
//! file: then the gap is a segment without bytes, and what surrounds it are segments with bytes.

use super::{Contents, ContentsError, ExportError};
use crate::snapshot::{InodeId, Mapping, MappingKind, SnapshotV1};
use loader::layout::{PAGE, Space};
use std::ops::Range;

/// Gaps up to this length are holes of the file; longer ones are segments without bytes.
const LONGEST_HOLE: u64 = 64 << 20;

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Its addresses.
    pub(super) range: Range<u64>,
    /// PROT_READ and so on.
    pub(super) prot: u32,
    /// Whether it has bytes in the core.
    pub(super) filled: bool,
    /// Index of its mapping.
    pub(super) mapping: usize,
}

/// The ranges of a process's memory that have contents.
pub(super) fn ranges_of(
    contents: &dyn Contents,
    index: u32,
) -> Result<Vec<Range<u64>>, ExportError> {
    let space = Space::Process(index);
    let ranges = contents.ranges(space);
    ranges.map_err(|source| ExportError::Contents {
        space,
        at: 0,
        source,
    })
}

/// Cuts the mappings of process `index`, of whose memory `own` has contents, into segments.
pub(super) fn segments(contents: &dyn Contents, index: u32, own: &[Range<u64>]) -> Vec<Segment> {
    let snapshot = contents.snapshot();
    let Some(process) = snapshot.processes.get(index as usize) else {
        return vec![];
    };
    let mut segments = vec![];
    let mut first_range = 0;
    for (number, mapping) in process.memory.mappings.iter().enumerate() {
        while own
            .get(first_range)
            .is_some_and(|range| range.end <= mapping.start)
        {
            first_range += 1;
        }
        let here = own[first_range..]
            .iter()
            .take_while(|range| range.start < mapping.end);
        let mut filled: Vec<_> = here
            .map(|range| range.start.max(mapping.start)..range.end.min(mapping.end))
            .collect();
        if let Some(from_file) = bytes_of_file(snapshot, mapping) {
            filled.push(from_file);
            filled.sort_by_key(|range| range.start);
        }
        let zeros_are_contents = matches!(mapping.kind, MappingKind::Anonymous { .. });
        cut(mapping, number, &filled, zeros_are_contents, &mut segments);
    }
    segments
}

fn cut(
    mapping: &Mapping,
    number: usize,
    filled: &[Range<u64>],
    zeros_are_contents: bool,
    segments: &mut Vec<Segment>,
) {
    let longest_hole = if zeros_are_contents { LONGEST_HOLE } else { 0 };
    let mut push = |range: Range<u64>, filled: bool| {
        if range.start >= range.end {
            return;
        }
        let joins = segments.last().filter(|last: &&Segment| {
            last.mapping == number && last.filled == filled && last.range.end == range.start
        });
        if joins.is_some() {
            let last = segments.len() - 1;
            segments[last].range.end = range.end;
        } else {
            segments.push(Segment {
                range,
                prot: mapping.prot,
                filled,
                mapping: number,
            });
        }
    };
    let mut at = mapping.start;
    for range in filled {
        let start = range.start.max(at);
        push(at..start, start - at <= longest_hole);
        push(start..range.end, true);
        at = at.max(range.end);
    }
    push(at..mapping.end, mapping.end - at <= longest_hole);
}

/// The part of a mapping whose bytes are carried in the image as a file's.
fn bytes_of_file(snapshot: &SnapshotV1, mapping: &Mapping) -> Option<Range<u64>> {
    let (inode, offset) = backing(mapping)?;
    let inode = snapshot.inodes.get(inode.0 as usize)?;
    let end_of_file = inode.size.checked_next_multiple_of(PAGE)?;
    let len = end_of_file.checked_sub(offset)?.min(mapping.len());
    (inode.carried && len > 0).then(|| mapping.start..mapping.start + len)
}

fn backing(mapping: &Mapping) -> Option<(InodeId, u64)> {
    match mapping.kind {
        MappingKind::PrivateFile { inode, offset } | MappingKind::Shared { inode, offset, .. } => {
            Some((inode, offset))
        }
        _ => None,
    }
}

/// Reads the bytes of a segment: those of the file, with the process's own pages laid over.
pub(super) struct SegmentReader<'a> {
    contents: &'a dyn Contents,
    index: u32,
    own: &'a [Range<u64>],
}

impl<'a> SegmentReader<'a> {
    pub(super) fn new(contents: &'a dyn Contents, index: u32, own: &'a [Range<u64>]) -> Self {
        SegmentReader {
            contents,
            index,
            own,
        }
    }

    /// Fills `buf` with memory from `at`, which lies in `mapping`. Says whether there can be
    /// anything but zeros.
    ///
    /// # Errors
    /// [`ExportError::Contents`].
    pub(super) fn read(
        &self,
        mapping: &Mapping,
        at: u64,
        buf: &mut [u8],
    ) -> Result<bool, ExportError> {
        let end = at + buf.len() as u64;
        let mut touched = false;
        buf.fill(0);
        if let Some((inode, offset)) = backing(mapping) {
            let record = self.contents.snapshot().inodes.get(inode.0 as usize);
            if record.is_some_and(|record| record.carried) {
                let in_file = offset.saturating_add(at - mapping.start);
                self.fill(Space::Inode(inode.0), in_file, buf)?;
                touched = true;
            }
        }
        let first = self.own.partition_point(|range| range.end <= at);
        for range in self.own[first..].iter().take_while(|r| r.start < end) {
            let (from, to) = (range.start.max(at), range.end.min(end));
            let part = &mut buf[(from - at) as usize..(to - at) as usize];
            self.fill(Space::Process(self.index), from, part)?;
            touched = true;
        }
        Ok(touched)
    }

    fn fill(&self, space: Space, at: u64, buf: &mut [u8]) -> Result<(), ExportError> {
        let read = self.contents.read(space, at, buf);
        read.map_err(|source: ContentsError| ExportError::Contents { space, at, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64) -> Mapping {
        Mapping {
            start,
            end,
            prot: 3,
            kind: MappingKind::Anonymous { huge_shift: 0 },
            flags: 0,
            pkey: 0,
            name: Default::default(),
        }
    }

    fn cut_at(filled: &[Range<u64>], zeros: bool) -> Vec<(u64, u64, bool)> {
        let mut found = vec![];
        cut(&mapping(0x1000, 1 << 40), 0, filled, zeros, &mut found);
        found
            .iter()
            .map(|segment| (segment.range.start, segment.range.end, segment.filled))
            .collect()
    }

    #[test]
    fn a_long_gap_is_a_segment_without_bytes_and_a_short_one_a_hole() {
        let found = cut_at(&[0x2000..0x3000, 0x9000..0xa000], true);
        assert_eq!(found, [(0x1000, 0xa000, true), (0xa000, 1 << 40, false)]);
    }

    #[test]
    fn nothing_is_made_up_for_a_file_that_is_not_there() {
        let found = cut_at(&[0x2000..0x3000], false);
        let expected = [
            (0x1000, 0x2000, false),
            (0x2000, 0x3000, true),
            (0x3000, 1 << 40, false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn overlapping_bytes_of_file_and_process_are_one_segment() {
        let found = cut_at(&[0x1000..0x8000, 0x2000..0x3000, 0x7000..0x9000], false);
        assert_eq!(found[0], (0x1000, 0x9000, true));
        assert_eq!(found.len(), 2);
    }
}
