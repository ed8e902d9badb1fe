//! What was cut off the job's files when they went back: it is the user's, and stays beside them (`FILE.wayfarer-tail`, loader::roll_back).
//!
//! ```text
//! copy, before it goes back ── how the next tail of each file would be called ──> starter: those that are there when it runs are told
//! ```

use super::Starter;
use crate::jobs::tails::next_of;
use crate::raw;
use ckpt_lib::snapshot::{DescriptionKind, SnapshotV1};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// So many files are looked after, and so many tails are kept in a job's record.
const MOST_FILES: usize = 256;

/// How the next tail of each file is called that the job has open.
pub(super) fn next(snapshot: &SnapshotV1) -> Vec<String> {
    let inodes = snapshot.descriptions.iter().filter_map(|one| {
        let DescriptionKind::Inode(inode) = &one.kind else {
            return None;
        };
        snapshot.inodes.get(inode.0 as usize)
    });
    let is_file = |mode: u32| mode & libc::S_IFMT == libc::S_IFREG;
    let files = inodes.filter(|inode| is_file(inode.mode) && !inode.path.0.is_empty());
    let mut paths: Vec<&Path> = files
        .map(|inode| Path::new(OsStr::from_bytes(&inode.path.0)))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    let tails = paths.into_iter().take(MOST_FILES).filter_map(next_of);
    tails.map(raw::encode).collect()
}

impl Starter<'_> {
    /// The copy runs: those of these tails that are there now were cut off for it.
    pub(super) fn note_tails(&mut self, tails: &[String]) {
        for tail in tails {
            let path = PathBuf::from(raw::decode(tail));
            let is_known = self.record.tails.contains(tail);
            if is_known || path.symlink_metadata().is_err() {
                continue;
            }
            let message = format!(
                "what the job had written behind its image was cut off, and is in {}",
                raw::shown_path(&path)
            );
            self.voice.say(&message);
            if self.record.tails.len() < MOST_FILES {
                self.record.tails.push(tail.clone());
            }
        }
    }
}
