//! The old syntax: a line `name = expr` for each attribute, a blank line behind each ad.

use crate::ad::ClassAd;
use crate::error::ParseError;
use crate::parser::parse_old_expression;
use crate::text::is_blank;

/// Parses ads of the old syntax, with blank lines between them.
///
/// Lines that begin with `#` are none. What is behind an expression on its line does not matter: so it is with the
/// original.
///
/// # Errors
/// [`ParseError`] for a line that is no attribute.
///
/// ```
/// let ads = classad::parse_old_ads("Memory = 64\nOpSys = \"LINUX\"\n\nMemory = 32\n")?;
/// assert_eq!(ads.len(), 2);
/// assert_eq!(ads[0].to_string(), "[ OpSys = \"LINUX\"; Memory = 64 ]");
/// # Ok::<(), classad::ParseError>(())
/// ```
pub fn parse_old_ads(text: impl AsRef<[u8]>) -> Result<Vec<ClassAd>, ParseError> {
    let mut ads = vec![];
    let mut ad = ClassAd::new();
    for (at, line) in text.as_ref().split(|byte| *byte == b'\n').enumerate() {
        let trimmed = line.trim_ascii_start();
        match trimmed.first() {
            None if ad.is_empty() => {}
            None => ads.push(std::mem::take(&mut ad)),
            Some(b'#') => {}
            Some(_) => insert(&mut ad, trimmed, at + 1)?,
        }
    }
    if !ad.is_empty() {
        ads.push(ad);
    }
    Ok(ads)
}

/// Parses one ad of the old syntax; blank lines part nothing.
///
/// # Errors
/// [`ParseError`] for a line that is no attribute.
pub fn parse_old_ad(text: impl AsRef<[u8]>) -> Result<ClassAd, ParseError> {
    let mut whole = ClassAd::new();
    for ad in parse_old_ads(text)? {
        for (name, expr) in ad.iter() {
            whole.insert(name.clone(), expr.clone());
        }
    }
    Ok(whole)
}

fn insert(ad: &mut ClassAd, line: &[u8], number: usize) -> Result<(), ParseError> {
    let fault = |what| ParseError::Line { line: number, what };
    let equals = line.iter().position(|byte| *byte == b'=');
    let (name, rest) = line.split_at(equals.ok_or(fault("no = behind a name"))?);
    let name = name.trim_ascii_end();
    if name.is_empty() {
        return Err(fault("no name before ="));
    }
    if name.contains(&0) {
        return Err(fault("a name has a zero byte"));
    }
    // A quote at the end of the text ends a string also behind a backslash: blanks may not hide the end.
    let mut rest = &rest[1..];
    while let [begin @ .., last] = rest
        && is_blank(*last)
    {
        rest = begin;
    }
    let reason = |error| ParseError::Attribute {
        line: number,
        reason: Box::new(error),
    };
    let expr = parse_old_expression(rest).map_err(reason)?;
    ad.insert(name, expr);
    Ok(())
}
