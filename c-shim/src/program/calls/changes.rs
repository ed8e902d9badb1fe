//! Changes of modes, owners, times and sizes.

use super::names::attributes;
use super::places::{checked, place};
use super::{File, Served, limits};
use crate::program::lanes::{Put, ask, tell};
use crate::program::resident;
use crate::program::sys::{self, Errno};
use wire::{Access, Change, Place, Reply, Request, Stamp, What};

const NOTHING: (*const u8, usize) = (core::ptr::null(), 0);
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const UTIME_NOW: u64 = 0x3fff_ffff;
const UTIME_OMIT: u64 = 0x3fff_fffe;

pub(super) fn change(folder: u64, name: u64, flags: u64, what: What) -> Served {
    let place = place(folder, name, flags)?;
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    Some(change_place(place, follow, what))
}

pub(super) fn change_open(fd: u64, what: What) -> Served {
    let place = File::of(fd)?.place();
    Some(change_place(place, true, what))
}

fn change_place(place: Place<'_>, follow: bool, what: What) -> Result<u64, Errno> {
    if let Some((device, inode, size)) = changed(place, follow, what)? {
        resident::resized(device, inode, size);
    }
    Ok(0)
}

/// Changes something; of which file the size is another now, and what.
fn changed(place: Place<'_>, follow: bool, what: What) -> Result<Option<(u64, u64, u64)>, Errno> {
    let place = checked(place)?;
    let change = Change {
        place,
        follow,
        what,
    };
    ask(&Request::Change(change), NOTHING, Put::Lane, |answer| {
        Ok(match (what, answer.reply) {
            (What::Size(size), Reply::Attributes(found)) => Some((found.device, found.inode, size)),
            _ => None,
        })
    })
}

/// truncate(2) under a limit: what may not be changed at all is said first.
pub(super) fn truncate_limited(folder: u64, name: u64, size: u64) -> Served {
    const WRITE: u32 = 2;
    let place = place(folder, name, 0)?;
    let may = Access {
        place,
        mode: WRITE,
        follow: true,
        effective: true,
    };
    let allowed = checked(place)
        .and_then(|place| attributes(place, true))
        .and_then(|found| tell(&Request::Access(may)).map(|()| found))
        .and_then(|found| match found.mode & 0o170_000 {
            0o100_000 => limits::allow_size(found.size, size),
            _ => Ok(()),
        });
    Some(allowed.and_then(|()| change_place(place, true, What::Size(size))))
}

pub(super) fn truncate_open(fd: u64, size: i64) -> Served {
    let file = File::of(fd)?;
    if file.flags() & sys::O_PATH != 0 {
        return Some(Err(Errno(sys::EBADF)));
    }
    match u64::try_from(size) {
        Ok(size) => {
            if let Err(error) = file.allow_size(size) {
                return Some(Err(error));
            }
            // Nobody writes back meanwhile what is behind the new end.
            let mine = resident::of(file.description);
            let changed = changed(file.place(), true, What::Size(size));
            Some(changed.map(|_| {
                if let Some(mine) = mine.or_else(|| resident::of(file.description)) {
                    mine.resized(size);
                }
                0
            }))
        }
        Err(_) => Some(Err(Errno(sys::EINVAL))),
    }
}

/// Sets times; without a name, of the descriptor itself.
pub(super) fn set_times(folder: u64, name: u64, flags: u64, address: u64, unit: Unit) -> Served {
    let place = if name == 0 {
        File::of(folder)?.place()
    } else {
        place(folder, name, flags)?
    };
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    Some(times(address, unit).and_then(|what| change_place(place, follow, what)))
}

/// How times are given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Microseconds,
    Nanoseconds,
}

/// Two times in the program's memory, or now.
fn times(address: u64, unit: Unit) -> Result<What, Errno> {
    if address == 0 {
        return Ok(What::Times(Some(None), Some(None)));
    }
    let word = |at: usize| {
        let place = (address as *const u64).wrapping_add(at);
        // SAFETY: the program says that two times are there.
        unsafe { place.read_unaligned() }
    };
    if unit == Unit::Seconds {
        let [accessed, modified] = [0, 1].map(|at| {
            Some(Some(Stamp {
                seconds: word(at) as i64,
                nanoseconds: 0,
            }))
        });
        return Ok(What::Times(accessed, modified));
    }
    let scale = if unit == Unit::Microseconds { 1000 } else { 1 };
    let stamp = |at: usize| match word(2 * at + 1) {
        UTIME_OMIT if unit == Unit::Nanoseconds => Ok(None),
        UTIME_NOW if unit == Unit::Nanoseconds => Ok(Some(None)),
        fraction if fraction < 1_000_000_000 / scale => Ok(Some(Some(Stamp {
            seconds: word(2 * at) as i64,
            nanoseconds: (fraction * scale) as u32,
        }))),
        _ => Err(Errno(sys::EINVAL)),
    };
    Ok(What::Times(stamp(0)?, stamp(1)?))
}
