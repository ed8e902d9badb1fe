//! Options of a job's socket that are other ones for a moment, and are put back whatever happens to this process.
//!
//! ```text
//! guard: fork() ──> waits ──"done"──> leaves
//!                     └──our end (we were killed)──> puts the options back, leaves
//! ```
#![allow(unsafe_code)]

use super::channels::{set_socket_option, socket_option};
use super::fault;
use nix::sys::signal::{SigSet, SigmaskHow};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// See the module. Dropping it puts the options back.
#[derive(Debug)]
pub(crate) struct Guarded<'a> {
    fd: BorrowedFd<'a>,
    before: Vec<(i32, i32)>,
    /// The child and our end of the line to it; none where there may be no further process (RLIMIT_NPROC): then a SIGKILL right now
    /// leaves the options changed.
    guard: Option<(libc::pid_t, UnixStream)>,
}

impl<'a> Guarded<'a> {
    /// Gives options (of SOL_SOCKET, ints) these values.
    ///
    /// # Errors
    /// getsockopt(2), setsockopt(2); the options are as they were then.
    pub(crate) fn set(fd: BorrowedFd<'a>, options: &[(i32, i32)]) -> io::Result<Self> {
        let before = options
            .iter()
            .map(|(option, _)| Ok((*option, socket_option(fd, *option)?)))
            .collect::<io::Result<Vec<_>>>()?;
        let guard = fork_guard(fd, &before).ok();
        let guarded = Guarded { fd, before, guard };
        for (option, value) in options {
            set_socket_option(fd, *option, *value)?;
            fault::step();
        }
        Ok(guarded)
    }

    /// Puts the options back.
    ///
    /// # Errors
    /// setsockopt(2).
    pub(crate) fn restore(mut self) -> io::Result<()> {
        let put_back = self.put_back();
        self.before.clear();
        put_back
    }

    fn put_back(&self) -> io::Result<()> {
        let put = |(option, value): &(i32, i32)| {
            fault::step();
            set_socket_option(self.fd, *option, *value)
        };
        // All are tried, also behind one that fails.
        self.before.iter().map(put).fold(Ok(()), io::Result::and)
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        // Nothing is left of them after `restore`. Elsewhere an error is on its way already.
        let _ = self.put_back();
        if let Some((child, line)) = self.guard.take() {
            let flags = nix::sys::socket::MsgFlags::MSG_NOSIGNAL;
            let _ = nix::sys::socket::send(line.as_raw_fd(), b"x", flags);
            // SAFETY: the child's number; its status is not asked for.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) };
        }
    }
}

/// Starts what puts options back if we are killed.
fn fork_guard(fd: BorrowedFd<'_>, before: &[(i32, i32)]) -> io::Result<(libc::pid_t, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    // No handler of ours runs there.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    // SAFETY: the child makes system calls alone, on memory that is there already, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = nix::unistd::setsid();
        drop(ours);
        if !matches!((&theirs).read(&mut [0]), Ok(1)) {
            for (option, value) in before {
                let _ = set_socket_option(fd, *option, *value);
            }
        }
        // SAFETY: takes a number.
        unsafe { libc::_exit(0) };
    }
    let failed = io::Error::last_os_error();
    mask.thread_set_mask()?;
    if child < 0 {
        return Err(failed);
    }
    Ok((child, ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;
    use std::time::{Duration, Instant};

    const OPTIONS: [(i32, i32); 2] = [(libc::SO_PASSCRED, 1), (libc::SO_PEEK_OFF, 0)];

    fn values(socket: &UnixDatagram) -> [i32; 2] {
        OPTIONS.map(|(option, _)| socket_option(socket.as_fd(), option).expect("is read"))
    }

    #[test]
    fn options_are_put_back() {
        let (socket, _other) = UnixDatagram::pair().expect("a pair");
        let guarded = Guarded::set(socket.as_fd(), &OPTIONS).expect("are set");
        assert_eq!(values(&socket), [1, 0]);
        guarded.restore().expect("are put back");
        assert_eq!(values(&socket), [0, -1]);
        drop(Guarded::set(socket.as_fd(), &OPTIONS).expect("are set"));
        assert_eq!(values(&socket), [0, -1]);
    }

    #[test]
    fn options_are_put_back_when_who_changed_them_is_killed() {
        let (socket, _other) = UnixDatagram::pair().expect("a pair");
        // SAFETY: the child sets options and dies. It forks, which allocates nothing here but a line; no other test's lock is asked for.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let set = Guarded::set(socket.as_fd(), &OPTIONS);
            let is_set = set.is_ok() && values(&socket) == [1, 0];
            let signal = if is_set { libc::SIGKILL } else { libc::SIGABRT };
            // SAFETY: takes a number.
            unsafe { libc::raise(signal) };
            // SAFETY: takes a number.
            unsafe { libc::_exit(1) };
        }
        let mut status = 0;
        // SAFETY: `status` is an int.
        let found = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(found, child);
        assert!(
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL,
            "{status:#x}"
        );
        let deadline = Instant::now() + Duration::from_secs(10);
        while values(&socket) != [0, -1] {
            assert!(Instant::now() < deadline, "{:?}", values(&socket));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
