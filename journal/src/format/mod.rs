//! The bytes of a journal, as docs/JOURNAL.md shows them.

mod encoding;
pub(crate) mod frame;
pub(crate) mod left;
pub(crate) mod manifest;
pub(crate) mod record;
pub(crate) mod segment;

/// The version of all files of a journal.
pub(crate) const VERSION: u32 = 1;
