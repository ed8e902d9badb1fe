//! Numbers and fields in the kernel's texts.

/// A text that is not what the kernel should have written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: found {found:?}")]
pub struct ParseError {
    /// What was expected.
    pub what: &'static str,
    /// What was there instead (cut short if long).
    pub found: String,
}

impl ParseError {
    pub(super) fn new(what: &'static str, found: &[u8]) -> Self {
        let cut = &found[..found.len().min(120)];
        ParseError {
            what,
            found: String::from_utf8_lossy(cut).into_owned(),
        }
    }
}

/// The lines, without their ends; the empty rest behind the last is none.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    body.split(|byte| *byte == b'\n')
        .filter(move |_| !bytes.is_empty())
}

/// The words of a line, separated by blanks.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// `key: value` with blanks around the value removed.
pub(super) fn key_value(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

fn text<'a>(what: &'static str, word: &'a [u8]) -> Result<&'a str, ParseError> {
    std::str::from_utf8(word).map_err(|_| ParseError::new(what, word))
}

/// A decimal number.
pub(super) fn decimal<T: std::str::FromStr>(
    what: &'static str,
    word: &[u8],
) -> Result<T, ParseError> {
    text(what, word)?
        .parse()
        .map_err(|_| ParseError::new(what, word))
}

/// A hexadecimal number, with or without "0x".
pub(super) fn hexadecimal(what: &'static str, word: &[u8]) -> Result<u64, ParseError> {
    let digits = text(what, word)?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    u64::from_str_radix(digits, 16).map_err(|_| ParseError::new(what, word))
}

/// An octal number.
pub(super) fn octal(what: &'static str, word: &[u8]) -> Result<u64, ParseError> {
    u64::from_str_radix(text(what, word)?, 8).map_err(|_| ParseError::new(what, word))
}

/// Puts back the bytes that `seq_file` writes as a backslash and three octal digits.
pub(super) fn unescape_octal(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'\\'
            && let Some(digits) = tail.get(..3)
            && let Ok(digits) = std::str::from_utf8(digits)
            && let Ok(byte) = u8::from_str_radix(digits, 8)
        {
            plain.push(byte);
            rest = &tail[3..];
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    plain
}

/// Decimal numbers separated by blanks.
pub(super) fn parse_numbers(bytes: &[u8]) -> Result<Vec<i32>, ParseError> {
    words(bytes).map(|word| decimal("a number", word)).collect()
}

/// One decimal number.
pub(super) fn parse_number(bytes: &[u8]) -> Result<i64, ParseError> {
    decimal("a number", bytes.trim_ascii())
}

/// One hexadecimal number.
pub(super) fn parse_hex(bytes: &[u8]) -> Result<u64, ParseError> {
    hexadecimal("a hexadecimal number", bytes.trim_ascii())
}
