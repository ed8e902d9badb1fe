//! System calls, without a libc.
//!
//! # What callers may rely on
//! A wrapper that takes no address but those of its own borrowed arguments is a safe
//! function; what maps, unmaps or hands bare addresses to the kernel is `unsafe`.

use crate::abi::*;
pub use crate::raw_call::{Errno, SysResult, call, checked, syscall};
use core::ffi::CStr;

/// A call whose arguments are plain numbers to the kernel.
fn plain<const N: usize>(nr: u64, args: [u64; N]) -> SysResult<u64> {
    // SAFETY: only used below, for calls that take no pointers.
    unsafe { call(nr, args) }
}

fn pointer<T>(value: &T) -> u64 {
    core::ptr::from_ref(value) as u64
}

fn pointer_mut<T>(value: &mut T) -> u64 {
    core::ptr::from_mut(value) as u64
}

pub fn read(fd: i32, bytes: &mut [u8]) -> SysResult<usize> {
    let args = [fd as u64, bytes.as_mut_ptr() as u64, bytes.len() as u64];
    // SAFETY: the kernel writes within the borrowed slice.
    unsafe { call(SYS_READ, args) }.map(|len| len as usize)
}

pub fn write(fd: i32, bytes: &[u8]) -> SysResult<usize> {
    let args = [fd as u64, bytes.as_ptr() as u64, bytes.len() as u64];
    // SAFETY: the kernel reads within the borrowed slice.
    unsafe { call(SYS_WRITE, args) }.map(|len| len as usize)
}

pub fn pwrite(fd: i32, bytes: &[u8], offset: u64) -> SysResult<usize> {
    let args = [fd as u64, bytes.as_ptr() as u64, bytes.len() as u64, offset];
    // SAFETY: the kernel reads within the borrowed slice.
    unsafe { call(SYS_PWRITE64, args) }.map(|len| len as usize)
}

