//! Export: an image becomes a file that other tools read.
//!
//! ```text
//! Contents (snapshot + bytes) --notes, segments--> ELF core --> gdb
//! ```
//! # What callers may rely on
//! [`core`] writes beside the final name (mode 0600: a core holds secrets), syncs, and renames;
//! under the final name there is a whole core or what was there before. Memory that was never
//! touched takes no space on disk.
//!
//! # What it does not do
//! It invents nothing: where an image has no contents (data files that were not carried), the core
//! says that the range exists and holds no bytes for it.

mod core_file;
mod image;
mod notes;
mod segments;
mod xstate;

pub use core_file::core;
pub use image::core_of_image;

use crate::image::ImageError;
use crate::shown::shown;
use crate::snapshot::SnapshotV1;
use loader::layout::Space;
use std::ops::Range;
use std::path::PathBuf;
use thiserror::Error;

/// An error of whoever holds the contents.
pub type ContentsError = Box<dyn std::error::Error + Send + Sync>;

/// A snapshot with the bytes that belong to it; an image is one.
pub trait Contents {
    /// The records.
    fn snapshot(&self) -> &SnapshotV1;

    /// The ranges of a space that have contents, in order, not overlapping.
    ///
    /// # Errors
    /// Whatever keeps them from being known.
    fn ranges(&self, space: Space) -> Result<Vec<Range<u64>>, ContentsError>;

    /// Reads bytes of a space; what lies outside all ranges reads as zero.
    ///
    /// # Errors
    /// Whatever keeps the bytes from being read: a damaged chunk, a missing base.
    fn read(&self, space: Space, at: u64, buf: &mut [u8]) -> Result<(), ContentsError>;
}

/// Why there is no core.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The image's records could not be read.
    #[error("the image's snapshot could not be read")]
    Snapshot(#[source] ImageError),
    /// The image has no such process.
    #[error("the image has no process {pid}, but {has:?}")]
    NoProcess {
        /// The id asked for.
        pid: u32,
        /// The ids that it has.
        has: Vec<u32>,
    },
    /// The image's bytes could not be read.
    #[error("{space:?} at {at:#x} could not be read")]
    Contents {
        /// Whose bytes.
        space: Space,
        /// Address or file offset.
        at: u64,
        /// Why.
        #[source]
        source: ContentsError,
    },
    /// The core could not be written.
    #[error("core {path} could not be written", path = shown(.path))]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
