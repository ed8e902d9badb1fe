//! Where a name leads: to the shadow, to this machine, or to what is open.

use super::{File, directory, programs};
use crate::program::sys::{self, AT_FDCWD, Errno};
use core::ffi::{CStr, c_char};
use wire::{Place, is_local};

pub(super) const AT_EMPTY_PATH: u64 = 0x1000;
const LONGEST_NAME: usize = 4095;

/// A name in the program's memory.
pub(super) fn text(address: u64) -> Option<&'static [u8]> {
    if address == 0 {
        return None;
    }
    // SAFETY: the program says that it is a string.
    let text = unsafe { CStr::from_ptr(address as *const c_char) }.to_bytes();
    Some(text)
}

/// What a name of a descriptor stands for if that is remote (`/proc/self/fd/5`, `/dev/stdin`), and what follows. The
/// program itself (`/proc/self/exe`) is one of them.
pub(super) fn descriptor(name: &'static [u8]) -> Option<(File, &'static [u8])> {
    let folders: [&[u8]; 3] = [b"/proc/self/fd/", b"/dev/fd/", b"/proc/thread-self/fd/"];
    let streams: [&[u8]; 3] = [b"/dev/stdin", b"/dev/stdout", b"/dev/stderr"];
    if let Some(fd) = streams.iter().position(|stream| *stream == name) {
        return File::of(fd as u64).map(|file| (file, &b""[..]));
    }
    let folder = folders.iter().find_map(|folder| name.strip_prefix(*folder));
    let by_number = || {
        let rest = name.strip_prefix(b"/proc/")?;
        let len = rest.iter().position(|byte| *byte == b'/')?;
        let pid = core::str::from_utf8(&rest[..len]).ok()?.parse::<u32>();
        let behind = rest[len..].strip_prefix(b"/fd/")?;
        (pid == Ok(sys::pid())).then_some(behind)
    };
    let Some(rest) = folder.or_else(by_number) else {
        return programs::own(name).map(|file| (file, &b""[..]));
    };
    let len = rest.iter().position(|byte| *byte == b'/');
    let (digits, behind) = rest.split_at(len.unwrap_or(rest.len()));
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    let fd = digits.iter().try_fold(0, |fd, digit| {
        let digit = (*digit as char).to_digit(10)?;
        Some(fd * 10 + u64::from(digit))
    })?;
    File::of(fd).map(|file| (file, behind.strip_prefix(b"/").unwrap_or(behind)))
}

/// Where a name leads, if it leads away. An empty one with a handle is what is open itself; without, it is wrong.
pub(super) fn place(folder: u64, name: u64, flags: u64) -> Option<Place<'static>> {
    let name = text(name)?;
    if name.first() == Some(&b'/') {
        if !is_local(name) {
            return Some(Place { at: 0, name });
        }
        let (file, rest) = descriptor(name)?;
        let at = file.handle();
        return Some(Place { at, name: rest });
    }
    let folder = if folder as i32 == AT_FDCWD {
        directory()?
    } else {
        File::of(folder)?
    };
    let at = folder.handle();
    if name.is_empty() && flags & AT_EMPTY_PATH == 0 {
        // Nothing has an empty name.
        return Some(Place { at: 0, name });
    }
    Some(Place { at, name })
}

/// As [`place`], of a name of our own, from the current directory.
pub(super) fn place_of(name: &[u8]) -> Option<Place<'_>> {
    if name.first() == Some(&b'/') {
        return (!is_local(name)).then_some(Place { at: 0, name });
    }
    let at = directory()?.handle();
    Some(Place { at, name })
}

/// The name is neither too long nor empty without a handle.
pub(super) fn checked(place: Place<'_>) -> Result<Place<'_>, Errno> {
    match place.name.len() {
        0 if place.at == 0 => Err(Errno(sys::ENOENT)),
        0..=LONGEST_NAME => Ok(place),
        _ => Err(Errno(sys::ENAMETOOLONG)),
    }
}

/// Two names: both there, both here, or in different worlds.
pub(super) fn both(
    from: [u64; 2],
    to: [u64; 2],
    flags: u64,
) -> Option<Result<(Place<'static>, Place<'static>), Errno>> {
    match (place(from[0], from[1], flags), place(to[0], to[1], 0)) {
        (None, None) => None,
        (Some(from), Some(to)) => {
            Some(checked(from).and_then(|from| checked(to).map(|to| (from, to))))
        }
        _ => Some(Err(Errno(sys::EXDEV))),
    }
}
