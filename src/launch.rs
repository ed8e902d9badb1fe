//! Becoming the supervisor: this process is replaced by the loader.
//!
//! ```text
//! run:     small image in a memfd  ---------------------\
//! restart: first sections of IMAGE, copied to a memfd ---+-> execveat --image-fd N ...
//!          (where memory files cannot be executed: IMAGE itself, or a nameless copy in a
//!           directory that allows it)
//! ```
//! # What callers may rely on
//! [`execute`] returns only if nothing could be executed; then nothing has
//! changed but the dispositions of SIGPIPE and SIGXFSZ, which are what they were before `main`.

use crate::args::{Files, Pids};
use crate::report::{Exit, Failure};
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A loader to execute, and what it is told.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    /// What `ps` shows of the supervisor.
    pub(crate) title: String,
    /// The image.
    pub(crate) image: &'a File,
    /// Where it is, if it is anywhere: for messages where `/proc` does not tell.
    pub(crate) path: Option<&'a Path>,
    /// Bytes at the image's beginning that make an executable file, if not the whole file is
    /// to be executed.
    pub(crate) prefix_len: Option<u64>,
    /// Directories for a nameless copy, should memory files not be executable.
    pub(crate) fallback_dirs: Vec<PathBuf>,
    /// What it is told.
    pub(crate) options: Options,
}

/// What a loader is told on its command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) pids: Pids,
    pub(crate) files: Files,
    pub(crate) accept_new_ids: bool,
    pub(crate) degraded: bool,
    pub(crate) inherit_fds: Vec<u32>,
    /// Who keeps what the job writes ([`crate::remote`]).
    pub(crate) keeper: Option<OwnedFd>,
    /// Who is told how the job fares ([`crate::life`]).
    pub(crate) starter: Option<OwnedFd>,
    /// The loader only puts memory in its place, as this socket tells ([`crate::away::ahead`]).
    pub(crate) prepare: Option<OwnedFd>,
    /// The descriptor and the id of a process that has done so.
    pub(crate) prepared: Option<(i32, i32)>,
    /// All that the job sees of the machine ([`crate::confine`]).
    pub(crate) confine: Option<PathBuf>,
    /// No thread of the job is less nice.
    pub(crate) niceness: Option<i32>,
}

impl Options {
    fn words(&self, image_fd: i32) -> Vec<String> {
        let pids = match self.pids {
            Pids::Auto => "auto",
            Pids::Host => "host",
            Pids::Namespace => "namespace",
        };
        let files = match self.files {
            Files::Fail => "fail",
            Files::Keep => "keep",
            Files::RollBack => "roll-back",
        };
        let mut words = vec!["--image-fd".to_owned(), image_fd.to_string()];
        words.extend(["--pids", pids, "--files", files].map(str::to_owned));
        if self.accept_new_ids {
            words.push("--accept-new-ids".to_owned());
        }
        if self.degraded {
            words.push("--degraded".to_owned());
        }
        for fd in &self.inherit_fds {
            words.extend(["--inherit-fd".to_owned(), fd.to_string()]);
        }
        if let Some(niceness) = self.niceness {
            words.push(format!("--niceness={niceness}"));
        }
        if let Some(keeper) = &self.keeper {
            words.extend(["--keeper-fd".to_owned(), keeper.as_raw_fd().to_string()]);
        }
        if let Some(starter) = &self.starter {
            words.extend(["--starter-fd".to_owned(), starter.as_raw_fd().to_string()]);
        }
        if let Some(door) = &self.prepare {
            words.extend(["--prepare-fd".to_owned(), door.as_raw_fd().to_string()]);
        }
        if let Some((door, pid)) = self.prepared {
            words.extend(["--prepared-fd".to_owned(), door.to_string()]);
            words.extend(["--prepared-pid".to_owned(), pid.to_string()]);
        }
        words
    }
}

