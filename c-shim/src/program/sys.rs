//! The system calls that the shim makes for itself.

pub(super) use super::raw_call::{Errno, SysResult, call};
use core::ffi::CStr;

/// Numbers of system calls, in the order of their numbers.
macro_rules! numbers {
    ($($name:ident = $number:literal),* $(,)?) => {
        $(pub(super) const $name: u64 = $number;)*
    };
}

numbers! {
    READ = 0, WRITE = 1, OPEN = 2, CLOSE = 3, STAT = 4, FSTAT = 5, LSTAT = 6, LSEEK = 8, MMAP = 9,
    MPROTECT = 10, MUNMAP = 11, MREMAP = 25, MSYNC = 26, POLL = 7, SELECT = 23, EPOLL_CTL = 233, PSELECT6 = 270, PPOLL = 271, SPLICE = 275, TEE = 276, RT_SIGACTION = 13, RT_SIGPROCMASK = 14, RT_SIGRETURN = 15, IOCTL = 16, PREAD64 = 17, PWRITE64 = 18, READV = 19,
    WRITEV = 20, ACCESS = 21, SCHED_YIELD = 24, MADVISE = 28, DUP = 32, DUP2 = 33, GETPID = 39, SENDFILE = 40,
    SOCKET = 41, CONNECT = 42, ACCEPT = 43, SENDTO = 44, RECVFROM = 45, SENDMSG = 46, RECVMSG = 47, SHUTDOWN = 48, BIND = 49, LISTEN = 50, SETSOCKOPT = 54,
    GETSOCKNAME = 51, GETPEERNAME = 52, GETSOCKOPT = 55, ACCEPT4 = 288, RECVMMSG = 299, SENDMMSG = 307, PIDFD_GETFD = 438, CLONE = 56, FORK = 57, VFORK = 58, EXECVE = 59, GETRUSAGE = 98, TIMES = 100, ARCH_PRCTL = 158, TIMER_SETTIME = 223, CLOCK_NANOSLEEP = 230, UNAME = 63, FLOCK = 73,
    RT_SIGPENDING = 127, RT_SIGSUSPEND = 130, SIGALTSTACK = 131, TGKILL = 234, EPOLL_PWAIT = 281, EPOLL_PWAIT2 = 441, CLOCK_GETTIME = 228, PRCTL = 157, SETRLIMIT = 160, PRLIMIT64 = 302, SIGNALFD4 = 289, KILL = 62, EXECVEAT = 322, EXIT_GROUP = 231, FCNTL = 72, FSYNC = 74, FDATASYNC = 75, TRUNCATE = 76, FTRUNCATE = 77,
    GETCWD = 79, CHDIR = 80, FCHDIR = 81, RENAME = 82, MKDIR = 83, RMDIR = 84, CREAT = 85, LINK = 86,
    UNLINK = 87, SYMLINK = 88, READLINK = 89, CHMOD = 90, FCHMOD = 91, CHOWN = 92, FCHOWN = 93,
    LCHOWN = 94, UMASK = 95, UTIME = 132, MKNOD = 133, STATFS = 137, FSTATFS = 138, GETTID = 186,
    READAHEAD = 187, SETXATTR = 188, LSETXATTR = 189, FSETXATTR = 190, GETXATTR = 191, LGETXATTR = 192,
    FGETXATTR = 193, LISTXATTR = 194, LLISTXATTR = 195, FLISTXATTR = 196, REMOVEXATTR = 197,
    LREMOVEXATTR = 198, FREMOVEXATTR = 199, GETDENTS64 = 217, FADVISE64 = 221,
    UTIMES = 235, INOTIFY_ADD_WATCH = 254, OPENAT = 257, MKDIRAT = 258, MKNODAT = 259, FCHOWNAT = 260,
    FUTIMESAT = 261, NEWFSTATAT = 262, UNLINKAT = 263, RENAMEAT = 264, LINKAT = 265, SYMLINKAT = 266,
    READLINKAT = 267, FCHMODAT = 268, FACCESSAT = 269, UTIMENSAT = 280, FALLOCATE = 285, DUP3 = 292,
    PREADV = 295, PWRITEV = 296, RENAMEAT2 = 316, GETRANDOM = 318, MEMFD_CREATE = 319,
    GETRLIMIT = 97, CHROOT = 161, PIVOT_ROOT = 155, ACCT = 163, MOUNT = 165, UMOUNT2 = 166, SWAPON = 167, SWAPOFF = 168, QUOTACTL = 179, SYNC_FILE_RANGE = 277,
    FANOTIFY_MARK = 301, NAME_TO_HANDLE_AT = 303, OPEN_BY_HANDLE_AT = 304, SYNCFS = 306, OPEN_TREE = 428, MOVE_MOUNT = 429, FSPICK = 433,
    OPENAT2 = 437, MOUNT_SETATTR = 442, CACHESTAT = 451, FCHMODAT2 = 452, SETXATTRAT = 463, GETXATTRAT = 464, LISTXATTRAT = 465,
    REMOVEXATTRAT = 466, OPEN_TREE_ATTR = 467, FILE_GETATTR = 468, FILE_SETATTR = 469,
    COPY_FILE_RANGE = 326, PREADV2 = 327, PWRITEV2 = 328, STATX = 332, CLONE3 = 435, CLOSE_RANGE = 436,
    FACCESSAT2 = 439,
}

