//! Blocks that an image's file is given before they are written to, many at a time.
//!
//! Writing takes half the time of a processor then (ext4, which reserves them one by one otherwise). It is a hint: where they
//! cannot be had, writing says why. What was too much goes when the file gets its length.

use super::store::Job;
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::sync::{Mutex, PoisonError};

/// So many bytes are given blocks at once.
const AHEAD: u64 = 32 << 20;

/// How far a file has blocks.
pub(super) struct BlocksAhead<'a> {
    file: &'a File,
    /// Up to where there are some.
    given: Mutex<u64>,
    /// No byte will be written behind that.
    end: u64,
}

impl<'a> BlocksAhead<'a> {
    /// For what is stored from `start` on, and does not reach beyond `end`.
    pub(super) fn of(job: &Job<'a>, start: u64, end: u64) -> Self {
        // Of what is compressed or stored elsewhere nobody knows how much comes.
        let known = job.compression.is_none() && job.earlier.is_none() && job.away.is_none();
        let given = match known && !job.destination.in_memory() {
            true => start,
            false => u64::MAX,
        };
        BlocksAhead {
            file: &job.destination.file,
            given: Mutex::new(given),
            end: end.min(job.most.unwrap_or(u64::MAX)),
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
        *given = match fallocate(self.file, FallocateFlags::empty(), from, len) {
            Ok(()) => more,
            Err(_) => u64::MAX,
        };
    }
}
