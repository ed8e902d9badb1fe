//! Handling one stopped thread: making a call with it, having it run, stopping it again.

use super::InjectError;
use crate::procfs::{ProcDir, parse_status};
use crate::snapshot::Registers;
use crate::sys::ptrace::{self, Waited};
use crate::tracee::{Deadline, HostTid, StopError, wait_stopped};
use std::time::Duration;

/// How long a call of our own may take.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(10);
pub(super) const ALL_SIGNALS: u64 = u64::MAX;

/// Something about a thread of process `pid` failed.
pub(super) fn trace(
    pid: i32,
    tid: HostTid,
    what: &'static str,
) -> impl Fn(std::io::Error) -> InjectError {
    move |source| {
        // So says the kernel, too, of a thread that is merely not at a stop.
        if source.raw_os_error() == Some(libc::ESRCH) && is_gone(pid) {
            return InjectError::Gone { pid };
        }
        InjectError::Trace {
            pid,
            source: StopError::Request {
                tid: tid.0,
                what,
                source,
            },
        }
    }
}

/// How long a killed process may take until it shows.
const GONE_LIMIT: Duration = Duration::from_millis(100);

/// Whether all threads of a process have ended, or are about to.
fn is_gone(pid: i32) -> bool {
    let proc = ProcDir::of(pid);
    let ended = |tid| match proc.thread(tid).parsed("status", parse_status) {
        Ok(status) => matches!(status.state, b'Z' | b'X'),
        Err(error) => error.is_gone(),
    };
    let gone = || match proc.threads() {
        Ok(tids) => tids.into_iter().all(ended).then_some(()),
        Err(error) => error.is_gone().then_some(()),
    };
    Deadline::after(GONE_LIMIT).poll(gone).is_some()
}

/// Says of a thread that has ended whether its process has, too.
pub(super) fn ended(pid: i32, tid: HostTid) -> InjectError {
    if is_gone(pid) {
        return InjectError::Gone { pid };
    }
    InjectError::Escaped {
        tid: tid.0,
        what: "it has ended".to_owned(),
    }
}

/// Lets a thread run through one system call, of which `registers` are the beginning; what it returned,
/// and the signal of job control that came meanwhile. With `block`, all its signals are blocked first.
///
/// The order is that of ADR 0001: registers, then mask. If we die in between, the stub has its turn
/// with signals as they were.
pub(super) fn call(
    pid: i32,
    tid: HostTid,
    registers: &Registers,
    block: bool,
) -> Result<(i64, Option<i32>), InjectError> {
    ptrace::set_registers(tid.0, registers).map_err(trace(pid, tid, "set registers"))?;
    if block {
        ptrace::set_signal_mask(tid.0, ALL_SIGNALS).map_err(trace(pid, tid, "block signals"))?;
    }
    // To the entry, and to the exit.
    let entry = to_syscall_stop(pid, tid)?;
    let exit = to_syscall_stop(pid, tid)?;
    let registers = ptrace::registers(tid.0).map_err(trace(pid, tid, "read registers"))?;
    Ok((registers.rax as i64, exit.or(entry)))
}

/// Lets a thread run to its next stop at a system call; the signal of job control that came meanwhile.
pub(super) fn to_syscall_stop(pid: i32, tid: HostTid) -> Result<Option<i32>, InjectError> {
    let deadline = Deadline::after(CALL_LIMIT);
    let mut signal = 0;
    let mut job_control = None;
    loop {
        ptrace::cont_to_syscall(tid.0, signal).map_err(trace(pid, tid, "let run"))?;
        signal = match wait_any(pid, tid, &deadline)? {
            Waited::Syscall => return Ok(job_control),
            // SIGSTOP cannot be blocked; it takes effect when we let the job go.
            Waited::Signal(found) => found,
            Waited::EventStop { signal } => {
                job_control = by_job_control(signal).or(job_control);
                0
            }
            _ => 0,
        };
    }
}

/// The signal of job control that a process is stopped by, from that of one of its threads' stops.
pub(super) fn by_job_control(signal: i32) -> Option<i32> {
    (signal != libc::SIGTRAP).then_some(signal)
}

/// Waits for whatever the thread does next.
pub(super) fn wait_any(pid: i32, tid: HostTid, deadline: &Deadline) -> Result<Waited, InjectError> {
    let seen = deadline.poll(|| match ptrace::try_wait(tid.0) {
        Ok(waited) => waited,
        Err(_) => Some(Waited::Ended),
    });
    match seen {
        Some(Waited::Ended) => Err(ended(pid, tid)),
        Some(waited) => Ok(waited),
        None => Err(missed(tid, deadline)),
    }
}

pub(super) fn missed(tid: HostTid, deadline: &Deadline) -> InjectError {
    InjectError::Deadline {
        tid: tid.0,
        waited_ms: deadline.limit_ms(),
    }
}

/// Waits for a thread that was asked to stop; the signal that it was stopped by.
pub(super) fn wait_for_stop(
    pid: i32,
    tid: HostTid,
    deadline: &Deadline,
) -> Result<i32, InjectError> {
    match wait_stopped(tid.0, deadline) {
        Ok(Some(signal)) => Ok(signal),
        Ok(None) => Err(ended(pid, tid)),
        Err(deadline) => Err(missed(tid, &deadline)),
    }
}

/// Brings a thread from a stop at a system call to one where the kernel looks after signals and
/// restarts, without its executing an instruction; the signal that it is stopped by.
pub(super) fn to_event_stop(pid: i32, tid: HostTid) -> Result<i32, InjectError> {
    ptrace::interrupt(tid.0).map_err(trace(pid, tid, "stop"))?;
    ptrace::cont(tid.0, 0).map_err(trace(pid, tid, "let run"))?;
    wait_for_stop(pid, tid, &Deadline::after(CALL_LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn a_process_that_lives_is_not_called_ended() {
        let refused = || Error::from_raw_os_error(libc::ESRCH);
        let own = i32::try_from(std::process::id()).expect("pid");
        let error = trace(own, HostTid(own), "let run")(refused());
        assert!(matches!(error, InjectError::Trace { .. }), "{error:?}");
        let nobody = 0x3fff_fff0;
        let error = trace(nobody, HostTid(nobody), "let run")(refused());
        assert!(matches!(error, InjectError::Gone { .. }), "{error:?}");
    }
}
