//! Files that the job was writing and that have grown since: refused, kept, or cut back.
//!
//! ```text
//! Prepare stream: check_growth (the first bytes have been compared: inodes)
//! all parked:     save_tail of every file -> cut every file -> finish
//! ```
//! # What callers may rely on
//! A file is cut only after its tail is on the disk, in a file that was not there before and that is
//! named. What is cut is the file that was compared.

use crate::abi::*;
use crate::context::Context;
use crate::inodes::name;
use crate::interpret::text;
use crate::options::Files;
use crate::report::{self, Outcome, failure};
use crate::sys::{self, Errno};
use core::ffi::CStr;
use loader::layout::CHUNK;
use loader::ops::CutBack;

/// Longest path (`PATH_MAX`).
const PATH_LEN: usize = 4096;
const ENDING: &[u8] = b".wayfarer-tail";

/// A file that the job was writing must not have grown, unless that is accepted.
pub fn check_growth(context: &Context, op: &CutBack, tail: &'static [u8]) -> Outcome<()> {
    let path = text(tail)?;
    let size = op.size;
    let Ok(stat) = sys::stat(op.slot as i32) else {
        return Ok(());
    };
    let found = stat.size as u64;
    if found > size && context.options.files == Files::Fail {
        return Err(failure!(
            Failed,
            "file {} has grown: found {found} bytes, expected {size}; --files roll-back cuts it back and \
             saves the tail beside it, --files keep uses it as it is",
            name(path)
        ));
    }
    Ok(())
}

/// Saves what a file has grown by beside it.
pub fn save_tail(context: &Context, op: &CutBack, tail: &'static [u8]) -> Outcome<()> {
    let path = text(tail)?;
    let Some((fd, found)) = open_grown(op, path)? else {
        return Ok(());
    };
    let mut beside = [0; PATH_LEN];
    let saved = create_beside(path, &mut beside).map_err(|error| {
        failure!(
            Failed,
            "file {}: its tail cannot be saved beside it ({error}), so it is not cut back",
            name(path)
        )
    })?;
    let beside = CStr::from_bytes_until_nul(&beside).unwrap_or(c"");
    let copied = copy(context, fd, op.size..found, saved).and_then(|()| sync(saved, beside));
    sys::close(saved);
    sys::close(fd);
    if let Err(error) = copied {
        remove(beside);
        return Err(failure!(
            Failed,
            "file {}: its tail cannot be saved in {} ({error}), so it is not cut back",
            name(path),
            name(beside)
        ));
    }
    report::say(
        context.name(),
        format_args!(
            "note: the last {} bytes of file {} are saved in {}",
            found - op.size,
            name(path),
            name(beside)
        ),
    );
    Ok(())
}

/// Cuts a file whose tail has been saved.
pub fn cut(_context: &Context, op: &CutBack, tail: &'static [u8]) -> Outcome<()> {
    let path = text(tail)?;
    if let Some((fd, _)) = open_grown(op, path)? {
        let cut = sys::truncate(fd, op.size);
        sys::close(fd);
        cut.map_err(|error| failure!(Failed, "file {}: cannot be cut back ({error})", name(path)))?;
    }
    Ok(())
}

/// The file at this path, open for writing, and its size, if it is larger than it was: it must be the
/// one in the slot, which has been compared, and no link may lead to it, which was not there when the job was
/// stopped.
fn open_grown(op: &CutBack, path: &CStr) -> Outcome<Option<(i32, u64)>> {
    let failed =
        |error: Errno| failure!(Failed, "file {}: cannot be cut back ({error})", name(path));
    let compared = sys::stat(op.slot as i32).map_err(failed)?;
    if compared.size as u64 <= op.size {
        return Ok(None);
    }
    let flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    let fd = sys::open_at(AT_FDCWD, path, flags, 0).map_err(|error| match error {
        Errno(ELOOP) => failure!(
            Failed,
            "file {}: a symbolic link has taken its place, so it is not cut back",
            name(path)
        ),
        error => failed(error),
    })?;
    let same = sys::stat(fd)
        .map(|found| (found.dev, found.ino) == (compared.dev, compared.ino))
        .map_err(failed);
    match same {
        Ok(true) => Ok(Some((fd, compared.size as u64))),
        Ok(false) => {
            sys::close(fd);
            Err(failure!(
                Failed,
                "file {}: another file has taken its place meanwhile, so it is not cut back",
                name(path)
            ))
        }
        Err(failure) => {
            sys::close(fd);
            Err(failure)
        }
    }
}

