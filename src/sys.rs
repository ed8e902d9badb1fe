//! What only unsafe code can do here: any signal can be sent, and the dispositions of
//! SIGPIPE and SIGXFSZ that the caller gave us are kept.
//!
//! Rust's runtime ignores SIGPIPE before `main`. A job must start as if its
//! shell had started it, so the disposition is looked at before that and put
//! back before the job's program is executed.
#![allow(unsafe_code)]

use nix::sys::signal::{SigHandler, Signal};
use std::sync::atomic::{AtomicBool, Ordering};

static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static FILE_SIZE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

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

/// A file that reaches the limit of `ulimit -f` is an error that names it, not our death.
pub(crate) fn ignore_sigxfsz() {
    // SAFETY: ignoring runs no code of ours.
    let before = unsafe { nix::sys::signal::signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    let ignored = matches!(before, Ok(SigHandler::SigIgn));
    FILE_SIZE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Gives SIGPIPE and SIGXFSZ the dispositions that this process was started with.
pub(crate) fn restore_signals() -> nix::Result<()> {
    for (signal, was_ignored) in [
        (Signal::SIGPIPE, &PIPE_WAS_IGNORED),
        (Signal::SIGXFSZ, &FILE_SIZE_WAS_IGNORED),
    ] {
        if !was_ignored.load(Ordering::Relaxed) {
            // SAFETY: the default action runs no code of ours.
            unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
        }
    }
    Ok(())
}

/// kill(2) with any signal, the real-time ones included (which [`Signal`] does not know).
pub(crate) fn send_signal(pid: nix::unistd::Pid, signal: i32) -> nix::Result<()> {
    // SAFETY: kill reads and writes no memory; a wrong pid or number is an error.
    nix::errno::Errno::result(unsafe { libc::kill(pid.as_raw(), signal) }).map(drop)
}

/// Closes every descriptor from this one on. Nothing of ours may have one of them.
pub(crate) fn close_from(first: u32) {
    // SAFETY: closing reads and writes no memory; the callers say that nobody uses these descriptors.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}

/// Closes every descriptor from `first` on but these.
pub(crate) fn close_all_but(first: u32, mut kept: Vec<u32>) {
    kept.sort_unstable();
    let mut from = first;
    for fd in kept {
        if fd > from {
            // SAFETY: closing reads and writes no memory; the callers say that nobody uses these descriptors.
            let _ = unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = from.max(fd + 1);
    }
    close_from(from);
}

/// The file table of a job, for as long as we live.
pub(crate) fn map_table(file: &std::fs::File) -> std::io::Result<&'static c_shim::table::Table> {
    use c_shim::table::Table;
    use std::io::{Error, ErrorKind};
    if file.metadata()?.len() < size_of::<Table>() as u64 {
        return Err(Error::from(ErrorKind::UnexpectedEof));
    }
    let mapped = memmap2::MmapOptions::new().map_raw(file)?;
    let table = mapped.as_mut_ptr().cast_const().cast::<Table>();
    std::mem::forget(mapped);
    // SAFETY: it is as long as a table, of a memory file that nobody makes shorter, begins at a page and stays mapped; all of it may
    // have any bytes, and is changed by atomic operations.
    let table = unsafe { &*table };
    if table.is_known() {
        Ok(table)
    } else {
        Err(Error::from(ErrorKind::InvalidData))
    }
}

/// Waits, in memory that processes share, until the word is another or somebody wakes us, or some time is over.
pub(crate) fn futex_wait(
    word: &std::sync::atomic::AtomicU32,
    value: u32,
    most: Option<std::time::Duration>,
) {
    let time = most.map(|most| libc::timespec {
        tv_sec: most.as_secs().cast_signed(),
        tv_nsec: most.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads the word and the time.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            time,
        )
    };
}

/// Wakes all who wait so.
pub(crate) fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: the kernel looks at the word's address only.
    let _ = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// What is started meanwhile hears no key of the terminal (SIGINT, SIGQUIT); nobody else may start anything.
pub(crate) fn ignoring_keys<T>(start: impl FnOnce() -> T) -> nix::Result<T> {
    let keys = [Signal::SIGINT, Signal::SIGQUIT];
    let set = |handler| {
        keys.into_iter().try_for_each(|key| {
            // SAFETY: neither ignoring nor the default action runs code of ours.
            unsafe { nix::sys::signal::signal(key, handler) }.map(drop)
        })
    };
    set(SigHandler::SigIgn)?;
    let started = start();
    set(SigHandler::SigDfl)?;
    Ok(started)
}

/// What is started by this command has no signal blocked, whatever we have.
pub(crate) fn unblock_signals_of(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec one system call is made, and nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            let none = nix::sys::signal::SigSet::empty();
            none.thread_set_mask().map_err(std::io::Error::from)
        })
    };
}

/// The keys of a terminal mean what they do at first, for us and what we start; no signal is blocked.
pub(crate) fn heed_keys() -> nix::Result<()> {
    ignoring_keys(|| ())?;
    nix::sys::signal::SigSet::all().thread_unblock()
}

/// Ends this process as this signal would.
pub(crate) fn end_by_signal(signal: i32) -> ! {
    if let Ok(signal) = Signal::try_from(signal) {
        // SAFETY: the default action runs no code of ours.
        let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
        let all = nix::sys::signal::SigSet::all();
        let _ = nix::sys::signal::raise(signal).and_then(|()| all.thread_unblock());
    }
    std::process::exit(128 + signal)
}
