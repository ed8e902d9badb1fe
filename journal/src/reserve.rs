//! Side folders: where what the job deletes or overwrites is kept, by a second name on the same file system.
//!
//! There is one in the journal's own folder, and one for each other mount on which names are changed: in a folder
//! that the caller has named for it, else in the highest folder above the change that is the user's to write to.

use crate::format::record::ObjectId;
use crate::inode::{Seen, look, look_at};
use crate::{JournalError, fault};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Access, AtFlags, CWD, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How the name of a side folder begins that does not lie in a journal's own folder.
pub const OWN_PREFIX: &str = ".wayfarer-kept-";

/// A side folder that is open.
#[derive(Debug)]
pub(crate) struct Reserve {
    pub(crate) path: PathBuf,
    pub(crate) fd: OwnedFd,
    pub(crate) device: u64,
    mount: u64,
}

const FOLDER: OFlags = OFlags::DIRECTORY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);

impl Reserve {
    /// Opens one that is there.
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        let opened = rustix::fs::open(path, FOLDER, Mode::empty());
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                let what = "side folder";
                return Err(JournalError::damaged(path, what, "none", "a folder"));
            }
            Err(errno) => return Err(JournalError::io("open", path, errno)),
        };
        let seen = look(&fd).map_err(|errno| JournalError::io("look at", path, errno))?;
        Ok(Reserve {
            path: path.to_owned(),
            fd,
            device: seen.identity.device,
            mount: seen.mount,
        })
    }

    /// Makes one, or opens it.
    pub(crate) fn make(path: &Path) -> Result<Self, JournalError> {
        fault::at("keep")?;
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Self::open(path),
            Err(errno) => Err(JournalError::io("make", path, errno)),
        }
    }

    /// Whether what was seen may be moved here.
    pub(crate) fn serves(&self, seen: &Seen) -> bool {
        self.device == seen.identity.device && self.mount == seen.mount
    }

    /// Whether somebody has removed the folder itself: no name can be made in it. ESTALE is NFS's word for it.
    pub(crate) fn is_gone(&self) -> bool {
        !matches!(look(&self.fd), Ok(seen) if seen.links > 0)
    }

    /// Gives something a second name here. linkat(2).
    pub(crate) fn link(
        &self,
        folder: impl AsFd,
        name: &[u8],
        object: ObjectId,
    ) -> Result<(), Errno> {
        let own = entry_name(object);
        match rustix::fs::linkat(&folder, name, &self.fd, &own, AtFlags::empty()) {
            // A link whose record was lost.
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(&self.fd, &own, AtFlags::empty())?;
                rustix::fs::linkat(&folder, name, &self.fd, &own, AtFlags::empty())
            }
            linked => linked,
        }
    }

    /// The objects that are kept here.
    pub(crate) fn objects(&self) -> Result<Vec<ObjectId>, JournalError> {
        let failed = |error: std::io::Error| JournalError::io("read", &self.path, error);
        let mut objects = vec![];
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            objects.extend(entry_object(&entry.map_err(failed)?.file_name()));
        }
        Ok(objects)
    }

    /// What is kept here of an object, open as `O_PATH`.
    pub(crate) fn handle(&self, object: ObjectId) -> Result<Option<(OwnedFd, Seen)>, Errno> {
        open_at(&self.fd, entry_name(object).as_bytes())
    }

    /// Removes the name here of what is no folder.
    pub(crate) fn remove(&self, object: ObjectId) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.fd, entry_name(object), AtFlags::empty())
    }

    /// What is kept here of an object.
    pub(crate) fn look_at(&self, object: ObjectId) -> Result<Option<Seen>, Errno> {
        look_at(&self.fd, entry_name(object).as_bytes())
    }

    /// Moves something here that is to be removed when all is done.
    pub(crate) fn throw(&self, folder: impl AsFd, name: &[u8]) -> Result<(), Errno> {
        for number in 0_u64.. {
            let own = format!("trash-{number}");
            let no_replace = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&folder, name, &self.fd, &own, no_replace) {
                Err(Errno::EXIST) => {}
                // Not every file system can.
                Err(Errno::INVAL) if look_at(&self.fd, own.as_bytes())?.is_some() => {}
                Err(Errno::INVAL) => {
                    return rustix::fs::renameat(&folder, name, &self.fd, &own);
                }
                thrown => return thrown,
            }
        }
        Err(Errno::EXIST)
    }

    /// Removes everything here that is not to be kept.
    pub(crate) fn clean(&self, keep: impl Fn(ObjectId) -> bool) -> Result<(), JournalError> {
        let failed = |errno: Errno| JournalError::io("empty", &self.path, errno);
        // By its descriptor: the journal may be called otherwise by now.
        for entry in Dir::read_from(&self.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || entry_object(name).is_some_and(&keep) {
                continue;
            }
            fault::at("trash")?;
            remove_all(&self.fd, name.as_bytes())
                .map_err(|errno| JournalError::io("remove", self.path.join(name), errno))?;
        }
        Ok(())
    }
}

