//! A pattern of PCRE, written for `fancy-regex` on characters that are bytes.
//!
//! Nothing of what depends on options, on letters or on numbers of groups is left to `fancy-regex`: sets are written out, letters in both
//! cases, references by their number.

use super::class::Set;
use std::collections::BTreeMap;

/// The largest number of a repetition, as in PCRE.
const MOST_TIMES: u32 = 65_535;

/// What a pattern has become.
pub(super) struct Translated {
    pub(super) text: String,
    /// By the pattern's numbers, the whole first.
    pub(super) groups: Vec<Vec<usize>>,
    /// It is another one for a text that ends with a line break.
    pub(super) minds_line_end: bool,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) any_case: bool,
    pub(super) lines: bool,
    pub(super) all: bool,
    pub(super) blanks: bool,
    pub(super) class_blanks: bool,
    pub(super) lazy: bool,
    pub(super) unnumbered: bool,
}

/// What a repetition would be of.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Last {
    /// Something that may be repeated.
    Item,
    /// Nothing, or what may not be.
    Nothing,
}

pub(super) struct Translator<'p> {
    pub(super) pattern: &'p [u8],
    pub(super) at: usize,
    pub(super) out: String,
    pub(super) flags: Flags,
    /// Between `\Q` and `\E`.
    pub(super) quotes: bool,
    pub(super) depth: usize,
    /// Groups that `fancy-regex` counts.
    pub(super) physical: usize,
    /// The number of the next group of the pattern.
    pub(super) next_group: usize,
    pub(super) groups: Vec<Vec<usize>>,
    /// How many groups there are in all.
    pub(super) total: usize,
    pub(super) names: BTreeMap<Vec<u8>, usize>,
    pub(super) ends_line: bool,
    pub(super) minds_line_end: bool,
}

/// Writes a pattern anew; none: it is malformed, or not supported. `ends_line`: for texts that end with a line break.
pub(super) fn translate(pattern: &[u8], options: &str, ends_line: bool) -> Option<Translated> {
    // The first time only counts groups, and learns their names: a reference may come before its group.
    let mut counted = Translator::new(pattern, options, ends_line, usize::MAX, BTreeMap::new());
    counted.whole()?;
    let (total, names) = (counted.groups.len() - 1, counted.names);
    let mut translator = Translator::new(pattern, options, ends_line, total, names);
    translator.whole()?;
    Some(Translated {
        text: translator.out,
        groups: translator.groups,
        minds_line_end: translator.minds_line_end,
    })
}

impl<'p> Translator<'p> {
    fn new(
        pattern: &'p [u8],
        options: &str,
        ends_line: bool,
        total: usize,
        names: BTreeMap<Vec<u8>, usize>,
    ) -> Self {
        let flags = Flags {
            any_case: options.contains('i'),
            lines: options.contains('m'),
            all: options.contains('s'),
            blanks: options.contains('x'),
            ..Flags::default()
        };
        Self {
            pattern,
            at: 0,
            out: String::new(),
            flags,
            quotes: false,
            depth: 0,
            physical: 0,
            next_group: 1,
            groups: vec![vec![0]],
            total,
            names,
            ends_line,
            minds_line_end: false,
        }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.pattern.get(self.at).copied()
    }

