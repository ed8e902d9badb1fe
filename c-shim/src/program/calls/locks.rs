//! Locks: fcntl(2) with `F_SETLK` and the like, flock(2). Whose they are is the shadow's to know (docs/adr/0010-locks.md).

use super::File;
use crate::program::cache::Changing;
use crate::program::lanes::{Put, ask, tell};
use crate::program::record_lock::{F_GETLK, F_RDLCK, F_SETLKW, F_UNLCK, F_WRLCK, RecordLock};
use crate::program::sys::{self, Errno};
use crate::program::waiting::{self, Waited};
use crate::program::{ends, presence, process, resident};
use crate::span::{NoSpan, length, span};
use crate::versions::Changes;
use core::sync::atomic::Ordering;
use wire::{Held, Lock, LockMode, LockOwner, Reply, Request, Span, TestLock, TestOwn};

const F_OFD_GETLK: u64 = 36;
const F_OFD_SETLKW: u64 = 38;

/// Whether a command of fcntl(2) is about locks.
pub(super) fn is_about_locks(command: u64) -> bool {
    matches!(command, F_GETLK..=F_SETLKW | F_OFD_GETLK..=F_OFD_SETLKW)
}

/// fcntl(2) with one of these commands.
pub(super) fn control(fd: i32, file: &File, command: u64, argument: u64) -> Result<u64, Errno> {
    if file.flags() & sys::O_PATH != 0 {
        return Err(Errno(sys::EBADF));
    }
    // SAFETY: the program says that there is a record, which nobody else changes meanwhile.
    let place = unsafe { (argument as *mut RecordLock).as_mut() };
    let place = place.ok_or(Errno(sys::EFAULT))?;
    let record = *place;
    let asks = matches!(command, F_GETLK | F_OFD_GETLK);
    let asks_own = command == F_OFD_GETLK && record.kind == F_UNLCK;
    if asks && !asks_own && !matches!(record.kind, F_RDLCK | F_WRLCK) {
        return Err(Errno(sys::EINVAL));
    }
    let span = span_of(file, &record)?;
    let mode = match record.kind {
        F_RDLCK => Some(LockMode::Shared),
        F_WRLCK => Some(LockMode::Exclusive),
        F_UNLCK => None,
        _ => return Err(Errno(sys::EINVAL)),
    };
    if !asks {
        check_access(file, mode)?;
    }
    let of_process = command <= F_SETLKW;
    if !of_process && record.pid != 0 {
        return Err(Errno(sys::EINVAL));
    }
    ends::close_ended();
    if asks_own {
        let handle = file.handle();
        let found = held(&Request::TestOwn(TestOwn { handle, span }))?;
        tell_found(place, found);
        return Ok(0);
    }
    if let (true, Some(mode)) = (asks, mode) {
        let found = test(file, of_process, mode, span)?;
        tell_found(place, found);
        return Ok(0);
    }
    let waits = matches!(command, F_SETLKW | F_OFD_SETLKW);
    if !of_process {
        return set(fd, file, LockOwner::Description, mode, span, waits);
    }
    if mode.is_none() && !presence::is_there() {
        return Ok(0);
    }
    presence::will_lock(file.description);
    let owner = LockOwner::Process(presence::number()?);
    let done = set(fd, file, owner, mode, span, waits);
    // Another thread has closed it meanwhile: that is the end of our locks.
    if done.is_ok() && mode.is_some() && process::remote(fd) != Some(file.index) {
        presence::closes(file.description, false);
        return Err(Errno(sys::EBADF));
    }
    done
}

/// flock(2).
pub(super) fn flock(fd: i32, file: &File, operation: u64) -> Result<u64, Errno> {
    const LOCK_NB: u32 = 4;
    let operation = operation as u32;
    let mode = match operation & !LOCK_NB {
        1 => Some(LockMode::Shared),
        2 => Some(LockMode::Exclusive),
        8 => None,
        _ => return Err(Errno(sys::EINVAL)),
    };
    if file.flags() & sys::O_PATH != 0 {
        return Err(Errno(sys::EBADF));
    }
    ends::close_ended();
    let waits = operation & LOCK_NB == 0;
    set(fd, file, LockOwner::Whole, mode, Span::ALL, waits)
}

