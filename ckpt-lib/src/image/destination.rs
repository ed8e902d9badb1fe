//! Where an image is written: a file beside its final name, or memory.
//!
//! ```text
//! nameless (O_TMPFILE, 0600) --0700, fsync--> link to NAME --fsync directory-->
//!    `--dropped or killed at any point: the kernel frees it
//!
//! where the file system has no nameless files:
//! create .NAME.PID.partial (O_EXCL, 0600, locked) --0700, fsync--> rename to NAME --fsync directory-->
//!    `--dropped, or [`remove_partials`]: removed    --killed: removed by the next create of NAME
//! ```
//! # What callers may rely on
//! Nothing stands under the final name before [`Destination::publish`] has done its work; an existing
//! file is replaced only if that was asked for.

use super::ImageError;
use crate::sys::{memfd, writeback};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, Flock, FlockArg, RenameFlags, renameat2};
use nix::unistd::linkat;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory,
    /// On the disk, without a name.
    Nameless {
        overwrite: bool,
    },
    /// On the disk, under a name of its own.
    Beside {
        partial: Partial,
        overwrite: bool,
    },
}

/// A partial file under a name; removed when dropped.
#[derive(Debug)]
struct Partial {
    path: PathBuf,
    /// Says that the file's writer lives.
    _lock: Option<Flock<File>>,
}

/// All partial files of this process that have a name.
static PARTIALS: Mutex<Vec<PathBuf>> = Mutex::new(vec![]);

fn partials() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    PARTIALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the partial files of images that this process is writing: for who ends it in the middle. Most file
/// systems need no such files.
pub fn remove_partials() {
    for path in partials().drain(..) {
        let _ = fs::remove_file(path);
    }
}

impl Partial {
    fn at(path: PathBuf, lock: Option<Flock<File>>) -> Self {
        partials().push(path.clone());
        Partial { path, _lock: lock }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let mut all = partials();
        if let Some(index) = all.iter().position(|path| *path == self.path) {
            all.swap_remove(index);
            // Nobody is left to tell; the next image of this name removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Destination {
    /// A file on the file system of `path`, which will become `path`.
    pub(super) fn beside(path: &Path, overwrite: bool) -> Result<Self, ImageError> {
        let name = free_name(path, overwrite)?;
        remove_stale(directory_of(path), name);
        match nameless(directory_of(path)) {
            Some(file) => Ok(Destination {
                file,
                path: path.to_owned(),
                place: Place::Nameless { overwrite },
            }),
            None => Self::named(path, name, overwrite),
        }
    }

    /// A partial file beside `path`.
    fn named(path: &Path, name: &[u8], overwrite: bool) -> Result<Self, ImageError> {
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
                    return Err(ImageError::io(path, "create it")(source));
                }
            };
            // Somebody who took the file for a leftover may have been faster than the lock.
            let partial = Partial::at(partial, lock(&file));
            if file.metadata().is_ok_and(|found| found.nlink() == 0) {
                continue;
            }
            return Ok(Destination {
                file,
                path: path.to_owned(),
                place: Place::Beside { partial, overwrite },
            });
        }
        Err(no_partial_name(path))
    }

    /// A nameless file in memory that may be executed.
    pub(super) fn memory(name: &str) -> Result<Self, ImageError> {
        let path = PathBuf::from(name);
        let file = memfd::create(name).map_err(ImageError::io(&path, "create it in memory"))?;
        Ok(Destination {
            file,
            path,
            place: Place::Memory,
        })
    }

    /// Whether it is a file in memory.
    pub(super) fn in_memory(&self) -> bool {
        matches!(self.place, Place::Memory)
    }

    /// The folder that it is in, or for a file in memory one for such.
    pub(super) fn folder(&self) -> PathBuf {
        match self.place {
            Place::Memory => std::env::temp_dir(),
            _ => directory_of(&self.path).to_owned(),
        }
    }

    pub(super) fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> ImageError {
        ImageError::io(&self.path, what)
    }

    pub(super) fn too_large(&self, most: u64) -> ImageError {
        ImageError::TooLarge {
            image: self.path.clone(),
            most,
        }
    }

    /// Gives the file its final name; it `lasts` if the disk has it before. `decide`: whether it is still wanted then.
    pub(super) fn publish(
        self,
        lasts: bool,
        decide: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), ImageError> {
        if self.in_memory() {
            return Ok(());
        }
        self.file
            .set_permissions(Permissions::from_mode(0o700))
            .map_err(self.failed("make it executable"))?;
        if lasts {
            self.file
                .sync_all()
                .map_err(self.failed("bring it to the disk"))?;
        }
        decide().map_err(self.failed("give it its name"))?;
        match &self.place {
            Place::Memory => {}
            Place::Nameless { overwrite: false } => {
                link(&self.file, &self.path).map_err(|source| no_name(&self.path, source))?;
            }
            // A link replaces nothing: a name beside it first.
            Place::Nameless { overwrite: true } => {
                let partial = self.link_beside()?;
                rename(&partial.path, &self.path, true)?;
            }
            Place::Beside { partial, overwrite } => {
                rename(&partial.path, &self.path, *overwrite)?;
            }
        }
        if !lasts {
            return Ok(());
        }
        let directory = directory_of(&self.path);
        let synced = match File::open(directory) {
            Ok(directory) => directory.sync_all(),
            // A directory that may be written to but not read.
            Err(_) => nix::unistd::syncfs(&self.file).map_err(io::Error::from),
        };
        synced.map_err(self.failed("bring its directory to the disk"))
    }

    /// Gives the nameless file the name of a partial one.
    fn link_beside(&self) -> Result<Partial, ImageError> {
        let name = self.path.file_name().unwrap_or_default().as_bytes();
        let name = &name[..name.len().min(NAME_KEPT)];
        let lock = lock(&self.file);
        for attempt in 0..ATTEMPTS {
            let beside = partial_name(name, std::process::id(), attempt);
            let beside = directory_of(&self.path).join(beside);
            match link(&self.file, &beside) {
                Ok(()) => return Ok(Partial::at(beside, lock)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(no_name(&self.path, source)),
            }
        }
        Err(no_partial_name(&self.path))
    }
}

