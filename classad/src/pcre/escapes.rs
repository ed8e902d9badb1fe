//! What begins with a backslash: bytes, sets, references.

use super::class::{Set, is_word, of_letter, of_property};
use super::translate::{Last, Translator};
use std::fmt::Write;

/// What a backslash begins.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, on the stack"
)]
pub(super) enum Escape {
    Byte(u8),
    Set(Set),
    /// A backslash with this letter, of another meaning.
    Other(u8),
}

impl<'p> Translator<'p> {
    /// What is behind a backslash.
    pub(super) fn backslash(&mut self, last: Last) -> Option<Last> {
        match self.peek()? {
            b'Q' => {
                self.at += 1;
                self.quotes = true;
                return Some(last);
            }
            b'E' => {
                self.at += 1;
                return Some(last);
            }
            b'1'..=b'9' => {
                let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit());
                let digits = &self.rest()[..digits.count()];
                let number: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
                if number < 10 || number <= self.total {
                    self.at += digits.len();
                    return self.refer(number);
                }
            }
            _ => {}
        }
        match self.escape()? {
            Escape::Byte(byte) => self.literal(byte),
            Escape::Set(set) => set.put(&mut self.out),
            Escape::Other(letter) => return self.other(letter),
        }
        Some(Last::Item)
    }

    pub(super) fn other(&mut self, letter: u8) -> Option<Last> {
        let word = || {
            let mut text = String::new();
            Set::of(is_word).put(&mut text);
            text
        };
        match letter {
            b'A' => self.out.push_str("\\A"),
            b'z' => self.out.push_str("\\z"),
            b'Z' => self.text_end(),
            b'G' => self.out.push_str("\\G"),
            b'K' => self.out.push_str("\\K"),
            b'b' => {
                let word = word();
                // Writing to a string does not fail.
                let _ = write!(self.out, "(?:(?<={word})(?!{word})|(?<!{word})(?={word}))");
            }
            b'B' => {
                let word = word();
                let _ = write!(self.out, "(?:(?<={word})(?={word})|(?<!{word})(?!{word}))");
            }
            b'N' if self.peek() != Some(b'{') => {
                self.out.push_str("[^\\n]");
                return Some(Last::Item);
            }
            b'C' => {
                self.out.push_str("(?s:.)");
                return Some(Last::Item);
            }
            b'X' => {
                self.out.push_str("(?>\\r\\n|(?s:.))");
                return Some(Last::Item);
            }
            b'R' => {
                self.out.push_str("(?>\\r\\n|[\\n-\\r\\x{85}])");
                return Some(Last::Item);
            }
            b'g' => return self.reference(),
            b'k' => {
                let name = match self.peek()? {
                    b'{' => self.between(b'}')?,
                    b'<' => self.between(b'>')?,
                    b'\'' => self.between(b'\'')?,
                    _ => return None,
                };
                return self.refer_by_name(name);
            }
            _ => return None,
        }
        Some(Last::Nothing)
    }

    /// What is between a byte of any kind and `end`.
    pub(super) fn between(&mut self, end: u8) -> Option<&'p [u8]> {
        self.at += 1;
        self.until(end)
    }

    /// `\g1`, `\g{1}`, `\g{-1}`, `\g{+1}`, `\g{name}`.
    pub(super) fn reference(&mut self) -> Option<Last> {
        let text = match self.peek()? {
            b'{' => self.between(b'}')?,
            b'+' | b'-' | b'0'..=b'9' => {
                let rest = self.rest();
                let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit());
                let len = digits.count() + 1;
                self.at += len;
                &rest[..len]
            }
            _ => return None,
        };
        let text = std::str::from_utf8(text).ok()?;
        let here = self.next_group - 1;
        let distance = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<usize>().ok().filter(|n| is_number && *n > 0)
        };
        let number = match text.as_bytes().first()? {
            b'-' => (here + 1).checked_sub(distance(&text[1..])?)?,
            b'+' => here.checked_add(distance(&text[1..])?)?,
            b'0'..=b'9' => distance(text)?,
            _ => return self.refer_by_name(text.as_bytes()),
        };
        self.refer(number)
    }

    pub(super) fn refer_by_name(&mut self, name: &[u8]) -> Option<Last> {
        let number = match self.names.get(name) {
            Some(number) => *number,
            // Groups are only counted yet.
            None if self.total == usize::MAX => 1,
            None => return None,
        };
        self.refer(number)
    }

    pub(super) fn refer(&mut self, number: usize) -> Option<Last> {
        if number == 0 || number > self.total {
            return None;
        }
        let physical = self.groups.get(number).cloned().unwrap_or_default();
        let texts: Vec<String> = physical.iter().map(|group| format!("\\{group}")).collect();
        let flag = if self.flags.any_case { "i" } else { "" };
        if texts.is_empty() {
            // Its group comes later: it has no text yet.
            self.out.push_str("(?!)");
        } else {
            self.out.extend(["(?", flag, ":", &texts.join("|"), ")"]);
        }
        Some(Last::Item)
    }

    /// What a backslash begins, in brackets or not.
    pub(super) fn escape(&mut self) -> Option<Escape> {
        let byte = self.peek()?;
        self.at += 1;
        if let Some(set) = of_letter(byte) {
            return Some(Escape::Set(set));
        }
        Some(match byte {
            b'a' => Escape::Byte(7),
            b'e' => Escape::Byte(0x1b),
            b'f' => Escape::Byte(0x0c),
            b'n' => Escape::Byte(b'\n'),
            b'r' => Escape::Byte(b'\r'),
            b't' => Escape::Byte(b'\t'),
            b'c' => {
                let letter = self.peek().filter(|letter| matches!(letter, b' '..=b'~'))?;
                self.at += 1;
                Escape::Byte(letter.to_ascii_uppercase() ^ 0x40)
            }
            b'x' if self.takes(b"{") => Escape::Byte(number_of(self.until(b'}')?, 16)?),
            b'x' => Escape::Byte(self.digits(2, 16)?),
            b'o' => {
                let digits = self.takes(b"{").then(|| self.until(b'}'))??;
                Escape::Byte(number_of(digits, 8)?)
            }
            b'0' => Escape::Byte(self.digits(2, 8)?),
            b'1'..=b'7' => {
                self.at -= 1;
                Escape::Byte(self.digits(3, 8)?)
            }
            b'p' | b'P' => {
                let name = match self.takes(b"{") {
                    true => self.until(b'}')?,
                    false => {
                        self.at += 1;
                        self.pattern.get(self.at - 1..self.at)?
                    }
                };
                let set = of_property(std::str::from_utf8(name).ok()?)?;
                Escape::Set(if byte == b'P' { set.not() } else { set })
            }
            _ if byte.is_ascii_alphanumeric() => Escape::Other(byte),
            _ => Escape::Byte(byte),
        })
    }

    /// The number of so many digits at most; 0 without one.
    pub(super) fn digits(&mut self, most: usize, radix: u32) -> Option<u8> {
        let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
        let rest = self.rest();
        let len = rest.iter().take(most).take_while(is_digit).count();
        self.at += len;
        match len {
            0 => Some(0),
            _ => number_of(&rest[..len], radix),
        }
    }
}

/// A number that is a byte.
fn number_of(digits: &[u8], radix: u32) -> Option<u8> {
    let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
    if digits.is_empty() || !digits.iter().all(is_digit) {
        return None;
    }
    let number = u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()?;
    u8::try_from(number).ok()
}
