//! Ads from JSON.

use crate::ad::ClassAd;
use crate::error::ParseError;
use crate::expr::{Expr, Literal};
use crate::limits::Limits;
use crate::number::read_prefix;
use crate::parser::parse_expression;
use crate::text::is_blank;
use std::sync::Arc;

/// Parses an ad that is written as JSON.
///
/// # Errors
/// [`ParseError`] for what is none, and beyond the default [`Limits`].
///
/// ```
/// let ad = classad::parse_json_ad(r#"{ "a": [1, null], "b": "\/Expr(a + 1)\/" }"#)?;
/// assert_eq!(ad.to_string(), "[ a = { 1,undefined }; b = a + 1 ]");
/// # Ok::<(), classad::ParseError>(())
/// ```
pub fn parse_json_ad(text: impl AsRef<[u8]>) -> Result<ClassAd, ParseError> {
    let mut reader = Reader::new(text.as_ref())?;
    let ad = reader.ad()?;
    match reader.peek() {
        None => Ok(ad),
        Some(_) => Err(reader.unexpected("the end")),
    }
}

/// Parses ads that are written as JSON and follow each other, or are the items of lists.
///
/// # Errors
/// [`ParseError`] for what is none, and beyond the default [`Limits`].
pub fn parse_json_ads(text: impl AsRef<[u8]>) -> Result<Vec<ClassAd>, ParseError> {
    let mut reader = Reader::new(text.as_ref())?;
    let mut ads = vec![];
    while reader.peek().is_some() {
        if !reader.takes(b'[') {
            ads.push(reader.ad()?);
            continue;
        }
        if reader.takes(b']') {
            continue;
        }
        loop {
            ads.push(reader.ad()?);
            if !reader.takes(b',') {
                break;
            }
        }
        if !reader.takes(b']') {
            return Err(reader.unexpected(", or ]"));
        }
    }
    Ok(ads)
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    nesting: usize,
    limit: usize,
}

