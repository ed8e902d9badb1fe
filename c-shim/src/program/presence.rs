//! Being there: a stream that nobody inherits, so that its end tells the shadow that this process has ended, and its
//! record locks with it (docs/adr/0010-locks.md).
//!
//! ```text
//! none --first record lock--> attending --exec--> attending, by the next program
//!                                 `--fork: the child has none
//! ```
//! Whether a process may have locks of a file is told by a bit that many files share: a close too many is told to the
//! shadow, never one too few.

use super::lanes::{self, Put};
use super::patience::Patience;
use super::process::{self, Own};
use super::resident;
use super::stream::{self, Broken, receive, send};
use super::sys::{self, Errno, SysResult, call};
use crate::table::{Description, Reserved};
use core::sync::atomic::Ordering;
use wire::{Attend, Release, Reply, Request};

/// States of [`Own::attending`].
const NONE: u32 = 0;
const CHANGING: u32 = 1;
const ATTENDING: u32 = 2;
/// None, and none begins: we are being forked.
const FORKING: u32 = 3;

/// Room for a greeting and its answer.
const ROOM: usize = 512;

/// The number of this process at the shadow; it begins to be there if it was not.
///
/// # Errors
/// ENOLCK: it has no memory of its own, or no descriptor; EIO.
pub(super) fn number() -> Result<u64, Errno> {
    if !process::is_own() {
        return Err(Errno(sys::ENOLCK));
    }
    let own = process::own().ok_or(Errno(sys::ENOLCK))?;
    // A handler that locks must not find it half done by what it interrupts.
    let _undisturbed = sys::Undisturbed::begin();
    loop {
        let state = &own.attending;
        match state.compare_exchange(NONE, CHANGING, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => {
                let begun = begin(own, 0);
                let now = if begun.is_ok() { ATTENDING } else { NONE };
                state.store(now, Ordering::Release);
                return begun;
            }
            Err(ATTENDING) => return Ok(own.number.load(Ordering::Relaxed)),
            Err(_) => sys::give_way(),
        }
    }
}

/// `was`: the number that this process had before it was moved, or 0.
fn begin(own: &Own, was: u64) -> Result<u64, Errno> {
    let mut patience = Patience::new();
    loop {
        match try_begin(was) {
            Ok(number) => {
                own.number.store(number, Ordering::Relaxed);
                return Ok(number);
            }
            Err(broken) => patience.after(broken)?,
        }
    }
}

fn try_begin(was: u64) -> Result<u64, Broken> {
    let mut room = [0; ROOM];
    let stream = stream::begin(&mut room, 0)?;
    let number = Reserved::Presence.number();
    let moved = sys::fcntl(stream, sys::F_DUPFD_CLOEXEC, number as u64);
    sys::close(stream);
    let none = Broken::Here(Errno(sys::ENOLCK));
    let fd = moved.map_err(|_| none)? as i32;
    let attended = if fd == number {
        attend(fd, was, &mut room)
    } else {
        // The job has something there.
        Err(none)
    };
    if attended.is_err() {
        sys::close(fd);
    }
    attended
}

fn attend(fd: i32, was: u64, room: &mut [u8]) -> Result<u64, Broken> {
    let request = Request::Attend(Attend {
        number: was,
        pid: sys::pid(),
    });
    let number = lanes::next_number();
    let len = request.message(number, 0, room);
    let len = len.map_err(|_| Broken::Here(Errno(sys::EIO)))?;
    send(fd, &room[..len], (core::ptr::null(), 0))?;
    match receive(fd, room, number, Put::Lane)?.reply {
        Reply::Number(number) => Ok(number),
        Reply::Failed(errno) => Err(Broken::Here(Errno(errno.into()))),
        _ => Err(Broken::Here(Errno(sys::EIO))),
    }
}

/// After a restart: the shadow waits for us, and has our locks meanwhile. Once: several threads may find the stream broken, and
/// nobody waits for us a second time.
pub(super) fn renew() {
    let Some(own) = process::own() else {
        return;
    };
    let state = &own.attending;
    let ours = state.compare_exchange(ATTENDING, CHANGING, Ordering::Acquire, Ordering::Acquire);
    if ours.is_err() {
        return;
    }
    if !has_ended() {
        // Another thread has been here since we looked.
        state.store(ATTENDING, Ordering::Release);
        return;
    }
    sys::close(Reserved::Presence.number());
    let begun = begin(own, own.number.load(Ordering::Relaxed));
    let now = if begun.is_ok() { ATTENDING } else { NONE };
    state.store(now, Ordering::Release);
}

/// Whether the shadow that served us is gone: one that goes on in its place waits for us to say that we are there.
pub(super) fn look() {
    let attending = |own: &Own| own.attending.load(Ordering::Acquire) == ATTENDING;
    if !process::own().is_some_and(attending) || !process::is_own() {
        return;
    }
    if has_ended() {
        renew();
    }
}

/// Whether nobody is at the other end of the stream any more.
fn has_ended() -> bool {
    /// `POLLRDHUP`, and what is told besides.
    const ENDED: u64 = 0x2000 | 0x10 | 0x08;
    let number = Reserved::Presence.number();
    // `struct pollfd`: POLLRDHUP is asked for.
    let mut watched = number as u64 | 0x2000 << 32;
    // SAFETY: the kernel reads and writes the one record.
    let found = unsafe { call(sys::POLL, [&raw mut watched as u64, 1, 0]) };
    found == Ok(1) && watched >> 48 & ENDED != 0
}

