//! Names of the system's for people: whoever may choose the name of a file must not be able to write to the
//! terminal of whoever reads a message about it, nor have it look like another name.
//!
//! # What callers may rely on
//! Text is itself. Control characters show as `\x1b` or `\u{9b}`, characters that are not seen, or that turn the text
//! around them, as `\u{202e}`, and bytes that are no UTF-8 as `\xff`. A name that has such an escape written in it looks like what that stands for.

use core::fmt::{self, Write};

/// Bytes of a path or label, shown whole.
#[derive(Clone, Copy, Debug)]
pub struct Visible<'a>(pub &'a [u8]);

/// What is shown for one thing: a character, or a byte that is part of none.
#[derive(Clone, Copy, Debug)]
enum Piece {
    Char(char),
    Byte(u8),
}

/// Whether a character is not seen, or changes how others are: controls, marks of direction, and what has no width.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Writes a character as people are to see it.
///
/// # Errors
/// Those of `to`.
pub fn write_char(c: char, to: &mut impl Write) -> fmt::Result {
    match c {
        c if !is_hidden(c) => to.write_char(c),
        c if c.is_ascii() => write!(to, "\\x{:02x}", u32::from(c)),
        c => write!(to, "\\u{{{:x}}}", u32::from(c)),
    }
}

fn pieces(bytes: &[u8]) -> impl Iterator<Item = Piece> + '_ {
    bytes.utf8_chunks().flat_map(|chunk| {
        let text = chunk.valid().chars().map(Piece::Char);
        text.chain(chunk.invalid().iter().map(|byte| Piece::Byte(*byte)))
    })
}

impl Piece {
    fn write(self, to: &mut impl Write) -> fmt::Result {
        match self {
            Piece::Char(c) => write_char(c, to),
            Piece::Byte(byte) => write!(to, "\\x{byte:02x}"),
        }
    }

    /// Bytes of what is written.
    fn len(self) -> usize {
        let mut count = Count(0);
        let _ = self.write(&mut count);
        count.0
    }
}

struct Count(usize);

impl Write for Count {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

impl fmt::Display for Visible<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        pieces(self.0).try_for_each(|piece| piece.write(to))
    }
}

/// Writes bytes as [`Visible`] does; of what is longer than `most` bytes then, the beginning (`begin` bytes at most) and
/// the end.
///
/// # Errors
/// Those of `to`.
pub fn write_ends(bytes: &[u8], begin: usize, most: usize, to: &mut impl Write) -> fmt::Result {
    let whole: usize = pieces(bytes).map(Piece::len).sum();
    let (mut at, mut is_cut) = (0, false);
    for piece in pieces(bytes) {
        let end = at + piece.len();
        if whole <= most || end <= begin || at + most >= whole + begin {
            piece.write(to)?;
        } else if !is_cut {
            is_cut = true;
            to.write_str("...")?;
        }
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_shown() {
        let shown = |bytes: &[u8]| Visible(bytes).to_string();
        assert_eq!(shown("dä 日本".as_bytes()), "dä 日本");
        assert_eq!(shown(b"a\x1b[31m\x07\n\x7f"), "a\\x1b[31m\\x07\\x0a\\x7f");
        assert_eq!(
            shown("\u{9b}a\u{202e}b\u{200b}".as_bytes()),
            "\\u{9b}a\\u{202e}b\\u{200b}"
        );
        assert_eq!(shown(b"d\xff\xc3"), "d\\xff\\xc3");
    }

    #[test]
    fn of_a_long_name_both_ends_are_shown_in_no_more_than_there_is_room_for() {
        let cut = |bytes: &[u8]| {
            let mut text = String::new();
            write_ends(bytes, 4, 10, &mut text).expect("written");
            text
        };
        assert_eq!(cut(b"0123456789"), "0123456789");
        assert_eq!(cut(b"0123456789a"), "0123...56789a");
        assert_eq!(cut(b"\xff\xfe\xfd"), "\\xff...\\xfd");
        assert!(cut(&[0xff; 300]).len() <= 13);
        assert!(cut("ä日".repeat(90).as_bytes()).len() <= 13);
    }
}
