//! Folders that nobody else can enter, and that go with who made them.
//!
//! Whoever has made one holds a lock on it; so what somebody has left who was killed is known, and the next who makes one of that
//! kind in the same place takes it away.

use crate::door::SOCKET;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Nobody takes so long to give one its name.
const LONG: Duration = Duration::from_secs(3600);

/// What folders are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderKind {
    /// Sockets, and what stands beside them.
    Doors,
    /// What jobs put into `/tmp`.
    Temporary,
}

impl FolderKind {
    /// What they are called; 16 digits follow.
    fn prefix(self) -> &'static str {
        match self {
            FolderKind::Doors => "wayfarer-",
            FolderKind::Temporary => "wayfarer-tmp-",
        }
    }

    fn named(self, number: u64) -> String {
        format!("{}{number:016x}", self.prefix())
    }

    fn is_name(self, name: &str) -> bool {
        let digits = name.strip_prefix(self.prefix());
        digits.is_some_and(|digits| digits.len() == 16 && u64::from_str_radix(digits, 16).is_ok())
    }
}

/// See the module. It is removed with all that is in it when dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: OwnedFd,
}

impl Folder {
    /// Makes one in `place`.
    ///
    /// # Errors
    /// As mkdir(2) and flock(2).
    pub fn make_in(place: &Path, kind: FolderKind) -> io::Result<Self> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = kind.named(u64::from_ne_bytes(random));
        let place = std::path::absolute(place)?;
        sweep(&place, kind);
        // It has its name when it has its lock, so nobody takes it for one that was left.
        let (unnamed, path) = (place.join(format!(".{name}")), place.join(&name));
        fs::DirBuilder::new().mode(0o700).create(&unnamed)?;
        let named = lock(&unnamed).and_then(|lock| {
            fs::rename(&unnamed, &path)?;
            Ok(lock)
        });
        let lock = named.inspect_err(|_| drop(fs::remove_dir(&unnamed)))?;
        Ok(Folder { path, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A lock that goes with whoever has it.
fn lock(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let fd = openat(CWD, folder, flags, Mode::empty())?;
    flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
    Ok(fd)
}

/// Takes away what was left by others of the same user that were killed.
fn sweep(place: &Path, kind: FolderKind) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let folder = entry.path();
        // One without a name yet, whose maker was killed long ago, is empty.
        if name
            .strip_prefix('.')
            .is_some_and(|name| kind.is_name(name))
        {
            let made = entry.metadata().and_then(|found| found.modified());
            if made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > LONG)) {
                let _ = fs::remove_dir(&folder);
            }
            continue;
        }
        let is_ours = kind.is_name(name)
            && fs::symlink_metadata(&folder)
                .is_ok_and(|found| found.is_dir() && found.uid() == own);
        if is_ours
            && let Ok(_lock) = lock(&folder)
            // Of a version that had no lock.
            && UnixStream::connect(folder.join(SOCKET)).is_err()
        {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_somebody_has_left_who_was_killed_goes() {
        let place = tempfile::tempdir().expect("a folder");
        let names = || {
            let entries = fs::read_dir(place.path()).expect("lists").flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.path()).collect();
            names.sort();
            names
        };
        let make = |kind| Folder::make_in(place.path(), kind).expect("is made");
        let (living, dead) = (make(FolderKind::Temporary), make(FolderKind::Temporary));
        let door = std::mem::ManuallyDrop::new(make(FolderKind::Doors));
        let mode = |path: &Path| fs::metadata(path).expect("is there").permissions().mode();
        assert_eq!(mode(living.path()) & 0o7777, 0o700);
        fs::create_dir_all(dead.path().join("tmp/deep")).expect("is made");
        fs::write(dead.path().join("tmp/deep/file"), "left").expect("is written");
        let left = std::mem::ManuallyDrop::new(dead);
        for folder in [&left, &door] {
            // As the kernel does.
            flock(&folder._lock, FlockOperation::Unlock).expect("unlocks");
        }
        for other in ["wayfarer-0123", "wayfarer-tmp-000000000000000g", "another"] {
            fs::create_dir(place.path().join(other)).expect("is made");
        }
        assert_eq!(names().len(), 6);
        let next = make(FolderKind::Temporary);
        assert!(!left.path().exists());
        // Of another kind.
        assert!(door.path().exists());
        assert!(living.path().exists() && next.path().exists());
        assert_eq!(names().len(), 6);
        drop((living, next));
        assert_eq!(names().len(), 4);
        drop(make(FolderKind::Doors));
        assert_eq!(names().len(), 3);
    }
}
