//! Bringing threads out of the vDSO before they are copied.
//!
//! A thread that was stopped inside the vDSO is let go for some microseconds and stopped again, until it
//! is outside or the time is up. It is not single-stepped: a thread at the stop of a step has
//! a SIGTRAP in hand, which kills the job if we die in that moment.
//!
//! A thread that is still inside (a tight loop of `clock_gettime` seldom leaves) stays there: its `rip`
//! says so, and the restart must keep the old vDSO's bytes where they were.

use super::settle::{Deadline, wait_stopped};
use super::thread::StoppedThread;
use super::{HostPid, StopError, StoppedProcess};
use crate::sys::ptrace;
use std::ops::Range;
use std::time::{Duration, Instant};

/// What this may cost while the job is frozen.
const BUDGET: Duration = Duration::from_micros(1500);

/// Where process `pid` has its vDSO.
pub(super) fn range(pid: HostPid) -> Option<Range<u64>> {
    let text = std::fs::read(format!("/proc/{}/maps", pid.0)).ok()?;
    let line = text
        .split(|byte| *byte == b'\n')
        .find(|line| line.ends_with(b"[vdso]"))?;
    let line = std::str::from_utf8(line).ok()?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    Some(start..u64::from_str_radix(end, 16).ok()?)
}

/// What [`leave`] did.
pub(super) enum Moved {
    /// All threads stayed where they were.
    Nobody,
    /// Some ran for a moment and are stopped again.
    Some,
    /// One of those has ended, or executed a program.
    Ended,
}

/// Lets the threads that are inside `vdso` leave it.
pub(super) fn leave(
    process: &mut StoppedProcess,
    vdso: &Range<u64>,
    deadline: &Deadline,
) -> Result<Moved, StopError> {
    // A job that is stopped must not run.
    if process.group_stopped.is_some() {
        return Ok(Moved::Nobody);
    }
    let pid = process.pid;
    let started = Instant::now();
    let mut moved = Moved::Nobody;
    loop {
        let inside: Vec<&mut StoppedThread> = process
            .threads
            .iter_mut()
            .filter(|thread| vdso.contains(&thread.registers().rip) && thread.in_call().is_none())
            .collect();
        if inside.is_empty() || process.group_stopped.is_some() || started.elapsed() > BUDGET {
            return Ok(moved);
        }
        moved = Moved::Some;
        for thread in &inside {
            let _ = ptrace::cont(thread.tid.0, 0);
        }
        std::thread::sleep(Duration::from_micros(1));
        for thread in &inside {
            let _ = ptrace::interrupt(thread.tid.0);
        }
        for thread in inside {
            let tid = thread.tid;
            match wait_stopped(tid.0, deadline) {
                Ok(Some(signal)) => {
                    if signal != libc::SIGTRAP {
                        process.group_stopped = Some(signal);
                    }
                    let before = std::mem::take(&mut thread.before);
                    match StoppedThread::read(tid, before) {
                        Err(error) if error.is_not_stopped() => return Ok(Moved::Ended),
                        read => *thread = read?,
                    }
                }
                Ok(None) => return Ok(Moved::Ended),
                Err(deadline) => {
                    return Err(StopError::Deadline {
                        pid: pid.0,
                        tid: tid.0,
                        waited_ms: deadline.limit_ms(),
                    });
                }
            }
        }
    }
}