/// Replaces this process by the loader.
pub(crate) fn execute(launch: &Launch<'_>) -> Failure {
    match try_execute(launch) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn try_execute(launch: &Launch<'_>) -> Result<std::convert::Infallible, Failure> {
    // Without close-on-exec: this is what the loader reads.
    let image = nix::unistd::dup(launch.image)?;
    let words = launch.options.words(image.as_raw_fd());
    let words = std::iter::once(launch.title.clone()).chain(words);
    let mut arguments = words.map(CString::new).collect::<Result<Vec<_>, _>>()?;
    if let Some(socket) = &launch.options.confine {
        arguments.push(c"--confine".to_owned());
        arguments.push(CString::new(socket.as_os_str().as_encoded_bytes())?);
    }
    if let Some(path) = launch.path {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        arguments.push(c"--image-name".to_owned());
        arguments.push(CString::new(path.into_os_string().into_vec())?);
    }
    // What stands for P1 later has nothing of ours that the job could read.
    let environment = match launch.options.prepare {
        Some(_) => vec![],
        None => environment(),
    };
    crate::sys::restore_signals()?;
    let attempt = |file: &File| exec(file, &arguments, &environment);

    let mut refusals = vec![];
    let mut note = |place: &str, error: io::Error| refusals.push(format!("{place}: {error}"));
    match launch.prefix_len {
        None => note("memory file", attempt(launch.image)),
        Some(len) => {
            match memory_copy(launch.image, len) {
                Ok(copy) => note("memory file", attempt(&copy)),
                Err(error) => note("memory file", error),
            }
            note("the image itself", attempt(launch.image));
        }
    }
    for dir in &launch.fallback_dirs {
        let len = match launch.prefix_len {
            Some(len) => len,
            None => launch.image.metadata()?.len(),
        };
        let place = crate::raw::shown_path(dir);
        match nameless_copy(launch.image, len, dir) {
            Ok(copy) => note(&place, attempt(&copy)),
            Err(error) => note(&place, error),
        }
    }
    let tried = refusals.join("; ");
    let failure = Failure::new(
        Exit::Host,
        format!("the loader cannot be executed ({tried})"),
    );
    Err(failure.advise("TMPDIR=DIR with a directory on a file system not mounted noexec"))
}

fn exec(file: &File, arguments: &[CString], environment: &[CString]) -> io::Error {
    match nix::unistd::fexecve(file.as_fd(), arguments, environment) {
        Ok(never) => match never {},
        Err(errno) => errno.into(),
    }
}

/// The environment as this process was given it.
pub(crate) fn environment() -> Vec<CString> {
    // std drops entries without `=`; the job is to see them all.
    if let Ok(block) = std::fs::read("/proc/self/environ") {
        let entries = block.split_inclusive(|byte| *byte == 0);
        let entries = entries.filter_map(|entry| CStr::from_bytes_with_nul(entry).ok());
        return entries.map(CStr::to_owned).collect();
    }
    let entries = std::env::vars_os().map(|(name, value)| {
        let mut entry = name.into_vec();
        entry.push(b'=');
        entry.extend(value.into_vec());
        entry
    });
    entries
        .filter_map(|entry| CString::new(entry).ok())
        .collect()
}

/// Entries of an environment that have a name.
pub(crate) fn entries(block: &[u8]) -> impl Iterator<Item = (&OsStr, OsString)> {
    block.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&entry[..at], entry[at + 1..].to_vec());
        (at > 0).then(|| (OsStr::from_bytes(name), OsString::from_vec(value)))
    })
}

/// Directories in which a nameless copy may be tried.
pub(crate) fn fallback_dirs() -> Vec<PathBuf> {
    let variables = ["TMPDIR", "XDG_RUNTIME_DIR", "HOME"];
    let named = variables
        .into_iter()
        .filter_map(std::env::var_os)
        .map(OsString::into);
    named
        .chain(["/dev/shm", "/tmp", "/var/tmp"].map(PathBuf::from))
        .collect()
}

/// A memory file that can be executed, where any can.
pub(crate) fn executable_memory_file(name: &CStr) -> io::Result<File> {
    // Since 6.3 executable memory files may have to be asked for; before, the flag is unknown.
    const MFD_EXEC: u32 = 0x10;
    let with_exec = MFdFlags::MFD_CLOEXEC | MFdFlags::from_bits_retain(MFD_EXEC);
    let made = match memfd_create(name, with_exec) {
        Err(Errno::EINVAL) => memfd_create(name, MFdFlags::MFD_CLOEXEC),
        made => made,
    };
    Ok(made?.into())
}

fn memory_copy(image: &File, len: u64) -> io::Result<File> {
    let copy = executable_memory_file(c"wayfarer-loader")?;
    copy_prefix(image, len, &copy)?;
    Ok(copy)
}

fn nameless_copy(image: &File, len: u64, dir: &std::path::Path) -> io::Result<File> {
    let writable = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o700)
        .custom_flags(libc::O_TMPFILE)
        .open(dir)?;
    copy_prefix(image, len, &writable)?;
    // A file that is open for writing cannot be executed.
    File::open(format!("/proc/self/fd/{}", writable.as_raw_fd()))
}

fn copy_prefix(image: &File, len: u64, copy: &File) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut at = 0;
    while at < len {
        let part = buffer
            .len()
            .min(usize::try_from(len - at).unwrap_or(usize::MAX));
        image.read_exact_at(&mut buffer[..part], at)?;
        copy.write_all_at(&buffer[..part], at)?;
        at += part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_holds_the_prefix_and_nothing_more() {
        let image = tempfile::tempfile().expect("file");
        let bytes: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        image.write_all_at(&bytes, 0).expect("write");
        let dir = tempfile::tempdir().expect("dir");
        for copy in [
            memory_copy(&image, 150_000),
            nameless_copy(&image, 150_000, dir.path()),
        ] {
            let copy = copy.expect("copied");
            let mut read = vec![0; 150_000];
            copy.read_exact_at(&mut read, 0).expect("read");
            assert_eq!(copy.metadata().expect("metadata").len(), 150_000);
            assert!(read == bytes[..150_000]);
        }
    }

    #[test]
    fn what_nobody_can_execute_is_an_error_that_names_every_attempt() {
        let image = tempfile::tempfile().expect("file");
        image.write_all_at(b"not a program", 0).expect("write");
        let options = Options {
            pids: Pids::Auto,
            files: Files::Fail,
            accept_new_ids: false,
            degraded: false,
            inherit_fds: vec![7],
            keeper: None,
            starter: None,
            prepare: None,
            prepared: None,
            confine: None,
            niceness: None,
        };
        let failure = execute(&Launch {
            title: "test".to_owned(),
            image: &image,
            path: None,
            prefix_len: Some(13),
            fallback_dirs: vec![PathBuf::from("/nonexistent")],
            options,
        });
        assert_eq!(failure.exit_status(), Exit::Host);
        let message = format!("{failure:?}");
        for place in ["memory file", "the image itself", "/nonexistent"] {
            assert!(message.contains(place), "{message}");
        }
    }
}
