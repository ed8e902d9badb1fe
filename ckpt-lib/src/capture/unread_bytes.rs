//! What lies unread in all of a job's pipes and sockets, kept until it is in the image.
//!
//! ```text
//! keep, keep ... -> finish: one file with all of it, a carried inode of the snapshot
//! ```
//! # What callers may rely on
//! wayfarer's own memory does not grow with it. Only where no file can be had for what is more than a few bytes, it is in a memory file.

use crate::snapshot::Unread;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes that are gathered before they are written; no more than that never see a disk, which could be waited for.
const GATHERED: usize = 1 << 20;

/// All unread bytes of a job, one behind the other.
#[derive(Debug, Default)]
pub(super) struct UnreadBytes(RefCell<Kept>);

#[derive(Debug, Default)]
struct Kept {
    len: u64,
    /// The last of them, which are not in the file yet.
    last: Vec<u8>,
    file: Option<File>,
}

impl UnreadBytes {
    /// Keeps these.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn keep(&self, bytes: &[u8]) -> io::Result<Unread> {
        let mut kept = self.0.borrow_mut();
        let (at, len) = (kept.len, bytes.len() as u64);
        kept.last.extend_from_slice(bytes);
        kept.len += len;
        if kept.last.len() > GATHERED {
            kept.write_last()?;
        }
        Ok(Unread { at, len })
    }

    /// A file with all of them, and how many they are; none if there are none.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn finish(self) -> io::Result<Option<(Arc<File>, u64)>> {
        let mut kept = self.0.into_inner();
        if kept.len == 0 {
            return Ok(None);
        }
        if kept.file.is_none() {
            kept.file = Some(memory_file()?);
        }
        kept.write_last()?;
        Ok(kept.file.map(|file| (Arc::new(file), kept.len)))
    }
}

impl Kept {
    fn write_last(&mut self) -> io::Result<()> {
        let at = self.len - self.last.len() as u64;
        if self.file.is_none() {
            self.file = tempfile::tempfile().ok();
        }
        let file = self.file.as_ref();
        if file.is_none_or(|file| file.write_all_at(&self.last, at).is_err()) {
            let mut memory = memory_file()?;
            if let Some(file) = file {
                io::copy(&mut file.take(at), &mut memory)?;
            }
            memory.write_all_at(&self.last, at)?;
            self.file = Some(memory);
        }
        self.last.clear();
        Ok(())
    }
}

fn memory_file() -> io::Result<File> {
    memfd_create(c"unread", MFdFlags::MFD_CLOEXEC)
        .map(File::from)
        .map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn part(index: u8) -> Vec<u8> {
        vec![index; 300_000 + usize::from(index)]
    }

    fn assert_has(file: &File, index: u8, unread: Unread) {
        let mut found = vec![0; unread.len as usize];
        file.read_exact_at(&mut found, unread.at).expect("reads");
        assert!(found == part(index), "part {index}");
    }

    #[test]
    fn few_and_many_are_all_there_one_behind_the_other() {
        for count in [1, 3, 12] {
            let all = UnreadBytes::default();
            let kept: Vec<Unread> = (0..count)
                .map(|index| all.keep(&part(index)).expect("is kept"))
                .collect();
            assert!(all.0.borrow().last.len() <= GATHERED);
            let (file, len) = all.finish().expect("is kept").expect("some");
            assert_eq!(len, kept.iter().map(|unread| unread.len).sum::<u64>());
            assert_eq!(file.metadata().expect("is there").len(), len);
            (0..)
                .zip(kept)
                .for_each(|(index, unread)| assert_has(&file, index, unread));
        }
        assert!(UnreadBytes::default().finish().expect("nothing").is_none());
    }

    #[test]
    fn where_a_file_takes_no_more_they_are_in_memory() {
        let all = UnreadBytes::default();
        let mut kept: Vec<Unread> = (0..4)
            .map(|index| all.keep(&part(index)).expect("is kept"))
            .collect();
        // It can be read only, from now on.
        let file = all
            .0
            .borrow_mut()
            .file
            .take()
            .expect("more than is gathered");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        all.0.borrow_mut().file = Some(File::open(path).expect("opens"));
        kept.extend((4..8).map(|index| all.keep(&part(index)).expect("is kept")));
        let (file, _) = all.finish().expect("is kept").expect("some");
        (0..)
            .zip(kept)
            .for_each(|(index, unread)| assert_has(&file, index, unread));
    }
}
