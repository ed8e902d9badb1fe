//! Names of attributes: any bytes, the case of letters does not count.

use crate::text::{Text, order_ignoring_case};
use std::cmp::Ordering;
use std::fmt;

/// A name. It keeps its letters; `Memory` and `MEMORY` are equal.
///
/// The order is the original's: short names come first, names of one length by their letters.
#[derive(Clone)]
pub struct Name(Text);

impl Name {
    /// The name as it was written.
    #[must_use]
    pub fn text(&self) -> &Text {
        &self.0
    }
}

impl<T: Into<Text>> From<T> for Name {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        let (left, right) = (self.0.as_bytes(), other.0.as_bytes());
        (left.len().cmp(&right.len())).then_with(|| order_ignoring_case(left, right))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().eq_ignore_ascii_case(other.0.as_bytes())
    }
}

impl Eq for Name {}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
