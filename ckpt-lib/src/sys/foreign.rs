//! What the kernel tells one process about another that may trace it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// `KCMP_*` (linux/kcmp.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Compare {
    File = 0,
    AddressSpace = 1,
    Descriptors = 2,
    FileSystem = 3,
    EpollTarget = 7,
}

/// `struct sched_attr`, second version (sched_setattr(2)).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct SchedAttr {
    size: u32,
    pub(crate) policy: u32,
    pub(crate) flags: u64,
    pub(crate) nice: i32,
    pub(crate) priority: u32,
    pub(crate) runtime: u64,
    pub(crate) deadline: u64,
    pub(crate) period: u64,
    /// Least and most utilisation, of 1024; 0 where the kernel has no such thing (CONFIG_UCLAMP_TASK), or is older than 5.3.
    pub(crate) utilization: [u32; 2],
}

fn check(result: libc::c_long) -> io::Result<i64> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = check(result)? as RawFd;
    // SAFETY: the kernel has just returned this descriptor to us and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `pidfd_open(2)`; also of a thread that stands for its process (Linux 6.9).
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    let open = |flags: libc::c_int| {
        // SAFETY: takes two numbers; a wrong pid is an error.
        owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) })
    };
    match open(0) {
        // No process has this id, but a thread.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
            open(PIDFD_THREAD)
        }
        opened => opened,
    }
}

/// SIGKILL by `pidfd_send_signal(2)`.
pub(crate) fn pidfd_kill(process: BorrowedFd<'_>) -> io::Result<()> {
    let (fd, signal) = (process.as_raw_fd(), libc::SIGKILL);
    // SAFETY: takes numbers, and no siginfo.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, 0, 0) };
    check(sent).map(|_| ())
}

/// `pidfd_getfd(2)`: a duplicate of descriptor `fd` of that process.
pub(crate) fn pidfd_getfd(process: BorrowedFd<'_>, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes three numbers; a wrong descriptor is an error.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}

/// `kcmp(2)`: 0 equal, 1 less, 2 greater, 3 different without order.
pub(crate) fn kcmp(first: (i32, RawFd), second: (i32, RawFd), what: Compare) -> io::Result<i64> {
    // SAFETY: takes numbers only for the kinds this is called with.
    check(unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            first.0,
            second.0,
            what as i32,
            libc::c_long::from(first.1),
            libc::c_long::from(second.1),
        )
    })
}

/// Whether two descriptors of ours share an open file description (`F_DUPFD_QUERY`, since 6.10).
pub(crate) fn is_same_open_file(first: RawFd, second: RawFd) -> io::Result<bool> {
    const F_DUPFD_QUERY: i32 = 1024 + 3;
    // SAFETY: takes numbers only.
    let result = check(unsafe { libc::fcntl(first, F_DUPFD_QUERY, second) }.into())?;
    Ok(result == 1)
}

/// `F_GETOWN_EX` and `F_GETSIG`: kind, id and signal.
pub(crate) fn file_owner(fd: BorrowedFd<'_>) -> io::Result<(i32, i32, i32)> {
    const F_GETOWN_EX: i32 = 16;
    const F_GETSIG: i32 = 11;
    let mut owner = [0_i32; 2];
    // SAFETY: F_GETOWN_EX writes `struct f_owner_ex`, two ints, which `owner` is.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, owner.as_mut_ptr()) }.into())?;
    // SAFETY: takes numbers only.
    let signal = check(unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) }.into())?;
    Ok((owner[0], owner[1], signal as i32))
}

/// Whether descriptor `candidate` is what member number `repeat` under `target` of the epoll set
/// `epoll` of process `pid` refers to.
pub(crate) fn is_epoll_target(
    candidate: (i32, RawFd),
    pid: i32,
    epoll: RawFd,
    target: i32,
    repeat: u32,
) -> io::Result<bool> {
    // struct kcmp_epoll_slot
    let slot = [epoll.cast_unsigned(), target.cast_unsigned(), repeat];
    // SAFETY: `slot` is read by the kernel and lives until the call is over.
    let result = check(unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            candidate.0,
            pid,
            Compare::EpollTarget as i32,
            libc::c_long::from(candidate.1),
            slot.as_ptr(),
        )
    })?;
    Ok(result == 0)
}

/// Whether this kernel tells a process's membarrier registrations (6.3 and later).
pub(crate) fn membarrier_tells() -> bool {
    const GET_REGISTRATIONS: i32 = 1 << 9;
    // SAFETY: takes numbers only, and changes nothing.
    check(unsafe { libc::syscall(libc::SYS_membarrier, GET_REGISTRATIONS, 0, 0) }).is_ok()
}

/// The cookie by which this thread may share a core with others (`PR_SCHED_CORE`), or 0.
pub(crate) fn core_cookie() -> u64 {
    const PR_SCHED_CORE: i32 = 62;
    let mut cookie = 0_u64;
    // SAFETY: PR_SCHED_CORE_GET (0) of this thread (0, 0) writes one u64.
    let result = unsafe { libc::prctl(PR_SCHED_CORE, 0, 0, 0, &raw mut cookie) };
    if result == 0 { cookie } else { 0 }
}

/// `sched_getattr(2)`.
pub(crate) fn scheduling(tid: i32) -> io::Result<SchedAttr> {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: the kernel writes at most `size` bytes to `attr`, which has that size.
    check(unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0) })?;
    Ok(attr)
}

/// `sched_getaffinity(2)`: one bit for each CPU, lowest first.
pub(crate) fn affinity(tid: i32) -> io::Result<Vec<u8>> {
    let mut mask = vec![0_u8; 1024];
    // SAFETY: the kernel writes at most `mask.len()` bytes to `mask`.
    let len = check(unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            tid,
            mask.len(),
            mask.as_mut_ptr(),
        )
    })?;
    Ok(mask[..len as usize].to_vec())
}

/// `ioprio_get(2)` of a thread.
pub(crate) fn io_priority(tid: i32) -> io::Result<u32> {
    const IOPRIO_WHO_PROCESS: i32 = 1;
    // SAFETY: takes two numbers; a wrong tid is an error.
    let result = check(unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, tid) })?;
    Ok(result as u32)
}

/// `get_robust_list(2)`: address and length.
pub(crate) fn robust_list(tid: i32) -> io::Result<(u64, u64)> {
    let mut head = 0_u64;
    let mut len = 0_u64;
    // SAFETY: the kernel writes one word to each of the two pointers.
    check(unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) })?;
    Ok((head, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_duplicate_is_the_same_description() {
        let pid = std::process::id() as i32;
        let file = std::fs::File::open("/dev/null").expect("open");
        let process = pidfd_open(pid).expect("pidfd");
        let twin = pidfd_getfd(process.as_fd(), file.as_raw_fd()).expect("getfd");
        let other = std::fs::File::open("/dev/null").expect("open");
        let compare = |fd| kcmp((pid, file.as_raw_fd()), (pid, fd), Compare::File).expect("kcmp");
        assert_eq!(compare(twin.as_raw_fd()), 0);
        assert_ne!(compare(other.as_raw_fd()), 0);
        let same = is_same_open_file(file.as_raw_fd(), twin.as_raw_fd());
        assert!(same.is_err() || same.is_ok_and(|same| same));
    }

    #[test]
    fn a_thread_can_be_asked_about() {
        let attr = scheduling(0).expect("sched");
        assert_eq!(attr.policy, 0);
        assert!(affinity(0).expect("affinity").iter().any(|byte| *byte != 0));
        let (head, len) = robust_list(0).expect("robust");
        assert!(head != 0 && len == 24);
    }
}
