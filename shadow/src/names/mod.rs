//! Names, resolved beneath allowed roots and never out of them.
//!
//! ```text
//! text of the name ── longest root that it lies in ──> openat2(root, rest, BENEATH | NO_SYMLINKS)
//!      ^                                                   | ELOOP: a link is in the way, or there is ".."
//!      `────────── walk: link by link, into a name without them ──'
//! ```
//! # What callers may rely on
//! What is opened is what the kernel found without following any link, beneath a root that the owner allowed. A
//! link or rename made in between makes the call fail, and the name is walked again.

mod allow;
mod covers;
mod spot;
mod walk;

pub(crate) use allow::Place as Lies;
pub use allow::{AllowError, Allowed};
pub(crate) use spot::{Last, NAMELESS, Spot, open_beneath};

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::RawFd;

/// Most bytes of a name, without the NUL (PATH_MAX).
const LONGEST_NAME: usize = 4095;

/// A name that leads to a descriptor of ours, for calls that take no `O_PATH` ones. proc(5).
pub(crate) fn own_descriptor(fd: RawFd) -> String {
    format!("/proc/self/fd/{fd}")
}

/// What is open, once more and with other flags; nothing is made or cut.
#[allow(clippy::disallowed_methods)]
pub(crate) fn reopen(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags.difference(OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | NAMELESS);
    let name = own_descriptor(fd.as_fd().as_raw_fd());
    rustix::fs::open(name, flags | OFlags::CLOEXEC, Mode::empty())
}

/// A folder by its name, to be looked at only.
#[allow(clippy::disallowed_methods)]
pub(crate) fn folder(name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(name, flags, Mode::empty())
}
