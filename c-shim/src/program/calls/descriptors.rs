//! Descriptors: dup, close, fcntl, the current directory; and processes that share memory.

use super::{File, Served, compressed, locks, opening, records};
use crate::program::entry::{NUMBERED, REMOTE};
use crate::program::process::{self, remote, set_remote};
use crate::program::sys::{self, Errno, call};
use crate::program::{behind, ends, here, known, lanes, presence};
use crate::table::{RESERVED, Reserved, Table};
use core::sync::atomic::Ordering;
use wire::{NameOf, Open, Request, SetAppend};

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [first, second, third, ..] = *args;
    if hidden(first as i32) && super::is_about_descriptor(number) {
        return Some(Err(Errno(sys::EBADF)));
    }
    match number {
        sys::CLOSE => close(first as i32),
        sys::DUP => File::of(first).map(|file| duplicate(&file, first, sys::F_DUPFD, 0)),
        sys::DUP2 => replace(first, second, || {
            // SAFETY: dup2(2) takes numbers.
            unsafe { call(sys::DUP2, [first, second]) }
        }),
        // What the kernel refuses replaces nothing.
        sys::DUP3 if third as u32 & !sys::O_CLOEXEC != 0 => None,
        sys::DUP3 => replace(first, second, || {
            sys::dup3(first as i32, second as i32, third as u32)
        }),
        sys::FCNTL => control(first, second, third),
        sys::CLOSE_RANGE => close_range(first, second, third),
        sys::FCHDIR => Some(match File::of(first) {
            Some(file) => move_to(file, first as i32),
            // SAFETY: fchdir(2) takes a number.
            None => leave_to_kernel(unsafe { call(sys::FCHDIR, [first]) }),
        }),
        sys::CHDIR => change_directory(args),
        sys::GETCWD => current_directory(first as *mut u8, second),
        sys::SETRLIMIT => limit(first, second).map(|()| Ok(0)),
        // Of this process, and a new limit.
        sys::PRLIMIT64 if third != 0 && (first == 0 || first == u64::from(sys::pid())) => {
            limit_and_tell(second, third, args[3])
        }
        sys::UMASK => {
            // A child of vfork has an umask of its own, which its own opens do not heed.
            if process::is_own() {
                process::UMASK.store(first as u32 & 0o777, Ordering::Relaxed);
            }
            None
        }
        sys::FLOCK => Some(locks::flock(first as i32, &File::of(first)?, second)),
        _ => None,
    }
}

/// Descriptors that must be possible, for ours are behind the job's.
const FEWEST: u64 = 1100;
const RLIMIT_NOFILE: u64 = 7;

/// setrlimit(2) of the number of descriptors: never below what we need. None: it is the kernel's.
fn limit(resource: u64, address: u64) -> Option<()> {
    if resource != RLIMIT_NOFILE || address == 0 {
        return None;
    }
    // SAFETY: the program says that two words are there.
    let [soft, hard] = unsafe { (address as *const [u64; 2]).read_unaligned() };
    if soft > hard || soft >= FEWEST {
        return None;
    }
    let raised = [soft.max(FEWEST), hard.max(FEWEST)];
    let place = &raw const raised as u64;
    // SAFETY: the kernel reads two words.
    let set = unsafe { call(sys::PRLIMIT64, [0, RLIMIT_NOFILE, place, 0]) };
    // Where that is too much, it is the kernel's to say what is not.
    set.ok().map(|_| ())
}

/// prlimit(2) of this process.
fn limit_and_tell(resource: u64, address: u64, old: u64) -> Served {
    let mut before = [0u64; 2];
    let place = &raw mut before as u64;
    // SAFETY: the kernel writes two words.
    unsafe { call(sys::PRLIMIT64, [0, resource, 0, place]) }.ok()?;
    limit(resource, address)?;
    if old != 0 {
        // SAFETY: the program says that there is room for two words.
        unsafe { (old as *mut [u64; 2]).write_unaligned(before) };
    }
    Some(Ok(0))
}

