//! Handling one stopped thread: making a call with it, having it run, stopping it again.

use super::InjectError;
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
        if source.raw_os_error() == Some(libc::ESRCH) {
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

/// Lets a thread run through one system call, of which `registers` are the beginning; what it returned.
/// With `block`, all its signals are blocked first.
///
/// The order is that of ADR 0001: registers, then mask. If we die in between, the stub has its turn
/// with signals as they were.
pub(super) fn call(
    pid: i32,
    tid: HostTid,
    registers: &Registers,
    block: bool,
) -> Result<i64, InjectError> {
    ptrace::set_registers(tid.0, registers).map_err(trace(pid, tid, "set registers"))?;
    if block {
        ptrace::set_signal_mask(tid.0, ALL_SIGNALS).map_err(trace(pid, tid, "block signals"))?;
    }
    // To the entry, and to the exit.
    to_syscall_stop(pid, tid)?;
    to_syscall_stop(pid, tid)?;
    let registers = ptrace::registers(tid.0).map_err(trace(pid, tid, "read registers"))?;
    Ok(registers.rax as i64)
}

/// Lets a thread run to its next stop at a system call.
pub(super) fn to_syscall_stop(pid: i32, tid: HostTid) -> Result<(), InjectError> {
    let deadline = Deadline::after(CALL_LIMIT);
    let mut signal = 0;
    loop {
        ptrace::cont_to_syscall(tid.0, signal).map_err(trace(pid, tid, "let run"))?;
        match wait_any(pid, tid, &deadline)? {
            Waited::Syscall => return Ok(()),
            // SIGSTOP cannot be blocked; it takes effect when we let the job go.
            Waited::Signal(found) => signal = found,
            _ => signal = 0,
        }
    }
}

/// Waits for whatever the thread does next.
pub(super) fn wait_any(pid: i32, tid: HostTid, deadline: &Deadline) -> Result<Waited, InjectError> {
    let mut tries = 0;
    loop {
        match ptrace::try_wait(tid.0) {
            Ok(Some(Waited::Ended)) | Err(_) => return Err(InjectError::Gone { pid }),
            Ok(Some(waited)) => return Ok(waited),
            Ok(None) if deadline.is_over() => {
                return Err(InjectError::Deadline {
                    tid: tid.0,
                    waited_ms: deadline.limit_ms(),
                });
            }
            Ok(None) => {
                ptrace::pause(tries);
                tries += 1;
            }
        }
    }
}

/// Waits for a thread that was asked to stop.
pub(super) fn wait_for_stop(
    pid: i32,
    tid: HostTid,
    deadline: &Deadline,
) -> Result<(), InjectError> {
    match wait_stopped(tid.0, deadline) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(InjectError::Gone { pid }),
        Err(deadline) => Err(InjectError::Deadline {
            tid: tid.0,
            waited_ms: deadline.limit_ms(),
        }),
    }
}

/// Brings a thread from a stop at a system call to one where the kernel looks after signals and
/// restarts, without its executing an instruction.
pub(super) fn to_event_stop(pid: i32, tid: HostTid) -> Result<(), InjectError> {
    ptrace::interrupt(tid.0).map_err(trace(pid, tid, "stop"))?;
    ptrace::cont(tid.0, 0).map_err(trace(pid, tid, "let run"))?;
    wait_for_stop(pid, tid, &Deadline::after(CALL_LIMIT))
}
