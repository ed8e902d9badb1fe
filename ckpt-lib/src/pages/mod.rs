//! Pages: which parts of an address range have contents that must be kept.
//!
//! # What callers may rely on
//! Asking costs time in proportion to what is present, and no page tables grow: reserves of
//! terabytes that were never touched cost nothing.
//!
//! # What it does not do
//! It does not read contents.

use crate::tracee::HostPid;
use std::io;
use std::ops::Range;

/// Which pages are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKinds {
    /// Anonymous memory: present or swapped, and not the shared page of zeros.
    Anonymous,
    /// A private mapping of a file: only pages that the process has changed (they are anonymous now).
    PrivateFile,
    /// Shared memory: whatever is present or swapped in this process's tables.
    Shared,
}

/// Why pages could not be asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagesError {
    /// The kernel refused.
    #[error("cannot ask which pages of process {pid} at {address:#x} have contents")]
    Pagemap {
        /// Which process.
        pid: i32,
        /// Where.
        address: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// The parts of `range` (multiples of 4096) in process `pid` that have contents, in order, adjacent ones joined.
///
/// # Errors
/// [`PagesError::Pagemap`].
pub fn resident(
    _pid: HostPid,
    _range: Range<u64>,
    _want: PageKinds,
) -> Result<Vec<Range<u64>>, PagesError> {
    unimplemented!("lands within the hour")
}
