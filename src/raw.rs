//! Paths and words of the system's: bytes without a zero, mostly but not always UTF-8.
//!
//! # What callers may rely on
//! In JSON (reports, records of jobs) text is itself, and a byte that is no UTF-8 is U+0000 with its two
//! hexadecimal digits behind it: `/tmp/d\u0000ff`. No path or word holds a zero byte, so nothing else looks
//! like that, and every path comes back as it was. For people, see [`loader::visible`].

use loader::visible::Visible;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// As text that [`decode`] makes the same bytes of.
pub(crate) fn encode(raw: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in raw.as_ref().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\0{byte:02x}"));
        }
    }
    text
}

/// The bytes that were encoded. What nothing encodes to stays as it is.
pub(crate) fn decode(text: &str) -> OsString {
    let mut bytes = vec![];
    let mut parts = text.split('\0');
    bytes.extend(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.get(..2);
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            None => bytes.extend(part.as_bytes()),
        }
    }
    OsString::from_vec(bytes)
}

/// Encoded text, for people.
pub(crate) fn shown(encoded: &str) -> String {
    Visible(decode(encoded).as_bytes()).to_string()
}

/// A path or word, for people.
pub(crate) fn shown_path(path: impl AsRef<OsStr>) -> String {
    Visible(path.as_ref().as_bytes()).to_string()
}

/// A message, which may have several lines, with what a terminal would obey escaped, wherever that came from.
pub(crate) fn visible_lines(text: &str) -> String {
    let lines = text
        .split('\n')
        .map(|line| Visible(line.as_bytes()).to_string());
    lines.collect::<Vec<_>>().join("\n")
}

/// `#[serde(with = "raw::path")]` for a `PathBuf`.
pub(crate) mod path {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::path::{Path, PathBuf};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::encode(path))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(super::decode(&String::deserialize(from)?).into())
    }
}

/// `#[serde(with = "raw::some_path")]` for an `Option<PathBuf>`.
pub(crate) mod some_path {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::path::PathBuf;

    pub(crate) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        path.as_ref().map(super::encode).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        Ok(text.map(|text| super::decode(&text).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_comes_back_and_text_is_itself() {
        for bytes in [
            &b"/tmp/plain"[..],
            b"/tmp/d\xff",
            b"\xff\xfe",
            b"\xc3\xa4\xc3",
            b"a\xffff\n\x1b",
            b"",
        ] {
            let raw = OsStr::from_bytes(bytes);
            let text = encode(raw);
            assert_eq!(decode(&text), raw, "{text:?}");
            if let Some(plain) = raw.to_str() {
                assert_eq!(text, plain);
            }
        }
        assert_eq!(encode(OsStr::from_bytes(b"d\xff")), "d\0ff");
        assert_eq!(decode("odd\0\0zz"), OsStr::new("oddzz"));
    }

    #[test]
    fn people_see_no_control_characters() {
        let text = encode(OsStr::from_bytes(b"a\xffb\x1b[31m\n"));
        assert_eq!(shown(&text), "a\\xffb\\x1b[31m\\x0a");
        assert_eq!(visible_lines("a\x07\nb\u{202e}"), "a\\x07\nb\\u{202e}");
        assert_eq!(shown_path(OsStr::from_bytes(b"a\n\xffb")), "a\\x0a\\xffb");
    }
}
