//! Which bytes of a space are to be stored, told some at a time: a job may have more runs of pages than one would keep in memory.

use std::io;
use std::ops::Range;

/// Ranges in order that lie apart.
pub trait Ranges: Sync {
    /// Some of what lies at or behind `from`; none if nothing does.
    ///
    /// # Errors
    /// Why it is not known.
    fn some(&self, from: u64) -> io::Result<Option<Told>>;
}

/// Some ranges of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// They: one at least.
    pub ranges: Vec<Range<u64>>,
    /// There are no others before this.
    pub up_to: u64,
}

/// So many at a time.
const SOME: usize = 512;

impl Ranges for [Range<u64>] {
    fn some(&self, from: u64) -> io::Result<Option<Told>> {
        let first = self.partition_point(|range| range.end <= from);
        let (mut ranges, mut up_to) = (vec![], from);
        for range in self[first..].iter().take(SOME) {
            let start = range.start.max(from);
            if start < up_to || range.end < start {
                let what = format!("{:#x}-{:#x} is out of order", range.start, range.end);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            ranges.push(start..range.end);
            up_to = range.end;
        }
        Ok((!ranges.is_empty()).then_some(Told { ranges, up_to }))
    }
}

impl Ranges for Vec<Range<u64>> {
    fn some(&self, from: u64) -> io::Result<Option<Told>> {
        self.as_slice().some(from)
    }
}

/// All of them at once.
///
/// # Errors
/// As [`Ranges::some`].
pub(super) fn all(ranges: &dyn Ranges) -> io::Result<Vec<Range<u64>>> {
    let (mut all, mut from) = (vec![], 0);
    while let Some(told) = ranges.some(from)? {
        all.extend(told.ranges);
        from = told.up_to;
    }
    Ok(all)
}

/// Bytes of all ranges.
///
/// # Errors
/// As [`Ranges::some`].
pub(super) fn bytes_of(ranges: &dyn Ranges) -> io::Result<u64> {
    let (mut sum, mut from) = (0, 0);
    while let Some(told) = ranges.some(from)? {
        let lengths = told.ranges.iter().map(|range| range.end - range.start);
        sum += lengths.sum::<u64>();
        from = told.up_to;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_told_from_anywhere() {
        let every: Vec<Range<u64>> = (0..3000).map(|at| 10 * at..10 * at + 4).collect();
        assert_eq!(bytes_of(&every).expect("told"), 12_000);
        assert_eq!(all(&every).expect("told"), every);
        for from in [0, 2, 4, 5130, 29_992, 29_995] {
            let (mut told, mut at) = (vec![], from);
            while let Some(some) = every.some(at).expect("told") {
                assert!(some.ranges.len() <= SOME);
                told.extend(some.ranges);
                at = some.up_to;
            }
            let expected = every.iter().filter(|range| range.end > from);
            let expected: Vec<_> = expected
                .map(|range| range.start.max(from)..range.end)
                .collect();
            assert_eq!(told, expected, "{from}");
        }
    }

    #[test]
    fn what_is_out_of_order_is_an_error() {
        for wrong in [
            &[(8, 4)][..],
            &[(4, 8), (6, 9)],
            &[(4, 8), (2, 3)],
            &[(0, 1), (9, 5)],
        ] {
            let wrong: Vec<_> = wrong.iter().map(|(start, end)| *start..*end).collect();
            let error = bytes_of(&wrong).expect_err("out of order").to_string();
            assert!(error.contains("out of order"), "{wrong:?}: {error}");
        }
    }
}
