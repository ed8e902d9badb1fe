//! `userfaultfd(2)`, as far as it tells which pages were written (Linux 6.7, Documentation/admin-guide/mm/userfaultfd.rst,
//! `UFFD_FEATURE_WP_ASYNC`): the kernel lifts the protection of a page by itself when it is written to; nobody waits for us.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Only for faults in user mode: needs no privilege.
pub(crate) const USER_MODE_ONLY: u64 = 1;
pub(crate) const API: u64 = 0xc018_aa3f;
pub(crate) const REGISTER: u64 = 0xc020_aa00;
const VERSION: u64 = 0xaa;
pub(crate) const WP_UNPOPULATED: u64 = 1 << 13;
pub(crate) const WP_ASYNC: u64 = 1 << 15;
pub(crate) const MODE_WP: u64 = 2;

/// Says for what it is: asynchronous write protection.
pub(crate) fn begin(fd: BorrowedFd<'_>) -> io::Result<()> {
    // struct uffdio_api
    request(fd, API, &mut [VERSION, WP_ASYNC | WP_UNPOPULATED, 0])
}

/// Watches a range, which may be protected from then on.
pub(crate) fn register(fd: BorrowedFd<'_>, range: &Range<u64>) -> io::Result<()> {
    // struct uffdio_register
    let len = range.end - range.start;
    request(fd, REGISTER, &mut [range.start, len, MODE_WP, 0])
}

fn request(fd: BorrowedFd<'_>, number: u64, words: &mut [u64]) -> io::Result<()> {
    // SAFETY: each of these requests reads and writes the struct of as many words as its number says, which the callers above pass.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), number, words.as_mut_ptr()) };
    match done {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
