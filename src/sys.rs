//! What only unsafe code can do here: any signal can be sent, the dispositions of
//! SIGPIPE and SIGXFSZ that the caller gave us are kept, and a small stack is left.
//!
//! Rust's runtime ignores SIGPIPE before `main`, and opens /dev/null for those of descriptors 0 to 2 that
//! are closed. A job must start as if its shell had started it, so both are looked at before that, and put
//! back before the job's program is executed.
#![allow(unsafe_code)]

mod nowhere;

pub(crate) use nowhere::memory_mounted_nowhere;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SigHandler, Signal};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static FILE_SIZE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static WERE_CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

extern "C" fn look_at_what_was_given() {
    for (fd, was_closed) in (0..).zip(&WERE_CLOSED) {
        // SAFETY: fcntl with F_GETFD reads and writes no memory; what is closed is an error.
        let known = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        was_closed.store(known < 0, Ordering::Relaxed);
    }
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
// `main`; the function is async-signal-safe and touches only its own stack and atomics.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_WHAT_WAS_GIVEN: extern "C" fn() = look_at_what_was_given;

/// Whether this standard descriptor (0 to 2) was closed when we were started; it leads to /dev/null now.
pub(crate) fn was_closed(fd: u32) -> bool {
    let known = WERE_CLOSED.get(fd as usize);
    known.is_some_and(|was_closed| was_closed.load(Ordering::Relaxed))
}

/// Works on a stack of our own if the limit on that of the first thread (`ulimit -s`) is a small one. It is no
/// other thread: what is said of threads goes on to be said of the first.
///
/// # Errors
/// When there is no memory for it.
pub(crate) fn with_room_on_the_stack<T, F: FnOnce() -> T>(work: F) -> nix::Result<T> {
    use nix::sys::resource::{Resource, getrlimit};
    /// As long as Rust's own stacks of threads.
    const LEN: usize = 2 << 20;
    const PAGE: usize = 4096;
    let (soft, _) = getrlimit(Resource::RLIMIT_STACK)?;
    if soft >= LEN as u64 {
        return Ok(work());
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, anywhere.
    let stack = unsafe { libc::mmap(std::ptr::null_mut(), LEN, access, flags, -1, 0) };
    if stack == libc::MAP_FAILED {
        return Err(nix::errno::Errno::last());
    }
    // SAFETY: the lowest page of a stack that nobody uses yet; running out of it is an end, not an overwriting.
    nix::errno::Errno::result(unsafe { libc::mprotect(stack, PAGE, libc::PROT_NONE) })?;
    let top = stack.addr() + LEN;
    let mut task: (Option<F>, Option<T>) = (Some(work), None);
    let call: extern "C" fn(&mut (Option<F>, Option<T>)) = perform::<T, F>;
    // SAFETY: the new stack is mapped, aligned and used by nobody else; the function is called as the ABI has it, and
    // gives r12 back, so that we return to the old stack; it unwinds nowhere, being `extern "C"`.
    unsafe {
        std::arch::asm!(
            "xchg r12, rsp",
            "call {call}",
            "mov rsp, r12",
            call = in(reg) call,
            inout("r12") top => _,
            in("rdi") &raw mut task,
            clobber_abi("C"),
        );
    }
    task.1.ok_or(nix::errno::Errno::EFAULT)
}

/// Does what is to be done once.
extern "C" fn perform<T, F: FnOnce() -> T>(task: &mut (Option<F>, Option<T>)) {
    task.1 = task.0.take().map(|work| work());
}

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

/// Has a command send its process a signal when we, this thread, are gone, and begin with these signals blocked, nicer than we are by so much.
pub(crate) fn tie_to_us(
    command: &mut std::process::Command,
    signal: Signal,
    mask: nix::sys::signal::SigSet,
    nicer_by: i32,
) {
    use std::os::unix::process::CommandExt;
    let parent = nix::unistd::getpid();
    let tie = move || -> std::io::Result<()> {
        mask.thread_set_mask()?;
        nix::sys::prctl::set_pdeathsig(signal)?;
        if nix::unistd::getppid() != parent {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        if nicer_by != 0 {
            // SAFETY: it reads and writes no memory.
            unsafe { libc::nice(nicer_by) };
        }
        Ok(())
    };
    // SAFETY: what is called between fork and exec are system calls only, which allocate nothing and take no lock.
    unsafe { command.pre_exec(tie) };
}

/// Takes over a descriptor that whoever executed us has left open for us, and for whom we execute; none if there is none of this number.
pub(crate) fn inherited(fd: i32) -> Option<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: fcntl with F_GETFD reads and writes no memory.
    let known = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if fd < 3 || known < 0 {
        return None;
    }
    // SAFETY: it is open, and nobody in this program knows it but by its number on the command line.
    Some(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
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

/// Has every descriptor from `first` on but this one closed when a program is executed.
///
/// # Errors
/// ENOSYS or EINVAL before Linux 5.11 (close_range(2)).
pub(crate) fn hand_down_none_but(first: u32, kept: Option<u32>) -> std::io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    let kept = kept.filter(|kept| *kept >= first);
    let ranges = match kept {
        Some(kept) => [first..=kept.saturating_sub(1), kept + 1..=u32::MAX],
        None => [first..=u32::MAX, first..=u32::MAX],
    };
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        let (from, to) = range.into_inner();
        // SAFETY: it sets a flag of descriptors, and reads and writes no memory.
        let set = unsafe { libc::syscall(libc::SYS_close_range, from, to, CLOSE_RANGE_CLOEXEC) };
        if set < 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Type and mode of what a descriptor that we were given leads to, and its flags (O_PATH ...); none if it is closed.
pub(crate) fn kind_of(fd: i32) -> Option<(libc::mode_t, i32)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes a struct stat, or fails.
    let found = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    if found < 0 {
        return None;
    }
    // SAFETY: fcntl with F_GETFL reads and writes no memory.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: fstat has filled it.
    let stat = unsafe { stat.assume_init() };
    Some((stat.st_mode, flags))
}

/// The file table of a job, for as long as we live.
pub(crate) fn map_table(file: &std::fs::File) -> std::io::Result<&'static c_shim::table::Table> {
    use c_shim::table::{Table, VERSION};
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
        let found = table.header.version;
        let message = format!(
            "the job's file table: found version {found}, expected {VERSION}; it was begun by another wayfarer"
        );
        Err(Error::new(ErrorKind::InvalidData, message))
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

/// A process of our own like this one, with one thread: nothing for the parent (in it), the child's id for us.
pub(crate) fn fork() -> nix::Result<Option<nix::unistd::Pid>> {
    // SAFETY: the callers have one thread, so that nobody holds a lock that the child will miss.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(Some(child)),
        nix::unistd::ForkResult::Child => Ok(None),
    }
}

/// Ends a forked process that has nothing to put in order.
pub(crate) fn exit_at_once(code: i32) -> ! {
    // SAFETY: it runs no code of ours, and takes no pointer.
    unsafe { libc::_exit(code) }
}

/// What has become of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has ended with this status.
    Exited(i32),
    /// It was killed by this signal.
    Signalled(i32),
    /// It was stopped by this one.
    Stopped(i32),
    /// It goes on.
    Continued,
}

/// Processor time of a process that has ended, and of all it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) user: std::time::Duration,
    pub(crate) system: std::time::Duration,
}