/// The part of the final name that a partial file may have, if `path` can become an image.
fn free_name(path: &Path, overwrite: bool) -> Result<&[u8], ImageError> {
    let directory = || ImageError::NotAFile {
        image: path.to_owned(),
        found: "a directory",
    };
    // So is what ends in a slash, also if there is nothing yet.
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(directory());
    }
    let name = path.file_name().ok_or_else(directory)?;
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => return Err(directory()),
        Ok(_) if !overwrite => return Err(exists(path)),
        _ => {}
    }
    Ok(&name.as_bytes()[..name.len().min(NAME_KEPT)])
}

/// A file without a name that can be given one, where the file system has such.
fn nameless(directory: &Path) -> Option<File> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE)
        .open(directory);
    // Whatever is wrong, making a file with a name says it better.
    let file = opened.ok()?;
    let reached = fs::metadata(proc_path(&file)).ok()?;
    let own = file.metadata().ok()?;
    ((reached.dev(), reached.ino()) == (own.dev(), own.ino())).then_some(file)
}

fn proc_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn link(file: &File, to: &Path) -> io::Result<()> {
    let flags = AtFlags::AT_SYMLINK_FOLLOW;
    Ok(linkat(AT_FDCWD, &proc_path(file), AT_FDCWD, to, flags)?)
}

fn no_name(path: &Path, source: io::Error) -> ImageError {
    match source.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => ImageError::io(path, "give it its name")(source),
    }
}

fn no_partial_name(path: &Path) -> ImageError {
    let taken = io::ErrorKind::AlreadyExists.into();
    ImageError::io(path, "find a name for the partial file")(taken)
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
    renamed.map_err(|source| no_name(to, source))
}

/// Starts writing this part of the file to the disk, so that the last fsync is short.
pub(super) fn write_behind(destination: &Destination, at: u64, len: u64) {
    if !destination.in_memory() {
        writeback::begin(&destination.file, at, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(dir: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(dir).expect("lists").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    fn named(path: &Path, overwrite: bool) -> Destination {
        let name = free_name(path, overwrite).expect("free");
        Destination::named(path, name, overwrite).expect("creates")
    }

    fn either(path: &Path, overwrite: bool) -> [Destination; 2] {
        let any = Destination::beside(path, overwrite).expect("creates");
        [any, named(path, overwrite)]
    }

    #[test]
    fn without_a_name_nothing_is_ever_left() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("x");
        let writing = Destination::beside(&path, false).expect("creates");
        if !matches!(writing.place, Place::Nameless { .. }) {
            return; // This file system has no nameless files.
        }
        (&writing.file).write_all(b"bytes").expect("writes");
        assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
        writing.publish(true, || Ok(())).expect("publishes");
        assert_eq!(names(dir.path()), ["x"]);
        assert_eq!(fs::read(&path).expect("reads"), b"bytes");
        let mode = fs::metadata(&path).expect("looks").mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn what_appeared_meanwhile_is_not_replaced_unless_asked() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("x");
        for writing in either(&path, false) {
            fs::write(&path, b"faster").expect("writes");
            let refused = writing.publish(true, || Ok(()));
            assert!(matches!(refused, Err(ImageError::Exists { .. })));
            assert_eq!(fs::read(&path).expect("reads"), b"faster");
        }
        for writing in either(&path, true) {
            (&writing.file).write_all(b"new").expect("writes");
            writing.publish(true, || Ok(())).expect("replaces");
            assert_eq!(fs::read(&path).expect("reads"), b"new");
            fs::write(&path, b"old").expect("writes");
        }
        assert_eq!(names(dir.path()), ["x"]);
    }

    #[test]
    fn partial_files_of_killed_writers_are_removed_but_not_those_of_living_ones() {
        let dir = tempfile::tempdir().expect("dir");
        fs::write(dir.path().join(".x.999999.partial"), "left by a killed one").expect("writes");
        fs::write(dir.path().join(".x.txt.partial"), "not ours").expect("writes");
        let path = dir.path().join("x");
        let living = named(&path, false);
        let second = Destination::beside(&path, false).expect("creates");
        assert_eq!(names(dir.path()).len(), 2, "{:?}", names(dir.path()));
        drop(second);
        living.publish(true, || Ok(())).expect("publishes");
        assert_eq!(names(dir.path()), [".x.txt.partial", "x"]);
    }

    #[test]
    fn a_writer_that_is_told_to_end_leaves_nothing() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("x");
        let writing = named(&path, false);
        let Place::Beside { partial, .. } = &writing.place else {
            panic!("{:?}", writing.place)
        };
        let mode = fs::metadata(&partial.path).expect("there").mode();
        assert_eq!(mode & 0o777, 0o600);
        // What `remove_partials` does, but to this one alone: other tests write, too.
        let own = partial.path.clone();
        partials().retain(|path| *path != own);
        fs::remove_file(&own).expect("removes");
        drop(writing);
        assert!(names(dir.path()).is_empty());
    }
}
