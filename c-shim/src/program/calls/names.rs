//! Calls that take names.

use super::opening::{open, without_umask};
use super::places::{AT_EMPTY_PATH, both, checked, descriptor, place, text};
use super::{File, Served, changes, limits, records};
use crate::program::foreseen;
use crate::program::lanes::{Answer, Put, ask, tell};
use crate::program::nodes;
use crate::program::offered;
use crate::program::sys::{self, AT_FDCWD, Errno};
use crate::program::{cache, known, xattrs};
use crate::remembered::Known;
use wire::{
    Access, Attribute, Attributes, FileSystem, FileSystemOf, GetXattr, Link, List, ListXattr,
    MakeDirectory, MakeNode, Manner, NameOf, Place, ReadLink, RemoveName, RemoveXattr, Rename,
    Reply, Request, SetXattr, SymbolicLink, What,
};

const NOTHING: (*const u8, usize) = (core::ptr::null(), 0);
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_EACCESS_OR_REMOVEDIR: u64 = 0x200;
const AT_SYMLINK_FOLLOW: u64 = 0x400;
/// Flags of faccessat2(2).
const KNOWN_ACCESS: u64 = AT_SYMLINK_NOFOLLOW | AT_EACCESS_OR_REMOVEDIR | AT_EMPTY_PATH;

/// Calls by which a file loses its name.
const TAKE_NAMES: [u64; 6] = [
    sys::UNLINK,
    sys::RMDIR,
    sys::UNLINKAT,
    sys::RENAME,
    sys::RENAMEAT,
    sys::RENAMEAT2,
];

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [a, b, c, d, e, _] = *args;
    if TAKE_NAMES.contains(&number) {
        // Files that came in advance are not believed any more behind it, and on NFS a folder with one that is open cannot be removed.
        offered::end();
    }
    let here = AT_FDCWD as u64;
    match number {
        sys::OPEN => open(here, a, b as u32, c as u32),
        sys::CREAT => open(
            here,
            a,
            sys::O_WRONLY | sys::O_CREAT | sys::O_TRUNC,
            b as u32,
        ),
        sys::OPENAT => open(a, b, c as u32, d as u32),
        sys::STAT => stat(here, a, b, 0),
        sys::LSTAT => stat(here, a, b, AT_SYMLINK_NOFOLLOW),
        sys::NEWFSTATAT => stat(a, b, c, d),
        sys::FSTAT => {
            let found = match File::of(a) {
                Some(file) => attributes_of(&file),
                None => Ok(nodes::attributes(a as i32)?),
            };
            Some(found.map(|found| {
                records::stat(b, &found);
                0
            }))
        }
        sys::STATX => {
            let follow = c & AT_SYMLINK_NOFOLLOW == 0;
            let found = match of_fifo(a, b, c) {
                Some(found) => Ok(found),
                None => attributes(place(a, b, c)?, follow),
            };
            Some(found.map(|found| {
                records::statx(e, &found);
                0
            }))
        }
        sys::ACCESS => access(here, a, b, 0),
        sys::FACCESSAT => access(a, b, c, 0),
        sys::FACCESSAT2 => access(a, b, c, d),
        sys::READLINK => read_link(here, a, b, c),
        sys::READLINKAT => read_link(a, b, c, d),
        sys::MKDIR => make_directory(here, a, b),
        sys::MKDIRAT => make_directory(a, b, c),
        sys::MKNOD => make_node(here, a, b),
        sys::MKNODAT => make_node(a, b, c),
        sys::UNLINK => remove(here, a, 0),
        sys::RMDIR => remove(here, a, AT_EACCESS_OR_REMOVEDIR),
        sys::UNLINKAT => remove(a, b, c),
        sys::RENAME => rename([here, a], [here, b], 0),
        sys::RENAMEAT => rename([a, b], [c, d], 0),
        sys::RENAMEAT2 => rename([a, b], [c, d], e),
        sys::LINK => link([here, a], [here, b], 0),
        sys::LINKAT => link([a, b], [c, d], e),
        sys::SYMLINK => symbolic_link(a, here, b),
        sys::SYMLINKAT => symbolic_link(a, b, c),
        sys::CHMOD => changes::change(here, a, 0, What::Mode(b as u32)),
        sys::FCHMODAT => changes::change(a, b, 0, What::Mode(c as u32)),
        sys::FCHMODAT2 if d & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 => {
            place(a, b, AT_EMPTY_PATH).map(|_| Err(Errno(sys::EINVAL)))
        }
        sys::FCHMODAT2 => changes::change(a, b, d, What::Mode(c as u32)),
        sys::NAME_TO_HANDLE_AT => no_handle(place(a, b, e | AT_EMPTY_PATH)?, e),
        sys::FCHMOD => changes::change_open(a, What::Mode(b as u32)),
        sys::CHOWN => changes::change(here, a, 0, What::Owner(b as u32, c as u32)),
        sys::LCHOWN => {
            let what = What::Owner(b as u32, c as u32);
            changes::change(here, a, AT_SYMLINK_NOFOLLOW, what)
        }
        sys::FCHOWN => changes::change_open(a, What::Owner(b as u32, c as u32)),
        sys::FCHOWNAT => changes::change(a, b, e, What::Owner(c as u32, d as u32)),
        sys::TRUNCATE => match b as i64 {
            0.. if limits::are_set() => changes::truncate_limited(here, a, b),
            0.. => changes::change(here, a, 0, What::Size(b)),
            _ => None,
        },
        sys::FTRUNCATE => changes::truncate_open(a, b as i64),
        sys::UTIMENSAT => changes::set_times(a, b, d, c, changes::Unit::Nanoseconds),
        sys::FUTIMESAT => changes::set_times(a, b, 0, c, changes::Unit::Microseconds),
        sys::UTIMES => changes::set_times(here, a, 0, b, changes::Unit::Microseconds),
        sys::UTIME => changes::set_times(here, a, 0, b, changes::Unit::Seconds),
        sys::STATFS => file_system(place(here, a, 0)?, b),
        sys::FSTATFS => Some(seen_file_system(&File::of(a)?).map(|system| {
            records::statfs(b, &system);
            0
        })),
        sys::SETXATTR
        | sys::LSETXATTR
        | sys::GETXATTR
        | sys::LGETXATTR
        | sys::LISTXATTR
        | sys::LLISTXATTR
        | sys::REMOVEXATTR
        | sys::LREMOVEXATTR => {
            let follow = !matches!(
                number,
                sys::LSETXATTR | sys::LGETXATTR | sys::LLISTXATTR | sys::LREMOVEXATTR
            );
            extended(number, place(here, a, 0)?, follow, args)
        }
        sys::FSETXATTR | sys::FGETXATTR | sys::FLISTXATTR | sys::FREMOVEXATTR => {
            extended(number, File::of(a)?.place(), true, args)
        }
        _ => None,
    }
}

