//! `if`, `elif`, `else`, `endif`.

use super::macros::is_name_byte;
use super::templates;

/// The conditions around a line.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    open: Vec<Open>,
}

/// An `if` that has not ended.
#[derive(Debug)]
struct Open {
    /// The lines that follow count.
    is_on: bool,
    /// One of its parts was taken already.
    was_on: bool,
    in_else: bool,
    line: usize,
}

/// A line that opens, turns or closes a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn<'t> {
    If(&'t str),
    Elif(&'t str),
    Else,
    Endif,
}

/// Whether a line is one of these.
pub(super) fn turn(line: &str) -> Option<Turn<'_>> {
    let len = line.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (word, rest) = line.split_at(len);
    let condition = rest.trim_start();
    if !rest.is_empty() && condition.len() == rest.len() {
        return None;
    }
    match word.to_ascii_lowercase().as_str() {
        "if" => Some(Turn::If(condition)),
        "elif" => Some(Turn::Elif(condition)),
        "else" => Some(Turn::Else),
        "endif" => Some(Turn::Endif),
        _ => None,
    }
}

impl Conditions {
    /// Whether lines count here.
    pub(super) fn is_on(&self) -> bool {
        self.open.iter().all(|open| open.is_on)
    }

    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// The line of the innermost `if` that has not ended.
    pub(super) fn open_line(&self) -> Option<usize> {
        self.open.last().map(|open| open.line)
    }

    /// Whether the condition of `elif` matters here.
    pub(super) fn asks_elif(&self) -> bool {
        let around = self.open.len().saturating_sub(1);
        let outer = self.open.iter().take(around).all(|open| open.is_on);
        outer
            && self
                .open
                .last()
                .is_some_and(|open| !open.was_on && !open.in_else)
    }

    pub(super) fn begin(&mut self, is_on: bool, line: usize) {
        self.open.push(Open {
            is_on,
            was_on: is_on,
            in_else: false,
            line,
        });
    }

    pub(super) fn elif(&mut self, is_true: bool) -> Result<(), &'static str> {
        let open = self.open.last_mut().ok_or("elif without an if")?;
        if open.in_else {
            return Err("elif behind else");
        }
        open.is_on = !open.was_on && is_true;
        open.was_on |= open.is_on;
        Ok(())
    }

    pub(super) fn turn_else(&mut self) -> Result<(), &'static str> {
        let open = self.open.last_mut().ok_or("else without an if")?;
        if open.in_else {
            return Err("else behind else");
        }
        open.in_else = true;
        open.is_on = !open.was_on;
        open.was_on = true;
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<(), &'static str> {
        self.open.pop().map(drop).ok_or("endif without an if")
    }
}

/// Decides a condition whose macros are expanded. `is_expanded`: it had some; nothing is false then.
/// `lookup` says what a name stands for.
pub(super) fn decide<'l>(
    condition: &str,
    is_expanded: bool,
    version: [u32; 3],
    lookup: impl Fn(&str) -> Option<&'l str>,
) -> Result<bool, &'static str> {
    let text = condition.trim();
    let (is_not, text) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    let value = if is_expanded && text.is_empty() {
        false
    } else {
        decide_plain(text, version, lookup)?
    };
    Ok(value != is_not)
}

const COMPLEX: &str = "an expression; true, false, a number, version and defined are conditions";

fn decide_plain<'l>(
    text: &str,
    version: [u32; 3],
    lookup: impl Fn(&str) -> Option<&'l str>,
) -> Result<bool, &'static str> {
    if text.is_empty() {
        return Err("nothing");
    }
    if let Some(truth) = constant(text).or_else(|| yes_or_no(text)) {
        return Ok(truth);
    }
    if let Some(rest) = behind("version", text) {
        return compare(rest, version);
    }
    if let Some(rest) = behind("defined", text) {
        return defined(rest, lookup);
    }
    match text.bytes().all(|byte| is_name_byte(byte) || byte == b'-') {
        true => Err("a name; $(NAME) is its value"),
        false => Err(COMPLEX),
    }
}

/// What is behind a word and at least a blank, or nothing behind it.
fn behind<'t>(word: &str, text: &'t str) -> Option<&'t str> {
    let (head, rest) = text.split_at_checked(word.len())?;
    if !head.eq_ignore_ascii_case(word) {
        return None;
    }
    let trimmed = rest.trim_start();
    (rest.is_empty() || trimmed.len() < rest.len()).then_some(trimmed)
}

/// `true`, `false`, numbers.
fn constant(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        return Some(true);
    }
    if text.eq_ignore_ascii_case("false") {
        return Some(false);
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    if !is_number {
        return None;
    }
    let (number, _) = crate::number::read_prefix(text.as_bytes())?;
    Some(number != 0.0)
}