/// Reads until the slice is full or the file ends; the number of bytes read.
pub fn pread_full(fd: i32, bytes: &mut [u8], offset: u64) -> SysResult<usize> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        let (at, len) = (rest.as_mut_ptr() as u64, rest.len() as u64);
        // SAFETY: the kernel writes within the borrowed slice.
        match unsafe { call(SYS_PREAD64, [fd as u64, at, len, offset + done as u64]) } {
            Ok(0) => break,
            Ok(len) => done += len as usize,
            Err(Errno(EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

pub fn open_at(dir: i32, path: &CStr, flags: u64, mode: u64) -> SysResult<i32> {
    let args = [dir as u64, path.as_ptr() as u64, flags, mode];
    // SAFETY: the kernel reads a NUL-terminated string.
    unsafe { call(SYS_OPENAT, args) }.map(|fd| fd as i32)
}

pub fn open(path: &CStr, flags: u64) -> SysResult<i32> {
    open_at(AT_FDCWD, path, flags | O_CLOEXEC, 0)
}

pub fn read_link<'a>(path: &CStr, to: &'a mut [u8]) -> SysResult<&'a [u8]> {
    let args = [
        path.as_ptr() as u64,
        to.as_mut_ptr() as u64,
        to.len() as u64,
    ];
    // SAFETY: the kernel reads a NUL-terminated string and writes within the borrowed slice.
    let len = unsafe { call(SYS_READLINK, args) }?;
    Ok(to.get(..len as usize).unwrap_or(&[]))
}

pub fn close(fd: i32) {
    let _ = plain(SYS_CLOSE, [fd as u64]);
}

pub fn close_range(first: u64, last: u64) {
    if first > last {
        return;
    }
    if plain(SYS_CLOSE_RANGE, [first, last, 0]) == Err(Errno(ENOSYS)) {
        let (_, hard) = limit(RLIMIT_NOFILE).unwrap_or((1 << 16, 1 << 16));
        for fd in first..=last.min(hard) {
            close(fd as i32);
        }
    }
}

pub fn stat(fd: i32) -> SysResult<Stat> {
    let mut stat = Stat::default();
    // SAFETY: the kernel writes a struct stat, 144 bytes.
    unsafe { call(SYS_FSTAT, [fd as u64, pointer_mut(&mut stat)]) }?;
    Ok(stat)
}

pub fn seek(fd: i32, offset: u64) -> SysResult<u64> {
    plain(SYS_LSEEK, [fd as u64, offset, 0])
}

/// Where it is.
pub fn position(fd: i32) -> SysResult<u64> {
    const SEEK_CUR: u64 = 1;
    plain(SYS_LSEEK, [fd as u64, 0, SEEK_CUR])
}

/// The first place from `offset` on that is not in a hole, to which the file is moved.
pub fn seek_data(fd: i32, offset: u64) -> SysResult<u64> {
    const SEEK_DATA: u64 = 3;
    plain(SYS_LSEEK, [fd as u64, offset, SEEK_DATA])
}

pub fn truncate(fd: i32, len: u64) -> SysResult<u64> {
    plain(SYS_FTRUNCATE, [fd as u64, len])
}

pub fn chmod(fd: i32, mode: u64) -> SysResult<u64> {
    plain(SYS_FCHMOD, [fd as u64, mode])
}

/// `dup3` with close-on-exec.
pub fn dup_to(fd: i32, to: i32) -> SysResult<u64> {
    plain(SYS_DUP3, [fd as u64, to as u64, O_CLOEXEC])
}

pub fn fcntl(fd: i32, command: u64, arg: u64) -> SysResult<u64> {
    plain(SYS_FCNTL, [fd as u64, command, arg])
}

/// Whether `fd` is a terminal.
pub fn is_terminal(fd: i32) -> bool {
    let mut termios = [0u8; 64];
    // SAFETY: the kernel writes a struct termios, 36 bytes.
    unsafe { call(SYS_IOCTL, [fd as u64, TCGETS, termios.as_mut_ptr() as u64]) }.is_ok()
}

/// Whether `fd` is our controlling terminal and our process group is in its foreground.
pub fn is_in_foreground(fd: i32) -> bool {
    let mut group = 0i32;
    // SAFETY: the kernel writes an int; the other call takes no pointer.
    let (asked, own) = unsafe {
        let place = pointer_mut(&mut group);
        (
            call(SYS_IOCTL, [fd as u64, TIOCGPGRP, place]),
            call(SYS_GETPGID, [0]),
        )
    };
    asked.is_ok() && own == Ok(group as u64)
}

/// Sets a terminal; `settings` is a `struct termios2`.
pub fn set_terminal(fd: i32, settings: &[u8; 44]) -> SysResult<()> {
    // SAFETY: the kernel reads 44 bytes.
    unsafe { call(SYS_IOCTL, [fd as u64, TCSETS2, settings.as_ptr() as u64]) }.map(|_| ())
}

/// Puts a process group of our session into the foreground of our terminal.
pub fn set_foreground(fd: i32, group: i32) -> SysResult<()> {
    // SAFETY: the kernel reads an int.
    unsafe { call(SYS_IOCTL, [fd as u64, TIOCSPGRP, &raw const group as u64]) }.map(|_| ())
}

pub fn pipe(flags: u64) -> SysResult<[i32; 2]> {
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two ints.
    unsafe { call(SYS_PIPE2, [pointer_mut(&mut ends), flags]) }?;
    Ok(ends)
}

pub fn socket_pair(kind: u64) -> SysResult<[i32; 2]> {
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two ints.
    unsafe { call(SYS_SOCKETPAIR, [AF_UNIX, kind, 0, pointer_mut(&mut ends)]) }?;
    Ok(ends)
}

pub fn memfd(name: &CStr) -> SysResult<i32> {
    let make = |flags: u64| {
        // SAFETY: the kernel reads a NUL-terminated string.
        unsafe { call(SYS_MEMFD_CREATE, [name.as_ptr() as u64, flags]) }
    };
    let made = match make(MFD_CLOEXEC) {
        Err(Errno(EACCES)) => make(MFD_CLOEXEC | MFD_NOEXEC_SEAL),
        made => made,
    };
    made.map(|fd| fd as i32)
}

/// Maps memory.
///
/// # Safety
/// With MAP_FIXED whatever was at `address` is gone.
pub unsafe fn map(address: u64, len: u64, prot: u64, flags: u64) -> SysResult<u64> {
    // SAFETY: the caller's promise.
    unsafe { call(SYS_MMAP, [address, len, prot, flags, u64::MAX, 0]) }
}

/// New memory of ours.
pub fn map_anywhere(len: usize) -> SysResult<&'static mut [u8]> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: nothing is replaced.
    let at = unsafe { map(0, len as u64, PROT_READ | PROT_WRITE, flags) }?;
    // SAFETY: just mapped, and nobody else knows of it.
    Ok(unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) })
}

/// Unmaps memory.
///
/// # Safety
/// Nobody may use it any more.
pub unsafe fn unmap(address: u64, len: u64) -> SysResult<u64> {
    // SAFETY: the caller's promise.
    unsafe { call(SYS_MUNMAP, [address, len]) }
}

