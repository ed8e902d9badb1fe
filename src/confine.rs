//! `--confine`: the job sees nothing of the machine where it runs (docs/adr/0027-confined-jobs.md).
//!
//! The loader makes the empty root. Here is looked at what a job is told and given: nothing of it may need the machine's files, or lead to them.

use crate::args::Run;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::sys;
use ckpt_lib::snapshot::SnapshotV1;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest name of a socket, in bytes (unix(7)).
const LONGEST: usize = 107;

/// Refuses what needs files of the machine, and keeps from the job all descriptors but 0 to 2. `has_shadow`: calls go there. `kept` is for the loader.
pub(crate) fn check(arguments: &Run, has_shadow: bool, kept: Option<RawFd>) -> Outcome<()> {
    if !has_shadow {
        let message = "--confine: a job without remote files has those of this machine, of which it would see none";
        return Err(Failure::new(Exit::Usage, message));
    }
    if arguments.pids == crate::args::Pids::Host {
        let message = "--confine gives the job namespaces, which --pids host forbids";
        return Err(Failure::new(Exit::Usage, message));
    }
    if let Some(remap) = arguments
        .methods
        .remap
        .iter()
        .find(|remap| is_of_here(remap))
    {
        let shown = crate::raw::shown_path(remap);
        let message =
            format!("--remap {shown}: found a file of this machine, of which --confine shows none");
        return Err(Failure::new(Exit::Usage, message));
    }
    (0..3).try_for_each(leads_nowhere)?;
    let kept = kept.map(RawFd::cast_unsigned);
    sys::hand_down_none_but(3, kept)
        .context(|| "--confine: what is open here cannot be kept from the job".to_owned())
        .exit(Exit::Host)
}

/// The same of a job that goes on from an image; `given` are the descriptors that it gets besides 0 to 2.
pub(crate) fn check_image(snapshot: &SnapshotV1, given: &[u32]) -> Outcome<()> {
    let mut threads = snapshot
        .processes
        .iter()
        .flat_map(|process| &process.threads);
    if let Some(thread) = threads.find(|thread| thread.capabilities.permitted != 0) {
        let message = format!(
            "--confine: thread {} of the image has capabilities ({:#x}), expected none",
            thread.tid, thread.capabilities.permitted
        );
        return Err(Failure::new(Exit::Usage, message)
            .advise("submit --confine, or run --confine, from the job's beginning"));
    }
    let given = given.iter().map(|fd| fd.cast_signed());
    (0..3).chain(given).try_for_each(leads_nowhere)
}

/// What of the machine the job sees: the socket behind which its shadow is.
pub(crate) fn door(socket: &Path) -> Outcome<PathBuf> {
    let found = std::path::absolute(socket)?;
    let len = found.as_os_str().len();
    let in_root = found.parent().is_none_or(|folder| folder == Path::new("/"));
    if len > LONGEST || in_root {
        let shown = crate::raw::shown_path(&found);
        let message = format!(
            "--confine: found a socket {shown} of {len} bytes, expected one in a folder, of at most {LONGEST}"
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(found)
}

/// `NAME=local:NEW`, with blanks wherever they may be.
fn is_of_here(remap: &std::ffi::OsStr) -> bool {
    let bytes = remap.as_bytes().iter().copied();
    let bytes: Vec<u8> = bytes.filter(|byte| !byte.is_ascii_whitespace()).collect();
    bytes.windows(7).any(|word| word == b"=local:")
}

/// A directory, or a name of any file, is a way into the machine's file system: openat(2).
fn leads_nowhere(fd: RawFd) -> Outcome<()> {
    let Some((mode, flags)) = sys::kind_of(fd) else {
        // It is closed.
        return Ok(());
    };
    let is_folder = mode & libc::S_IFMT == libc::S_IFDIR;
    let is_name = flags & libc::O_PATH != 0;
    let what = match (is_folder, is_name) {
        (true, _) => "a directory",
        (_, true) => "a name of a file (O_PATH)",
        _ => return Ok(()),
    };
    let message = format!(
        "--confine: descriptor {fd} leads into this machine's file system: found {what}, expected a file, a pipe, a terminal or a socket"
    );
    Err(Failure::new(Exit::Usage, message))
}
