//! Where an image is written: a file beside its final name, or memory.
//!
//! ```text
//! create .NAME.PID.partial (O_EXCL, 0600, locked) --fsync--> 0700 --rename--> NAME --fsync directory-->
//!    `--dropped at any point: removed            --killed: removed by the next create of NAME
//! ```
//! # What callers may rely on
//! Nothing stands under the final name before [`Destination::publish`] has done its work; an existing
//! file is replaced only if that was asked for.

use super::ImageError;
use crate::sys::{memfd, writeback};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, RenameFlags, renameat2};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest part of NAME in the name of a partial file, so that both fit 255 bytes.
const NAME_KEPT: usize = 200;
/// Partial files of one process and one name at the same time.
const ATTEMPTS: u32 = 100;

/// The file being written.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) file: File,
    /// Final name; for memory the name given.
    pub(super) path: PathBuf,
    partial: Option<Partial>,
}

#[derive(Debug)]
struct Partial {
    path: PathBuf,
    overwrite: bool,
    /// Says that the file's writer lives.
    _lock: Option<Flock<File>>,
}

impl Destination {
    /// A partial file beside `path`.
    pub(super) fn beside(path: &Path, overwrite: bool) -> Result<Self, ImageError> {
        let Some(name) = path.file_name() else {
            return Err(ImageError::NotAFile {
                image: path.to_owned(),
                found: "a directory",
            });
        };
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => {
                return Err(ImageError::NotAFile {
                    image: path.to_owned(),
                    found: "a directory",
                });
            }
            Ok(_) if !overwrite => return Err(exists(path)),
            _ => {}
        }
        let name = &name.as_bytes()[..name.len().min(NAME_KEPT)];
        remove_stale(directory_of(path), name);
        for attempt in 0..ATTEMPTS {
            let partial = directory_of(path).join(partial_name(name, std::process::id(), attempt));
            let created = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&partial);
            let file = match created {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(source) => {
                    return Err(ImageError::io(&partial, "create it")(source));
                }
            };
            // Somebody who took the file for a leftover may have been faster than the lock.
            let lock = lock(&file);
            if file.metadata().is_ok_and(|found| found.nlink() == 0) {
                continue;
            }
            return Ok(Destination {
                file,
                path: path.to_owned(),
                partial: Some(Partial {
                    path: partial,
                    overwrite,
                    _lock: lock,
                }),
            });
        }
        let taken = io::ErrorKind::AlreadyExists.into();
        Err(ImageError::io(path, "find a name for the partial file")(
            taken,
        ))
    }

    /// A nameless file in memory that may be executed.
    pub(super) fn memory(name: &str) -> Result<Self, ImageError> {
        let path = PathBuf::from(name);
        let file = memfd::create(name).map_err(ImageError::io(&path, "create it in memory"))?;
        Ok(Destination {
            file,
            path,
            partial: None,
        })
    }

    /// Whether it is a file in memory.
    pub(super) fn in_memory(&self) -> bool {
        self.partial.is_none()
    }

    pub(super) fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> ImageError {
        ImageError::io(&self.path, what)
    }

    /// Makes the file durable and gives it its final name.
    pub(super) fn publish(mut self) -> Result<(), ImageError> {
        let Some(partial) = &self.partial else {
            return Ok(());
        };
        self.file
            .set_permissions(Permissions::from_mode(0o700))
            .map_err(self.failed("make it executable"))?;
        self.file
            .sync_all()
            .map_err(self.failed("bring it to the disk"))?;
        rename(&partial.path, &self.path, partial.overwrite)?;
        self.partial = None;
        let directory = directory_of(&self.path);
        let synced = match File::open(directory) {
            Ok(directory) => directory.sync_all(),
            // A directory that may be written to but not read.
            Err(_) => nix::unistd::syncfs(&self.file).map_err(io::Error::from),
        };
        synced.map_err(self.failed("bring its directory to the disk"))
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // Nobody is left to tell; the next image of this name removes it.
            let _ = fs::remove_file(&partial.path);
        }
    }
}

fn exists(path: &Path) -> ImageError {
    ImageError::Exists {
        image: path.to_owned(),
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn partial_name(name: &[u8], pid: u32, attempt: u32) -> OsString {
    let mut bytes = vec![b'.'];
    bytes.extend_from_slice(name);
    let suffix = match attempt {
        0 => format!(".{pid}.partial"),
        _ => format!(".{pid}-{attempt}.partial"),
    };
    bytes.extend_from_slice(suffix.as_bytes());
    OsString::from_vec(bytes)
}

fn lock(file: &File) -> Option<Flock<File>> {
    let other = file.try_clone().ok()?;
    Flock::lock(other, FlockArg::LockExclusive).ok()
}

/// Removes partial files of this name whose writer was killed.
fn remove_stale(directory: &Path, name: &[u8]) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let found = entry.file_name();
        let middle = found
            .as_bytes()
            .strip_prefix(b".")
            .and_then(|rest| rest.strip_prefix(name))
            .and_then(|rest| rest.strip_prefix(b"."))
            .and_then(|rest| rest.strip_suffix(b".partial"));
        let ours = middle.is_some_and(|middle| {
            !middle.is_empty() && middle.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-'))
        });
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(entry.path());
        if let Ok(file) = opened
            && let Ok(_lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn rename(from: &Path, to: &Path, overwrite: bool) -> Result<(), ImageError> {
    let renamed = if overwrite {
        fs::rename(from, to)
    } else {
        match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
            // File systems that do not know the flag. A link does not replace, either.
            Err(Errno::EINVAL | Errno::ENOSYS) => fs::hard_link(from, to).map(|()| {
                let _ = fs::remove_file(from);
            }),
            done => done.map_err(io::Error::from),
        }
    };
    renamed.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => exists(to),
        _ => ImageError::io(to, "give it its name")(source),
    })
}

/// Starts writing this part of the file to the disk, so that the last fsync is short.
pub(super) fn write_behind(destination: &Destination, at: u64, len: u64) {
    if !destination.in_memory() {
        writeback::begin(&destination.file, at, len);
    }
}