pub(super) const E2BIG: i32 = 7;
pub(super) const ENOENT: i32 = 2;
pub(super) const EINTR: i32 = 4;
pub(super) const EIO: i32 = 5;
pub(super) const EPERM: i32 = 1;
pub(super) const ENOEXEC: i32 = 8;
pub(super) const EBADF: i32 = 9;
pub(super) const EAGAIN: i32 = 11;
pub(super) const ENOMEM: i32 = 12;
pub(super) const EACCES: i32 = 13;
pub(super) const EFAULT: i32 = 14;
pub(super) const EEXIST: i32 = 17;
pub(super) const EXDEV: i32 = 18;
pub(super) const ENODEV: i32 = 19;
pub(super) const ENOTDIR: i32 = 20;
pub(super) const EINVAL: i32 = 22;
pub(super) const ENFILE: i32 = 23;
pub(super) const EMFILE: i32 = 24;
/// The name is of this machine ([`wire::ELSEWHERE`]).
pub(super) const ELSEWHERE: i32 = wire::ELSEWHERE as i32;
/// It is a FIFO ([`wire::FIFO`]).
pub(super) const FIFO: i32 = wire::FIFO as i32;
pub(super) const ENOTTY: i32 = 25;
pub(super) const EFBIG: i32 = 27;
pub(super) const ENOSPC: i32 = 28;
pub(super) const ESPIPE: i32 = 29;
pub(super) const EROFS: i32 = 30;
pub(super) const EPIPE: i32 = 32;
pub(super) const ERANGE: i32 = 34;
pub(super) const ENAMETOOLONG: i32 = 36;
pub(super) const ENOLCK: i32 = 37;
pub(super) const ENOSYS: i32 = 38;
pub(super) const ELOOP: i32 = 40;
pub(super) const EOVERFLOW: i32 = 75;
pub(super) const ENOTSOCK: i32 = 88;
pub(super) const EADDRINUSE: i32 = 98;
pub(super) const ENODATA: i32 = 61;
pub(super) const EOPNOTSUPP: i32 = 95;
pub(super) const ECONNABORTED: i32 = 103;
pub(super) const ECONNRESET: i32 = 104;
pub(super) const ENOTCONN: i32 = 107;
pub(super) const ETIMEDOUT: i32 = 110;
pub(super) const ECONNREFUSED: i32 = 111;
pub(super) const ESTALE: i32 = 116;
pub(super) const EDQUOT: i32 = 122;

pub(super) const F_DUPFD: u64 = 0;
pub(super) const F_GETFD: u64 = 1;
pub(super) const F_SETFD: u64 = 2;
pub(super) const F_GETFL: u64 = 3;
pub(super) const F_SETFL: u64 = 4;
pub(super) const F_DUPFD_CLOEXEC: u64 = 1030;

