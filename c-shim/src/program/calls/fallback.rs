//! Files of this machine that are not to be had here: then the shadow's, as Condor fell back to `buffer:remote:` (docs/CALLS.md, "Where a file
//! is").
//!
//! ```text
//! open, stat, access --here--> done, or an error that says nothing of the machine (EEXIST, EMFILE ...)
//!                      `--no such file, not allowed, broken, full--> a regular file at the shadow, or one to be made? --> there
//!                                                                     `--else--> the error that it was here
//! ```
//! # What it does not do
//! Calls that change a name (unlink, rename, chmod ...), and folders, stay here: what the shadow's machine has of that name is not
//! harmed by a job that means its own.

use super::{names, places};
use crate::program::sys::{self, AT_FDCWD, Errno};

const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// What tells that this machine does not have a file, or does not give it.
const NOT_HERE: [i32; 11] = [
    sys::ENOENT,
    sys::ENOTDIR,
    sys::EACCES,
    sys::EIO,
    sys::ENODEV,
    sys::EROFS,
    sys::ENOSPC,
    sys::EDQUOT,
    sys::ESTALE,
    sys::ENOTCONN,
    sys::ETIMEDOUT,
];

/// Whether a call that failed so here is to be tried at the shadow, where it has these arguments.
pub(super) fn is_due(error: Errno, number: u64, args: &[u64; 6]) -> bool {
    if !NOT_HERE.contains(&error.0) {
        return false;
    }
    let (folder, name, flags) = match number {
        sys::OPEN => (AT_FDCWD as u64, args[0], args[1]),
        sys::OPENAT => (args[0], args[1], args[2]),
        sys::STAT | sys::LSTAT | sys::ACCESS => (AT_FDCWD as u64, args[0], 0),
        sys::NEWFSTATAT | sys::STATX | sys::FACCESSAT | sys::FACCESSAT2 => (args[0], args[1], 0),
        _ => return false,
    };
    let flags = flags as u32;
    if flags & (sys::O_PATH | sys::O_DIRECTORY) != 0 {
        return false;
    }
    let Some(place) = places::place(folder, name, 0) else {
        return false;
    };
    match names::attributes(place, true) {
        Ok(found) => found.mode & TYPE == REGULAR,
        Err(Errno(sys::ENOENT)) => flags & sys::O_CREAT != 0,
        Err(_) => false,
    }
}

/// What the program is told where both have failed: the shadow's error only if it says that there is a file.
pub(super) fn told(here: Errno, there: Errno) -> Errno {
    if there.0 == sys::EEXIST { there } else { here }
}
