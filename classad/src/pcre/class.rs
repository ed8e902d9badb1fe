//! Sets of bytes: classes in brackets, and those with a letter.

use fancy_regex::Regex;
use std::fmt::Write;

/// Which bytes.
#[derive(Clone, Copy)]
pub(super) struct Set([bool; 256]);

impl Set {
    pub(super) fn of(has: impl Fn(u8) -> bool) -> Self {
        let mut set = [false; 256];
        for (byte, place) in (0..=u8::MAX).zip(&mut set) {
            *place = has(byte);
        }
        Self(set)
    }

    pub(super) fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte)]
    }

    pub(super) fn not(&self) -> Self {
        Self(self.0.map(|has| !has))
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (place, has) in self.0.iter_mut().zip(other.0) {
            *place |= has;
        }
    }

    /// With each letter that it has also in its other case.
    pub(super) fn in_any_case(&self) -> Self {
        Self::of(|byte| self.has(byte.to_ascii_lowercase()) || self.has(byte.to_ascii_uppercase()))
    }

    /// As `fancy-regex` has it.
    pub(super) fn put(&self, text: &mut String) {
        if !self.0.contains(&true) {
            text.push_str("(?!)");
            return;
        }
        text.push('[');
        let mut at = 0_u16;
        while let Ok(first) = u8::try_from(at) {
            at += 1;
            if !self.has(first) {
                continue;
            }
            let mut last = first;
            while let Some(next) = last.checked_add(1).filter(|next| self.has(*next)) {
                last = next;
            }
            at = u16::from(last) + 1;
            // Writing to a string does not fail.
            let _ = match first == last {
                true => write!(text, "\\x{{{first:x}}}"),
                false => write!(text, "\\x{{{first:x}}}-\\x{{{last:x}}}"),
            };
        }
        text.push(']');
    }
}

/// Letters, digits and `_`.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

/// `\d` and the others, by their letter.
pub(super) fn of_letter(letter: u8) -> Option<Set> {
    let set = match letter.to_ascii_lowercase() {
        b'd' => Set::of(|byte| byte.is_ascii_digit()),
        b's' => Set::of(is_space),
        b'w' => Set::of(is_word),
        b'h' => Set::of(|byte| matches!(byte, b'\t' | b' ' | 0xa0)),
        b'v' => Set::of(|byte| matches!(byte, b'\n'..=b'\r' | 0x85)),
        _ => return None,
    };
    Some(if letter.is_ascii_uppercase() {
        set.not()
    } else {
        set
    })
}

/// `[:alpha:]` and the others, by their name.
pub(super) fn of_name(name: &[u8]) -> Option<Set> {
    let (name, is_not) = match name.strip_prefix(b"^") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let has: fn(u8) -> bool = match name {
        b"alnum" => |byte| byte.is_ascii_alphanumeric(),
        b"alpha" => |byte| byte.is_ascii_alphabetic(),
        b"ascii" => |byte| byte.is_ascii(),
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => |byte| byte.is_ascii_control(),
        b"digit" => |byte| byte.is_ascii_digit(),
        b"graph" => |byte| byte.is_ascii_graphic(),
        b"lower" => |byte| byte.is_ascii_lowercase(),
        b"print" => |byte| byte.is_ascii_graphic() || byte == b' ',
        b"punct" => |byte| byte.is_ascii_punctuation(),
        b"space" => is_space,
        b"upper" => |byte| byte.is_ascii_uppercase(),
        b"word" => is_word,
        b"xdigit" => |byte| byte.is_ascii_hexdigit(),
        _ => return None,
    };
    let set = Set::of(has);
    Some(if is_not { set.not() } else { set })
}

/// `\p{…}`: a byte has the property that the character of its number has.
pub(super) fn of_property(name: &str) -> Option<Set> {
    let (name, is_not) = match name.strip_prefix('^') {
        Some(name) => (name, true),
        None => (name, false),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    let regex = Regex::new(&format!("\\A\\p{{{name}}}\\z")).ok()?;
    let has = |byte: u8| {
        let mut room = [0; 4];
        matches!(
            regex.is_match(&*char::from(byte).encode_utf8(&mut room)),
            Ok(true)
        )
    };
    let set = Set::of(has);
    Some(if is_not { set.not() } else { set })
}
