//! ClassAds as text, in their old syntax: as `condor_q -l` prints them and HTCondor's readers (`classad2.parseAds`) read them.
//!
//! ```text
//! Cmd = "say \"a\\b\""             a quote has a backslash before it, and nothing else has: a backslash is itself
//! HoldReason = eval("\"a\nb\"")   what has an end of line cannot be a string here; it is one of the new syntax, to be evaluated
//! NumCkpts = 3
//! ```
//! # What callers may rely on
//! Every string comes back as it was, whatever is in it; what is encoded ([`crate::raw`]) is the bytes that it stands for.

use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt;

/// A job's attributes, by name.
pub(crate) type Ad = BTreeMap<String, Value>;

/// Each attribute on a line, those without a value left out.
pub(crate) fn text(ad: &Ad) -> Vec<u8> {
    let mut text = vec![];
    for (name, value) in ad {
        let value = match value {
            Value::Bool(value) => value.to_string().into_bytes(),
            Value::Number(value) => value.to_string().into_bytes(),
            Value::String(value) => string(&crate::raw::decode(value).into_vec()),
            // No attribute of ours is any of these.
            Value::Null | Value::Array(_) | Value::Object(_) => continue,
        };
        text.extend(name.as_bytes());
        text.extend(b" = ");
        text.extend(value);
        text.push(b'\n');
    }
    text
}

fn string(bytes: &[u8]) -> Vec<u8> {
    if !bytes.iter().any(|byte| b"\n\r".contains(byte)) {
        return old(bytes);
    }
    [b"eval(", old(&new(bytes)).as_slice(), b")"].concat()
}

/// A string of the old syntax.
fn old(bytes: &[u8]) -> Vec<u8> {
    quoted(bytes, |byte| match byte {
        b'"' => Some(b'"'),
        _ => None,
    })
}

/// A string of the new syntax.
fn new(bytes: &[u8]) -> Vec<u8> {
    quoted(bytes, |byte| match byte {
        b'"' | b'\\' => Some(byte),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        _ => None,
    })
}

/// In quotes; `escape` says what stands behind a backslash in a byte's place.
fn quoted(bytes: &[u8], escape: impl Fn(u8) -> Option<u8>) -> Vec<u8> {
    let mut text = vec![b'"'];
    for byte in bytes {
        match escape(*byte) {
            Some(letter) => text.extend([b'\\', letter]),
            None => text.push(*byte),
        }
    }
    text.push(b'"');
    text
}

/// Words as one string, in the form of Condor's `Arguments`: those with blanks or single quotes stand in single quotes, in which
/// a single quote is written twice.
pub(crate) fn arguments(words: &[String]) -> String {
    let is_odd = |c: char| c == '\'' || c.is_ascii_whitespace();
    let words = words
        .iter()
        .map(|word| match word.is_empty() || word.contains(is_odd) {
            true => format!("'{}'", word.replace('\'', "''")),
            false => word.clone(),
        });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_stand_as_condor_writes_them() {
        let ad = [
            ("A", json!("say \"a\\b\"")),
            ("B", json!(true)),
            ("C", json!(1.5)),
            ("D", Value::Null),
            ("E", json!(u32::MAX)),
            ("F", json!("d\0ff")),
            ("G", json!("a \"\\\nb")),
        ];
        let ad = ad.map(|(name, value)| (name.to_owned(), value));
        let expected =
            b"A = \"say \\\"a\\b\\\"\"\nB = true\nC = 1.5\nE = 4294967295\nF = \"d\xff\"\n\
            G = eval(\"\\\"a \\\\\"\\\\\\nb\\\"\")\n";
        let found = text(&ad.into());
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(&found));
    }

    #[test]
    fn words_are_parted_by_blanks() {
        let words = ["-c", "it's", "", "two words", "a\\\"b"].map(str::to_owned);
        assert_eq!(arguments(&words), "-c 'it''s' '' 'two words' a\\\"b");
    }
}