/// Moves a mapping over another.
///
/// # Safety
/// Nobody may use either by its old address or for its old contents.
pub unsafe fn remap(from: u64, len: u64, to: u64) -> SysResult<u64> {
    // SAFETY: the caller's promise.
    unsafe { call(SYS_MREMAP, [from, len, len, MREMAP_MAYMOVE_FIXED, to]) }
}

/// Changes the protection of memory.
///
/// # Safety
/// Nobody may rely on the old one.
pub unsafe fn protect(address: u64, len: u64, prot: u64) -> SysResult<u64> {
    // SAFETY: the caller's promise.
    unsafe { call(SYS_MPROTECT, [address, len, prot]) }
}

/// `madvise` with advice that does not change contents.
pub fn advise(address: u64, len: u64, advice: u64) -> SysResult<u64> {
    debug_assert!(advice == MADV_POPULATE_WRITE);
    plain(SYS_MADVISE, [address, len, advice])
}

/// `madvise` about the size of pages.
pub fn advise_on_pages(address: u64, len: u64, advice: u64) -> SysResult<u64> {
    debug_assert!(matches!(advice, MADV_HUGEPAGE | MADV_NOHUGEPAGE));
    plain(SYS_MADVISE, [address, len, advice])
}

/// Makes zeros of private anonymous memory, which takes none then.
pub fn empty(address: u64, len: u64) -> SysResult<u64> {
    plain(SYS_MADVISE, [address, len, MADV_DONTNEED])
}

pub fn pid() -> i32 {
    plain(SYS_GETPID, []).unwrap_or(0) as i32
}

pub fn parent() -> i32 {
    plain(SYS_GETPPID, []).unwrap_or(0) as i32
}

pub fn tid() -> i32 {
    plain(SYS_GETTID, []).unwrap_or(0) as i32
}

pub fn process_group(pid: i32) -> SysResult<u64> {
    plain(SYS_GETPGID, [pid as u64])
}

pub fn effective_ids() -> (u64, u64) {
    (
        plain(SYS_GETEUID, []).unwrap_or(0),
        plain(SYS_GETEGID, []).unwrap_or(0),
    )
}

pub fn exit_group(code: u32) -> ! {
    loop {
        let _ = plain(SYS_EXIT_GROUP, [u64::from(code)]);
    }
}

pub fn kill(pid: i32, signal: u32) -> SysResult<u64> {
    plain(SYS_KILL, [pid as u64, u64::from(signal)])
}

/// Sets the signal mask; the one before.
pub fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let args = [SIG_SETMASK, pointer(&mask), pointer_mut(&mut old), 8];
    // SAFETY: the kernel reads and writes eight bytes each.
    let _ = unsafe { call(SYS_RT_SIGPROCMASK, args) };
    old
}

/// Gives a signal its default disposition; the one before.
pub fn default_action(signal: u32) -> [u64; 4] {
    let mut old = [0u64; 4];
    let new = [SIG_DFL, 0, 0, 0];
    let args = [u64::from(signal), pointer(&new), pointer_mut(&mut old), 8];
    // SAFETY: the kernel reads and writes a struct kernel_sigaction, 32 bytes.
    let _ = unsafe { call(SYS_RT_SIGACTION, args) };
    old
}

/// Takes back a signal that is pending (sigaction(2): what is ignored is discarded); its disposition is to be set anew.
pub fn discard(signal: u32) {
    set_action(signal, &[SIG_IGN, 0, 0, 0]);
}

/// Sets a disposition read by [`default_action`] again.
pub fn set_action(signal: u32, action: &[u64; 4]) {
    let args = [u64::from(signal), pointer(action), 0, 8];
    // SAFETY: the kernel reads a struct kernel_sigaction, 32 bytes.
    let _ = unsafe { call(SYS_RT_SIGACTION, args) };
}

pub fn signal_fd(mask: u64) -> SysResult<i32> {
    let args = [u64::MAX, pointer(&mask), 8, O_CLOEXEC | O_NONBLOCK];
    // SAFETY: the kernel reads eight bytes.
    unsafe { call(SYS_SIGNALFD4, args) }.map(|fd| fd as i32)
}

/// The next signal of a [`signal_fd`], if there is one.
pub fn next_signal(fd: i32) -> Option<SignalInfo> {
    let mut info = SignalInfo {
        signal: 0,
        errno: 0,
        code: 0,
        pid: 0,
        unused: [0; 7],
        value: 0,
        rest: [0; 20],
    };
    let args = [fd as u64, pointer_mut(&mut info), 128];
    // SAFETY: the kernel writes a struct signalfd_siginfo, 128 bytes.
    let len = unsafe { call(SYS_READ, args) };
    (len == Ok(128)).then_some(info)
}

