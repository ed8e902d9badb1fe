//! The locks of one owner on one file, as Linux keeps them: setting a span splits, changes and joins what is there.
//!
//! ```text
//! before      SSSSSS........SSSS
//! set X          XXXXXXXXXXXX
//! after       SSSXXXXXXXXXXXXSSS
//! ```

use wire::{LockMode, Span};

/// Bytes that are locked in one mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) span: Span,
    pub(crate) mode: LockMode,
}

/// In the order of their bytes; no two overlap, and two that touch are of different modes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pieces(Vec<Piece>);

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Piece> {
        self.0.iter().copied()
    }

    /// Those with a byte in `span`, as they are.
    pub(crate) fn overlapping(&self, span: Span) -> impl Iterator<Item = Piece> {
        let begin = self.0.partition_point(|one| one.span.last < span.first);
        let behind = self.0[begin..].iter();
        behind
            .take_while(move |one| one.span.first <= span.last)
            .copied()
    }

    /// The bytes of `span` get this mode, or none. Its ends are in order and at most [`Span::END`].
    pub(crate) fn set(&mut self, span: Span, mode: Option<LockMode>) {
        // Also those that only touch it: they may become one with it.
        let begin = self.0.partition_point(|one| one.span.last + 1 < span.first);
        let end = self
            .0
            .partition_point(|one| one.span.first <= span.last + 1);
        let mut new: Vec<Piece> = vec![];
        let mut push = |piece: Piece| match new.last_mut() {
            Some(last) if last.mode == piece.mode && last.span.last + 1 == piece.span.first => {
                last.span.last = piece.span.last;
            }
            _ => new.push(piece),
        };
        let touched = &self.0[begin..end];
        for one in touched.iter().filter(|one| one.span.first < span.first) {
            let last = one.span.last.min(span.first - 1);
            push(Piece {
                span: Span { last, ..one.span },
                ..*one
            });
        }
        if let Some(mode) = mode {
            push(Piece { span, mode });
        }
        for one in touched.iter().filter(|one| one.span.last > span.last) {
            let first = one.span.first.max(span.last + 1);
            push(Piece {
                span: Span { first, ..one.span },
                ..*one
            });
        }
        self.0.splice(begin..end, new);
    }

    /// The bytes of `span` that are locked in neither mode or in less than this one get it.
    pub(crate) fn raise(&mut self, span: Span, mode: LockMode) {
        if mode == LockMode::Exclusive {
            return self.set(span, Some(mode));
        }
        let kept: Vec<Piece> = self
            .overlapping(span)
            .filter(|one| one.mode == LockMode::Exclusive)
            .collect();
        self.set(span, Some(mode));
        for one in kept {
            self.set(one.span, Some(one.mode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockMode::{Exclusive, Shared};

    fn span(first: u64, last: u64) -> Span {
        Span { first, last }
    }

    fn told(pieces: &Pieces) -> Vec<(u64, u64, LockMode)> {
        let tell = |one: Piece| (one.span.first, one.span.last, one.mode);
        pieces.iter().map(tell).collect()
    }

    #[test]
    fn a_span_splits_joins_and_changes_what_is_there() {
        let mut pieces = Pieces::default();
        pieces.set(span(10, 19), Some(Shared));
        pieces.set(span(20, 29), Some(Shared));
        assert_eq!(
            told(&pieces),
            [(10, 29, Shared)],
            "those that touch are one"
        );
        pieces.set(span(15, 16), Some(Exclusive));
        let split = [(10, 14, Shared), (15, 16, Exclusive), (17, 29, Shared)];
        assert_eq!(told(&pieces), split);
        pieces.set(span(12, 12), None);
        assert_eq!(told(&pieces)[..2], [(10, 11, Shared), (13, 14, Shared)]);
        pieces.set(span(0, Span::END), Some(Exclusive));
        assert_eq!(told(&pieces), [(0, Span::END, Exclusive)]);
        pieces.set(span(5, Span::END), None);
        assert_eq!(told(&pieces), [(0, 4, Exclusive)]);
        pieces.set(span(0, 4), None);
        assert!(pieces.is_empty());
    }

    #[test]
    fn the_same_again_changes_nothing() {
        let mut pieces = Pieces::default();
        for _ in 0..2 {
            pieces.set(span(3, 5), Some(Shared));
            pieces.set(span(7, Span::END), Some(Shared));
            assert_eq!(told(&pieces), [(3, 5, Shared), (7, Span::END, Shared)]);
        }
        assert_eq!(pieces.overlapping(span(6, 6)).count(), 0);
        assert_eq!(pieces.overlapping(span(5, 7)).count(), 2);
    }

    #[test]
    fn raising_lowers_nothing() {
        let mut pieces = Pieces::default();
        pieces.set(span(4, 6), Some(Exclusive));
        pieces.raise(span(0, 9), Shared);
        let raised = [(0, 3, Shared), (4, 6, Exclusive), (7, 9, Shared)];
        assert_eq!(told(&pieces), raised);
        pieces.raise(span(6, 7), Exclusive);
        assert_eq!(told(&pieces)[1], (4, 7, Exclusive));
    }
}
