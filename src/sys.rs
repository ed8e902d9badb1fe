//! What only unsafe code can do here: any signal can be sent, and the disposition of
//! SIGPIPE that the caller gave us is kept.
//!
//! Rust's runtime ignores SIGPIPE before `main`. A job must start as if its
//! shell had started it, so the disposition is looked at before that and put
//! back before the job's program is executed.
#![allow(unsafe_code)]

use nix::sys::signal::{SigHandler, Signal};
use std::sync::atomic::{AtomicBool, Ordering};

static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_sigpipe() {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null new action the kernel only writes the old one, into `now`.
    let result = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), now.as_mut_ptr()) };
    if result == 0 {
        // SAFETY: zeroed is a valid sigaction, and the call has filled it in.
        let now = unsafe { now.assume_init() };
        PIPE_WAS_IGNORED.store(now.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
    }
}

// SAFETY: the C library calls the pointers of this section once, in the first thread, before
// `main`; the function is async-signal-safe and touches only its own stack and an atomic.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_SIGPIPE: extern "C" fn() = look_at_sigpipe;

/// Gives SIGPIPE the disposition that this process was started with.
pub(crate) fn restore_sigpipe() -> nix::Result<()> {
    if PIPE_WAS_IGNORED.load(Ordering::Relaxed) {
        return Ok(()); // it is ignored now, too
    }
    // SAFETY: the default action runs no code of ours.
    unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigDfl) }.map(drop)
}

/// kill(2) with any signal, the real-time ones included (which [`Signal`] does not know).
pub(crate) fn send_signal(pid: nix::unistd::Pid, signal: i32) -> nix::Result<()> {
    // SAFETY: kill reads and writes no memory; a wrong pid or number is an error.
    nix::errno::Errno::result(unsafe { libc::kill(pid.as_raw(), signal) }).map(drop)
}
