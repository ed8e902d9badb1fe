//! `PAGEMAP_SCAN` (Linux 6.7, Documentation/admin-guide/mm/pagemap.rst).
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::from_mut;

/// Pages of a file (or of shared memory), not anonymous ones.
pub(crate) const FILE: u64 = 1 << 2;
/// In memory.
pub(crate) const PRESENT: u64 = 1 << 3;
/// Swapped out (or another entry that is not in memory, such as a guard).
pub(crate) const SWAPPED: u64 = 1 << 4;
/// The shared page of zeros.
pub(crate) const ZERO: u64 = 1 << 5;
/// The mapping is watched (by a userfaultfd with `UFFD_FEATURE_WP_ASYNC`).
pub(crate) const WATCHED: u64 = 1 << 0;
/// Not protected: it was written to, or has come, since its mapping was watched.
pub(crate) const WRITTEN: u64 = 1 << 1;
/// A guard of `MADV_GUARD_INSTALL` (Linux 6.15).
pub(crate) const GUARD: u64 = 1 << 8;

#[repr(C)]
#[derive(Default)]
struct ScanArgs {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const WP_MATCHING: u64 = 1;
/// Refuse ranges that are not watched.
const CHECK_WPASYNC: u64 = 2;
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;

/// Which pages are asked for, and what is done with them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Question {
    /// What they all are; any of it; and none of it.
    pub(crate) all_of: u64,
    pub(crate) any_of: u64,
    pub(crate) none_of: u64,
    /// They are protected from now on, so they are not [`WRITTEN`] before somebody writes to them.
    pub(crate) protect: bool,
}

/// Ranges of `range` whose pages are those that are asked for, handed to `found` in order. Only what is in page tables is looked at.
pub(crate) fn scan(
    pagemap: &File,
    range: Range<u64>,
    question: Question,
    found: &mut dyn FnMut(Range<u64>),
) -> io::Result<()> {
    let mut start = range.start;
    while start < range.end {
        start = scan_some(pagemap, start..range.end, question, found)?;
    }
    Ok(())
}

/// As [`scan`], but some ranges at most, a few hundred; gives up to where it has looked.
pub(crate) fn scan_some(
    pagemap: &File,
    range: Range<u64>,
    question: Question,
    found: &mut dyn FnMut(Range<u64>),
) -> io::Result<u64> {
    let mut regions = [Region::default(); 512];
    let flags = match question.protect {
        true => WP_MATCHING | CHECK_WPASYNC,
        false => 0,
    };
    let mut args = ScanArgs {
        size: size_of::<ScanArgs>() as u64,
        flags,
        start: range.start,
        end: range.end,
        regions: regions.as_mut_ptr() as u64,
        regions_len: regions.len() as u64,
        inverted: question.none_of,
        all_of: question.all_of | question.none_of,
        any_of: question.any_of,
        returned: question.any_of,
        ..ScanArgs::default()
    };
    // SAFETY: the kernel reads and writes `args`, whose size it is told, and writes at most
    // `regions_len` regions to `regions`; both live to the end of the block.
    let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, from_mut(&mut args)) };
    let Ok(count) = usize::try_from(count) else {
        return Err(io::Error::last_os_error());
    };
    for region in regions.iter().take(count) {
        found(region.start..region.end);
    }
    if args.walk_end <= range.start {
        return Err(io::Error::from_raw_os_error(libc::EPROTO));
    }
    Ok(args.walk_end)
}
