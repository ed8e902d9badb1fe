//! Classes in brackets.

use super::class::{Set, of_name};
use super::escapes::Escape;
use super::translate::Translator;

impl Translator<'_> {
    /// What is behind an opening bracket of a class.
    pub(super) fn class(&mut self) -> Option<Set> {
        if self
            .rest()
            .first()
            .is_some_and(|byte| b":.=".contains(byte))
            && self.posix_end(self.at).is_some()
        {
            // A name of a class is in a class only.
            return None;
        }
        let is_not = self.takes(b"^");
        let mut set = Set::of(|_| false);
        let mut is_first = true;
        while let Some(low) = self.member(&mut is_first)? {
            let hyphen = self.rest();
            let is_range = hyphen.first() == Some(&b'-') && hyphen.get(1) != Some(&b']');
            if self.quotes || !is_range {
                set.add(&low.as_set());
                continue;
            }
            self.at += 1;
            let Member::Byte(low) = low else {
                return None;
            };
            match self.member(&mut is_first)?? {
                Member::Byte(high) if low <= high => {
                    set.add(&Set::of(|byte| (low..=high).contains(&byte)));
                }
                _ => return None,
            }
        }
        if self.flags.any_case {
            set = set.in_any_case();
        }
        Some(if is_not { set.not() } else { set })
    }

    /// The next of a class; none inside: its end.
    pub(super) fn member(&mut self, is_first: &mut bool) -> Option<Option<Member>> {
        loop {
            let byte = self.peek()?;
            if self.quotes {
                if self.takes(b"\\E") {
                    self.quotes = false;
                    continue;
                }
                self.at += 1;
                *is_first = false;
                return Some(Some(Member::Byte(byte)));
            }
            if self.takes(b"\\Q") {
                self.quotes = true;
                continue;
            }
            if self.takes(b"\\E") || (self.flags.class_blanks && b" \t".contains(&byte)) {
                self.at += usize::from(byte != b'\\');
                continue;
            }
            self.at += 1;
            let is_begin = std::mem::take(is_first);
            return Some(Some(match byte {
                b']' if !is_begin => return Some(None),
                b'[' => match self.posix_end(self.at) {
                    None => Member::Byte(byte),
                    Some(end) => {
                        let name = self.pattern.get(self.at + 1..end)?;
                        if self.peek() != Some(b':') {
                            return None;
                        }
                        self.at = end + 2;
                        Member::Set(of_name(name)?)
                    }
                },
                b'\\' => match self.escape()? {
                    Escape::Byte(byte) => Member::Byte(byte),
                    Escape::Set(set) => Member::Set(set),
                    Escape::Other(b'b') => Member::Byte(8),
                    Escape::Other(_) => return None,
                },
                _ => Member::Byte(byte),
            }));
        }
    }

    /// Where `:]` is, if what is behind a bracket, at `at`, is the name of a class.
    pub(super) fn posix_end(&self, at: usize) -> Option<usize> {
        let kind = *self.pattern.get(at).filter(|byte| b":.=".contains(byte))?;
        let mut place = at + 1;
        loop {
            let (byte, next) = (*self.pattern.get(place)?, *self.pattern.get(place + 1)?);
            match byte {
                b'\\' if matches!(next, b']' | b'\\') => place += 2,
                b'[' if next == kind => return None,
                b']' => return None,
                _ if byte == kind && next == b']' => return Some(place),
                _ => place += 1,
            }
        }
    }
}

/// What is in a class.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, on the stack"
)]
pub(super) enum Member {
    Byte(u8),
    Set(Set),
}

impl Member {
    fn as_set(&self) -> Set {
        match self {
            Self::Byte(one) => Set::of(|byte| byte == *one),
            Self::Set(set) => *set,
        }
    }
}
