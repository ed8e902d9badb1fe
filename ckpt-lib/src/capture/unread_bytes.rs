//! What lies unread in all of a job's pipes and sockets, kept until it is in the image: keep, keep ... -> finish: one file with all of it, a
//! carried inode of the snapshot.

use crate::snapshot::Unread;
use crate::spool::Spool;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// All unread bytes of a job, one behind the other.
#[derive(Debug)]
pub(super) struct UnreadBytes(RefCell<Spool>);

impl UnreadBytes {
    /// None yet; many will be in this folder.
    pub(super) fn aside_in(folder: Option<&Path>) -> Self {
        UnreadBytes(RefCell::new(
            folder.map_or_else(Spool::default, Spool::in_folder),
        ))
    }

    /// Keeps these.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn keep(&self, bytes: &[u8]) -> io::Result<Unread> {
        let at = self.0.borrow_mut().append(bytes)?;
        let len = bytes.len() as u64;
        Ok(Unread { at, len })
    }

    /// A file with all of them, and how many they are; none if there are none.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn finish(self) -> io::Result<Option<(Arc<File>, u64)>> {
        let kept = self.0.into_inner();
        let len = kept.len();
        Ok(kept.into_file()?.map(|file| (Arc::new(file), len)))
    }
}
