//! Tokens of expressions.

use crate::error::ParseError;
use crate::number::read_prefix;
use crate::text::{Text, is_blank};

/// How strings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// `\` escapes as in C.
    New,
    /// `\` is itself but before a quote that does not end the text.
    Old,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    End,
    Integer(i64),
    Real(f64),
    Boolean(bool),
    String(Text),
    Undefined,
    Error,
    Name(Text),
    /// An operator, a bracket, a separator.
    Sign(&'static str),
}

impl Token {
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::End => "the end".to_owned(),
            Self::Integer(number) => number.to_string(),
            Self::Real(number) => number.to_string(),
            Self::Boolean(truth) => truth.to_string(),
            Self::String(_) => "a string".to_owned(),
            Self::Undefined => "undefined".to_owned(),
            Self::Error => "error".to_owned(),
            Self::Name(name) => format!("the name {name}"),
            Self::Sign(sign) => format!("`{sign}`"),
        }
    }

    /// Whether a value ends with it, so that `-` behind it takes something away.
    fn ends_value(&self) -> bool {
        match self {
            Self::End => false,
            Self::Sign(sign) => matches!(*sign, "." | "]" | ")" | "}"),
            _ => true,
        }
    }
}

/// Signs, each before those that it begins with.
const SIGNS: &[&str] = &[
    ">>>", "=?=", "=!=", "&&", "||", "<=", "<<", ">=", ">>", "==", "!=", "<", ">", "=", "!", "&",
    "|", "*", "/", "%", "+", "-", "~", "^", "?", ":", ";", ",", "[", "]", "(", ")", "{", "}", ".",
];

