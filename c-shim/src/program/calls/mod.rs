//! What each system call means for a remote file: number and six arguments in, a result or "not ours" out.
//! docs/CALLS.md lists them.

mod changes;
mod clocks;
mod compressed;
mod contents;
mod controls;
mod descriptors;
mod fallback;
mod flagged;
mod limits;
mod locks;
mod mappings;
mod memory;
mod methods;
mod names;
mod opening;
mod places;
mod processes;
mod programs;
mod ready;
mod records;
mod refused;
mod sockets;
mod transfer;
mod within;

use super::behind;
use super::count;
use super::entry::{Frame, NUMBERS, action};
use super::fast;
use super::foreseen;
use super::offered;
use super::process;
use super::sys::{self, Errno};
use crate::table::{Description, Reserved, Table};
use core::sync::atomic::{AtomicU8, Ordering};
use wire::Place;

pub(super) use limits::{
    are_set as are_limits_set, begin as begin_limits, inherit as inherit_limits,
};
pub(super) use mappings::forget;
pub(super) use memory::{contents_of, fetch_ahead};
pub(super) use opening::open_named;
pub(super) use programs::{Resolved, occupy_start, resolve_by_shell, resolve_name};

/// A result, or none: the kernel's.
type Served = Option<Result<u64, Errno>>;

/// Calls that are ours if their first argument is a remote descriptor.
const BY_DESCRIPTOR: &[u64] = &[
    sys::READ,
    sys::WRITE,
    sys::FSTAT,
    sys::LSEEK,
    sys::IOCTL,
    sys::PREAD64,
    sys::PWRITE64,
    sys::READV,
    sys::WRITEV,
    sys::DUP,
    sys::FCNTL,
    sys::FLOCK,
    sys::FSYNC,
    sys::FDATASYNC,
    sys::FTRUNCATE,
    sys::FCHMOD,
    sys::FCHOWN,
    sys::FSTATFS,
    sys::READAHEAD,
    sys::FSETXATTR,
    sys::FGETXATTR,
    sys::FLISTXATTR,
    sys::FREMOVEXATTR,
    sys::GETDENTS64,
    sys::FADVISE64,
    sys::FALLOCATE,
    sys::PREADV,
    sys::PWRITEV,
    sys::PREADV2,
    sys::PWRITEV2,
    sys::SYNC_FILE_RANGE,
    sys::OPEN_BY_HANDLE_AT,
    sys::SYNCFS,
    sys::CACHESTAT,
];

/// Calls that must be looked at.
const ALWAYS: &[u64] = &[
    sys::OPEN,
    sys::RT_SIGACTION,
    sys::CLOSE,
    sys::STAT,
    sys::LSTAT,
    sys::MMAP,
    sys::MUNMAP,
    sys::MREMAP,
    sys::MSYNC,
    sys::EXIT_GROUP,
    sys::ACCESS,
    sys::DUP2,
    sys::SENDFILE,
    sys::SPLICE,
    sys::TEE,
    sys::POLL,
    sys::PPOLL,
    sys::SELECT,
    sys::PSELECT6,
    sys::EPOLL_CTL,
    sys::CLONE,
    sys::FORK,
    sys::VFORK,
    sys::EXECVE,
    sys::EXECVEAT,
    sys::GETRLIMIT,
    sys::SETRLIMIT,
    sys::PRLIMIT64,
    sys::TRUNCATE,
    sys::GETCWD,
    sys::CHDIR,
    sys::FCHDIR,
    sys::RENAME,
    sys::MKDIR,
    sys::RMDIR,
    sys::CREAT,
    sys::LINK,
    sys::UNLINK,
    sys::SYMLINK,
    sys::READLINK,
    sys::CHMOD,
    sys::CHOWN,
    sys::LCHOWN,
    sys::UMASK,
    sys::UNAME,
    sys::GETRUSAGE,
    sys::TIMES,
    sys::CLOCK_GETTIME,
    sys::CLOCK_NANOSLEEP,
    sys::TIMER_SETTIME,
    sys::UTIME,
    sys::MKNOD,
    sys::STATFS,
    sys::SETXATTR,
    sys::LSETXATTR,
    sys::GETXATTR,
    sys::LGETXATTR,
    sys::LISTXATTR,
    sys::LLISTXATTR,
    sys::REMOVEXATTR,
    sys::LREMOVEXATTR,
    sys::UTIMES,
    sys::OPENAT,
    sys::MKDIRAT,
    sys::MKNODAT,
    sys::FCHOWNAT,
    sys::FUTIMESAT,
    sys::NEWFSTATAT,
    sys::UNLINKAT,
    sys::RENAMEAT,
    sys::LINKAT,
    sys::SYMLINKAT,
    sys::READLINKAT,
    sys::FCHMODAT,
    sys::FACCESSAT,
    sys::UTIMENSAT,
    sys::DUP3,
    sys::RENAMEAT2,
    sys::COPY_FILE_RANGE,
    sys::STATX,
    sys::CLONE3,
    sys::CLOSE_RANGE,
    sys::FACCESSAT2,
    sys::OPENAT2,
    sys::FCHMODAT2,
    sys::NAME_TO_HANDLE_AT,
    sys::INOTIFY_ADD_WATCH,
    sys::FANOTIFY_MARK,
    sys::CHROOT,
    sys::PIVOT_ROOT,
    sys::ACCT,
    sys::MOUNT,
    sys::UMOUNT2,
    sys::SWAPON,
    sys::SWAPOFF,
    sys::QUOTACTL,
    sys::OPEN_TREE,
    sys::OPEN_TREE_ATTR,
    sys::MOVE_MOUNT,
    sys::FSPICK,
    sys::MOUNT_SETATTR,
    sys::SETXATTRAT,
    sys::GETXATTRAT,
    sys::LISTXATTRAT,
    sys::REMOVEXATTRAT,
    sys::FILE_GETATTR,
    sys::FILE_SETATTR,
];

