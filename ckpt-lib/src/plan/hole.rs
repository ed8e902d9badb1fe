//! A free place in the address space of every process of a job.

use crate::snapshot::SnapshotV1;
use std::ops::Range;

/// Below this the kernel or the program's own low addresses may be.
const LOWEST: u64 = 0x1_0000_0000;
/// Above this the kernel puts stacks and vDSOs of new programs.
const HIGHEST: u64 = 0x7d00_0000_0000;
/// Distance kept from the job's mappings (stack guard gaps, a growing heap).
const MARGIN: u64 = 64 << 20;
/// Alignment of the hole.
const ALIGNMENT: u64 = 2 << 20;

/// No place for the loader.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no {needed} free bytes of address space between all mappings of the job")]
pub struct HoleError {
    /// Bytes asked for.
    pub needed: u64,
}

/// Finds `needed` bytes that no process of the job has mapped, in the middle of the largest
/// stretch that is free in all of them.
///
/// # Errors
/// [`HoleError`] when the address spaces are full.
pub fn find_hole(snapshot: &SnapshotV1, needed: u64) -> Result<Range<u64>, HoleError> {
    let mappings = snapshot
        .processes
        .iter()
        .flat_map(|process| &process.memory.mappings);
    find_between(
        mappings.map(|mapping| mapping.start..mapping.end).collect(),
        needed,
    )
}

/// Finds `needed` bytes that no process of the job has mapped and that are not in the hole either:
/// a quarter into the stretch whose middle the hole takes.
///
/// # Errors
/// [`HoleError`] when that stretch is too short.
pub(super) fn find_refuge(snapshot: &SnapshotV1, needed: u64) -> Result<Range<u64>, HoleError> {
    let processes = snapshot.processes.iter();
    let mappings = processes.flat_map(|process| &process.memory.mappings);
    let used = mappings.map(|mapping| mapping.start..mapping.end).collect();
    let none = HoleError { needed };
    let gap = largest_gap(used).ok_or(none)?;
    let quarter = (gap.end - gap.start) / 4;
    let start = (gap.start + quarter).next_multiple_of(ALIGNMENT);
    // The hole may have as much on each side of the middle, less its alignment.
    let needed = needed.next_multiple_of(ALIGNMENT);
    if quarter < 2 * (needed + ALIGNMENT) {
        return Err(HoleError { needed });
    }
    Ok(start..start + needed)
}

fn find_between(used: Vec<Range<u64>>, needed: u64) -> Result<Range<u64>, HoleError> {
    let none = HoleError { needed };
    let Some(gap) = largest_gap(used) else {
        return Err(none);
    };
    let rounded = needed.next_multiple_of(ALIGNMENT);
    if gap.end - gap.start < rounded + 2 * ALIGNMENT {
        return Err(none);
    }
    let start = gap.start + (gap.end - gap.start - rounded) / 2;
    let start = start & !(ALIGNMENT - 1);
    Ok(start..start + rounded)
}

fn largest_gap(mut used: Vec<Range<u64>>) -> Option<Range<u64>> {
    used.sort_by_key(|range| range.start);
    let mut best: Option<Range<u64>> = None;
    let mut free_from = LOWEST;
    let edge = HIGHEST..HIGHEST;
    for range in used.into_iter().chain(std::iter::once(edge)) {
        let free_to = range.start.saturating_sub(MARGIN).min(HIGHEST);
        let gap = free_from..free_to;
        if gap.start < gap.end
            && best
                .as_ref()
                .is_none_or(|best| gap.end - gap.start > best.end - best.start)
        {
            best = Some(gap);
        }
        free_from = free_from.max(range.end.saturating_add(MARGIN));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{KernelPath, Mapping, MappingKind, Process};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hole_touches_nothing(
            starts in proptest::collection::vec((0u64..0x7fff_0000, 1u64..0x1_0000_0000), 0..50),
            needed in 1u64..0x1000_0000,
        ) {
            let used: Vec<_> = starts
                .iter()
                .map(|(page, len)| (page << 12)..((page << 12) + len))
                .collect();
            if let Ok(hole) = find_between(used.clone(), needed) {
                prop_assert!(hole.end - hole.start >= needed);
                prop_assert_eq!(hole.start % ALIGNMENT, 0);
                for range in used {
                    prop_assert!(hole.end <= range.start || range.end <= hole.start);
                }
            }
        }
    }

    #[test]
    fn the_refuge_touches_neither_the_hole_nor_a_mapping() {
        let mut snapshot = SnapshotV1::default();
        for (start, end) in [(0x40_0000, 0x50_0000), (0x7f00_0000_0000, 0x7fff_0000_0000)] {
            let mut process = Process::default();
            process.memory.mappings.push(Mapping {
                start,
                end,
                prot: 0,
                flags: 0,
                kind: MappingKind::Anonymous { huge_shift: 0 },
                pkey: 0,
                name: KernelPath(vec![]),
            });
            snapshot.processes.push(process);
            let refuge = find_refuge(&snapshot, 1 << 20).expect("refuge");
            let hole = find_hole(&snapshot, 1 << 33).expect("hole");
            assert!(refuge.end <= hole.start || hole.end <= refuge.start);
            assert!(refuge.end - refuge.start >= 1 << 20 && refuge.start > end.min(HIGHEST / 8));
        }
    }

    #[test]
    fn a_full_address_space_is_an_error() {
        let everything = vec![0..0x7fff_ffff_f000];
        assert_eq!(
            find_between(everything, 4096),
            Err(HoleError { needed: 4096 })
        );
    }
}
