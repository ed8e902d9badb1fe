//! Calls that take names.

use super::{File, Served, directory, programs, records};
use crate::program::cache::{self, Learning};
use crate::program::ends;
use crate::program::lanes::{Answer, Put, ask, tell};
use crate::program::process::{self, UMASK};
use crate::program::sys::{self, AT_FDCWD, Errno};
use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;
use wire::{
    Access, Attribute, Attributes, Change, Close, FileSystemOf, GetXattr, Link, ListXattr,
    MakeDirectory, MakeNode, NameOf, Open, Place, ReadLink, RemoveName, RemoveXattr, Rename, Reply,
    Request, SetXattr, Stamp, SymbolicLink, What,
};

const NOTHING: (*const u8, usize) = (core::ptr::null(), 0);
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_EACCESS_OR_REMOVEDIR: u64 = 0x200;
const AT_SYMLINK_FOLLOW: u64 = 0x400;
const AT_EMPTY_PATH: u64 = 0x1000;
const LONGEST_NAME: usize = 4095;
const UTIME_NOW: u64 = 0x3fff_ffff;
const UTIME_OMIT: u64 = 0x3fff_fffe;

/// What is on the machine where the job runs.
const LOCAL: [&[u8]; 3] = [b"proc", b"dev", b"sys"];

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [a, b, c, d, e, _] = *args;
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
        sys::FSTAT => Some(attributes_of(&File::of(a)?).map(|found| {
            records::stat(b, &found);
            0
        })),
        sys::STATX => {
            let follow = c & AT_SYMLINK_NOFOLLOW == 0;
            Some(attributes(place(a, b, c)?, follow).map(|found| {
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
        sys::CHMOD => change(here, a, 0, What::Mode(b as u32)),
        sys::FCHMODAT => change(a, b, 0, What::Mode(c as u32)),
        sys::FCHMOD => change_open(a, What::Mode(b as u32)),
        sys::CHOWN => change(here, a, 0, What::Owner(b as u32, c as u32)),
        sys::LCHOWN => {
            let what = What::Owner(b as u32, c as u32);
            change(here, a, AT_SYMLINK_NOFOLLOW, what)
        }
        sys::FCHOWN => change_open(a, What::Owner(b as u32, c as u32)),
        sys::FCHOWNAT => change(a, b, e, What::Owner(c as u32, d as u32)),
        sys::TRUNCATE => match b as i64 {
            0.. => change(here, a, 0, What::Size(b)),
            _ => None,
        },
        sys::FTRUNCATE => truncate_open(a, b as i64),
        sys::UTIMENSAT => set_times(a, b, d, c, Unit::Nanoseconds),
        sys::FUTIMESAT => set_times(a, b, 0, c, Unit::Microseconds),
        sys::UTIMES => set_times(here, a, 0, b, Unit::Microseconds),
        sys::UTIME => set_times(here, a, 0, b, Unit::Seconds),
        sys::STATFS => file_system(place(here, a, 0)?, b),
        sys::FSTATFS => file_system(File::of(a)?.place(), b),
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

/// A name in the program's memory.
pub(super) fn text(address: u64) -> Option<&'static [u8]> {
    if address == 0 {
        return None;
    }
    // SAFETY: the program says that it is a string.
    let text = unsafe { CStr::from_ptr(address as *const c_char) }.to_bytes();
    Some(text)
}

/// By the text of an absolute name, `.`, `..` and double slashes taken out.
fn is_local(name: &[u8]) -> bool {
    let mut depth = 0u32;
    let mut first: &[u8] = b"";
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => depth = depth.saturating_sub(1),
            part => {
                if depth == 0 {
                    first = part;
                }
                depth += 1;
            }
        }
    }
    depth > 0 && LOCAL.contains(&first)
}

/// What a name of a descriptor stands for if that is remote (`/proc/self/fd/5`, `/dev/stdin`), and what follows. The
/// program itself (`/proc/self/exe`) is one of them.
fn descriptor(name: &'static [u8]) -> Option<(File, &'static [u8])> {
    let folders: [&[u8]; 3] = [b"/proc/self/fd/", b"/dev/fd/", b"/proc/thread-self/fd/"];
    let streams: [&[u8]; 3] = [b"/dev/stdin", b"/dev/stdout", b"/dev/stderr"];
    if let Some(fd) = streams.iter().position(|stream| *stream == name) {
        return File::of(fd as u64).map(|file| (file, &b""[..]));
    }
    let folder = folders.iter().find_map(|folder| name.strip_prefix(*folder));
    let Some(rest) = folder else {
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
fn checked(place: Place<'_>) -> Result<Place<'_>, Errno> {
    match place.name.len() {
        0 if place.at == 0 => Err(Errno(sys::ENOENT)),
        0..=LONGEST_NAME => Ok(place),
        _ => Err(Errno(sys::ENAMETOOLONG)),
    }
}

fn without_umask(mode: u32) -> u32 {
    mode & !UMASK.load(Ordering::Relaxed)
}

fn open(folder: u64, name: u64, flags: u32, mode: u32) -> Served {
    let place = place(folder, name, 0)?;
    Some(open_place(place, flags, mode).map(|fd| fd as u64))
}

fn open_place(place: Place<'_>, flags: u32, mode: u32) -> Result<i32, Errno> {
    open_first(place, flags, mode, &mut [])
}

/// Opens, and reads as many first bytes of a regular file as there are and fit.
pub(super) fn open_first(
    place: Place<'_>,
    flags: u32,
    mode: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    let place = checked(place)?;
    if flags & sys::O_TMPFILE != 0 {
        // It could not be given a name; programs make a file with one instead.
        return Err(Errno(sys::EOPNOTSUPP));
    }
    let flags = if flags & sys::O_PATH != 0 {
        flags & (sys::O_PATH | sys::O_DIRECTORY | sys::O_NOFOLLOW | sys::O_CLOEXEC)
    } else {
        flags
    };
    let table = process::table().ok_or(Errno(sys::EIO))?;
    ends::close_ended();
    let learning = Learning::begin();
    let request = Request::Open(Open {
        place,
        // The shadow's memory is not aligned for O_DIRECT.
        flags: flags & !(sys::O_CLOEXEC | sys::O_NOCTTY | sys::O_DIRECT),
        mode: without_umask(mode),
        first: match &learning {
            Some(_) => cache::FIRST,
            None => bytes.len() as u32,
        },
    });
    let kept = flags & !(sys::O_CREAT | sys::O_EXCL | sys::O_NOCTTY | sys::O_TRUNC);
    let opened = ask(&request, NOTHING, Put::Lane, |answer| match answer.reply {
        Reply::Opened(opened) => {
            let len = answer.data.len().min(bytes.len());
            bytes[..len].copy_from_slice(&answer.data[..len]);
            let made = ends::make(table, &opened, kept);
            let made = made.map_err(|error| (error, opened.handle));
            Ok(made.map(|(fd, index)| {
                if let Some(learning) = learning {
                    let description = &table.descriptions[index];
                    learning.learn(description, &opened.attributes, answer.data);
                }
                fd
            }))
        }
        _ => Err(Errno(sys::EIO)),
    })?;
    opened.map_err(|(error, handle)| {
        let _ = tell(&Request::Close(Close { handle }));
        error
    })
}

/// Opens a directory by the name that chdir(2) was given; none if it is local.
pub(super) fn open_directory(name: u64) -> Option<Result<i32, Errno>> {
    let place = place(AT_FDCWD as u64, name, 0)?;
    let flags = sys::O_PATH | sys::O_DIRECTORY | sys::O_CLOEXEC;
    let may_enter = Request::Access(Access {
        place,
        mode: 1,
        follow: true,
        effective: true,
    });
    Some(open_place(place, flags, 0).and_then(|fd| {
        tell(&may_enter).map(|()| fd).inspect_err(|_| {
            process::set_remote(fd, None);
            sys::close(fd);
        })
    }))
}

/// Opens by an absolute name.
pub(in crate::program) fn open_named(name: &[u8], flags: u32, mode: u32) -> Result<i32, Errno> {
    open_place(Place { at: 0, name }, flags, mode)
}

pub(super) fn attributes(place: Place<'_>, follow: bool) -> Result<Attributes, Errno> {
    let place = checked(place)?;
    let request = Request::Attribute(Attribute { place, follow });
    ask(&request, NOTHING, Put::Lane, |answer| match answer.reply {
        Reply::Attributes(attributes) => Ok(attributes),
        _ => Err(Errno(sys::EIO)),
    })
}

/// Attributes of what is open.
pub(super) fn attributes_of(file: &File) -> Result<Attributes, Errno> {
    match cache::attributes(file.description) {
        Some(known) => Ok(known),
        None => attributes(file.place(), true),
    }
}

fn stat(folder: u64, name: u64, to: u64, flags: u64) -> Served {
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
    Some(checked(place).and_then(|place| {
        let request = Request::Access(Access {
            place,
            mode: mode as u32,
            follow: flags & AT_SYMLINK_NOFOLLOW == 0,
            effective: flags & AT_EACCESS_OR_REMOVEDIR != 0,
        });
        tell(&request).map(|()| 0)
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

/// Two names: both there, both here, or in different worlds.
fn both(
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

fn rename(from: [u64; 2], to: [u64; 2], flags: u64) -> Served {
    Some(both(from, to, 0)?.and_then(|(from, to)| {
        let flags = flags as u32;
        tell(&Request::Rename(Rename { from, to, flags })).map(|()| 0)
    }))
}

fn link(from: [u64; 2], to: [u64; 2], flags: u64) -> Served {
    Some(both(from, to, flags)?.and_then(|(from, to)| {
        let follow = flags & AT_SYMLINK_FOLLOW != 0;
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

fn change(folder: u64, name: u64, flags: u64, what: What) -> Served {
    let place = place(folder, name, flags)?;
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    Some(change_place(place, follow, what))
}

fn change_open(fd: u64, what: What) -> Served {
    let place = File::of(fd)?.place();
    Some(change_place(place, true, what))
}

fn change_place(place: Place<'_>, follow: bool, what: What) -> Result<u64, Errno> {
    let place = checked(place)?;
    let change = Change {
        place,
        follow,
        what,
    };
    tell(&Request::Change(change)).map(|()| 0)
}

fn truncate_open(fd: u64, size: i64) -> Served {
    let file = File::of(fd)?;
    if file.flags() & sys::O_PATH != 0 {
        return Some(Err(Errno(sys::EBADF)));
    }
    match u64::try_from(size) {
        Ok(size) => change_open(fd, What::Size(size)),
        Err(_) => Some(Err(Errno(sys::EINVAL))),
    }
}

/// Sets times; without a name, of the descriptor itself.
fn set_times(folder: u64, name: u64, flags: u64, address: u64, unit: Unit) -> Served {
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
enum Unit {
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

fn file_system(place: Place<'_>, to: u64) -> Served {
    Some(checked(place).and_then(|place| {
        let request = Request::FileSystemOf(FileSystemOf { place });
        ask(&request, NOTHING, Put::Lane, |answer| match answer.reply {
            Reply::FileSystem(system) => {
                records::statfs(to, &system);
                Ok(0)
            }
            _ => Err(Errno(sys::EIO)),
        })
    }))
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
            let request = Request::ListXattr(ListXattr { place, follow });
            ask(&request, NOTHING, Put::Lane, given(second, third))
        }
        sys::GETXATTR | sys::LGETXATTR | sys::FGETXATTR => {
            let name = text(second)?;
            let request = Request::GetXattr(GetXattr {
                place,
                follow,
                name,
            });
            ask(&request, NOTHING, Put::Lane, given(third, fourth))
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