pub(super) fn attributes(place: Place<'_>, follow: bool) -> Result<Attributes, Errno> {
    let place = checked(place)?;
    match known::find(&place, follow) {
        Some(Known::Present(attributes)) => return Ok(attributes),
        Some(Known::Absent) => return Err(Errno(sys::ENOENT)),
        None => {}
    }
    if let Some(attributes) = offered::attributes(&place) {
        return Ok(attributes);
    }
    if let Some((handle, from)) = known::look_ahead(&place) {
        ask_ahead(handle, from);
        if let Some(Known::Present(attributes)) = known::find(&place, follow) {
            return Ok(attributes);
        }
    }
    let manner = if follow {
        Manner::Target
    } else {
        Manner::Itself
    };
    foreseen::missed(manner, place.name);
    let asked = known::ask();
    let request = Request::Attribute(Attribute { place, follow });
    let found = ask(&request, NOTHING, Put::Lane, |answer| match answer.reply {
        Reply::Attributes(attributes) => Ok(attributes),
        _ => Err(Errno(sys::EIO)),
    });
    let learnt = match found {
        Ok(attributes) => Known::Present(attributes),
        Err(Errno(sys::ENOENT)) => Known::Absent,
        Err(_) => return found,
    };
    known::learn(&place, known::means(follow, &learnt), &learnt, asked);
    found
}

/// Attributes of what is open.
pub(super) fn attributes_of(file: &File) -> Result<Attributes, Errno> {
    match cache::attributes(file.description) {
        Some(known) => Ok(known),
        None => attributes(file.place(), true),
    }
}

/// Attributes of a FIFO of the job's that is open here (glibc's fstat(3)).
fn of_fifo(fd: u64, name: u64, flags: u64) -> Option<Attributes> {
    let is_itself = flags & AT_EMPTY_PATH != 0 && text(name)?.is_empty();
    is_itself.then(|| nodes::attributes(fd as i32)).flatten()
}

fn stat(folder: u64, name: u64, to: u64, flags: u64) -> Served {
    if let Some(found) = of_fifo(folder, name, flags) {
        records::stat(to, &found);
        return Some(Ok(0));
    }
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    let place = place(folder, name, flags)?;
    let found = match File::of(folder) {
        // glibc's fstat(3).
        Some(file) if place.name.is_empty() && place.at == file.handle() => attributes_of(&file),
        _ => attributes(place, follow),
    };
    Some(found.map(|found| {
        records::stat(to, &found);
        0
    }))
}