pub(super) const O_WRONLY: u32 = 1;
pub(super) const O_ACCMODE: u32 = 3;
pub(super) const O_CREAT: u32 = 0o100;
pub(super) const O_TRUNC: u32 = 0o1000;
pub(super) const O_EXCL: u32 = 0o200;
pub(super) const O_NOCTTY: u32 = 0o400;
pub(super) const O_APPEND: u32 = 0o2000;
pub(super) const O_DIRECT: u32 = 0o40_000;
pub(super) const O_NONBLOCK: u32 = 0o4000;
/// To read a file of this machine: O_CLOEXEC, O_NOCTTY, and what a checkpoint knows it by.
pub(super) const OPENED_TO_READ_HERE: u32 = 0o2_000_400 | crate::habits::READS_HERE;
pub(super) const O_DIRECTORY: u32 = 0o200_000;
pub(super) const O_CLOEXEC: u32 = 0o2_000_000;
pub(super) const O_PATH: u32 = 0o10_000_000;

/// Without O_DIRECTORY, which is part of it.
pub(super) const O_TMPFILE: u32 = 0o20_000_000;
pub(super) const O_NOFOLLOW: u32 = 0o400_000;

pub(super) const AT_FDCWD: i32 = -100;

/// All signals are kept waiting while this lives: what it guards is done whole, whatever a handler does.
pub(super) struct Undisturbed(u64);

impl Undisturbed {
    pub(super) fn begin() -> Self {
        let (all, mut before) = (u64::MAX, 0u64);
        let place = &raw mut before as u64;
        // SAFETY: the kernel reads and writes the two words.
        let _ = unsafe { call(RT_SIGPROCMASK, [2, &raw const all as u64, place, 8]) };
        Undisturbed(before)
    }

    /// What waited before already.
    pub(super) fn before(&self) -> u64 {
        self.0
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // SAFETY: the kernel reads the word.
        let _ = unsafe { call(RT_SIGPROCMASK, [2, &raw const self.0 as u64, 0, 8]) };
    }
}

fn number<const N: usize>(nr: u64, args: [u64; N]) -> SysResult<u64> {
    // SAFETY: used below for calls that take no pointers.
    unsafe { call(nr, args) }
}

pub(super) fn pid() -> u32 {
    number(GETPID, []).unwrap_or(0) as u32
}

pub(super) fn tid() -> u32 {
    number(GETTID, []).unwrap_or(0) as u32
}

/// Does nothing for a while.
pub(super) fn sleep_ms(ms: u64) {
    let _ = number(POLL, [0, 0, ms]);
}

/// Lets others run.
pub(super) fn give_way() {
    let _ = number(SCHED_YIELD, []);
}

pub(super) fn close(fd: i32) {
    let _ = number(CLOSE, [fd as u64]);
}

pub(super) fn dup3(from: i32, to: i32, flags: u32) -> SysResult<u64> {
    number(DUP3, [from as u64, to as u64, flags.into()])
}

pub(super) fn fcntl(fd: i32, command: u64, argument: u64) -> SysResult<u64> {
    number(FCNTL, [fd as u64, command, argument])
}

pub(super) fn open(name: &CStr, flags: u32) -> SysResult<i32> {
    let args = [AT_FDCWD as u64, name.as_ptr() as u64, flags.into(), 0];
    // SAFETY: the kernel reads the string.
    unsafe { call(OPENAT, args) }.map(|fd| fd as i32)
}

/// An `O_PATH` descriptor of what is open (open_tree(2), Linux 5.2), without a walk through /proc.
pub(super) fn open_as_path(fd: i32) -> SysResult<i32> {
    const AT_EMPTY_PATH: u64 = 0x1000;
    let flags = AT_EMPTY_PATH | u64::from(O_CLOEXEC);
    // SAFETY: the kernel reads the string.
    unsafe { call(OPEN_TREE, [fd as u64, c"".as_ptr() as u64, flags]) }.map(|fd| fd as i32)
}

pub(super) fn read(fd: i32, bytes: &mut [u8]) -> SysResult<usize> {
    let args = [fd as u64, bytes.as_mut_ptr() as u64, bytes.len() as u64];
    // SAFETY: the kernel writes within the slice.
    unsafe { call(READ, args) }.map(|len| len as usize)
}