impl Usage {
    /// How much more this is than it was.
    pub(crate) fn since(self, before: Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }

    /// It, but no less than it was known to be.
    pub(crate) fn at_least(self, known: Usage) -> Usage {
        Usage {
            user: self.user.max(known.user),
            system: self.system.max(known.system),
        }
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(all: I) -> Usage {
        all.fold(Usage::default(), |sum, one| Usage {
            user: sum.user + one.user,
            system: sum.system + one.system,
        })
    }
}

/// A child of ours that has changed, if there is one (wait4(2)).
pub(crate) fn wait_any() -> Option<(nix::unistd::Pid, Change, Usage)> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: the kernel writes a status and a usage into what is ours.
    let pid = unsafe { libc::wait4(-1, &raw mut status, options, usage.as_mut_ptr()) };
    if pid <= 0 {
        return None;
    }
    // SAFETY: zeroed is a valid rusage, and the kernel has filled it in.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        let whole = std::time::Duration::from_secs(time.tv_sec.unsigned_abs());
        whole + std::time::Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    let change = if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status))
    } else if libc::WIFCONTINUED(status) {
        Change::Continued
    } else if libc::WIFSIGNALED(status) {
        Change::Signalled(libc::WTERMSIG(status))
    } else {
        Change::Exited(libc::WEXITSTATUS(status))
    };
    let used = Usage {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
    };
    Some((nix::unistd::Pid::from_raw(pid), change, used))
}

