//! Which bytes of a space are to be stored, told some at a time: a job may have more runs of pages than one would keep in memory.

use std::io;
use std::ops::Range;

/// Ranges in order that lie apart.
pub trait Ranges: Sync {
    /// Some of what lies at or behind `from`, and up to where that is all; none if nothing does.
    ///
    /// # Errors
    /// Why it is not known.
    fn some(&self, from: u64) -> io::Result<Option<(Vec<Range<u64>>, u64)>>;
}

/// So many at a time.
const SOME: usize = 512;

impl Ranges for [Range<u64>] {
    fn some(&self, from: u64) -> io::Result<Option<(Vec<Range<u64>>, u64)>> {
        let first = self.partition_point(|range| range.end <= from);
        let some = self[first..].iter().take(SOME);
        let some: Vec<_> = some.map(|range| range.start.max(from)..range.end).collect();
        Ok(some.last().map(|range| range.end).map(|end| (some, end)))
    }
}

impl Ranges for Vec<Range<u64>> {
    fn some(&self, from: u64) -> io::Result<Option<(Vec<Range<u64>>, u64)>> {
        self.as_slice().some(from)
    }
}

/// All of them at once.
///
/// # Errors
/// As [`Ranges::some`].
pub(super) fn all(ranges: &dyn Ranges) -> io::Result<Vec<Range<u64>>> {
    let (mut all, mut from) = (vec![], 0);
    while let Some((some, end)) = ranges.some(from)? {
        all.extend(some);
        from = end;
    }
    Ok(all)
}

/// Bytes of all ranges.
///
/// # Errors
/// As [`Ranges::some`].
pub(super) fn bytes_of(ranges: &dyn Ranges) -> io::Result<u64> {
    let (mut sum, mut from) = (0, 0);
    while let Some((some, end)) = ranges.some(from)? {
        sum += some
            .iter()
            .map(|range| range.end - range.start)
            .sum::<u64>();
        from = end;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_told_from_anywhere() {
        let all: Vec<Range<u64>> = (0..3000).map(|at| 10 * at..10 * at + 4).collect();
        assert_eq!(bytes_of(&all).expect("told"), 12_000);
        for from in [0, 2, 4, 5130, 29_992, 29_995] {
            let (mut told, mut at) = (vec![], from);
            while let Some((some, end)) = all.some(at).expect("told") {
                assert!(some.len() <= SOME);
                told.extend(some);
                at = end;
            }
            let expected = all.iter().filter(|range| range.end > from);
            let expected: Vec<_> = expected
                .map(|range| range.start.max(from)..range.end)
                .collect();
            assert_eq!(told, expected, "{from}");
        }
    }
}