pub(crate) struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    syntax: Syntax,
    previous: Token,
    /// Where a `//` comment begins that the text ends in.
    open_comment: Option<usize>,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t [u8], at: usize, syntax: Syntax) -> Self {
        Self {
            text,
            at,
            syntax,
            open_comment: None,
            previous: Token::End,
        }
    }

    /// The next token, and where it begins.
    pub(crate) fn next(&mut self) -> Result<(Token, usize), ParseError> {
        self.skip_blanks()?;
        let begin = self.at;
        let token = match self.byte(0) {
            None | Some(0) => Token::End,
            Some(b'-') if self.previous.ends_value() => self.sign()?,
            Some(b'-') if self.number_follows(1) => self.number()?,
            Some(b'0'..=b'9') => self.number()?,
            Some(b'.') if matches!(self.byte(1), Some(b'0'..=b'9')) => self.number()?,
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => self.word(),
            Some(quote @ (b'"' | b'\'')) => self.string(quote)?,
            Some(_) => self.sign()?,
        };
        self.previous = token.clone();
        Ok((token, begin))
    }

    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn malformed(&self, what: &'static str) -> ParseError {
        ParseError::Malformed {
            offset: self.at,
            what,
        }
    }

    /// A `//` comment ends with its line, not with the text: so it is in the original where an expression stands alone.
    pub(crate) fn expect_comment_ended(&self) -> Result<(), ParseError> {
        match self.open_comment {
            None => Ok(()),
            Some(offset) => Err(ParseError::Malformed {
                offset,
                what: "a comment does not end: its line has no end",
            }),
        }
    }

    /// Blanks and comments.
    fn skip_blanks(&mut self) -> Result<(), ParseError> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (Some(byte), _) if is_blank(byte) => self.at += 1,
                (Some(b'/'), Some(b'/')) => {
                    let rest = &self.text[self.at..];
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    if end.is_none() {
                        self.open_comment = Some(self.at);
                    }
                    self.at += end.unwrap_or(rest.len());
                }
                (Some(b'/'), Some(b'*')) => {
                    let rest = &self.text[self.at + 2..];
                    let end = rest.windows(2).position(|pair| pair == b"*/");
                    let end = end.ok_or_else(|| self.malformed("a comment does not end"))?;
                    self.at += end + 4;
                }
                _ => return Ok(()),
            }
        }
    }

    fn number_follows(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            Some(b'0'..=b'9') => true,
            Some(b'.') => matches!(self.byte(ahead + 1), Some(b'0'..=b'9')),
            _ => false,
        }
    }

    fn sign(&mut self) -> Result<Token, ParseError> {
        let rest = &self.text[self.at..];
        let sign = SIGNS.iter().find(|sign| rest.starts_with(sign.as_bytes()));
        let sign = sign.ok_or_else(|| self.malformed("no token begins like this"))?;
        self.at += sign.len();
        if *sign == "?" {
            // Blanks may part the two.
            let rest = &self.text[self.at..];
            let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
            if rest.get(blanks) == Some(&b':') {
                self.at += blanks + 1;
                return Ok(Token::Sign("?:"));
            }
        }
        Ok(Token::Sign(match *sign {
            "=?=" => "is",
            "=!=" => "isnt",
            other => other,
        }))
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let len = rest
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
            .count();
        self.at += len;
        let word = &rest[..len];
        match word.to_ascii_lowercase().as_slice() {
            b"true" => Token::Boolean(true),
            b"false" => Token::Boolean(false),
            b"undefined" => Token::Undefined,
            b"error" => Token::Error,
            b"is" => Token::Sign("is"),
            b"isnt" => Token::Sign("isnt"),
            _ => Token::Name(word.into()),
        }
    }

    /// Digits; a point needs digits behind it. What begins with `0x` is the integer 0, as in the original.
    fn number(&mut self) -> Result<Token, ParseError> {
        let begin = self.at;
        self.at += usize::from(self.byte(0) == Some(b'-'));
        let zero = self.byte(0) == Some(b'0');
        if zero && matches!(self.byte(1), Some(b'x' | b'X')) {
            self.at += 2;
            let digits = self.text[self.at..]
                .iter()
                .take_while(|byte| byte.is_ascii_hexdigit())
                .count();
            if digits == 0 {
                return Err(self.malformed("no digits behind 0x"));
            }
            self.at += digits;
            return Ok(Token::Integer(0));
        }
        let digits = self.skip_digits();
        let whole = &self.text[self.at - digits..self.at];
        let mut real = false;
        if self.byte(0) == Some(b'.') {
            self.at += 1;
            if self.skip_digits() == 0 {
                return Err(self.malformed("no digits behind the point of a number"));
            }
            real = true;
        }
        if matches!(self.byte(0), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(0), Some(b'+' | b'-')));
            if self.skip_digits() == 0 {
                return Err(self.malformed("no digits in the exponent of a number"));
            }
            real = true;
        }
        let written = &self.text[begin..self.at];
        if real {
            let number = read_prefix(written).map_or(0.0, |(number, _)| number);
            return Ok(Token::Real(number));
        }
        if zero && whole.iter().any(|digit| matches!(digit, b'8' | b'9')) {
            return Err(self.malformed("a number that begins with 0 has a digit 8 or 9"));
        }
        let written = std::str::from_utf8(written).unwrap_or_default();
        Ok(Token::Integer(written.parse().unwrap_or(0)))
    }

    fn skip_digits(&mut self) -> usize {
        let count = self.text[self.at..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.at += count;
        count
    }

    /// A string, or a quoted name. Strings in a row are one.
    fn string(&mut self, quote: u8) -> Result<Token, ParseError> {
        self.at += 1;
        let raw = match self.syntax {
            Syntax::New => self.raw_new(quote)?,
            Syntax::Old => self.raw_old(quote)?,
        };
        let bytes = match self.syntax {
            Syntax::New => {
                unescape(&raw).ok_or_else(|| self.malformed("a string has a zero byte"))?
            }
            Syntax::Old => raw,
        };
        let text = Text::from(bytes);
        Ok(if quote == b'"' {
            Token::String(text)
        } else {
            Token::Name(text)
        })
    }

    fn raw_new(&mut self, quote: u8) -> Result<Vec<u8>, ParseError> {
        let mut raw = vec![];
        loop {
            match self.byte(0) {
                None | Some(0) => return Err(self.malformed("a string does not end")),
                Some(b'\\') => {
                    raw.push(b'\\');
                    self.at += 1;
                    let next = self.byte(0).filter(|byte| *byte != 0);
                    raw.push(next.ok_or_else(|| self.malformed("a string does not end"))?);
                    self.at += 1;
                }
                Some(byte) if byte == quote => {
                    self.at += 1;
                    let rest = &self.text[self.at..];
                    let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
                    if rest.get(blanks) != Some(&quote) {
                        return Ok(raw);
                    }
                    self.at += blanks + 1;
                }
                Some(byte) => {
                    raw.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn raw_old(&mut self, quote: u8) -> Result<Vec<u8>, ParseError> {
        let mut raw = vec![];
        loop {
            match self.byte(0) {
                None | Some(0) => return Err(self.malformed("a string does not end")),
                Some(byte) if byte == quote => {
                    self.at += 1;
                    if raw.last() != Some(&b'\\') || matches!(self.byte(0), None | Some(0 | b'\n'))
                    {
                        return Ok(raw);
                    }
                    raw.pop();
                    raw.push(b'"');
                }
                Some(byte) => {
                    raw.push(byte);
                    self.at += 1;
                }
            }
        }
    }
}

/// Escapes of C, without hexadecimal ones; none for a zero byte.
pub(crate) fn unescape(raw: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some(escaped) = rest.next() else {
            bytes.push(byte);
            break;
        };
        bytes.push(match escaped {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'0'..=b'7' => {
                let mut number = u32::from(escaped - b'0');
                let mut digits = 1;
                // Three digits, if the first two leave room for one.
                while digits < 2 || (digits == 2 && number < 0o40) {
                    let Some(digit) = rest.next_if(|byte| (b'0'..=b'7').contains(byte)) else {
                        break;
                    };
                    number = number * 8 + u32::from(digit - b'0');
                    digits += 1;
                }
                let byte = u8::try_from(number).ok()?;
                if byte == 0 {
                    return None;
                }
                byte
            }
            other => other,
        });
    }
    Some(bytes)
}