    pub(super) fn rest(&self) -> &'p [u8] {
        &self.pattern[self.at..]
    }

    pub(super) fn takes(&mut self, text: &[u8]) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// What is before a byte, which is taken too.
    pub(super) fn until(&mut self, end: u8) -> Option<&'p [u8]> {
        let rest = self.rest();
        let len = rest.iter().position(|byte| *byte == end)?;
        self.at += len + 1;
        Some(&rest[..len])
    }

    pub(super) fn whole(&mut self) -> Option<()> {
        self.branches(false)?;
        // A bracket that closes nothing.
        self.peek().is_none().then_some(())
    }

    /// Alternatives up to a closing bracket, which stays. `resets`: the groups of each have the same numbers. How many there are.
    pub(super) fn branches(&mut self, resets: bool) -> Option<usize> {
        let first = self.next_group;
        let (mut most, mut count) = (first, 1);
        let mut last = Last::Nothing;
        loop {
            self.skip_blanks();
            let next = self.peek().filter(|byte| self.quotes || *byte != b')');
            let Some(byte) = next else {
                self.next_group = most.max(self.next_group);
                return Some(count);
            };
            if !self.quotes {
                match byte {
                    b'|' => {
                        self.at += 1;
                        self.out.push('|');
                        (last, count) = (Last::Nothing, count + 1);
                        if resets {
                            most = most.max(self.next_group);
                            self.next_group = first;
                        }
                        continue;
                    }
                    b'*' | b'+' | b'?' => {
                        self.at += 1;
                        self.repeat(last, char::from(byte).to_string())?;
                        last = Last::Nothing;
                        continue;
                    }
                    b'{' => {
                        if let Some(times) = self.times() {
                            self.repeat(last, times?)?;
                            last = Last::Nothing;
                            continue;
                        }
                    }
                    _ => {}
                }
            }
            last = self.atom(last)?;
        }
    }

    /// Blanks and comments that do not count.
    pub(super) fn skip_blanks(&mut self) {
        while self.flags.blanks && !self.quotes {
            match self.peek() {
                Some(b'\t'..=b'\r' | b' ') => self.at += 1,
                Some(b'#') => {
                    let rest = self.rest();
                    let line = rest.iter().position(|byte| *byte == b'\n');
                    self.at += line.map_or(rest.len(), |len| len + 1);
                }
                _ => return,
            }
        }
    }

    /// `{2}`, `{2,}`, `{2,3}`; none: it is a bracket like any other byte. None inside: too many.
    pub(super) fn times(&mut self) -> Option<Option<String>> {
        let rest = self.rest();
        let end = rest.iter().position(|byte| *byte == b'}')?;
        let inside = std::str::from_utf8(&rest[1..end]).ok()?;
        let (least, most) = match inside.split_once(',') {
            Some((least, most)) => (least, Some(most)),
            None => (inside, None),
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if least.is_empty() || !is_number(least) || !most.is_none_or(is_number) {
            return None;
        }
        self.at += end + 1;
        let number = |text: &str| {
            text.parse::<u32>()
                .ok()
                .filter(|times| *times <= MOST_TIMES)
        };
        let Some(low) = number(least) else {
            return Some(None);
        };
        Some(match most {
            None => Some(format!("{{{low}}}")),
            Some("") => Some(format!("{{{low},}}")),
            Some(most) => number(most)
                .filter(|high| low <= *high)
                .map(|high| format!("{{{low},{high}}}")),
        })
    }

    pub(super) fn repeat(&mut self, last: Last, times: String) -> Option<()> {
        if last == Last::Nothing {
            return None;
        }
        self.out.push_str(&times);
        self.skip_blanks();
        if self.takes(b"+") {
            self.out.push('+');
        } else if self.takes(b"?") != self.flags.lazy {
            self.out.push('?');
        }
        Some(())
    }

    /// The next that is neither a repetition nor between alternatives.
    pub(super) fn atom(&mut self, last: Last) -> Option<Last> {
        let byte = self.peek()?;
        if self.quotes {
            if self.takes(b"\\E") {
                self.quotes = false;
                return Some(last);
            }
            self.at += 1;
            self.literal(byte);
            return Some(Last::Item);
        }
        self.at += 1;
        match byte {
            b'(' => return self.group(last),
            b'[' => {
                let set = self.class()?;
                set.put(&mut self.out);
            }
            b'.' if self.flags.all => self.out.push_str("(?s:.)"),
            b'.' => self.out.push_str("[^\\n]"),
            b'^' => {
                self.line_begin();
                return Some(Last::Nothing);
            }
            b'$' => {
                self.line_end();
                return Some(Last::Nothing);
            }
            b'\\' => return self.backslash(last),
            _ => self.literal(byte),
        }
        Some(Last::Item)
    }

    pub(super) fn literal(&mut self, byte: u8) {
        let both = Set::of(|other| match self.flags.any_case {
            true => other.eq_ignore_ascii_case(&byte),
            false => other == byte,
        });
        if byte.is_ascii_digit() || (byte.is_ascii_alphabetic() && !self.flags.any_case) {
            self.out.push(char::from(byte));
        } else {
            both.put(&mut self.out);
        }
    }

    pub(super) fn line_begin(&mut self) {
        if !self.flags.lines {
            self.out.push_str("\\A");
            return;
        }
        self.minds_line_end = true;
        // There is no line behind the last line break.
        self.out.push_str(match self.ends_line {
            true => "(?:\\A|(?<=\\n)(?!\\z))",
            false => "(?m:^)",
        });
    }

    pub(super) fn line_end(&mut self) {
        if self.flags.lines {
            self.out.push_str("(?m:$)");
        } else {
            self.text_end();
        }
    }

    /// The end, or before a line break that is the last byte.
    pub(super) fn text_end(&mut self) {
        self.minds_line_end = true;
        self.out.push_str(match self.ends_line {
            true => "(?=\\n?\\z)",
            false => "\\z",
        });
    }
}
