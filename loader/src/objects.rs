//! Descriptors and timers that a plain call cannot bring back.

use crate::abi::*;
use crate::context::Context;
use crate::interpret::{fits, text};
use crate::report::{Outcome, Raw, failure};
use crate::sys::{self, Errno, call};
use loader::ops;
use loader::ops::tails::{self, SigEvent};

/// Moves a new descriptor to its slot.
pub fn to_slot(fd: i32, slot: u64, what: &str) -> Outcome<()> {
    if fd as u64 == slot {
        return Ok(());
    }
    let moved = sys::dup_to(fd, slot as i32);
    sys::close(fd);
    moved
        .map(|_| ())
        .map_err(|error| failure!(Failed, "{what}: descriptor {slot}: {error}"))
}

/// A descriptor of the restarter's for one that led outside.
pub fn inherit(context: &Context, op: &ops::Inherit, tail: &'static [u8]) -> Outcome<()> {
    let was = Raw(text(tail)?.to_bytes());
    let fd = op.fd;
    let flags = sys::fcntl(fd as i32, F_GETFL, 0);
    let (true, Ok(_)) = (context.options.may_inherit(fd), flags) else {
        if was.0 == ops::OF_THE_SHADOW.to_bytes() {
            return Err(failure!(
                Usage,
                "this job has its files at a shadow: wayfarer restart --shadow ADDRESS IMAGE"
            ));
        }
        return Err(failure!(
            Failed,
            "descriptor {fd} led outside the job ({was}): open something else as {fd} and name it with --inherit-fd {fd}"
        ));
    };
    sys::dup_to(fd as i32, op.slot as i32)
        .map_err(|error| failure!(Failed, "descriptor {fd} ({was}): {error}"))?;
    Ok(())
}

/// Gives the restarter's descriptor, which it may share with others, the flags that the job had set.
pub fn set_flags(fd: u64, flags: u64) {
    let settable = O_APPEND | O_NONBLOCK;
    let Ok(now) = sys::fcntl(fd as i32, F_GETFL, 0) else {
        return;
    };
    if !sys::is_terminal(fd as i32) && (now ^ flags) & settable != 0 {
        let wanted = now & !settable | flags & settable;
        let _ = sys::fcntl(fd as i32, F_SETFL, wanted);
    }
}

/// The job's settings for our terminal, and its process group in the foreground if it was. What
/// is no terminal is left as it is.
pub fn terminal(context: &Context, op: &ops::Terminal, tail: &[u8]) {
    let fd = op.slot as i32;
    if let Ok(settings) = tails::settings(tail) {
        let _ = sys::set_terminal(fd, settings);
    }
    if op.group != 0 {
        let _ = sys::set_foreground(fd, context.id_now(op.group) as i32);
    }
}

pub fn pipe(op: &ops::Pipe) -> Outcome<()> {
    let [read, write] = sys::pipe(op.flags & !O_CLOEXEC | O_CLOEXEC)
        .map_err(|error| failure!(Failed, "pipe: {error}"))?;
    two_slots([read, write], [op.read_slot, op.write_slot], "pipe")
}

pub fn socket_pair(op: &ops::SocketPair) -> Outcome<()> {
    let pair = sys::socket_pair(op.kind | SOCK_CLOEXEC)
        .map_err(|error| failure!(Failed, "socket pair: {error}"))?;
    two_slots(pair, [op.first_slot, op.second_slot], "socket pair")
}

/// Moves two new descriptors, which may lie on each other's slots, to their slots.
fn two_slots(fds: [i32; 2], slots: [u64; 2], what: &str) -> Outcome<()> {
    let [first, mut second] = fds;
    if second as u64 == slots[0] {
        let above = slots[0].max(slots[1]).min(1 << 20) + 1;
        let copy = sys::fcntl(second, F_DUPFD_CLOEXEC, above);
        second = copy.map_err(|error| failure!(Failed, "{what}: {error}"))? as i32;
    }
    for (fd, slot) in [(first, slots[0]), (second, slots[1])] {
        match slot {
            u64::MAX => sys::close(fd),
            _ => to_slot(fd, slot, what)?,
        }
    }
    Ok(())
}

/// Adds an inotify watch; numbers are given out one after another, so those in between are
/// taken and given back.
pub fn watch(op: &ops::Watch, tail: &'static [u8]) -> Outcome<()> {
    let path = text(tail)?;
    let wanted = op.wd;
    let label = Raw(path.to_bytes());
    loop {
        let args = [op.slot, path.as_ptr() as u64, op.mask & 0xffff_ffff];
        // SAFETY: the kernel reads a NUL-terminated string.
        let wd = unsafe { call(SYS_INOTIFY_ADD_WATCH, args) };
        match wd {
            Ok(wd) if wd == wanted => return Ok(()),
            Ok(wd) if wd < wanted => {
                // SAFETY: no pointers.
                let _ = unsafe { call(SYS_INOTIFY_RM_WATCH, [op.slot, wd]) };
                drain(op.slot as i32);
            }
            Ok(wd) => {
                return Err(failure!(
                    Failed,
                    "inotify watch of {label}: found number {wd}, expected {wanted}"
                ));
            }
            Err(error) => return Err(failure!(Failed, "inotify watch of {label}: {error}")),
        }
    }
}

/// Reads the events of our own making away.
fn drain(fd: i32) {
    let mut buffer = [0u8; 4096];
    loop {
        let mut fds = [PollFd {
            fd,
            events: POLLIN,
            revents: 0,
        }];
        let ready = sys::poll(&mut fds, Some(Timespec::default()));
        if ready != Ok(1) || sys::read(fd, &mut buffer).is_err() {
            return;
        }
    }
}

/// A POSIX timer with the number it had.
pub fn timer(context: &Context, op: &ops::TimerCreate, tail: &'static [u8]) -> Outcome<()> {
    let was = fits(SigEvent::read(op, tail))?;
    let mut event = *was.0;
    if let Some(tid) = was.thread() {
        let now = context.id_now(u64::from(tid)) as u32;
        event[SigEvent::THREAD_AT].copy_from_slice(&now.to_le_bytes());
    }
    let exact = sys::prctl(PR_TIMER_CREATE_RESTORE_IDS, 1).is_ok();
    let create = || {
        let mut id = op.id as i32;
        let args = [op.clock, event.as_ptr() as u64, &raw mut id as u64];
        // SAFETY: the kernel reads 64 bytes of sigevent and reads and writes the id.
        unsafe { call(SYS_TIMER_CREATE, args) }.map(|_| id)
    };
    let mut result = create();
    // Older kernels count up from 0 in each process.
    while !exact
        && let Ok(id) = result
        && id < op.id as i32
    {
        // SAFETY: no pointers.
        let _ = unsafe { call(SYS_TIMER_DELETE, [id as u64]) };
        result = create();
    }
    let _ = sys::prctl(PR_TIMER_CREATE_RESTORE_IDS, 0);
    let id = op.id;
    match result {
        Ok(found) if found as u64 == id => Ok(()),
        Ok(found) => Err(failure!(
            Failed,
            "POSIX timer: found number {found}, expected {id}"
        )),
        Err(Errno(errno)) => Err(failure!(Failed, "POSIX timer {id}: {}", Errno(errno))),
    }
}