fn note(fd: u64, description: Option<usize>) {
    set_remote(fd as i32, description);
}

/// A descriptor that the job must not touch: for it, there is none.
pub(super) fn hidden(fd: i32) -> bool {
    fd >= RESERVED[0] && lanes::is_ours(fd)
}

fn close(fd: i32) -> Served {
    if hidden(fd) {
        return Some(Err(Errno(sys::EBADF)));
    }
    let file = File::of(fd as u64)?;
    // Before the number can be somebody else's.
    set_remote(fd, None);
    let sent = behind::close(file.description).and_then(|()| compressed::store(&file));
    presence::closes(file.description, false);
    sys::close(fd);
    ends::close_ended();
    Some(sent.map(|()| 0))
}

/// dup(2) and what fcntl(2) has of it.
fn duplicate(file: &File, fd: u64, command: u64, least: u64) -> Result<u64, Errno> {
    let new = sys::fcntl(fd as i32, command, least)? as i32;
    let new = ends::not_withheld(new, command)? as u64;
    note(new, Some(file.index));
    Ok(new)
}

/// dup2(2) and dup3(2): a descriptor that is replaced never leads to nothing in between.
fn replace(from: u64, to: u64, kernel: impl FnOnce() -> sys::SysResult<u64>) -> Served {
    if hidden(to as i32) || hidden(from as i32) {
        return Some(Err(Errno(sys::EBADF)));
    }
    let (old, new) = (remote(from as i32), remote(to as i32));
    if old.is_none() && new.is_none() || from == to {
        return None;
    }
    let from_is_open = old.is_some() || sys::fcntl(from as i32, sys::F_GETFD, 0).is_ok();
    let replaced = File::of(to).filter(|_| from_is_open);
    if old.is_some() {
        note(to, old);
    }
    if let Some(file) = replaced {
        // It has no way to tell of an error, which waits for whoever else has it open.
        behind::send_file(file.description);
        presence::closes(file.description, false);
    }
    let result = kernel();
    match &result {
        Ok(_) => note(to, old),
        Err(_) => note(to, new),
    }
    if new.is_some() {
        ends::close_ended();
    }
    Some(result)
}

fn control(fd: u64, command: u64, argument: u64) -> Served {
    if hidden(fd as i32) {
        return Some(Err(Errno(sys::EBADF)));
    }
    let file = File::of(fd)?;
    let changeable = sys::O_APPEND | sys::O_NONBLOCK | 0o1_050_000; // O_DIRECT, O_NOATIME, O_ASYNC
    match command {
        sys::F_DUPFD | sys::F_DUPFD_CLOEXEC => Some(duplicate(&file, fd, command, argument)),
        sys::F_GETFD | sys::F_SETFD => None,
        sys::F_GETFL => {
            let flags = file.flags() & !(sys::O_CLOEXEC | Open::COMPRESSED);
            // O_LARGEFILE shows, as on every descriptor of a 64-bit program that is more than a name.
            let large = if flags & sys::O_PATH == 0 {
                0o100_000
            } else {
                0
            };
            Some(Ok(u64::from(flags | large)))
        }
        sys::F_SETFL => {
            let kept = file.flags() & !changeable;
            let flags = kept | argument as u32 & changeable;
            let append = flags & sys::O_APPEND != 0;
            let request = Request::SetAppend(SetAppend {
                handle: file.handle(),
                append,
            });
            let told = if append == (file.flags() & sys::O_APPEND != 0) {
                Ok(())
            } else {
                lanes::tell(&request)
            };
            Some(told.map(|()| {
                file.description.flags.store(flags, Ordering::Relaxed);
                0
            }))
        }
        _ if locks::is_about_locks(command) => {
            Some(locks::control(fd as i32, &file, command, argument))
        }
        _ => Some(Err(Errno(sys::EINVAL))),
    }
}