fn span_of(file: &File, record: &RecordLock) -> Result<Span, Errno> {
    let base = match record.whence {
        0 => 0,
        1 => file.offset(),
        2 => file.size()?,
        _ => return Err(Errno(sys::EINVAL)),
    };
    span(base, record.start, record.len).map_err(|none| match none {
        NoSpan::Negative => Errno(sys::EINVAL),
        NoSpan::TooFar => Errno(sys::EOVERFLOW),
    })
}

/// What is locked for reading must be open for that.
fn check_access(file: &File, mode: Option<LockMode>) -> Result<(), Errno> {
    let unfit = match mode {
        Some(LockMode::Shared) => sys::O_WRONLY,
        Some(LockMode::Exclusive) => 0,
        None => return Ok(()),
    };
    if file.flags() & sys::O_ACCMODE == unfit {
        return Err(Errno(sys::EBADF));
    }
    Ok(())
}

fn set(
    fd: i32,
    file: &File,
    owner: LockOwner,
    mode: Option<LockMode>,
    span: Span,
    waits: bool,
) -> Result<u64, Errno> {
    let mut lock = Lock {
        handle: file.handle(),
        owner,
        mode,
        span,
        wait: false,
        watch: ends::tell_shadow_of_end(fd, file.description),
    };
    if mode != Some(LockMode::Exclusive) {
        // What was written under a lock is to be seen by whoever has it next. Unlocking does not fail.
        let _ = resident::write_back(file.description);
    }
    file.description.locked.store(1, Ordering::Relaxed);
    // What others wrote while they had the lock is to be seen.
    let _seen = Changing::begin(Changes::Contents);
    loop {
        lock.wait = false;
        match tell(&Request::Lock(lock)) {
            Err(Errno(sys::EAGAIN)) if waits => {}
            result => {
                if result.is_ok() && mode.is_some() {
                    resident::refresh(file.description);
                }
                return result.map(|()| 0);
            }
        }
        lock.wait = true;
        match waiting::wait(&Request::Lock(lock))? {
            Waited::Had => {
                resident::refresh(file.description);
                return Ok(0);
            }
            Waited::Signalled { goes_on: true } => {}
            Waited::Signalled { goes_on: false } => return Err(Errno(sys::EINTR)),
        }
    }
}

fn test(file: &File, of_process: bool, mode: LockMode, span: Span) -> Result<Option<Held>, Errno> {
    let owner = if of_process {
        // One that has never had a lock has no number: 0 is nobody's.
        let number = if presence::is_there() {
            presence::number()?
        } else {
            0
        };
        LockOwner::Process(number)
    } else {
        LockOwner::Description
    };
    held(&Request::TestLock(TestLock {
        handle: file.handle(),
        owner,
        mode,
        span,
    }))
}

/// The lock that the answer tells of, if there is one.
fn held(request: &Request<'_>) -> Result<Option<Held>, Errno> {
    let nothing = (core::ptr::null(), 0);
    ask(request, nothing, Put::Lane, |answer| match answer.reply {
        Reply::Done => Ok(None),
        Reply::Held(held) => Ok(Some(held)),
        _ => Err(Errno(sys::EIO)),
    })
}

fn tell_found(place: &mut RecordLock, found: Option<Held>) {
    let Some(held) = found else {
        place.kind = F_UNLCK;
        return;
    };
    *place = RecordLock {
        kind: match held.mode {
            LockMode::Shared => F_RDLCK,
            LockMode::Exclusive => F_WRLCK,
        },
        whence: 0,
        start: held.span.first as i64,
        len: length(held.span),
        pid: held.pid,
    };
}
