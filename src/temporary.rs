//! Where lies what jobs put into `/tmp` and `/var/tmp`: a folder that their shadow has for it.

use crate::report::{chain, tell};
use shadow::Allowed;
use starter::{Folder, FolderKind};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Such a folder, which nobody else may enter.
#[derive(Debug)]
pub(crate) enum Temporary {
    /// It stays when the shadow ends: its jobs may go on.
    Kept(PathBuf),
    /// It goes when this is dropped, and if its shadow is killed, with the next.
    Gone(Folder),
}

impl Temporary {
    /// Of a shadow whose jobs end with it.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn of_now() -> io::Result<Self> {
        Folder::make_in(&std::env::temp_dir(), FolderKind::Temporary).map(Temporary::Gone)
    }

    /// Of one whose jobs may go on, in this folder of its own.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn in_folder(dir: &Path) -> io::Result<Self> {
        let path = in_folder(dir);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&path)?;
        Ok(Temporary::Kept(path))
    }

    fn path(&self) -> &Path {
        match self {
            Temporary::Kept(path) => path,
            Temporary::Gone(dir) => dir.path(),
        }
    }
}

/// Removes what such jobs have left in a folder.
pub(crate) fn remove(dir: &Path) {
    let _ = fs::remove_dir_all(in_folder(dir));
}

fn in_folder(dir: &Path) -> PathBuf {
    dir.join("temporary")
}

/// Has jobs find this under `/tmp` and `/var/tmp`. What fails is told, and they have the machine's, for reading.
pub(crate) fn cover(allowed: &mut Allowed, temporary: io::Result<Temporary>) -> Option<Temporary> {
    let covered = temporary
        .map_err(|error| error.to_string())
        .and_then(|found| {
            let covered = allowed.cover_temporary(found.path());
            covered.map_err(|error| chain(&error))?;
            Ok(found)
        });
    covered
        .inspect_err(|why| tell(&format!("jobs have no /tmp of their own: {why}")))
        .ok()
}