/// getdents64(2).
pub(super) fn entries(fd: i32, bytes: &mut [u8]) -> SysResult<usize> {
    let args = [fd as u64, bytes.as_mut_ptr() as u64, bytes.len() as u64];
    // SAFETY: the kernel writes within the slice.
    unsafe { call(GETDENTS64, args) }.map(|len| len as usize)
}

pub(super) fn write(fd: i32, bytes: &[u8]) -> SysResult<usize> {
    let args = [fd as u64, bytes.as_ptr() as u64, bytes.len() as u64];
    // SAFETY: the kernel reads within the slice.
    unsafe { call(WRITE, args) }.map(|len| len as usize)
}

pub(super) fn pread(fd: i32, bytes: &mut [u8], offset: u64) -> SysResult<usize> {
    let len = bytes.len() as u64;
    let args = [fd as u64, bytes.as_mut_ptr() as u64, len, offset];
    // SAFETY: the kernel writes within the slice.
    unsafe { call(PREAD64, args) }.map(|len| len as usize)
}

pub(super) fn pwrite(fd: i32, bytes: &[u8], offset: u64) -> SysResult<usize> {
    let (at, len) = (bytes.as_ptr() as u64, bytes.len() as u64);
    // SAFETY: the kernel reads within the slice.
    unsafe { call(PWRITE64, [fd as u64, at, len, offset]) }.map(|len| len as usize)
}

/// Bytes of a file of the kernel's.
pub(super) fn length(fd: i32) -> SysResult<u64> {
    const SEEK_END: u64 = 2;
    number(LSEEK, [fd as u64, 0, SEEK_END])
}

pub(super) fn readlink(name: &CStr, bytes: &mut [u8]) -> SysResult<usize> {
    let args = [
        name.as_ptr() as u64,
        bytes.as_mut_ptr() as u64,
        bytes.len() as u64,
    ];
    // SAFETY: the kernel reads the string and writes within the slice.
    unsafe { call(READLINK, args) }.map(|len| len as usize)
}

pub(super) fn memfd(name: &CStr, flags: u64) -> SysResult<i32> {
    // SAFETY: the kernel reads the string.
    unsafe { call(MEMFD_CREATE, [name.as_ptr() as u64, flags]) }.map(|fd| fd as i32)
}

pub(super) fn seek(fd: i32, offset: u64, whence: u64) -> SysResult<u64> {
    number(LSEEK, [fd as u64, offset, whence])
}

/// `struct stat`.
pub(super) fn status(fd: i32) -> SysResult<[u64; 18]> {
    let mut status = [0u64; 18];
    // SAFETY: the kernel writes the structure.
    unsafe { call(FSTAT, [fd as u64, status.as_mut_ptr() as u64]) }.map(|_| status)
}

/// The same of a name; of a link, not of what it leads to.
pub(super) fn status_of(name: &CStr) -> SysResult<[u64; 18]> {
    let mut status = [0u64; 18];
    let args = [name.as_ptr() as u64, status.as_mut_ptr() as u64];
    // SAFETY: the kernel reads the string and writes the structure.
    unsafe { call(LSTAT, args) }.map(|_| status)
}

/// Type and permissions of what is open.
pub(super) fn mode(fd: i32) -> SysResult<u32> {
    // The first half of the fourth word.
    status(fd).map(|status| status[3] as u32)
}

/// Whether this process has no thread but ours.
pub(super) fn has_one_thread() -> bool {
    let Ok(folder) = open(c"/proc/self/task", O_DIRECTORY | O_CLOEXEC) else {
        return false;
    };
    // Links: itself, its parent, and one for each thread.
    let links = status(folder).map(|status| status[2]);
    close(folder);
    links == Ok(3)
}

pub(super) fn fchmod(fd: i32, mode: u64) -> SysResult<u64> {
    number(FCHMOD, [fd as u64, mode])
}

pub(super) fn chmod(name: &CStr, mode: u64) -> SysResult<u64> {
    // SAFETY: the kernel reads the string.
    unsafe { call(CHMOD, [name.as_ptr() as u64, mode]) }
}