/// Waits until one of `fds` can be read, or for `timeout`.
pub fn poll(fds: &mut [PollFd], timeout: Option<Timespec>) -> SysResult<u64> {
    let time = timeout.as_ref().map_or(0, pointer);
    let args = [fds.as_mut_ptr() as u64, fds.len() as u64, time, 0, 8];
    // SAFETY: the kernel writes within the borrowed slice and reads a timespec.
    unsafe { call(SYS_PPOLL, args) }
}

/// Whether the other end of a socket is closed.
pub fn is_hung_up(fd: i32) -> bool {
    let mut fds = [PollFd {
        fd,
        events: 0,
        revents: 0,
    }];
    let _ = poll(&mut fds, Some(Timespec::default()));
    fds[0].revents & POLLHUP != 0
}

/// `wait4`; pid and status, pid 0 when nothing has happened.
pub fn wait(pid: i32, options: u64) -> SysResult<(i32, u32)> {
    let mut status = 0u32;
    loop {
        let args = [pid as u64, pointer_mut(&mut status), options, 0];
        // SAFETY: the kernel writes an int.
        match unsafe { call(SYS_WAIT4, args) } {
            Ok(pid) => return Ok((pid as i32, status)),
            Err(Errno(EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// `clone3` of a process: 0 in the child.
pub fn clone_process(flags: u64, set_tid: Option<i32>) -> SysResult<i32> {
    let ids = [set_tid.unwrap_or(0)];
    let args = CloneArgs {
        flags,
        // Whoever is a child of our parent ends as we do.
        exit_signal: match flags & CLONE_PARENT {
            0 => u64::from(SIGCHLD),
            _ => 0,
        },
        set_tid: if set_tid.is_some() { pointer(&ids) } else { 0 },
        set_tid_size: u64::from(set_tid.is_some()),
        ..CloneArgs::default()
    };
    let size = size_of::<CloneArgs>() as u64;
    // SAFETY: the child goes on with a copy of this memory, stack included.
    let result = unsafe { call(SYS_CLONE3, [pointer(&args), size]) };
    match result {
        Err(Errno(ENOSYS | EPERM)) if set_tid.is_none() && flags >> 32 == 0 => {
            // Container filters refuse clone3, whose arguments they cannot see.
            // SAFETY: as above; a null stack means the parent's.
            unsafe { call(SYS_CLONE, [flags | u64::from(SIGCHLD), 0, 0, 0, 0]) }
        }
        other => other,
    }
    .map(|pid| pid as i32)
}

pub fn prctl(option: u64, value: u64) -> SysResult<u64> {
    plain(SYS_PRCTL, [option, value, 0, 0, 0])
}

/// What the calling thread is called (`/proc/PID/comm`).
pub fn set_name(name: &[u8; 16]) -> SysResult<u64> {
    // SAFETY: the kernel reads up to a NUL, of which it looks for no more than 16 bytes.
    unsafe { call(SYS_PRCTL, [PR_SET_NAME, name.as_ptr() as u64]) }
}

/// Fills `bytes` with what nobody can guess; a kernel whose pool is not ready does not wait for it.
pub fn random(bytes: &mut [u8]) -> SysResult<u64> {
    const GRND_NONBLOCK: u64 = 1;
    let args = [bytes.as_mut_ptr() as u64, bytes.len() as u64, GRND_NONBLOCK];
    // SAFETY: the kernel writes within the borrowed slice.
    unsafe { call(SYS_GETRANDOM, args) }
}

/// Sends it through a socket if there is room for it.
pub fn send_at_once(fd: i32, bytes: &[u8]) -> SysResult<u64> {
    const MSG_DONTWAIT: u64 = 0x40;
    const MSG_NOSIGNAL: u64 = 0x4000;
    let args = [
        fd as u64,
        bytes.as_ptr() as u64,
        bytes.len() as u64,
        MSG_DONTWAIT | MSG_NOSIGNAL,
        0,
        0,
    ];
    // SAFETY: the kernel reads within the borrowed slice; there is no address.
    unsafe { call(SYS_SENDTO, args) }
}

pub fn unshare(flags: u64) -> SysResult<u64> {
    plain(SYS_UNSHARE, [flags])
}

pub fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: u64) -> SysResult<u64> {
    let [source, target, kind] = [source, target, kind].map(|text| text.as_ptr() as u64);
    // SAFETY: the kernel reads NUL-terminated strings.
    unsafe { call(SYS_MOUNT, [source, target, kind, flags, 0]) }
}

pub fn unmount(target: &CStr, flags: u64) -> SysResult<u64> {
    // SAFETY: the kernel reads a NUL-terminated string.
    unsafe { call(SYS_UMOUNT2, [target.as_ptr() as u64, flags]) }
}

pub fn pivot_root(new: &CStr, old: &CStr) -> SysResult<u64> {
    // SAFETY: the kernel reads NUL-terminated strings.
    unsafe { call(SYS_PIVOT_ROOT, [new, old].map(|path| path.as_ptr() as u64)) }
}

/// Makes an open directory the current one.
pub fn change_to(folder: i32) -> SysResult<u64> {
    plain(SYS_FCHDIR, [folder as u64])
}

pub fn change_to_path(folder: &CStr) -> SysResult<u64> {
    // SAFETY: the kernel reads a NUL-terminated string.
    unsafe { call(SYS_CHDIR, [folder.as_ptr() as u64]) }
}

pub fn make_folder(path: &CStr) -> SysResult<u64> {
    let args = [AT_FDCWD as u64, path.as_ptr() as u64, 0o700];
    // SAFETY: the kernel reads a NUL-terminated string.
    unsafe { call(SYS_MKDIRAT, args) }
}

/// A symbolic link.
pub fn make_link(to: &CStr, path: &CStr) -> SysResult<u64> {
    let args = [to.as_ptr() as u64, AT_FDCWD as u64, path.as_ptr() as u64];
    // SAFETY: the kernel reads NUL-terminated strings.
    unsafe { call(SYS_SYMLINKAT, args) }
}

/// Gives a thread this niceness, if it has less.
pub fn be_nicer(tid: i32, least: i32) -> SysResult<u64> {
    const PRIO_PROCESS: u64 = 0;
    // The kernel says 20 less the niceness: getpriority(2), "C library/kernel differences".
    let found = 20 - plain(SYS_GETPRIORITY, [PRIO_PROCESS, tid as u64])? as i32;
    if found >= least {
        return Ok(0);
    }
    let args = [PRIO_PROCESS, tid as u64, i64::from(least) as u64];
    plain(SYS_SETPRIORITY, args)
}

/// Gives up all capabilities; those that a program executed by root has by itself are not ours.
pub fn give_up_capabilities() -> SysResult<u64> {
    /// _LINUX_CAPABILITY_VERSION_3, and ourselves.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    const NONE: [u32; 6] = [0; 6];
    let args = [pointer(&HEADER), pointer(&NONE)];
    // SAFETY: the kernel reads a head, and two structs of three words.
    unsafe { call(SYS_CAPSET, args) }
}

/// Soft and hard limit of this process.
pub fn limit(resource: u64) -> SysResult<(u64, u64)> {
    let mut limits = [0u64; 2];
    // SAFETY: the kernel writes two words.
    unsafe { call(SYS_PRLIMIT64, [0, resource, 0, pointer_mut(&mut limits)]) }?;
    Ok((limits[0], limits[1]))
}

pub fn set_limit(resource: u64, soft: u64, hard: u64) -> SysResult<u64> {
    let limits = [soft, hard];
    // SAFETY: the kernel reads two words.
    unsafe { call(SYS_PRLIMIT64, [0, resource, pointer(&limits), 0]) }
}

/// Number of processors this thread may run on.
pub fn processors() -> u32 {
    let mut set = [0u64; 128];
    let args = [0, size_of_val(&set) as u64, pointer_mut(&mut set)];
    // SAFETY: the kernel writes within the array.
    match unsafe { call(SYS_SCHED_GETAFFINITY, args) } {
        Ok(_) => set.iter().map(|word| word.count_ones()).sum::<u32>().max(1),
        Err(_) => 1,
    }
}

/// A clock, in nanoseconds.
pub fn clock(which: u64) -> i128 {
    let mut time = Timespec::default();
    // SAFETY: the kernel writes a timespec.
    let _ = unsafe { call(SYS_CLOCK_GETTIME, [which, pointer_mut(&mut time)]) };
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

/// The resolution of a clock.
pub fn clock_resolution(which: u64, time: &mut Timespec) -> SysResult<u64> {
    // SAFETY: the kernel writes a timespec.
    unsafe { call(SYS_CLOCK_GETRES, [which, pointer_mut(time)]) }
}

/// Waits while `word` is `value`, also across processes that share it.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    let args = [word.as_ptr() as u64, FUTEX_WAIT, u64::from(value), 0];
    // SAFETY: the kernel reads the word.
    let _ = unsafe { call(SYS_FUTEX, args) };
}

/// Wakes everybody who waits for `word`.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    let args = [word.as_ptr() as u64, FUTEX_WAKE, i32::MAX as u64];
    // SAFETY: the kernel uses the address only as a name.
    let _ = unsafe { call(SYS_FUTEX, args) };
}