fn copy(context: &Context, from: i32, range: core::ops::Range<u64>, to: i32) -> Result<(), Errno> {
    // SAFETY: the buffers are used by this thread alone.
    let buffer = &mut unsafe { context.bytes(context.layout.buffers) }[..CHUNK as usize];
    let mut at = range.start;
    while at < range.end {
        let wanted = (range.end - at).min(CHUNK) as usize;
        let len = sys::pread_full(from, &mut buffer[..wanted], at)?;
        if len == 0 {
            return Err(Errno(EIO));
        }
        let mut left = &buffer[..len];
        while !left.is_empty() {
            match sys::write(to, left) {
                Ok(0) => return Err(Errno(EIO)),
                Ok(written) => left = &left[written..],
                Err(Errno(EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
        at += len as u64;
    }
    Ok(())
}

/// Brings a new file to the disk, and its name.
fn sync(fd: i32, path: &CStr) -> Result<(), Errno> {
    // SAFETY: no pointers.
    unsafe { sys::call(SYS_FSYNC, [fd as u64]) }?;
    let bytes = path.to_bytes();
    let end = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let mut folder = [0; PATH_LEN];
    folder[..end].copy_from_slice(&bytes[..end]);
    if end == 0 {
        folder[0] = b'/';
    }
    let folder = CStr::from_bytes_until_nul(&folder).unwrap_or(c"/");
    match sys::open(folder, O_RDONLY | O_DIRECTORY) {
        Ok(folder) => {
            // SAFETY: no pointers.
            let synced = unsafe { sys::call(SYS_FSYNC, [folder as u64]) };
            sys::close(folder);
            synced.map(|_| ())
        }
        // A folder that may be searched but not read: all of its file system, then.
        Err(_) => {
            const SYS_SYNCFS: u64 = 306;
            // SAFETY: no pointers.
            unsafe { sys::call(SYS_SYNCFS, [fd as u64]) }.map(|_| ())
        }
    }
}

fn remove(path: &CStr) {
    let args = [AT_FDCWD as u64, path.as_ptr() as u64, 0];
    // SAFETY: the kernel reads a NUL-terminated string.
    let _ = unsafe { sys::call(SYS_UNLINKAT, args) };
}

/// Makes `PATH.wayfarer-tail`, or with a number behind it; never a file that is there.
fn create_beside(path: &CStr, beside: &mut [u8; PATH_LEN]) -> Result<i32, Errno> {
    const ENAMETOOLONG: i32 = 36;
    let path = path.to_bytes();
    let end = path.len() + ENDING.len();
    // ".999" and the NUL
    if end + 5 > PATH_LEN {
        return Err(Errno(ENAMETOOLONG));
    }
    beside[..path.len()].copy_from_slice(path);
    beside[path.len()..end].copy_from_slice(ENDING);
    for number in 0..1000u16 {
        if number > 0 {
            let digits =
                [number / 100, number / 10 % 10, number % 10].map(|digit| b'0' + digit as u8);
            beside[end] = b'.';
            beside[end + 1..end + 4].copy_from_slice(&digits);
        }
        let name = CStr::from_bytes_until_nul(beside).map_err(|_| Errno(ENAMETOOLONG))?;
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
        match sys::open_at(AT_FDCWD, name, flags, 0o600) {
            Err(Errno(EEXIST)) => {}
            other => return other,
        }
    }
    Err(Errno(EEXIST))
}