/// What else counts as a truth value.
fn yes_or_no(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "t" => Some(true),
        "no" | "f" => Some(false),
        _ => None,
    }
}

/// `>= 8.1.2` and the like; a version of two numbers has the third of ours.
fn compare(text: &str, ours: [u32; 3]) -> Result<bool, &'static str> {
    let (is_not, rest) = match text.strip_prefix('!') {
        Some(rest) if rest.starts_with('=') => (true, rest),
        _ => (false, text),
    };
    let len = rest
        .bytes()
        .take_while(|byte| b"<=>".contains(byte))
        .count();
    let (operator, literal) = rest.split_at(len);
    let literal = literal.trim_start();
    let literal = literal.strip_prefix(['v', 'V']).unwrap_or(literal);
    if literal
        .bytes()
        .any(|byte| !(byte.is_ascii_digit() || byte == b'.'))
    {
        return Err(COMPLEX);
    }
    let numbers: Option<Vec<u32>> = literal.split('.').map(|part| part.parse().ok()).collect();
    let theirs = match numbers.as_deref() {
        Some([major, minor]) if *major >= 6 => [*major, *minor, ours[2]],
        Some([major, minor, patch, ..]) if *major >= 6 => [*major, *minor, *patch],
        _ => return Err("a version is two or three numbers, 6.0 or later"),
    };
    let truth = match operator {
        "<" => ours < theirs,
        "<=" => ours <= theirs,
        ">" => ours > theirs,
        ">=" => ours >= theirs,
        "=" | "==" | "" => ours == theirs,
        _ => return Err("versions are compared with <, <=, =, ==, !=, >= or >"),
    };
    Ok(truth != is_not)
}

fn defined<'l>(text: &str, lookup: impl Fn(&str) -> Option<&'l str>) -> Result<bool, &'static str> {
    if text.is_empty() {
        return Ok(false);
    }
    if constant(text).is_some() {
        return Ok(true);
    }
    if text.bytes().all(is_name_byte) {
        let value = lookup(text);
        return Ok(value.map_or(yes_or_no(text).is_some(), |value| !value.is_empty()));
    }
    let Some(template) = behind("use", text) else {
        return Err("defined takes a name, a truth value, a number or use CATEGORY:NAME");
    };
    if template.contains([' ', '\t']) {
        return Err("no blanks may be in CATEGORY:NAME");
    }
    let (category, name) = template.split_once(':').unwrap_or((template, ""));
    Ok(match name {
        "" => templates::has_category(category),
        name => templates::find(category, name).is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(text: &str) -> Option<bool> {
        let lookup = |name: &str| match name {
            "A" => Some("1"),
            "EMPTY" => Some(""),
            _ => None,
        };
        decide(text, false, [25, 14, 1], lookup).ok()
    }

    #[test]
    fn conditions_are_decided_as_by_the_original() {
        for text in [
            "true",
            "TRUE",
            "yes",
            "t",
            "-1",
            "1e5",
            "1.2.3",
            "!false",
            "! no",
            "version >= 8.1.2",
            "version == 25.14",
            "version = 25.14.1",
            "version >=8.1",
            "version >= v8.1",
            "version < 25.15",
            "version != 8.0.0",
            "defined A",
            "defined true",
            "defined 5",
            "defined yes",
            "defined use POLICY",
            "defined use POLICY:DESKTOP",
            "! version < 8.1",
        ] {
            assert_eq!(truth(text), Some(true), "{text}");
        }
        for text in [
            "false",
            "no",
            "f",
            "0",
            "0.0",
            "!true",
            "version > 25.14.1",
            "version != 25.14",
            "defined Nope",
            "defined EMPTY",
            "defined",
            "defined use POLICY:NOPE",
            "defined use foo",
        ] {
            assert_eq!(truth(text), Some(false), "{text}");
        }
        for text in [
            "",
            "foo",
            "A == 1",
            "-",
            "0x1",
            "!!true",
            "version",
            "version >= 8",
            "version >= 5.0",
            "version>=8.1.2",
            "version >= x",
            "version !< 8.1",
            "defined a b",
            "defined use POLICY : DESKTOP",
        ] {
            assert_eq!(truth(text), None, "{text}");
        }
    }

    #[test]
    fn nothing_is_false_if_it_was_a_macro() {
        assert_eq!(decide(" ", true, [8, 0, 0], |_| None), Ok(false));
        assert_eq!(decide("! ", true, [8, 0, 0], |_| None), Ok(true));
    }

    #[test]
    fn turns_are_words_of_their_own() {
        assert_eq!(turn("IF  true"), Some(Turn::If("true")));
        assert_eq!(turn("if"), Some(Turn::If("")));
        assert_eq!(turn("iffy = 1"), None);
        assert_eq!(turn("if=1"), None);
        assert_eq!(turn("endif"), Some(Turn::Endif));
    }
}