/// A program begins: if the one before has left its stream, it is ours, and so are its locks.
pub(super) fn resume() {
    let fd = Reserved::Presence.number();
    let (Some(own), true) = (process::own(), is_stream_to_shadow(fd)) else {
        return;
    };
    let mut room = [0; ROOM];
    let kept = sys::fcntl(fd, sys::F_SETFD, 1).map_err(Broken::from);
    let attended = kept.and_then(|_| attend(fd, 0, &mut room));
    let Ok(number) = attended else {
        // It is another process's.
        sys::close(fd);
        return;
    };
    own.number.store(number, Ordering::Relaxed);
    for bits in &own.locked {
        bits.store(u64::MAX, Ordering::Relaxed);
    }
    own.attending.store(ATTENDING, Ordering::Release);
}

/// Whether it leads to where the session's stream does.
fn is_stream_to_shadow(fd: i32) -> bool {
    const GETPEERNAME: u64 = 52;
    let name = |fd: i32| {
        let mut name = [0u8; 112];
        let mut len = name.len() as u32;
        let args = [fd as u64, name.as_mut_ptr() as u64, &raw mut len as u64];
        // SAFETY: the kernel writes at most as much as the length says, and the length.
        unsafe { call(GETPEERNAME, args) }.map(|_| (name, len))
    };
    let ours = name(Reserved::Session.number());
    ours.is_ok() && name(fd) == ours
}

/// We are a fork's child: the stream is our parent's.
pub(super) fn forget(own: &Own) {
    // What it has there itself, if its parent did not attend, is told by where it leads.
    let fd = Reserved::Presence.number();
    if is_stream_to_shadow(fd) {
        sys::close(fd);
    }
    own.attending.store(NONE, Ordering::Relaxed);
}

/// Forks, while no stream is being begun that a child would have without knowing of it. Where the child has been, it has closed
/// our stream when we go on: till then our end could not be seen.
pub(super) fn between(fork: impl FnOnce() -> SysResult<u64>) -> SysResult<u64> {
    let Some(own) = process::own() else {
        return fork();
    };
    let state = &own.attending;
    loop {
        match state.compare_exchange(NONE, FORKING, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => break,
            Err(ATTENDING) => return fork_and_wait(fork),
            Err(_) => sys::give_way(),
        }
    }
    let forked = fork();
    if forked == Ok(0) {
        // Our page has been wiped.
        process::is_own();
    } else {
        state.store(NONE, Ordering::Release);
    }
    forked
}

fn fork_and_wait(fork: impl FnOnce() -> SysResult<u64>) -> SysResult<u64> {
    const EVENTFD2: u64 = 290;
    const CLOEXEC: u64 = 0o2_000_000;
    /// A child that is killed at once says nothing.
    const LONGEST_MS: u64 = 100;
    // SAFETY: eventfd2(2) takes numbers.
    let closed = unsafe { call(EVENTFD2, [0, CLOEXEC]) };
    let forked = fork();
    if forked == Ok(0) {
        process::is_own();
    }
    let Ok(closed) = closed else {
        return forked;
    };
    match forked {
        Ok(0) => {
            let _ = sys::write(closed as i32, &1u64.to_ne_bytes());
        }
        Ok(_) => {
            // `struct pollfd`: POLLIN.
            let mut watched = closed | 1 << 32;
            // SAFETY: the kernel reads and writes the one record.
            let _ = unsafe { call(sys::POLL, [&raw mut watched as u64, 1, LONGEST_MS]) };
        }
        Err(_) => {}
    }
    sys::close(closed as i32);
    forked
}

/// Whether the reserved descriptor is in use.
pub(super) fn is_there() -> bool {
    let state = process::own().map(|own| own.attending.load(Ordering::Relaxed));
    matches!(state, Some(CHANGING | ATTENDING))
}

fn bit(description: &Description) -> (usize, u64) {
    let bit = description.file.load(Ordering::Relaxed) as usize % (64 * Own::WORDS);
    (bit / 64, 1 << (bit % 64))
}

/// This process is about to have a lock of this file.
pub(super) fn will_lock(description: &Description) {
    if let Some(own) = process::own() {
        let (word, bit) = bit(description);
        own.locked[word].fetch_or(bit, Ordering::Relaxed);
    }
}

/// The number of this process if it may have locks of this file.
fn locker(description: &Description) -> Option<u64> {
    let own = process::own()?;
    let (word, bit) = bit(description);
    let may = own.attending.load(Ordering::Acquire) == ATTENDING
        && own.locked[word].load(Ordering::Relaxed) & bit != 0
        && process::is_own();
    may.then(|| own.number.load(Ordering::Relaxed))
}

/// This process closes a descriptor of this file, now or if it executes a program; whether that was to be told.
pub(super) fn closes(description: &Description, at_exec: bool) -> bool {
    let Some(process) = locker(description) else {
        return false;
    };
    let handle = description.handle.load(Ordering::Relaxed);
    // What was written under a lock is there before the lock is gone.
    let _ = resident::write_back(description);
    tell(process, handle, at_exec);
    true
}

/// No program was executed.
pub(super) fn stays() {
    if let Some(own) = process::own() {
        tell(own.number.load(Ordering::Relaxed), 0, false);
    }
}

fn tell(process: u64, handle: u64, at_exec: bool) {
    // A close cannot fail; without a shadow there are no locks.
    let _ = lanes::tell(&Request::Release(Release {
        process,
        handle,
        at_exec,
    }));
}

/// Leaves the stream to the next program, or takes it back.
pub(super) fn survive_exec(yes: bool) {
    let flags = u64::from(!yes);
    let _ = sys::fcntl(Reserved::Presence.number(), sys::F_SETFD, flags);
}
