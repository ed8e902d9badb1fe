//! Blocks that an image's file is given before they are written to, many at a time: on ext4, which reserves them one by one otherwise,
//! writing takes half the time of a processor then.
//!
//! It is a hint: where they cannot be had, writing says why. What was too much goes when the file gets its length. Elsewhere nothing is
//! done: tmpfs would give memory for pages that are never written, FAT would write zeros.

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{EXT4_SUPER_MAGIC, fstatfs};
use std::fs::File;
use std::sync::{Mutex, PoisonError};

/// So many bytes are given blocks at once.
const AHEAD: u64 = 8 << 20;

/// How far a file has blocks.
pub(super) struct BlocksAhead<'a> {
    file: &'a File,
    /// Up to where there are some.
    given: Mutex<u64>,
    /// None are given ahead from there on.
    end: u64,
}

impl<'a> BlocksAhead<'a> {
    /// For what is written from `start` on; what is known of where it ends.
    pub(super) fn of(file: &'a File, start: u64, end: Option<u64>) -> Self {
        let helps = || fstatfs(file).is_ok_and(|found| found.filesystem_type() == EXT4_SUPER_MAGIC);
        let end = end.filter(|_| helps());
        BlocksAhead {
            file,
            given: Mutex::new(end.map_or(u64::MAX, |_| start)),
            end: end.unwrap_or(u64::MAX),
        }
    }

    /// Blocks for all bytes before `until`, which are about to be written.
    pub(super) fn have(&self, until: u64) {
        let given = self.given.lock();
        let mut given = given.unwrap_or_else(PoisonError::into_inner);
        if until <= *given {
            return;
        }
        let more = (until + AHEAD).min(self.end).max(until);
        let [from, len] = [*given, more - *given].map(i64::try_from);
        let [Ok(from), Ok(len)] = [from, len] else {
            return;
        };
        match fallocate(self.file, FallocateFlags::empty(), from, len) {
            Ok(()) => *given = more,
            Err(Errno::EINTR) => {}
            Err(_) => *given = u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn blocks_are_there_before_they_are_written_to_and_not_behind_the_end() {
        let file = tempfile::tempfile().expect("makes");
        let kind = fstatfs(&file).expect("statfs").filesystem_type();
        let held = || file.metadata().expect("stat").blocks() * 512;
        let (start, end) = (4096, 2 * AHEAD);
        let blocks = BlocksAhead::of(&file, start, Some(end));
        blocks.have(start + 4096);
        if kind != EXT4_SUPER_MAGIC {
            assert_eq!(held(), 0, "only ext4 is asked");
            eprintln!("skipped: the temporary folder is not on ext4 ({kind:?})");
            return;
        }
        assert_eq!(held(), 4096 + AHEAD);
        blocks.have(end - 4096);
        assert_eq!(held(), end - start);
        // More than was known to come is given none ahead.
        blocks.have(end + 4096);
        assert_eq!(held(), end + 4096 - start);
        // Nor is anything where the end is not known.
        let other = tempfile::tempfile().expect("makes");
        BlocksAhead::of(&other, 0, None).have(4096);
        assert_eq!(other.metadata().expect("stat").blocks(), 0);
    }
}