/// Has this process be sent a signal when something can be read, or none any more.
pub(crate) fn wake_by(fd: impl std::os::fd::AsFd, signal: Option<i32>) -> nix::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use std::os::fd::AsRawFd;
    let raw = fd.as_fd().as_raw_fd();
    // SAFETY: F_SETOWN reads and writes no memory.
    let owned = unsafe { libc::fcntl(raw, libc::F_SETOWN, nix::unistd::getpid().as_raw()) };
    nix::errno::Errno::result(owned)?;
    // SAFETY: neither does F_SETSIG.
    let set = unsafe { libc::fcntl(raw, F_SETSIG, signal.unwrap_or(0)) };
    nix::errno::Errno::result(set)?;
    let flags = match signal {
        Some(_) => OFlag::O_NONBLOCK | OFlag::O_ASYNC,
        None => OFlag::O_NONBLOCK,
    };
    fcntl(fd, FcntlArg::F_SETFL(flags)).map(drop)
}

/// Not in the libc crate for every C library.
const F_SETSIG: i32 = 10;

/// Whether a terminal sends it to stop a job.
pub(crate) fn is_of_terminal(signal: i32) -> bool {
    matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}

/// Whether there is a terminal that this process belongs to.
pub(crate) fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Lets the kernel forget children that end, or keep them for wait(2); whether it forgot them before.
pub(crate) fn ignore_children(ignore: bool) -> nix::Result<bool> {
    let handler = match ignore {
        true => SigHandler::SigIgn,
        false => SigHandler::SigDfl,
    };
    // SAFETY: neither ignoring nor the default action runs code of ours.
    let before = unsafe { nix::sys::signal::signal(Signal::SIGCHLD, handler) }?;
    Ok(matches!(before, SigHandler::SigIgn))
}

/// Whether our process group is in the foreground of our terminal, if we have one.
pub(crate) fn is_in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    let group = terminal.map(nix::unistd::tcgetpgrp);
    matches!(group, Ok(Ok(group)) if group == nix::unistd::getpgrp())
}

/// Stops this process as a key of the terminal does, until somebody lets it go on. Its signals are blocked. Whether it was stopped:
/// nobody is who has no shell to be continued by (setpgid(2), orphaned process groups).
pub(crate) fn stop_as_by(signal: i32) -> bool {
    let signal = match Signal::try_from(signal) {
        Ok(signal @ (Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU)) => signal,
        _ => Signal::SIGSTOP,
    };
    let mut set = nix::sys::signal::SigSet::empty();
    set.add(signal);
    let _ = nix::sys::signal::raise(signal);
    let _ = set.thread_unblock();
    let _ = set.thread_block();
    let mut pending = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the kernel writes a set into what is ours.
    let looked = unsafe { libc::sigpending(pending.as_mut_ptr()) };
    // SAFETY: zeroed is a valid set, and the call has filled it in.
    let pending = unsafe { pending.assume_init() };
    // SAFETY: it reads the set.
    looked == 0 && unsafe { libc::sigismember(&raw const pending, libc::SIGCONT) } == 1
}

/// Ends this process as this signal would, without a core.
pub(crate) fn end_by_signal(signal: i32) -> ! {
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    let _ = nix::sys::prctl::set_dumpable(false);
    if let Ok(signal) = Signal::try_from(signal) {
        // SAFETY: the default action runs no code of ours.
        let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
        let all = nix::sys::signal::SigSet::all();
        let _ = nix::sys::signal::raise(signal).and_then(|()| all.thread_unblock());
    }
    std::process::exit(128 + signal)
}

/// What has nothing to read and forgets what is written; on a machine without `/dev`, a file in memory, which is as good for few words.
///
/// # Errors
/// As open(2), memfd_create(2).
pub(crate) fn nothing() -> io::Result<File> {
    let mut options = File::options();
    match options.read(true).write(true).open("/dev/null") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(memfd_create(c"nothing", MFdFlags::MFD_CLOEXEC)?.into())
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use c_shim::table::{Header, Table, VERSION};
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_table_of_another_version_is_named() {
        let file = tempfile::tempfile().expect("a file");
        let at = std::mem::offset_of!(Header, version) as u64;
        file.write_all_at(&9u32.to_le_bytes(), at).expect("writes");
        assert!(super::map_table(&file).is_err(), "too short");
        file.set_len(size_of::<Table>() as u64).expect("grows");
        let error = super::map_table(&file).expect_err("another version");
        let expected = format!("found version 9, expected {VERSION}");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}