pub(crate) fn entry_name(object: ObjectId) -> String {
    format!("object-{:016x}", object.0)
}

fn entry_object(name: &OsStr) -> Option<ObjectId> {
    let number = name.to_str()?.strip_prefix("object-")?;
    u64::from_str_radix(number, 16).ok().map(ObjectId)
}

/// What has a name, open as `O_PATH`, not through a link in its place; none if nothing has it.
pub(crate) fn open_at(folder: impl AsFd, name: &[u8]) -> Result<Option<(OwnedFd, Seen)>, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Ok(handle) => {
            let seen = look(&handle)?;
            Ok(Some((handle, seen)))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Removes a name with all that is beneath it.
fn remove_all(folder: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(Errno::NOENT) => return Ok(()),
        removed => return removed,
    }
    let path_only = FOLDER | OFlags::PATH;
    let handle = rustix::fs::openat(&folder, name, path_only, Mode::empty())?;
    rustix::fs::chmod(own_descriptor(&handle), Mode::RWXU)?;
    let inner = rustix::fs::openat(&folder, name, FOLDER, Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&inner)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            remove_all(&inner, name)?;
        }
    }
    rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR)
}

/// A name that leads to a descriptor, for calls that take no `O_PATH` ones. proc(5).
pub(crate) fn own_descriptor(fd: impl AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// The absolute name of something open; none if it has none any more.
pub(crate) fn name_of(fd: impl AsFd) -> Result<Option<Vec<u8>>, Errno> {
    let name = rustix::fs::readlink(own_descriptor(&fd), vec![])?.into_bytes();
    if !name.starts_with(b"/") {
        return Ok(None);
    }
    let (there, open) = (look_at(CWD, &name)?, look(&fd)?);
    Ok(there
        .is_some_and(|there| there.identity == open.identity)
        .then_some(name))
}

/// Where a side folder for the mount of this folder may lie, best first.
pub(crate) fn candidates(folder: impl AsFd, wanted: &[PathBuf]) -> Result<Vec<PathBuf>, Errno> {
    let seen = look(&folder)?;
    let same = |path: &Path| {
        let there = look_at(CWD, path.as_os_str().as_bytes());
        there.is_ok_and(|there| {
            there.is_some_and(|there| {
                there.mount == seen.mount && there.identity.device == seen.identity.device
            })
        })
    };
    let mut found: Vec<PathBuf> = wanted.iter().filter(|path| same(path)).cloned().collect();
    if let Some(name) = name_of(&folder)? {
        let path = Path::new(OsStr::from_bytes(&name));
        let may =
            |path: &Path| rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok();
        let above: Vec<&Path> = path
            .ancestors()
            .filter(|path| same(path) && may(path))
            .collect();
        found.extend(above.into_iter().rev().map(Path::to_owned));
    }
    Ok(found)
}
