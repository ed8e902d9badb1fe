//! The bytes of a journal, as docs/JOURNAL.md shows them.

mod encoding;
pub(crate) mod frame;
pub(crate) mod left;
pub(crate) mod manifest;
pub(crate) mod record;
pub(crate) mod segment;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::io;

/// As much room is kept at once, where there is so much.
const ROOM_STEP: u64 = 64 << 10;

/// Has the disk keep room for a file's bytes from one place to another, at least; up to where it does. A file system that promises nothing is
/// not asked again.
pub(crate) fn keep_room(file: &File, from: u64, to: u64) -> io::Result<u64> {
    for to in [to + ROOM_STEP, to] {
        let len = to.saturating_sub(from);
        let kept = retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, from, len));
        match kept {
            Ok(()) => return Ok(to),
            Err(Errno::NOSPC | Errno::DQUOT) => {}
            Err(_) => return Ok(u64::MAX),
        }
    }
    Err(Errno::NOSPC.into())
}

/// The version of all files of a journal.
pub(crate) const VERSION: u32 = 1;
