//! Which bytes a `struct flock` means (fcntl_locking(2)).

use wire::Span;

/// It means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSpan {
    /// EINVAL: before the first byte.
    Negative,
    /// EOVERFLOW: behind the last.
    TooFar,
}

/// The bytes from `start` on, counted from `base`: `len` of them, or all for 0; a negative `len` is of those before.
///
/// # Errors
/// [`NoSpan`].
pub fn span(base: u64, start: i64, len: i64) -> Result<Span, NoSpan> {
    let base = i64::try_from(base).map_err(|_| NoSpan::TooFar)?;
    let start = base.checked_add(start).ok_or(NoSpan::TooFar)?;
    let (first, last) = match len {
        0 => (start, i64::MAX),
        1.. => (start, start.checked_add(len - 1).ok_or(NoSpan::TooFar)?),
        _ => (
            start.checked_add(len).ok_or(NoSpan::Negative)?,
            start.checked_sub(1).ok_or(NoSpan::Negative)?,
        ),
    };
    match (
        u64::try_from(start),
        u64::try_from(first),
        u64::try_from(last),
    ) {
        (Ok(_), Ok(first), Ok(last)) => Ok(Span { first, last }),
        _ => Err(NoSpan::Negative),
    }
}

/// `l_len` of a span that is told.
#[must_use]
pub fn length(span: Span) -> i64 {
    match span.last {
        Span::END => 0,
        last => (last - span.first + 1) as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_forwards_backwards_and_to_the_end() {
        let told = |base, start, len| span(base, start, len).map(|span| (span.first, span.last));
        assert_eq!(told(0, 5, 1), Ok((5, 5)));
        assert_eq!(told(10, 5, 3), Ok((15, 17)));
        assert_eq!(told(10, -3, 0), Ok((7, Span::END)));
        assert_eq!(told(0, 5, -5), Ok((0, 4)));
        assert_eq!(told(0, i64::MAX, 1), Ok((Span::END, Span::END)));
        for (base, start, len) in [
            (0, -1, 1),
            (3, -4, 0),
            (0, 5, -6),
            (0, 0, -1),
            (0, 0, i64::MIN),
        ] {
            assert_eq!(
                told(base, start, len),
                Err(NoSpan::Negative),
                "{base} {start} {len}"
            );
        }
        for (base, start, len) in [(1, i64::MAX, 0), (0, i64::MAX, 2), (0, 2, i64::MAX)] {
            assert_eq!(
                told(base, start, len),
                Err(NoSpan::TooFar),
                "{base} {start} {len}"
            );
        }
        for (first, last, len) in [(0, Span::END, 0), (3, 3, 1), (3, 9, 7)] {
            assert_eq!(length(Span { first, last }), len);
        }
    }
}
