//! Calls with names that nobody serves: the kernel is not asked about a name of another machine. What is wrong with the name is said first.

use super::Served;
use super::names::attributes;
use super::places::{AT_EMPTY_PATH, place};
use crate::program::sys::{self, AT_FDCWD, Errno};

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