fn close_range(first: u64, last: u64, flags: u64) -> Served {
    const CLOSE_RANGE_CLOEXEC: u64 = 4;
    const KNOWN: u64 = 6;
    if first > last || flags & !KNOWN != 0 {
        return None;
    }
    let mut from = first;
    let last = last.min(u64::from(u32::MAX));
    let kernel = |from: u64, to: u64| {
        // SAFETY: close_range(2) takes numbers.
        unsafe { call(sys::CLOSE_RANGE, [from, to, flags]) }
    };
    let highest = last.min(NUMBERED as u64 - 1);
    let mut result = Ok(0);
    for fd in first..=highest {
        if hidden(fd as i32) {
            if from < fd {
                result = result.and(kernel(from, fd - 1));
            }
            from = fd + 1;
        } else if flags & CLOSE_RANGE_CLOEXEC == 0
            && REMOTE[fd as usize].load(Ordering::Relaxed) != 0
            && process::is_own()
            && let Some(file) = File::of(fd)
        {
            note(fd, None);
            behind::send_file(file.description);
            presence::closes(file.description, false);
        }
    }
    if from <= last {
        result = result.and(kernel(from, last));
    }
    ends::close_ended();
    Some(result)
}

/// Makes an open directory the current one.
fn move_to(file: File, fd: i32) -> Result<u64, Errno> {
    if !file.is_directory() {
        return Err(Errno(sys::ENOTDIR));
    }
    let number = Reserved::Directory.number();
    sys::dup3(fd, number, 0)?;
    set_remote(number, Some(file.index));
    ends::close_ended();
    Ok(0)
}

fn change_directory(args: &[u64; 6]) -> Served {
    match opening::open_directory(args[0]) {
        Some(Ok(fd)) => {
            let result = File::of(fd as u64)
                .ok_or(Errno(sys::EIO))
                .and_then(|file| move_to(file, fd));
            set_remote(fd, None);
            sys::close(fd);
            Some(result)
        }
        Some(Err(error)) => Some(Err(error)),
        // A local one: relative names are the kernel's from now on.
        None => Some(move_here(args[0])),
    }
}

/// chdir(2) to a directory of this machine.
pub(super) fn move_here(name: u64) -> Result<u64, Errno> {
    // SAFETY: the kernel reads the program's string.
    leave_to_kernel(unsafe { call(sys::CHDIR, [name]) })
}

/// If the current directory is a local one now, relative names are the kernel's.
fn leave_to_kernel(moved: sys::SysResult<u64>) -> sys::SysResult<u64> {
    if moved.is_ok() && super::directory().is_some() {
        let number = Reserved::Directory.number();
        set_remote(number, None);
        sys::close(number);
        ends::close_ended();
    }
    moved
}

fn current_directory(to: *mut u8, room: u64) -> Served {
    let handle = super::directory()?.handle();
    let put = |name: &[u8]| {
        if name.len() as u64 + 1 > room {
            return Err(Errno(sys::ERANGE));
        }
        let mut room = records::Room::new(to, room as usize);
        room.push(name);
        room.push(&[0]);
        Ok(name.len() as u64 + 1)
    };
    let mut known = [0; here::LONGEST];
    if let Some(name) = here::name(handle, &mut known) {
        return Some(put(name));
    }
    let asked = known::ask();
    let request = Request::NameOf(NameOf { handle });
    let nothing = (core::ptr::null(), 0);
    Some(lanes::ask(&request, nothing, lanes::Put::Lane, |answer| {
        here::learn(handle, answer.data, asked);
        put(answer.data)
    }))
}

/// The first process of a job: it begins where the job does.
pub(super) fn begin_directory(table: &Table) -> Result<(), Errno> {
    if table.begun.swap(1, Ordering::Relaxed) != 0 {
        return Ok(());
    }
    let len = table.header.directory_len as usize;
    let name = table.header.directory.get(..len).unwrap_or_default();
    let flags = sys::O_PATH | sys::O_DIRECTORY | sys::O_CLOEXEC;
    let fd = opening::open_named(name, flags, 0)?;
    let moved = File::of(fd as u64)
        .ok_or(Errno(sys::EIO))
        .and_then(|file| move_to(file, fd));
    set_remote(fd, None);
    sys::close(fd);
    moved.map(|_| ())
}