fn access(folder: u64, name: u64, mode: u64, flags: u64) -> Served {
    let place = place(folder, name, flags)?;
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    Some(checked(place).and_then(|place| {
        match known::find(&place, follow) {
            Some(Known::Absent) => return Err(Errno(sys::ENOENT)),
            // F_OK
            Some(Known::Present(_)) if mode == 0 && flags & !KNOWN_ACCESS == 0 => return Ok(0),
            _ => {}
        }
        foreseen::missed(Manner::Target, place.name);
        let asked = known::ask();
        let request = Request::Access(Access {
            place,
            mode: mode as u32,
            follow,
            effective: flags & AT_EACCESS_OR_REMOVEDIR != 0,
        });
        let told = tell(&request);
        if told == Err(Errno(sys::ENOENT)) {
            let learnt = Known::Absent;
            known::learn(&place, known::means(follow, &learnt), &learnt, asked);
        }
        told.map(|()| 0)
    }))
}

fn read_link(folder: u64, name: u64, to: u64, room: u64) -> Served {
    let itself = if folder as i32 == AT_FDCWD {
        0
    } else {
        AT_EMPTY_PATH
    };
    let place = place(folder, name, itself)?;
    // A descriptor's name is a link to what is open.
    if let Some((file, b"")) = descriptor(text(name)?) {
        let request = Request::NameOf(NameOf {
            handle: file.handle(),
        });
        return Some(ask(&request, NOTHING, Put::Lane, |answer| {
            Ok(give(answer.data, to, room as usize))
        }));
    }
    if room as i32 <= 0 {
        return Some(Err(Errno(sys::EINVAL)));
    }
    let place = match checked(place) {
        Ok(place) => place,
        Err(error) => return Some(Err(error)),
    };
    match known::find(&place, false) {
        Some(Known::Absent) => return Some(Err(Errno(sys::ENOENT))),
        Some(Known::Present(attributes))
            if !place.name.is_empty() && attributes.mode & 0o170_000 != 0o120_000 =>
        {
            return Some(Err(Errno(sys::EINVAL)));
        }
        _ => {}
    }
    let known = foreseen::link(&place, |target| give(target, to, room as usize));
    if let Some(known) = known {
        return Some(Ok(known));
    }
    foreseen::missed(Manner::Link, place.name);
    let request = Request::ReadLink(ReadLink { place });
    Some(ask(&request, NOTHING, Put::Lane, |answer| {
        Ok(give(answer.data, to, room as usize))
    }))
}

/// Copies what fits into the program's memory; how much that is.
fn give(data: &[u8], to: u64, room: usize) -> u64 {
    let len = data.len().min(room);
    // SAFETY: the program says that there is so much room.
    unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), to as *mut u8, len) };
    len as u64
}

fn make_directory(folder: u64, name: u64, mode: u64) -> Served {
    let place = place(folder, name, 0)?;
    let mode = without_umask(mode as u32);
    Some(
        checked(place).and_then(|place| {
            tell(&Request::MakeDirectory(MakeDirectory { place, mode })).map(|()| 0)
        }),
    )
}

fn make_node(folder: u64, name: u64, mode: u64) -> Served {
    let place = place(folder, name, 0)?;
    let mode = without_umask(mode as u32);
    Some(
        checked(place)
            .and_then(|place| tell(&Request::MakeNode(MakeNode { place, mode })).map(|()| 0)),
    )
}

fn remove(folder: u64, name: u64, flags: u64) -> Served {
    let place = place(folder, name, 0)?;
    let directory = flags & AT_EACCESS_OR_REMOVEDIR != 0;
    Some(
        checked(place).and_then(|place| {
            tell(&Request::RemoveName(RemoveName { place, directory })).map(|()| 0)
        }),
    )
}

/// name_to_handle_at(2), as of a file system that has none.
fn no_handle(place: Place<'_>, flags: u64) -> Served {
    /// `AT_HANDLE_FID`, `AT_SYMLINK_FOLLOW`, `AT_EMPTY_PATH`.
    const KNOWN: u64 = 0x1600;
    if flags & !KNOWN != 0 {
        return Some(Err(Errno(sys::EINVAL)));
    }
    if place.name.is_empty() && flags & AT_EMPTY_PATH == 0 {
        return Some(Err(Errno(sys::ENOENT)));
    }
    let found = attributes(place, flags & AT_SYMLINK_FOLLOW != 0);
    Some(found.and(Err(Errno(sys::EOPNOTSUPP))))
}

fn rename(from: [u64; 2], to: [u64; 2], flags: u64) -> Served {
    Some(both(from, to, 0)?.and_then(|(from, to)| {
        let flags = flags as u32;
        tell(&Request::Rename(Rename { from, to, flags })).map(|()| 0)
    }))
}

