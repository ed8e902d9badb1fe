//! Names of the system's in messages ([`loader::visible`]).

use loader::visible::Visible;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A path or word, for people: what is no text, and what a terminal would obey, is escaped.
#[must_use]
pub fn shown(name: impl AsRef<OsStr>) -> String {
    bytes(name.as_ref().as_bytes())
}

/// The same for bytes.
pub(crate) fn bytes(name: &[u8]) -> String {
    Visible(name).to_string()
}
