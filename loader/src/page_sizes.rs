//! Which pages come faster, small ones or huge ones: found out while memory is filled.
//!
//! A huge page costs one fault and one clearing, if there is one. Where the kernel has to make room for it first, or a
//! hypervisor has taken the memory back and gives it piece by piece, small pages are several times faster: they come
//! from what is in use here already. That changes as memory is used up, so each way is tried again now and then. Time
//! that passes counts, not processor time: most of it is waiting.
//!
//! # What callers may rely on
//! Several threads may ask and tell at once.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many pieces are filled before the slower way is tried again; twice as many each time that it is slower still.
const GAP: u64 = 16;
/// What a way costs that there is not.
const NEVER_NS: u64 = 1 << 40;

/// A way to get memory for a piece of the size of a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// One page.
    Huge,
    /// Many.
    Small,
}

/// What is known.
#[derive(Debug)]
pub struct PageSizes {
    /// What a piece has cost lately, nanoseconds; 0: it is not known.
    huge: AtomicU64,
    small: AtomicU64,
    /// Pieces so far.
    pieces: AtomicU64,
    /// From which piece on the slower way is tried.
    next_look: AtomicU64,
    gap: AtomicU64,
}

impl Default for PageSizes {
    fn default() -> Self {
        let [huge, small, pieces] = [0; 3].map(AtomicU64::new);
        Self {
            huge,
            small,
            pieces,
            next_look: AtomicU64::new(GAP),
            gap: AtomicU64::new(GAP),
        }
    }
}

impl PageSizes {
    /// How the next piece is to be got.
    #[must_use]
    pub fn next(&self) -> PageSize {
        let piece = self.pieces.fetch_add(1, Relaxed);
        match (self.huge.load(Relaxed), self.small.load(Relaxed)) {
            (0, _) => return PageSize::Huge,
            (_, 0) => return PageSize::Small,
            _ => {}
        }
        let looks = piece >= self.next_look.load(Relaxed);
        if looks {
            let gap = self.gap.load(Relaxed).saturating_mul(2);
            self.gap.store(gap, Relaxed);
            self.next_look.store(piece.saturating_add(gap), Relaxed);
        }
        match self.faster_is_huge() != looks {
            true => PageSize::Huge,
            false => PageSize::Small,
        }
    }

    /// What a piece has cost, nanoseconds; `None`: there are no such pages.
    ///
    /// That it was cheap is believed at once. That it was dear may be chance: it counts half.
    pub fn took(&self, size: PageSize, ns: Option<u64>) {
        let cost = match size {
            PageSize::Huge => &self.huge,
            PageSize::Small => &self.small,
        };
        let now = ns.unwrap_or(NEVER_NS).clamp(1, NEVER_NS);
        let before = cost.load(Relaxed);
        let was_huge = self.faster_is_huge();
        let known = match before == 0 || now < before {
            true => now,
            false => before.midpoint(now),
        };
        cost.store(known, Relaxed);
        if self.faster_is_huge() != was_huge {
            self.gap.store(GAP, Relaxed);
            let next = self.pieces.load(Relaxed).saturating_add(GAP);
            self.next_look.store(next, Relaxed);
        }
    }

    fn faster_is_huge(&self) -> bool {
        self.huge.load(Relaxed) <= self.small.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is chosen for so many pieces, where they cost that.
    fn chosen(sizes: &PageSizes, pieces: usize, huge: Option<u64>, small: u64) -> usize {
        let choices = (0..pieces).map(|_| {
            let size = sizes.next();
            let cost = match size {
                PageSize::Huge => huge,
                PageSize::Small => Some(small),
            };
            sizes.took(size, cost);
            size
        });
        choices.filter(|size| *size == PageSize::Huge).count()
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_looked_at_rarely() {
        let huge = chosen(&PageSizes::default(), 512, Some(150_000), 700_000);
        assert!((500..512).contains(&huge), "{huge}");
        let huge = chosen(&PageSizes::default(), 512, Some(3_000_000), 700_000);
        assert!((2..10).contains(&huge), "{huge}");
    }

    #[test]
    fn a_change_is_noticed() {
        let sizes = PageSizes::default();
        chosen(&sizes, 64, Some(150_000), 700_000);
        let huge = chosen(&sizes, 64, Some(3_000_000), 700_000);
        assert!(huge < 10, "{huge}");
        let huge = chosen(&sizes, 512, Some(150_000), 700_000);
        assert!(huge > 300, "{huge}");
    }

    #[test]
    fn a_dear_one_is_forgotten() {
        let sizes = PageSizes::default();
        chosen(&sizes, 40, Some(150_000), 700_000);
        sizes.took(PageSize::Huge, Some(20_000_000));
        let huge = chosen(&sizes, 100, Some(150_000), 700_000);
        assert!(huge > 60, "{huge}");
    }

    #[test]
    fn where_there_are_no_huge_pages_few_are_asked_for() {
        let huge = chosen(&PageSizes::default(), 1 << 20, None, 700_000);
        assert!((1..40).contains(&huge), "{huge}");
    }
}
