//! What has happened and is not told yet: whatever happens while something is told comes after it, and nobody calls himself.

use std::collections::VecDeque;

/// Things that are told in the order in which they happened.
#[derive(Debug)]
pub(super) struct Pending<T> {
    waiting: VecDeque<T>,
    is_telling: bool,
}

impl<T> Pending<T> {
    pub(super) fn new() -> Self {
        Pending {
            waiting: VecDeque::new(),
            is_telling: false,
        }
    }

    /// One more. Whether the caller is to tell it, and all that follow from it: else somebody above him does.
    #[must_use]
    pub(super) fn push(&mut self, one: T) -> bool {
        self.waiting.push_back(one);
        !std::mem::replace(&mut self.is_telling, true)
    }

    /// What is to be told next; after the last one, the next caller of [`Pending::push`] tells.
    pub(super) fn next(&mut self) -> Option<T> {
        let next = self.waiting.pop_front();
        self.is_telling = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each thing that is told makes two more, until there were enough.
    struct Teller {
        pending: Pending<u32>,
        told: Vec<u32>,
        depth: u32,
        deepest: u32,
    }

    impl Teller {
        fn tell(&mut self, one: u32, most: u32) {
            self.depth += 1;
            self.deepest = self.deepest.max(self.depth);
            if self.pending.push(one) {
                while let Some(one) = self.pending.next() {
                    self.told.push(one);
                    for next in [2 * one, 2 * one + 1] {
                        if next < most {
                            self.tell(next, most);
                        }
                    }
                }
            }
            self.depth -= 1;
        }
    }

    #[test]
    fn what_happens_while_something_is_told_is_told_after_it_and_not_within() {
        let mut teller = Teller {
            pending: Pending::new(),
            told: vec![],
            depth: 0,
            deepest: 0,
        };
        teller.tell(1, 100_000);
        assert!(teller.told.iter().copied().eq(1..100_000));
        assert_eq!(teller.deepest, 2);
        // And again.
        teller.tell(99_999, 100_000);
        assert_eq!(teller.told.last(), Some(&99_999));
        assert_eq!(teller.told.len(), 100_000);
    }
}
