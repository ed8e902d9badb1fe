//! openat2(2): an open whose name may not lead everywhere.

use super::opening::open_within;
use super::places::{checked, descriptor, place, text};
use super::{File, Served, directory, methods};
use crate::program::sys::{self, AT_FDCWD, Errno};
use wire::Place;

const NO_XDEV: u64 = 1;
const NO_MAGICLINKS: u64 = 2;
const NO_SYMLINKS: u64 = 4;
const BENEATH: u64 = 8;
const IN_ROOT: u64 = 0x10;
const CACHED: u64 = 0x20;
const KNOWN: u64 = 0x3f;
/// All that open(2) knows.
const FLAGS: u64 = 0o37_777_703;
const PATH_FLAGS: u32 = sys::O_PATH | sys::O_DIRECTORY | sys::O_NOFOLLOW | sys::O_CLOEXEC;
/// Bytes of the first version of `struct open_how`, and most of any.
const LEAST: u64 = 24;
const MOST: u64 = 4096;

/// `struct open_how`.
struct How {
    flags: u32,
    mode: u32,
    resolve: u64,
}

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    if number != sys::OPENAT2 {
        return None;
    }
    let [folder, name, address, size, ..] = *args;
    let given = text(name)?;
    let begins = if folder as i32 == AT_FDCWD {
        directory()
    } else {
        File::of(folder)
    };
    let place = place(folder, name, 0);
    if place.is_none() && (begins.is_none() || given.first() != Some(&b'/')) {
        return None;
    }
    let how = match read(address, size) {
        Ok(how) => how,
        Err(error) => return Some(Err(error)),
    };
    let is_rooted = how.resolve & IN_ROOT != 0;
    // Where the root is another, a name is never of this machine, or always.
    let place = match begins {
        Some(folder) if is_rooted => Place {
            at: folder.handle(),
            name: match given.iter().position(|byte| *byte != b'/') {
                Some(begin) => &given[begin..],
                None if given.is_empty() => b"",
                None => b".",
            },
        },
        None if is_rooted => return None,
        _ => place?,
    };
    if how.resolve & CACHED != 0 {
        return Some(Err(Errno(sys::EAGAIN)));
    }
    if !is_rooted && let Some(errno) = refusal(given, how.resolve) {
        return Some(Err(Errno(errno)));
    }
    if how.resolve & !NO_MAGICLINKS == 0 {
        let (flags, mode) = (u64::from(how.flags), u64::from(how.mode));
        return methods::serve(sys::OPENAT, &[folder, name, flags, mode, 0, 0]);
    }
    if given.is_empty() {
        return Some(Err(Errno(sys::ENOENT)));
    }
    let resolve = (how.resolve & !NO_MAGICLINKS) as u32;
    let opened = checked(place).and_then(|place| open_within(place, how.flags, how.mode, resolve));
    Some(match opened {
        Err(Errno(sys::ELSEWHERE)) if resolve == NO_SYMLINKS as u32 => methods::lead(number, args),
        // None of the others may lead to another machine.
        Err(Errno(sys::ELSEWHERE)) => Err(Errno(sys::EXDEV)),
        opened => opened.map(|fd| fd as u64),
    })
}

/// What the text of a name alone says.
fn refusal(name: &'static [u8], resolve: u64) -> Option<i32> {
    let is_descriptor = descriptor(name).is_some();
    if name.first() == Some(&b'/') && resolve & BENEATH != 0 {
        return Some(sys::EXDEV);
    }
    if is_descriptor && resolve & (NO_MAGICLINKS | NO_SYMLINKS) != 0 {
        return Some(sys::ELOOP);
    }
    (is_descriptor && resolve & NO_XDEV != 0).then_some(sys::EXDEV)
}

/// What the program asks for, as the kernel reads it.
fn read(address: u64, size: u64) -> Result<How, Errno> {
    if size < LEAST {
        return Err(Errno(sys::EINVAL));
    }
    if size > MOST {
        return Err(Errno(sys::E2BIG));
    }
    if address == 0 {
        return Err(Errno(sys::EFAULT));
    }
    // SAFETY: the program says that so much is there.
    let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, size as usize) };
    let word = |at: usize| {
        let bytes = bytes[8 * at..].first_chunk::<8>();
        u64::from_le_bytes(bytes.copied().unwrap_or_default())
    };
    if bytes[LEAST as usize..].iter().any(|byte| *byte != 0) {
        return Err(Errno(sys::E2BIG));
    }
    let (flags, mode, resolve) = (word(0), word(1), word(2));
    if flags & !FLAGS != 0
        || resolve & !KNOWN != 0
        || resolve & (BENEATH | IN_ROOT) == BENEATH | IN_ROOT
    {
        return Err(Errno(sys::EINVAL));
    }
    let flags = flags as u32;
    let makes = flags & (sys::O_CREAT | sys::O_TMPFILE) != 0;
    let is_mode = if makes {
        mode & !0o7777 == 0
    } else {
        mode == 0
    };
    let is_nameless = flags & sys::O_TMPFILE != 0;
    let contradicts = flags & sys::O_CREAT != 0 && flags & sys::O_DIRECTORY != 0
        || is_nameless && (flags & sys::O_DIRECTORY == 0 || flags & sys::O_ACCMODE == 0)
        || flags & sys::O_PATH != 0 && flags & !PATH_FLAGS != 0;
    if !is_mode || contradicts {
        return Err(Errno(sys::EINVAL));
    }
    Ok(How {
        flags,
        mode: mode as u32,
        resolve,
    })
}
