//! Calls with names that nobody serves: the kernel is not asked about a name of another machine. What is wrong with the name is said first.

use super::Served;
use super::names::attributes;
use super::places::{AT_EMPTY_PATH, checked, place};
use crate::program::sys::{self, AT_FDCWD, Errno, call};

/// Where a call has the name that it is about, and what it is told.
struct Refused {
    /// The argument with the folder; none: the current one.
    folder: Option<usize>,
    name: usize,
    error: i32,
    /// Whether the name is looked at before.
    looks: bool,
}

const fn refused(folder: Option<usize>, name: usize, error: i32) -> Option<Refused> {
    Some(Refused {
        folder,
        name,
        error,
        looks: true,
    })
}

const fn at_once(folder: Option<usize>, name: usize, error: i32) -> Option<Refused> {
    Some(Refused {
        folder,
        name,
        error,
        looks: false,
    })
}

fn of(number: u64) -> Option<Refused> {
    match number {
        sys::CHROOT | sys::UMOUNT2 | sys::PIVOT_ROOT => refused(None, 0, sys::EPERM),
        sys::MOUNT => refused(None, 1, sys::EPERM),
        sys::ACCT | sys::SWAPON | sys::SWAPOFF => at_once(None, 0, sys::EPERM),
        sys::QUOTACTL => refused(None, 1, sys::ENOSYS),
        sys::OPEN_TREE | sys::OPEN_TREE_ATTR | sys::FSPICK | sys::MOVE_MOUNT => {
            at_once(Some(0), 1, sys::EPERM)
        }
        sys::MOUNT_SETATTR => at_once(Some(0), 1, sys::EPERM),
        sys::FANOTIFY_MARK => refused(Some(3), 4, sys::EOPNOTSUPP),
        // As a kernel that does not have them: programs know others.
        sys::SETXATTRAT
        | sys::GETXATTRAT
        | sys::LISTXATTRAT
        | sys::REMOVEXATTRAT
        | sys::FILE_GETATTR
        | sys::FILE_SETATTR => at_once(Some(0), 1, sys::ENOSYS),
        _ => None,
    }
}

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    if number == sys::INOTIFY_ADD_WATCH {
        return watch(args);
    }
    let Refused {
        folder,
        name,
        error,
        looks,
    } = of(number)?;
    let folder = folder.map_or(AT_FDCWD as u64, |at| args[at]);
    let place = place(folder, args[name], AT_EMPTY_PATH)?;
    if looks && let Err(error) = attributes(place, true) {
        return Some(Err(error));
    }
    Some(Err(Errno(error)))
}

/// inotify_add_watch(2): nobody tells of changes there. Programs know by ENOSPC that they have to look themselves.
fn watch(args: &[u64; 6]) -> Served {
    const IN_ONLYDIR: u64 = 0x0100_0000;
    const IN_DONT_FOLLOW: u64 = 0x0200_0000;
    let [instance, name, mask, ..] = *args;
    let place = place(AT_FDCWD as u64, name, 0)?;
    let nothing = c"".as_ptr() as u64;
    // What is no instance is wrong whatever the name is.
    // SAFETY: the kernel reads the string.
    let asked = unsafe { call(sys::INOTIFY_ADD_WATCH, [instance, nothing, mask]) };
    if asked != Err(Errno(sys::ENOENT)) {
        return Some(asked);
    }
    let found = checked(place).and_then(|place| attributes(place, mask & IN_DONT_FOLLOW == 0));
    Some(found.and_then(|found| {
        let is_folder = found.mode & 0o170_000 == 0o040_000;
        Err(Errno(if mask & IN_ONLYDIR != 0 && !is_folder {
            sys::ENOTDIR
        } else {
            sys::ENOSPC
        }))
    }))
}
