//! What a job has said about the pages of its memory, as far as it decides how that is filled.
//!
//! # What callers may rely on
//! Memory that is named to [`PageAdvice::keep_small`] may not be huge, whatever is named besides. If there is too much to be
//! remembered, none may.

use core::ops::Range;

/// So many ranges are remembered.
const MOST: usize = 64;

/// What was said.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageAdvice {
    asks_for_huge: bool,
    small: Small,
}

#[derive(Clone, Copy, Debug)]
struct Small {
    ranges: [(u64, u64); MOST],
    count: usize,
}

impl Default for Small {
    fn default() -> Self {
        Small {
            ranges: [(0, 0); MOST],
            count: 0,
        }
    }
}

impl PageAdvice {
    /// Some memory is to have huge pages (`MADV_HUGEPAGE`).
    pub fn ask_for_huge(&mut self) {
        self.asks_for_huge = true;
    }

    /// This memory is to have small pages, or to get its pages itself (`MADV_NOHUGEPAGE`, `mbind`).
    pub fn keep_small(&mut self, memory: &Range<u64>) {
        if let Some(place) = self.small.ranges.get_mut(self.small.count) {
            *place = (memory.start, memory.end);
        }
        self.small.count += 1;
    }

    /// Whether some memory is to have huge pages.
    #[must_use]
    pub fn asks_for_huge(&self) -> bool {
        self.asks_for_huge
    }

    /// Whether this memory may get a huge page.
    #[must_use]
    pub fn may_be_huge(&self, memory: &Range<u64>) -> bool {
        let known = self.small.ranges.get(..self.small.count);
        known.is_some_and(|ranges| {
            let overlaps = |(start, end): &(u64, u64)| memory.start < *end && *start < memory.end;
            !ranges.iter().any(overlaps)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_small_is_not_huge() {
        let mut advice = PageAdvice::default();
        assert!(advice.may_be_huge(&(0..u64::MAX)));
        advice.keep_small(&(0x40_0000..0x60_0000));
        assert!(advice.may_be_huge(&(0x20_0000..0x40_0000)));
        assert!(!advice.may_be_huge(&(0x20_0000..0x40_0001)));
        assert!(!advice.may_be_huge(&(0x50_0000..0x51_0000)));
        assert!(advice.may_be_huge(&(0x60_0000..0x80_0000)));
        assert!(!advice.asks_for_huge());
    }

    #[test]
    fn nothing_is_huge_when_too_much_is_to_be_small() {
        let mut advice = PageAdvice::default();
        let free = 1 << 40..(1 << 40) + 1;
        for at in 0..MOST as u64 {
            assert!(advice.may_be_huge(&free));
            advice.keep_small(&(at..at + 1));
        }
        assert!(advice.may_be_huge(&free));
        advice.keep_small(&(0..1));
        assert!(!advice.may_be_huge(&free));
    }
}
