//! What stands in round brackets.

use super::class::is_word;
use super::translate::{Flags, Last, Translator};
use std::fmt::Write;

/// Brackets within brackets, as in PCRE.
const DEEPEST: usize = 250;

impl Translator<'_> {
    /// What stands behind an opening bracket, up to the closing one.
    pub(super) fn group(&mut self, last: Last) -> Option<Last> {
        if self.peek() == Some(b'*') {
            // A verb.
            return None;
        }
        let (before, quotes) = (self.flags, self.quotes);
        let mut resets = false;
        if !self.takes(b"?") {
            match self.flags.unnumbered {
                true => self.out.push_str("(?:"),
                false => self.open(None)?,
            }
        } else if self.takes(b"#") {
            self.until(b')')?;
            return Some(last);
        } else if self.takes(b"|") {
            resets = true;
            self.out.push_str("(?:");
        } else if let Some(open) = [":", ">", "=", "!", "<=", "<!"]
            .iter()
            .find(|open| self.takes(open.as_bytes()))
        {
            self.out.extend(["(?", *open]);
            if open.starts_with('<') {
                self.behind(open)?;
                return Some(Last::Item);
            }
        } else if self.takes(b"P<") || self.takes(b"<") {
            let name = self.until(b'>')?;
            self.open(Some(name))?;
        } else if self.takes(b"'") {
            let name = self.until(b'\'')?;
            self.open(Some(name))?;
        } else if self.takes(b"P=") {
            let name = self.until(b')')?;
            return self.refer_by_name(name);
        } else if self.takes(b"(") {
            return self.conditional();
        } else if self.set_flags()? {
            // They hold up to the end of the group that they are in.
            return Some(Last::Nothing);
        } else {
            self.out.push_str("(?:");
        }
        self.inside(resets)?;
        self.flags = before;
        self.quotes = quotes;
        Some(Last::Item)
    }

    /// Alternatives and the closing bracket; how many there are.
    pub(super) fn inside(&mut self, resets: bool) -> Option<usize> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let count = self.branches(resets)?;
        self.depth -= 1;
        self.out.push(')');
        self.takes(b")").then_some(count)
    }

    /// A group that is counted.
    pub(super) fn open(&mut self, name: Option<&[u8]>) -> Option<()> {
        self.physical += 1;
        let number = self.next_group;
        self.next_group += 1;
        if self.groups.len() <= number {
            self.groups.resize(number + 1, vec![]);
        }
        self.groups[number].push(self.physical);
        if let Some(name) = name {
            let begins = !name.first()?.is_ascii_digit();
            let is_name = begins && name.len() <= 32 && name.iter().all(|byte| is_word(*byte));
            let known = self.names.insert(name.to_vec(), number);
            if !is_name || known.is_some_and(|other| other != number) {
                return None;
            }
        }
        self.out.push('(');
        Some(())
    }

    /// Looking behind: each alternative alone, since each may have its own length.
    pub(super) fn behind(&mut self, open: &str) -> Option<()> {
        let begin = self.out.len() - open.len() - "(?".len();
        let before = self.flags;
        let count = self.inside(false)?;
        self.flags = before;
        if count == 1 {
            return Some(());
        }
        let text = self.out.split_off(begin);
        let inner = &text["(?".len() + open.len()..text.len() - 1];
        let parts: Vec<String> = (branches_of(inner).iter())
            .map(|part| format!("(?{open}{part})"))
            .collect();
        match open {
            "<=" => self.out.extend(["(?:", &parts.join("|"), ")"]),
            _ => self.out.extend(["(?:", &parts.concat(), ")"]),
        }
        Some(())
    }

    /// `(?(1)a|b)`: only whether a group has taken part may be asked.
    pub(super) fn conditional(&mut self) -> Option<Last> {
        let condition = self.until(b')')?;
        let bare = match condition {
            [b'<', name @ .., b'>'] | [b'\'', name @ .., b'\''] => name,
            other => other,
        };
        let text = std::str::from_utf8(bare).ok()?;
        let here = self.next_group - 1;
        let number = match text.parse::<i64>() {
            Ok(back) if text.starts_with('-') => {
                (here + 1).checked_sub(usize::try_from(back.unsigned_abs()).ok()?)?
            }
            Ok(number) => usize::try_from(number).ok()?,
            Err(_) if self.total == usize::MAX => 1,
            Err(_) => *self.names.get(bare)?,
        };
        if number == 0 || number > self.total {
            return None;
        }
        let physical = match self.groups.get(number).map(Vec::as_slice) {
            Some([one]) => *one,
            // Nobody knows yet how many there are.
            _ if self.total == usize::MAX => 1,
            _ => return None,
        };
        // Writing to a string does not fail.
        let _ = write!(self.out, "(?({physical})");
        let before = self.flags;
        let count = self.inside(false)?;
        self.flags = before;
        (count <= 2).then_some(Last::Item)
    }

    /// `i-s)` or `i-s:`, and whether it is the former.
    pub(super) fn set_flags(&mut self) -> Option<bool> {
        if self.takes(b"^") {
            let Flags { lazy, .. } = self.flags;
            self.flags = Flags {
                lazy,
                ..Flags::default()
            };
        }
        let mut on = true;
        loop {
            let letter = self.peek()?;
            self.at += 1;
            match letter {
                b'-' if on => on = false,
                b'i' => self.flags.any_case = on,
                b'm' => self.flags.lines = on,
                b's' => self.flags.all = on,
                b'n' => self.flags.unnumbered = on,
                b'U' => self.flags.lazy = on,
                b'J' => {}
                b'x' => {
                    self.flags.blanks = on;
                    self.flags.class_blanks = on && self.takes(b"x");
                    while !on && self.takes(b"x") {}
                }
                b')' => return Some(true),
                b':' => return Some(false),
                _ => return None,
            }
        }
    }
}

/// The alternatives of what was written here: outside of brackets of both kinds.
fn branches_of(text: &str) -> Vec<&str> {
    let (mut depth, mut in_class, mut escaped, mut begin) = (0_usize, false, false, 0);
    let mut parts = vec![];
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'[' => in_class = true,
            b']' => in_class = false,
            _ if in_class => {}
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}
