//! Checksums of files, by which a restart knows them again (`loader::ops::check`).
//!
//! ```text
//! frozen         sample of each file the job can write to, and its stamp (size and times)
//! running again  whole file; right only if the stamp is still the same, else the sample stays
//! ```

use crate::snapshot::ContentCheck;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Files up to this size are hashed whole.
pub const FULL_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of a large file's first and last samples.
const EDGE: u64 = 64 * 1024;
/// Samples between them, and their length.
const SAMPLES: u64 = 62;
const SAMPLE: u64 = 4096;
/// Bytes read at once: they stay in the processor's cache, and take no new pages each time.
const AT_ONCE: u64 = 64 * 1024;

/// File systems keep times this exactly at worst (FAT: 2 s): a later change may leave a stamp as it is.
const COARSEST: Duration = Duration::from_millis(2500);

/// What changes when somebody writes to a file, but through a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Stamp {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Ok(Stamp {
            size: found.size(),
            modified_ns: ns(found.mtime(), found.mtime_nsec()),
            changed_ns: ns(found.ctime(), found.ctime_nsec()),
        })
    }

    /// Whether a change after `now` would show.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i128::try_from(now.as_nanos()).unwrap_or(0);
        let newest = self.changed_ns.max(self.modified_ns);
        newest + (COARSEST.as_nanos() as i128) < now
    }
}

/// A checksum of the first `size` bytes that takes well below a millisecond: of samples, but for files
/// that are smaller than those.
///
/// # Errors
/// Of reading; `UnexpectedEof` if the file is shorter.
pub(super) fn sample_file(file: &File, size: u64) -> io::Result<ContentCheck> {
    if size < 2 * EDGE {
        hash_whole(file, size)
    } else {
        hash_samples(file, size)
    }
}

/// Hashes the first `size` bytes of a file: whole if small, else the first 64 KiB, 62 blocks of
/// 4 KiB spread evenly, and the last 64 KiB, in this order.
///
/// # Errors
/// Of reading; `UnexpectedEof` if the file is shorter.
pub fn hash_file(file: &File, size: u64) -> io::Result<ContentCheck> {
    if size <= FULL_MAX {
        hash_whole(file, size)
    } else {
        hash_samples(file, size)
    }
}

fn hash_whole(file: &File, size: u64) -> io::Result<ContentCheck> {
    let mut hasher = blake3::Hasher::new();
    absorb(&mut hasher, file, 0, size)?;
    Ok(ContentCheck::Full(hasher.finalize().into()))
}

fn hash_samples(file: &File, size: u64) -> io::Result<ContentCheck> {
    let mut hasher = blake3::Hasher::new();
    absorb(&mut hasher, file, 0, EDGE)?;
    for index in 0..SAMPLES {
        let at = u128::from(index + 1) * u128::from(size) / 64;
        let at = u64::try_from(at).unwrap_or(0) & !(SAMPLE - 1);
        absorb(&mut hasher, file, at, SAMPLE.min(size - at))?;
    }
    absorb(&mut hasher, file, size - EDGE, EDGE)?;
    Ok(ContentCheck::Sampled(hasher.finalize().into()))
}

fn absorb(hasher: &mut blake3::Hasher, file: &File, from: u64, len: u64) -> io::Result<()> {
    let mut buffer = vec![0; len.min(AT_ONCE) as usize];
    let mut at = from;
    let end = from + len;
    while at < end {
        let part = (end - at).min(buffer.len() as u64) as usize;
        file.read_exact_at(&mut buffer[..part], at)?;
        hasher.update(&buffer[..part]);
        at += part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_is_hashed_whole() {
        let file = tempfile::tempfile().expect("file");
        file.write_all_at(b"hello", 0).expect("write");
        let found = hash_file(&file, 5).expect("hash");
        assert_eq!(
            found,
            ContentCheck::Full(*blake3::hash(b"hello").as_bytes())
        );
        assert!(hash_file(&file, 6).is_err(), "shorter than it should be");
    }

    #[test]
    fn a_large_file_is_sampled_at_both_ends_and_between() {
        let size = FULL_MAX + 12_345;
        let file = tempfile::tempfile().expect("file");
        file.set_len(size).expect("size");
        let plain = hash_file(&file, size).expect("hash");
        assert!(matches!(plain, ContentCheck::Sampled(_)));
        for at in [
            0,
            EDGE - 1,
            (size / 64) & !4095,
            (62 * size / 64) & !4095,
            size - 1,
        ] {
            file.write_all_at(b"x", at).expect("write");
            assert_ne!(hash_file(&file, size).expect("hash"), plain, "byte {at}");
            file.write_all_at(b"\0", at).expect("write");
        }
        assert_eq!(hash_file(&file, size).expect("hash"), plain);
    }
}