/// Does something with each descriptor of this process.
pub(super) fn each_descriptor(mut act: impl FnMut(i32)) -> SysResult<()> {
    /// Of `struct linux_dirent64`: where its length is, and where its name begins.
    const LEN: usize = 16;
    const NAME: usize = 19;
    let folder = open(c"/proc/thread-self/fd", O_DIRECTORY | O_CLOEXEC)?;
    let mut found = [0; 4096];
    let result = loop {
        let mut rest = match entries(folder, &mut found) {
            Ok(0) => break Ok(()),
            Ok(len) => &found[..len],
            Err(error) => break Err(error),
        };
        while let Some([low, high]) = rest.get(LEN..).and_then(|rest| rest.first_chunk::<2>()) {
            let len = usize::from(u16::from_le_bytes([*low, *high])).max(NAME);
            let (entry, behind) = rest.split_at(len.min(rest.len()));
            let name = CStr::from_bytes_until_nul(entry.get(NAME..).unwrap_or_default());
            let number = name
                .ok()
                .and_then(|name| name.to_str().ok()?.parse::<i32>().ok());
            if let Some(fd) = number.filter(|fd| *fd != folder) {
                act(fd);
            }
            rest = behind;
        }
    };
    close(folder);
    result
}

pub(super) fn ftruncate(fd: i32, len: u64) -> SysResult<u64> {
    number(FTRUNCATE, [fd as u64, len])
}

pub(super) fn watch(instance: i32, name: &CStr, events: u64) -> SysResult<i32> {
    let args = [instance as u64, name.as_ptr() as u64, events];
    // SAFETY: the kernel reads the string.
    unsafe { call(INOTIFY_ADD_WATCH, args) }.map(|watch| watch as i32)
}

pub(super) fn random(bytes: &mut [u8]) -> SysResult<u64> {
    let args = [bytes.as_mut_ptr() as u64, bytes.len() as u64, 0];
    // SAFETY: the kernel writes within the slice.
    unsafe { call(GETRANDOM, args) }
}

/// Of a clock that only goes on, as exact as the kernel's ticks.
pub(super) fn milliseconds() -> u64 {
    const CLOCK_MONOTONIC_COARSE: u64 = 6;
    let mut now = [0u64; 2];
    let args = [CLOCK_MONOTONIC_COARSE, now.as_mut_ptr() as u64];
    // SAFETY: the kernel writes two words.
    let _ = unsafe { call(CLOCK_GETTIME, args) };
    now[0] * 1000 + now[1] / 1_000_000
}

/// Of a clock that only goes on.
pub(super) fn nanoseconds() -> u64 {
    const CLOCK_MONOTONIC: u64 = 1;
    let mut now = [0u64; 2];
    let args = [CLOCK_MONOTONIC, now.as_mut_ptr() as u64];
    // SAFETY: the kernel writes two words.
    let _ = unsafe { call(CLOCK_GETTIME, args) };
    now[0] * 1_000_000_000 + now[1]
}

/// Maps memory or a file somewhere.
pub(super) fn map(len: u64, protection: u64, flags: u64, fd: i32) -> SysResult<*mut u8> {
    // SAFETY: without MAP_FIXED nothing that is there is touched.
    unsafe { call(MMAP, [0, len, protection, flags, fd as u64, 0]) }
        .map(|address| address as *mut u8)
}

/// A name in `/proc/thread-self/fd`: that of the process is empty when its first thread has ended and others go on.
pub(super) struct DescriptorName([u8; 32]);

impl DescriptorName {
    pub(super) fn of(fd: i32) -> Self {
        const PREFIX: &[u8] = b"/proc/thread-self/fd/";
        let mut name = [0; 32];
        name[..PREFIX.len()].copy_from_slice(PREFIX);
        let mut digits = [0; 10];
        let mut rest = fd.unsigned_abs();
        let mut count = 0;
        loop {
            digits[count] = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        for (place, digit) in name[PREFIX.len()..]
            .iter_mut()
            .zip(digits[..count].iter().rev())
        {
            *place = *digit;
        }
        DescriptorName(name)
    }

    pub(super) fn get(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }

    /// The number alone.
    pub(super) fn digits(&self) -> &[u8] {
        let name = self.get().to_bytes();
        name.rsplit(|byte| *byte == b'/').next().unwrap_or(name)
    }
}
