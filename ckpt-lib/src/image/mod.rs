//! The image file: written once, whole; read only after it has been believed.
//!
//! ```text
//! ImageWriter  create -> store ... store -> commit     (drop without commit: nothing left)
//!                |- build_on: chunks of an earlier image are not stored again
//!                `- send_to: contents go to another machine, not into the file
//! Image        open (header, sections, tables, bases) -> verify (every byte) / read_space / flatten
//! ```
//! The bytes are described in `docs/IMAGE_FORMAT.md` and by [`loader::layout`].
//!
//! # What callers may rely on
//! A file under its final name was whole and on disk when it got that name. An [`Image`] that opened has a
//! sound header, sections that match their checksums, and tables that point inside the files.
//! Contents are checked chunk by chunk as they are read. Damaged bytes cause errors that name section
//! and place; they never panic, hang, or cause allocations beyond [`limits`].
//!
//! # What it does not do
//! It does not know what operations mean ([`crate::plan`]), and it signs nothing: an image from a
//! stranger is a program from a stranger.

mod batches;
mod blocks;
mod bytes;
mod chain;
mod contents;
mod destination;
mod earlier;
mod elf;
mod error;
mod extents;
mod flatten;
mod meaning;
mod meta;
mod pieces;
mod ranges;
mod reader;
mod section;
mod store;
mod table_file;
mod tables;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use bytes::Bytes;
pub use destination::remove_partials;
pub use earlier::leave_tables;
pub use error::{HexHash, ImageError, SpaceName};
pub use flatten::flatten;
pub use meta::{MetaError, decode_snapshot};
pub use ranges::{Ranges, Told};
pub use reader::Image;
pub use store::{Part, Zeros};
pub use table_file::{TableFile, Tables};
pub use verify::VerifyReport;
pub use writer::{Committed, ImageParts, ImageWriter, WriteOptions};

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, IoSlice};

/// Where the contents of an image go that nobody needs on this machine: its own file has the rest.
pub trait Away: Debug + Send + Sync {
    /// These bytes, whole pages or none, lie at `at` in the image. It decides how fast they go.
    ///
    /// # Errors
    /// They cannot be brought there; then there is no image.
    fn put(&self, at: u64, bytes: &[IoSlice<'_>]) -> io::Result<()>;
}

/// Has the disk begin to write these bytes of a file, so that the last `fsync` is short (`sync_file_range(2)`). A hint.
pub fn write_behind(file: &File, at: u64, len: u64) {
    crate::sys::writeback::begin(file, at, len);
}

/// Something whose bytes go into an image: the memory of a process, a file.
pub trait ByteSource: Sync {
    /// Fills `buf` with the bytes from `at` on.
    ///
    /// # Errors
    /// When not all of them can be read.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl ByteSource for File {
    /// Bytes behind the end of the file are zero.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match std::os::unix::fs::FileExt::read_at(self, &mut buf[done..], at + done as u64) {
                Ok(0) => {
                    buf[done..].fill(0);
                    return Ok(());
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Bytes in memory, the first of them at 0.
impl ByteSource for Vec<u8> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(at).unwrap_or(usize::MAX).min(self.len());
        let count = (self.len() - start).min(buf.len());
        buf[..count].copy_from_slice(&self[start..start + count]);
        buf[count..].fill(0);
        Ok(())
    }
}

pub use loader::layout::limits;
