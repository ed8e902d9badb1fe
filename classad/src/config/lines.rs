//! Statements of a text: lines, joined where one ends in `\`.
//!
//! Blanks around a line go first. A comment where a statement begins is a line of its own, whatever it ends in; one between
//! continued lines is left out, but has to end in `\` if the statement is to go on.

/// A statement before it is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The first of its lines, from 1.
    pub(super) number: usize,
    pub(super) text: String,
    /// A comment ended it.
    pub(super) ends_in_comment: bool,
    /// It is a comment.
    pub(super) is_comment: bool,
}

/// What is no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoText {
    pub(super) number: usize,
    pub(super) what: &'static str,
}

/// The statements of a text; blank ones and comments are among them.
pub(super) struct Lines<'t> {
    rest: Option<&'t [u8]>,
    number: usize,
}

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self {
            rest: Some(text).filter(|text| !text.is_empty()),
            number: 0,
        }
    }

    /// The next line of the text, without blanks around it.
    fn physical(&mut self) -> Option<&'t [u8]> {
        let text = self.rest?;
        let (line, rest) = match text.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        self.rest = rest.filter(|rest| !rest.is_empty());
        self.number += 1;
        Some(trimmed(line))
    }
}

/// Without the bytes at both ends that C's `isspace` calls blank.
fn trimmed(mut line: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = line
        && crate::text::is_blank(*first)
    {
        line = rest;
    }
    while let [rest @ .., last] = line
        && crate::text::is_blank(*last)
    {
        line = rest;
    }
    line
}

impl Iterator for Lines<'_> {
    type Item = Result<Line, NoText>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.physical()?;
        let number = self.number;
        if first.starts_with(b"#") {
            return Some(Ok(Line {
                number,
                text: String::from_utf8_lossy(first).into_owned(),
                ends_in_comment: false,
                is_comment: true,
            }));
        }
        let mut joined = first.to_vec();
        let mut ends_in_comment = false;
        // Also a backslash before the one that has gone counts, if nothing has come behind it.
        while joined.last() == Some(&b'\\') {
            joined.pop();
            let Some(line) = self.physical() else {
                break;
            };
            match line {
                [b'#', .., b'\\'] => joined.push(b'\\'),
                [b'#', ..] => {
                    ends_in_comment = true;
                    break;
                }
                line => joined.extend_from_slice(line),
            }
        }
        if joined.contains(&0) {
            let what = "a line has a zero byte";
            return Some(Err(NoText { number, what }));
        }
        Some(match String::from_utf8(joined) {
            Ok(text) => Ok(Line {
                number,
                text,
                ends_in_comment,
                is_comment: false,
            }),
            Err(_) => Err(NoText {
                number,
                what: "a line is not UTF-8",
            }),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let lines = Lines::new(text.as_bytes()).map(Result::unwrap);
        let lines = lines.filter(|line| !line.is_comment && !line.text.is_empty());
        lines.map(|line| line.text).collect()
    }

    #[test]
    fn blanks_go_before_a_backslash_is_looked_for() {
        assert_eq!(texts("A = 1   \\  \n   2\n"), ["A = 1   2"]);
        assert_eq!(texts("H = a\\\nb"), ["H = ab"]);
        assert_eq!(texts("F = 9 \\\n\nG = 1"), ["F = 9 ", "G = 1"]);
        assert_eq!(texts("A = 1\r\nB = 2\\\r\n 3\r\n"), ["A = 1", "B = 23"]);
    }

    #[test]
    fn a_comment_at_the_start_of_a_statement_does_not_continue() {
        assert_eq!(texts("# comm \\\nD = 6\n"), ["D = 6"]);
    }

    #[test]
    fn a_comment_in_a_continuation_is_skipped_and_has_to_continue_it() {
        assert_eq!(texts("E = 7 \\\n# com \\\n  8\n"), ["E = 7 8"]);
        assert_eq!(texts("A = x \\\n# c \\\n  # d \\\ny"), ["A = x y"]);
        let lines: Vec<_> = Lines::new(b"A = 1 \\\n # c\nB = 3").collect();
        assert!(lines[0].as_ref().unwrap().ends_in_comment);
        assert_eq!(texts("A = 1 \\\n # c\nB = 3"), ["A = 1 ", "B = 3"]);
    }

    #[test]
    fn lines_are_counted_where_statements_begin() {
        let lines: Vec<_> = Lines::new(b"A\\\nB\n\nC").map(Result::unwrap).collect();
        assert_eq!(
            lines.iter().map(|line| line.number).collect::<Vec<_>>(),
            [1, 3, 4]
        );
    }

    #[test]
    fn only_comments_may_be_in_another_encoding() {
        assert!(Lines::new(b"# \xe9\nA = 1").all(|line| line.is_ok()));
        assert!(Lines::new(b"A = \xe9").any(|line| line.is_err()));
        assert!(Lines::new(b"A = \0").any(|line| line.is_err()));
    }
}
