//! Regular expressions as HTCondor has them: those of PCRE, on bytes.
//!
//! ```text
//! pattern --translate--> the same for `fancy-regex`     text --one character for each byte--> matched
//! ```
//! # What callers may rely on
//! A byte is one character, whatever it is: `.` is a byte, a class knows the letters of ASCII only, a text need not be UTF-8. What is not
//! translated (recursion, verbs, callouts; docs/CLASSADS.md has the list) is no pattern: it never means something else.

mod class;
mod escapes;
mod groups;
mod members;
mod translate;

use fancy_regex::{Regex, RegexBuilder};
use std::borrow::Cow;
use translate::{Translated, translate};

/// A pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// Which of the regex's groups a group of the pattern is: the first of them that has taken part.
    groups: Vec<Vec<usize>>,
    /// What it is for texts that end with a line break, where that matters.
    before_line_end: Option<Box<Pattern>>,
}

/// A text as a regex takes it: a character for each byte.
pub(crate) fn characters(text: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(text) {
        Ok(ascii) if ascii.is_ascii() => Cow::Borrowed(ascii),
        _ => Cow::Owned(text.iter().map(|byte| char::from(*byte)).collect()),
    }
}

/// The bytes that such a text stands for.
pub(crate) fn bytes(characters: &str) -> Vec<u8> {
    let byte = |character| u8::try_from(character).unwrap_or(b'?');
    characters.chars().map(byte).collect()
}

impl Pattern {
    /// A pattern with the options i, m, s, x; none where it is malformed.
    pub(crate) fn compile(pattern: &[u8], options: &str) -> Option<Self> {
        let plain = translate(pattern, options, false)?;
        let minds_line_end = plain.minds_line_end;
        let mut compiled = Self::of(plain)?;
        if minds_line_end {
            let other = Self::of(translate(pattern, options, true)?)?;
            compiled.before_line_end = Some(Box::new(other));
        }
        Some(compiled)
    }

    fn of(translated: Translated) -> Option<Self> {
        let regex = RegexBuilder::new(&translated.text)
            .backtrack_limit(100_000)
            .delegate_size_limit(1 << 20)
            .build()
            .ok()?;
        Some(Self {
            regex,
            groups: translated.groups,
            before_line_end: None,
        })
    }

    fn for_text(&self, text: &str) -> &Self {
        let other = self.before_line_end.as_deref();
        other.filter(|_| text.ends_with('\n')).unwrap_or(self)
    }

    /// Whether it is somewhere in a text; none where it goes back too often.
    pub(crate) fn is_match(&self, text: &[u8]) -> Option<bool> {
        let text = characters(text);
        self.for_text(&text).regex.is_match(&*text).ok()
    }

    /// Where its groups are from a place on, the whole first, and which it has; none inside: nowhere. `text` is of [`characters`].
    #[allow(clippy::type_complexity, reason = "told above")]
    pub(crate) fn groups(
        &self,
        text: &str,
        from: usize,
    ) -> Option<Option<Vec<Option<(usize, usize)>>>> {
        let own = self.for_text(text);
        let Some(captures) = own.regex.captures_from_pos(text, from).ok()? else {
            return Some(None);
        };
        let place = |group: &usize| {
            let found = captures.get(*group)?;
            Some((found.start(), found.end()))
        };
        let first = |physical: &Vec<usize>| physical.iter().find_map(place);
        Some(Some(own.groups.iter().map(first).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(pattern: &str, text: &str) -> Option<bool> {
        Pattern::compile(pattern.as_bytes(), "")?.is_match(text.as_bytes())
    }

    #[test]
    fn groups_of_a_branch_reset_have_one_number() {
        let pattern = Pattern::compile(br"(?|(a)|(b))(c)", "").expect("is one");
        let found = pattern.groups("bc", 0).flatten();
        assert_eq!(found, Some(vec![Some((0, 2)), Some((0, 1)), Some((1, 2))]));
    }

    #[test]
    fn what_goes_deep_or_is_cut_off_is_no_pattern() {
        for pattern in [
            "(", "[", "\\", "a{2", "(?<", "\\x{", "[[:", "\\Q", "(?(1", "\\g{",
        ] {
            let _ = answer(pattern, "a");
        }
        assert_eq!(answer(&"(".repeat(100_000), "a"), None);
        assert_eq!(answer("a{2", "a{2"), Some(true));
    }

    #[test]
    fn a_text_that_is_no_utf8_is_matched() {
        let pattern = Pattern::compile(b"^a.\xff$", "").expect("is one");
        assert_eq!(pattern.is_match(b"a\xfe\xff"), Some(true));
        assert_eq!(pattern.is_match(b"a\xff"), Some(false));
        assert_eq!(bytes(&characters(b"\x00\xff")), b"\x00\xff");
    }
}
