//! Strings of the language: bytes, as the original's are.

use std::cmp::Ordering;
use std::fmt;

/// A string value: any bytes, mostly UTF-8.
///
/// ```
/// use classad::Text;
/// assert_eq!(Text::from("LINUX").to_str(), Some("LINUX"));
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(Vec<u8>);

impl Text {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The string, if it is UTF-8.
    #[must_use]
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Whether both are the same but for the case of ASCII letters.
    #[must_use]
    pub fn is_like(&self, other: &str) -> bool {
        self.0.eq_ignore_ascii_case(other.as_bytes())
    }
}

/// The order of two strings by their bytes, capital letters as small ones.
pub(crate) fn order_ignoring_case(left: &[u8], right: &[u8]) -> Ordering {
    let small = u8::to_ascii_lowercase;
    left.iter().map(small).cmp(right.iter().map(small))
}

/// Whether C's `isspace` calls a byte a blank.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl fmt::Display for Text {
    /// What is not UTF-8 becomes `U+FFFD`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}
