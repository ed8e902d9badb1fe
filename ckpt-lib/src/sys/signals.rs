//! Signals to single threads.
#![allow(unsafe_code)]

use nix::errno::Errno;

/// Sends a signal to one thread of a process (tgkill(2)).
///
/// # Errors
/// ESRCH: there is no such thread in it; EPERM: it is another user's.
pub(crate) fn send_to_thread(pid: i32, tid: i32, signal: i32) -> nix::Result<()> {
    // SAFETY: tgkill(2) takes numbers; one that names no thread of that process is refused.
    Errno::result(unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) }).map(drop)
}
