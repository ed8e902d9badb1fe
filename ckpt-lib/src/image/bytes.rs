//! The bytes of a section, wherever they are.

use super::ByteSource;
use crate::spool::Spool;
use std::{fmt, io};

/// So many bytes: in memory, or where they were put aside.
#[derive(Clone, Copy)]
pub enum Bytes<'a> {
    /// In memory.
    Memory(&'a [u8]),
    /// The first ones of a source.
    Elsewhere(&'a dyn ByteSource, u64),
}

impl Bytes<'_> {
    pub(super) fn len(&self) -> u64 {
        match self {
            Bytes::Memory(bytes) => bytes.len() as u64,
            Bytes::Elsewhere(_, len) => *len,
        }
    }

    /// # Errors
    /// They cannot be read again.
    pub(super) fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        match self {
            Bytes::Memory(bytes) => {
                let at = usize::try_from(at).ok();
                let found = at.and_then(|at| bytes.get(at..at.checked_add(buf.len())?));
                let found = found.ok_or(io::ErrorKind::UnexpectedEof)?;
                buf.copy_from_slice(found);
                Ok(())
            }
            Bytes::Elsewhere(source, _) => source.read_at(at, buf),
        }
    }
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} bytes", self.len())
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Bytes::Memory(bytes)
    }
}

impl<'a> From<&'a Spool> for Bytes<'a> {
    fn from(spool: &'a Spool) -> Self {
        Bytes::Elsewhere(spool, spool.len())
    }
}