/// Says what is done about each number.
pub(super) fn begin(actions: &[AtomicU8; NUMBERS]) {
    for (numbers, what) in [
        (BY_DESCRIPTOR, action::BY_DESCRIPTOR),
        (ALWAYS, action::ALWAYS),
        (sockets::NUMBERS, action::ALWAYS),
        (sockets::BY_DESCRIPTOR, action::BY_DESCRIPTOR),
    ] {
        for number in numbers {
            actions[*number as usize].store(what, Ordering::Relaxed);
        }
    }
    debug_assert_eq!(actions[3].load(Ordering::Relaxed), action::ALWAYS);
    let _ = action::NONE;
}

/// Whether a call is to be led here at all.
pub(super) fn is_wanted(number: u32) -> bool {
    let number = u64::from(number);
    is_of_sockets(number) || BY_DESCRIPTOR.contains(&number) || ALWAYS.contains(&number)
}

fn is_of_sockets(number: u64) -> bool {
    sockets::NUMBERS.contains(&number) || sockets::BY_DESCRIPTOR.contains(&number)
}

/// The first process of a job begins where the job does.
pub(super) fn begin_directory(table: &Table) -> Result<(), Errno> {
    descriptors::begin_directory(table)
}

/// Whether the first argument is a descriptor.
fn is_about_descriptor(number: u64) -> bool {
    BY_DESCRIPTOR.contains(&number)
}

/// Serves a call.
pub(super) fn serve(frame: &Frame) -> Option<i64> {
    if matches!(frame.number, sys::EXIT_GROUP | sys::EXECVE | sys::EXECVEAT) {
        behind::send_all();
    }
    if frame.number == sys::RT_SIGACTION {
        fast::handles(frame.args[1]);
        return None;
    }
    let served = if is_of_sockets(frame.number) {
        sockets::serve(frame.number, &frame.args)
    } else {
        clocks::serve(frame.number, &frame.args)
            .or_else(|| within::serve(frame.number, &frame.args))
            .or_else(|| methods::serve(frame.number, &frame.args))
    };
    if let Some(Ok(result)) = served
        && is_about_descriptor(frame.number)
        && let Some(file) = File::of(frame.args[0])
    {
        count::served(frame.number, file.description, result);
    }
    served.map(|result| match result {
        Ok(value) => value as i64,
        // Where nobody asks where it leads.
        Err(Errno(sys::ELSEWHERE | sys::FIFO)) => -i64::from(sys::EACCES),
        Err(Errno(errno)) => -i64::from(errno),
    })
}

/// Serves a call with the names that are meant.
fn serve_as_meant(number: u64, args: &[u64; 6]) -> Served {
    if number == sys::EXIT_GROUP {
        offered::end();
        foreseen::end();
    }
    limits::serve(number, args)
        .or_else(|| descriptors::serve(number, args))
        .or_else(|| contents::serve(number, args))
        .or_else(|| controls::serve(number, args))
        .or_else(|| memory::serve(number, args))
        .or_else(|| mappings::serve(number, args))
        .or_else(|| programs::serve(number, args))
        .or_else(|| processes::serve(number, args))
        .or_else(|| ready::serve(number, args))
        .or_else(|| transfer::serve(number, args))
        .or_else(|| names::serve(number, args))
        .or_else(|| refused::serve(number, args))
}

/// An open file description of the job.
#[derive(Clone, Copy)]
struct File {
    index: usize,
    description: &'static Description,
}

impl File {
    /// What a descriptor stands for, if it is remote.
    fn of(fd: u64) -> Option<File> {
        let index = process::remote(fd as i32)?;
        let description = process::table()?.descriptions.get(index)?;
        Some(File { index, description })
    }

    fn handle(&self) -> u64 {
        self.description.handle.load(Ordering::Relaxed)
    }

    fn flags(&self) -> u32 {
        self.description.flags.load(Ordering::Relaxed)
    }

    /// Where the next byte is read or written. What is appended moves it when it is sent.
    fn offset(&self) -> u64 {
        if self.flags() & sys::O_APPEND != 0 {
            behind::send_file(self.description);
        }
        self.description.offset.load(Ordering::Relaxed)
    }

    /// `S_IF…`.
    fn kind(&self) -> u32 {
        self.description.mode.load(Ordering::Relaxed) & 0o170_000
    }

    fn is_directory(&self) -> bool {
        self.kind() == 0o040_000
    }

    /// The file itself, as a place.
    fn place(&self) -> Place<'static> {
        Place {
            at: self.handle(),
            name: b"",
        }
    }
}

/// Whether this handle is that of the current directory.
pub(super) fn is_current(handle: u64) -> bool {
    directory().is_some_and(|current| current.handle() == handle)
}

/// The current directory, if it is remote.
fn directory() -> Option<File> {
    File::of(Reserved::Directory.number() as u64)
}