impl<'t> Reader<'t> {
    fn new(text: &'t [u8]) -> Result<Self, ParseError> {
        let limits = Limits::default();
        if text.len() > limits.text_bytes {
            return Err(ParseError::TooLong {
                len: text.len(),
                limit: limits.text_bytes,
            });
        }
        // Each level is a few calls deep, as one of the new syntax is.
        let limit = limits.nesting / 3;
        Ok(Self {
            text,
            at: 0,
            nesting: 0,
            limit,
        })
    }

    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text[self.at..];
        self.at += rest.iter().take_while(|byte| is_blank(**byte)).count();
        self.text.get(self.at).copied()
    }

    fn takes(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn unexpected(&self, expected: &'static str) -> ParseError {
        let found = match self.text.get(self.at) {
            None => "the end".to_owned(),
            Some(byte) => format!("`{}`", byte.escape_ascii()),
        };
        ParseError::Unexpected {
            offset: self.at,
            found,
            expected,
        }
    }

    fn malformed(&self, what: &'static str) -> ParseError {
        ParseError::Malformed {
            offset: self.at,
            what,
        }
    }

    /// Members, as many commas as there are between them.
    fn members(
        &mut self,
        end: u8,
        mut member: impl FnMut(&mut Self) -> Result<(), ParseError>,
    ) -> Result<(), ParseError> {
        self.at += 1;
        self.nesting += 1;
        if self.nesting > self.limit {
            return Err(ParseError::TooDeep {
                offset: self.at,
                limit: self.limit,
            });
        }
        loop {
            while self.takes(b',') {}
            if self.takes(end) {
                self.nesting -= 1;
                return Ok(());
            }
            member(self)?;
            if !matches!(self.peek(), Some(next) if next == b',' || next == end) {
                return Err(self.unexpected("a comma, or the end of what is enumerated"));
            }
        }
    }

    fn ad(&mut self) -> Result<ClassAd, ParseError> {
        if self.peek() != Some(b'{') {
            return Err(self.unexpected("{"));
        }
        let mut ad = ClassAd::new();
        self.members(b'}', |reader| {
            if reader.peek() != Some(b'"') {
                return Err(reader.unexpected("a name in quotes"));
            }
            let (name, _) = reader.string()?;
            if !reader.takes(b':') {
                return Err(reader.unexpected("a colon"));
            }
            let expr = reader.value()?;
            ad.insert(name, expr);
            Ok(())
        })?;
        Ok(ad)
    }

    fn value(&mut self) -> Result<Expr, ParseError> {
        match self.peek() {
            Some(b'{') => Ok(Expr::Ad(Arc::new(self.ad()?))),
            Some(b'[') => {
                let mut items = vec![];
                self.members(b']', |reader| {
                    items.push(reader.value()?);
                    Ok(())
                })?;
                Ok(Expr::list(items))
            }
            Some(b'"') => {
                let (bytes, quoted) = self.string()?;
                let inner = bytes.len().checked_sub(2).and_then(|end| bytes.get(6..end));
                match inner {
                    Some(inner)
                        if quoted
                            && bytes[..6].eq_ignore_ascii_case(b"/Expr(")
                            && bytes.ends_with(b")/") =>
                    {
                        parse_expression(inner)
                    }
                    _ => Ok(Expr::string(bytes)),
                }
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'a'..=b'z' | b'A'..=b'Z') => self.word(),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn word(&mut self) -> Result<Expr, ParseError> {
        let rest = &self.text[self.at..];
        let len = rest
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric())
            .count();
        let literal = match rest[..len].to_ascii_lowercase().as_slice() {
            b"true" => Literal::Boolean(true),
            b"false" => Literal::Boolean(false),
            b"null" => Literal::Undefined,
            _ => return Err(self.unexpected("a value")),
        };
        self.at += len;
        Ok(Expr::Literal(literal))
    }

    fn number(&mut self) -> Result<Expr, ParseError> {
        let rest = &self.text[self.at..];
        let is_part =
            |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let written = &rest[..rest.iter().take_while(|byte| is_part(byte)).count()];
        let literal = match std::str::from_utf8(written)
            .ok()
            .and_then(|text| text.parse().ok())
        {
            Some(number) => Literal::Integer(number),
            None => match read_prefix(written) {
                Some((number, len)) if len == written.len() => Literal::Real(number),
                _ => return Err(self.malformed("no number")),
            },
        };
        self.at += written.len();
        Ok(Expr::Literal(literal))
    }

    /// A string, and whether it is `\/…\/`, as an expression is.
    fn string(&mut self) -> Result<(Vec<u8>, bool), ParseError> {
        self.at += 1;
        let begin = self.at;
        let mut bytes = vec![];
        loop {
            let rest = &self.text[self.at..];
            match *rest {
                [b'"', ..] => {
                    let raw = &self.text[begin..self.at];
                    self.at += 1;
                    let quoted = raw.len() >= 4 && raw.starts_with(b"\\/") && raw.ends_with(b"\\/");
                    return Ok((bytes, quoted));
                }
                [b'\\', b'u', ..] => {
                    let c = self.unicode()?;
                    let mut room = [0; 4];
                    bytes.extend_from_slice(c.encode_utf8(&mut room).as_bytes());
                }
                [b'\\', escaped, ..] if escaped != 0 => {
                    bytes.push(match escaped {
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        other => other,
                    });
                    self.at += 2;
                }
                [byte, ..] if byte != 0 && byte != b'\\' => {
                    bytes.push(byte);
                    self.at += 1;
                }
                _ => return Err(self.malformed("a string does not end")),
            }
        }
    }

    /// `\uXXXX`, two of them for what needs two.
    fn unicode(&mut self) -> Result<char, ParseError> {
        let first = self.unit()?;
        let code = match first {
            0xd800..=0xdbff if self.text[self.at..].starts_with(b"\\u") => {
                let second = self.unit()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(self.malformed("half a character"));
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            other => other,
        };
        char::from_u32(code)
            .filter(|c| *c != '\0')
            .ok_or_else(|| self.malformed("no character"))
    }

    fn unit(&mut self) -> Result<u32, ParseError> {
        let digits = self.text.get(self.at + 2..self.at + 6);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let text = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let unit = text.and_then(|text| u32::from_str_radix(text, 16).ok());
        let unit = unit.ok_or_else(|| self.malformed("no four digits behind \\u"))?;
        self.at += 6;
        Ok(unit)
    }
}
