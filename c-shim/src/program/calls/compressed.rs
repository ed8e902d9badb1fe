//! Files that are stored compressed ([`crate::rules::Kind::Compress`]): what the shadow is asked for instead of what is stored.
//!
//! ```text
//! open -------> the shadow opens it uncompressed: all calls on the descriptor are as on any file
//! stat -------> its size is known when it is open: opened, looked at, closed
//! truncate ---> opened, cut, closed
//! close ------> what was written is stored, and only then it is said that it is closed; at the end of the job by its keeper
//! ```

use super::opening::open_compressed;
use super::{File, Served, names, places, records, serve_as_meant};
use crate::program::lanes;
use crate::program::sys::{self, AT_FDCWD, Errno};
use wire::{Attributes, Place, Request, Sync};

const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;

/// Whether a call with a name is about what is in a file.
pub(super) fn is_about(number: u64) -> bool {
    matches!(
        number,
        sys::OPEN
            | sys::OPENAT
            | sys::CREAT
            | sys::STAT
            | sys::LSTAT
            | sys::NEWFSTATAT
            | sys::STATX
            | sys::TRUNCATE
    )
}

/// Serves such a call; none: what is stored is meant, or it is no regular file of the shadow's.
pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [a, b, c, d, e, _] = *args;
    let here = AT_FDCWD as u64;
    match number {
        sys::OPEN => open(places::place(here, a, 0)?, b as u32, c as u32),
        sys::OPENAT => open(places::place(a, b, 0)?, c as u32, d as u32),
        sys::STAT => stat(places::place(here, a, 0)?, true, |found| {
            records::stat(b, found);
        }),
        sys::LSTAT => stat(places::place(here, a, 0)?, false, |found| {
            records::stat(b, found);
        }),
        sys::NEWFSTATAT => {
            let follow = d & AT_SYMLINK_NOFOLLOW == 0;
            stat(places::place(a, b, 0)?, follow, |found| {
                records::stat(c, found);
            })
        }
        sys::STATX => {
            let follow = c & AT_SYMLINK_NOFOLLOW == 0;
            stat(places::place(a, b, 0)?, follow, |found| {
                records::statx(e, found);
            })
        }
        sys::TRUNCATE => truncate(places::place(here, a, 0)?, b),
        _ => None,
    }
}

/// Has what was written to it stored; whoever closes it is told whether that could be done.
pub(super) fn store(file: &File) -> Result<(), Errno> {
    if !file.description.is_to_be_stored() {
        return Ok(());
    }
    lanes::tell(&Request::Sync(Sync {
        handle: file.handle(),
        data_only: true,
    }))
}

fn open(place: Place<'_>, flags: u32, mode: u32) -> Served {
    if flags & (sys::O_PATH | sys::O_DIRECTORY) != 0 {
        return None;
    }
    match open_compressed(place, flags, mode) {
        // To be led there; no such file is compressed.
        Err(Errno(sys::ELSEWHERE)) => None,
        opened => Some(opened.map(|fd| fd as u64)),
    }
}

/// Its attributes with the size of what is in it. Of what may not be read, those of what is stored.
fn stat(place: Place<'_>, follow: bool, give: impl FnOnce(&Attributes)) -> Served {
    let stored = names::attributes(place, follow).ok()?;
    if stored.mode & TYPE != REGULAR {
        return None;
    }
    let fd = match open_compressed(place, sys::O_CLOEXEC, 0) {
        Err(Errno(sys::EACCES)) => return None,
        Err(error) => return Some(Err(error)),
        Ok(fd) => fd,
    };
    let found = File::of(fd as u64).ok_or(Errno(sys::EIO));
    let found = found.and_then(|file| names::attributes_of(&file));
    let _ = serve_as_meant(sys::CLOSE, &[fd as u64, 0, 0, 0, 0, 0]);
    Some(found.map(|found| {
        give(&found);
        0
    }))
}

fn truncate(place: Place<'_>, size: u64) -> Served {
    let fd = match open_compressed(place, sys::O_WRONLY | sys::O_CLOEXEC, 0) {
        Err(Errno(sys::ELSEWHERE)) => return None,
        Err(error) => return Some(Err(error)),
        Ok(fd) => fd as u64,
    };
    let cut = serve_as_meant(sys::FTRUNCATE, &[fd, size, 0, 0, 0, 0]);
    let closed = serve_as_meant(sys::CLOSE, &[fd, 0, 0, 0, 0, 0]);
    let (cut, closed) = (cut.unwrap_or(Ok(0)), closed.unwrap_or(Ok(0)));
    Some(cut.and(closed))
}