fn link(from: [u64; 2], to: [u64; 2], flags: u64) -> Served {
    let follows = flags & AT_SYMLINK_FOLLOW != 0;
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return both(from, to, flags).map(|_| Err(Errno(sys::EINVAL)));
    }
    // A descriptor's name is a link of this machine.
    if !follows && matches!(text(from[1]).map(descriptor), Some(Some((_, b"")))) {
        return both(from, to, flags).map(|_| Err(Errno(sys::EXDEV)));
    }
    Some(both(from, to, flags)?.and_then(|(from, to)| {
        let follow = follows;
        tell(&Request::Link(Link { from, to, follow })).map(|()| 0)
    }))
}

fn symbolic_link(target: u64, folder: u64, name: u64) -> Served {
    let place = place(folder, name, 0)?;
    let target = text(target)?;
    Some(
        checked(place).and_then(|place| {
            tell(&Request::SymbolicLink(SymbolicLink { target, place })).map(|()| 0)
        }),
    )
}

fn file_system(place: Place<'_>, to: u64) -> Served {
    Some(checked(place).and_then(file_system_of).map(|system| {
        records::statfs(to, &system);
        0
    }))
}

/// fstatfs(2). Who follows a file asks so whether inotify would tell of changes (tail(1)): of a file that is far away it says so.
fn seen_file_system(file: &File) -> Result<FileSystem, Errno> {
    const FUSE: u64 = 0x6573_5546;
    const REGULAR: u32 = 0o100_000;
    let mut system = file_system_of(file.place())?;
    if file.kind() == REGULAR {
        system.kind = FUSE;
    }
    Ok(system)
}

/// What a file system tells of itself.
pub(super) fn file_system_of(place: Place<'_>) -> Result<FileSystem, Errno> {
    let request = Request::FileSystemOf(FileSystemOf { place });
    ask(&request, NOTHING, Put::Lane, |answer| match answer.reply {
        Reply::FileSystem(system) => Ok(system),
        _ => Err(Errno(sys::EIO)),
    })
}

/// Has the next entries of a folder come, with attributes.
fn ask_ahead(handle: u64, from: u64) {
    const AT_ONCE: u32 = 24 << 10;
    let asked = known::ask();
    let request = Request::List(List {
        handle,
        from,
        len: AT_ONCE,
        attributes: true,
    });
    let come = ask(&request, NOTHING, Put::Lane, |answer| {
        known::learn_entries(handle, answer.data, asked);
        Ok(!answer.data.is_empty())
    });
    if come != Ok(true) {
        known::look_no_further(handle);
    }
}

/// Extended attributes: the place, then a name, a value, its length, flags.
fn extended(number: u64, place: Place<'_>, follow: bool, args: &[u64; 6]) -> Served {
    let [_, second, third, fourth, fifth, _] = *args;
    let given = |to: u64, room: u64| {
        move |answer: Answer<'_>| match room {
            0 => Ok(answer.data.len() as u64),
            room if answer.data.len() as u64 > room => Err(Errno(sys::ERANGE)),
            room => Ok(give(answer.data, to, room as usize)),
        }
    };
    let place = match checked(place) {
        Ok(place) => place,
        Err(error) => return Some(Err(error)),
    };
    Some(match number {
        sys::LISTXATTR | sys::LLISTXATTR | sys::FLISTXATTR => {
            if xattrs::bare(&place, follow).is_some() {
                return Some(Ok(0));
            }
            let request = Request::ListXattr(ListXattr { place, follow });
            ask(&request, NOTHING, Put::Lane, given(second, third))
        }
        sys::GETXATTR | sys::LGETXATTR | sys::FGETXATTR => {
            let name = text(second)?;
            let bare = xattrs::bare(&place, follow);
            if let Some(error) = bare.and_then(|alike| xattrs::refusal(alike, name)) {
                return Some(Err(error));
            }
            let request = Request::GetXattr(GetXattr {
                place,
                follow,
                name,
            });
            let answer = ask(&request, NOTHING, Put::Lane, given(third, fourth));
            if let (Some(alike), Err(error)) = (bare, answer) {
                xattrs::learn(alike, name, error);
            }
            answer
        }
        sys::REMOVEXATTR | sys::LREMOVEXATTR | sys::FREMOVEXATTR => {
            let name = text(second)?;
            let request = Request::RemoveXattr(RemoveXattr {
                place,
                follow,
                name,
            });
            tell(&request).map(|()| 0)
        }
        _ => {
            let name = text(second)?;
            let request = Request::SetXattr(SetXattr {
                place,
                follow,
                name,
                flags: fifth as u32,
            });
            let data = (third as *const u8, fourth as usize);
            ask(&request, data, Put::Lane, |_| Ok(0))
        }
    })
}
