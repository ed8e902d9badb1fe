//! A set of byte ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Ranges {
    /// Begin to end.
    all: BTreeMap<u64, u64>,
}

impl Ranges {
    /// The parts of `wanted` that are not in the set, in order.
    pub(crate) fn missing(&self, wanted: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = vec![];
        let mut at = wanted.start;
        let before = self.all.range(..=wanted.start).next_back();
        let within = self.all.range(wanted.start..wanted.end);
        for (begin, end) in before.into_iter().chain(within) {
            if *begin > at {
                missing.push(at..*begin);
            }
            at = at.max(*end);
        }
        if at < wanted.end {
            missing.push(at..wanted.end);
        }
        missing
    }

    pub(crate) fn insert(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let (mut begin, mut end) = (new.start, new.end);
        let touching = self.all.range(..=new.end);
        let touching: Vec<(u64, u64)> = touching
            .rev()
            .take_while(|(_, other_end)| **other_end >= new.start)
            .map(|(begin, end)| (*begin, *end))
            .collect();
        for (other_begin, other_end) in touching {
            self.all.remove(&other_begin);
            begin = begin.min(other_begin);
            end = end.max(other_end);
        }
        self.all.insert(begin, end);
    }

    pub(crate) fn remove(&mut self, old: Range<u64>) {
        let before = self.all.range(..old.start).next_back();
        let within = self.all.range(old.start..old.end);
        let cut: Vec<(u64, u64)> = before
            .into_iter()
            .chain(within)
            .filter(|(_, end)| **end > old.start)
            .map(|(begin, end)| (*begin, *end))
            .collect();
        for (begin, end) in cut {
            self.all.remove(&begin);
            if begin < old.start {
                self.all.insert(begin, old.start);
            }
            if end > old.end {
                self.all.insert(old.end, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in proptest::collection::vec((0u8..3, 0usize..60, 0usize..12), 1..30)) {
            let mut ranges = Ranges::default();
            let mut model = [false; 80];
            for (kind, begin, len) in steps {
                let range = begin as u64..(begin + len) as u64;
                match kind {
                    0 => {
                        ranges.insert(range);
                        model[begin..begin + len].fill(true);
                    }
                    1 => {
                        ranges.remove(range);
                        model[begin..begin + len].fill(false);
                    }
                    _ => {
                        let mut missing = vec![];
                        for part in ranges.missing(range) {
                            prop_assert!(!part.is_empty());
                            missing.extend(part);
                        }
                        let expected: Vec<u64> =
                            (begin..begin + len).filter(|at| !model[*at]).map(|at| at as u64).collect();
                        prop_assert_eq!(missing, expected);
                    }
                }
            }
        }
    }
}
