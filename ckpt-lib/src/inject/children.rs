//! Children that a thread of the job makes for us, traced by us from their first instruction, since the thread is.

use super::InjectError;
use super::hands::{self, trace};
use super::site::{HOST, Site};
use crate::sys::ptrace::{self, Waited};
use crate::tracee::{Deadline, HostTid, StoppedProcess};
use std::io;

/// The child that a running thread makes next; none if it says in its slot's `word` that it could not.
pub(super) fn next_child(
    site: &Site,
    process: &StoppedProcess,
    tid: HostTid,
    word: i32,
) -> Result<Option<HostTid>, InjectError> {
    let pid = process.pid.0;
    let deadline = Deadline::after(hands::CALL_LIMIT);
    let born = deadline.poll(|| {
        let run_on = |signal| ptrace::cont(tid.0, signal).map_err(trace(pid, tid, "let run"));
        match ptrace::try_wait(tid.0) {
            Ok(Some(Waited::Event(libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE))) => {
                let message = ptrace::event_message(tid.0);
                let message = message.map_err(trace(pid, tid, "read the event"));
                Some(message.map(|message| i32::try_from(message).ok().map(HostTid)))
            }
            Ok(Some(Waited::Ended)) | Err(_) => Some(Ok(None)),
            Ok(Some(Waited::Signal(signal))) => run_on(signal).err().map(Err),
            Ok(Some(_)) => run_on(0).err().map(Err),
            Ok(None) => match site.slot_word(process, HOST, word) {
                Ok(result) if result < 0 => Some(Ok(None)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            },
        }
    });
    born.unwrap_or_else(|| Err(hands::missed(tid, &deadline)))
}

pub(super) fn await_birth(pid: i32, child: HostTid) -> Result<(), InjectError> {
    let deadline = Deadline::after(hands::CALL_LIMIT);
    hands::wait_for_stop(pid, child, &deadline).map(|_| ())
}

/// Takes notice of the end of a child that is about to end.
pub(super) fn await_end(child: HostTid) -> Result<(), InjectError> {
    let deadline = Deadline::after(hands::CALL_LIMIT);
    let ended = deadline.poll(|| {
        // A failure says that it is not at a stop any more.
        let _ = match ptrace::try_wait(child.0) {
            Ok(Some(Waited::Ended)) | Err(_) => return Some(()),
            Ok(Some(Waited::Signal(signal))) => ptrace::cont(child.0, signal),
            Ok(Some(_)) => ptrace::cont(child.0, 0),
            Ok(None) => Ok(()),
        };
        None
    });
    ended.ok_or_else(|| hands::missed(child, &deadline))
}

/// Why a clone failed, from the word where its result was put.
pub(super) fn refused(site: &Site, process: &StoppedProcess, word: i32) -> InjectError {
    match site.slot_word(process, HOST, word) {
        Ok(result) => refusal(
            process.pid.0,
            "clone for a picture or a userfaultfd",
            result,
        ),
        Err(error) => error,
    }
}

pub(super) fn refusal(pid: i32, what: &'static str, result: i64) -> InjectError {
    InjectError::Refused {
        pid,
        what,
        source: io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EINVAL)),
    }
}
