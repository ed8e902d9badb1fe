//! What a program wants to do around its checkpoints (`wayfarer_hooks`), in a thread of its own that waits for us.
//!
//! ```text
//! Hooks::begin ─call─> before()   ... the job is stopped, captured, goes on ...   over ─> after(), or restarted() in the restarted copy
//! ```
//! # What callers may rely on
//! Whoever was told that a checkpoint begins is told that it is over, whatever has become of it, when this is dropped.

use super::CheckpointError;
use crate::board::Board;
use crate::capture::CaptureError;
use crate::procfs::{ProcDir, parse_status};
use crate::sys::signals::send_to_thread;
use crate::tracee::HostPid;
use std::time::{Duration, Instant};

/// How long a program may prepare itself.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at whether it is ready.
const PAUSE: Duration = Duration::from_millis(1);

/// Hooks that were called.
pub(super) struct Hooks(Vec<Called>);

struct Called {
    board: Board,
    number: u32,
    /// The process, as it is called here.
    pid: i32,
    /// The thread, as it is called here.
    tid: i32,
}

impl Hooks {
    /// Tells each that a checkpoint begins, and waits until it is ready.
    pub(super) fn begin(pids: &[HostPid]) -> Result<Self, CheckpointError> {
        let mut hooks = Hooks(vec![]);
        for pid in pids {
            for board in Board::all_of(*pid).map_err(CaptureError::from)? {
                // One that cannot be read is gone with its process.
                let thread = board.hooks().ok().flatten();
                let found = thread.and_then(|tid| thread_called(*pid, tid));
                let Some(((pid, tid), number)) = found.zip(board.call().ok()) else {
                    continue;
                };
                let called = Called {
                    board,
                    number,
                    pid,
                    tid,
                };
                called.wake();
                hooks.0.push(called);
            }
        }
        let began = Instant::now();
        for called in &hooks.0 {
            while called
                .board
                .is_ready(called.number)
                .is_ok_and(|ready| !ready)
            {
                if began.elapsed() > READY_WITHIN {
                    let (pid, waited_s) = (called.pid, READY_WITHIN.as_secs());
                    return Err(CheckpointError::NotReady { pid, waited_s });
                }
                std::thread::sleep(PAUSE);
            }
        }
        Ok(hooks)
    }

    /// The job goes on.
    pub(super) fn over(&mut self) {
        for called in self.0.drain(..) {
            // Who is gone need not be told.
            let _ = called.board.over(called.number);
            called.wake();
        }
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.over();
    }
}

impl Called {
    fn wake(&self) {
        let _ = send_to_thread(self.pid, self.tid, libc::SIGURG);
    }
}

/// Process and thread of that of its threads that calls itself so.
fn thread_called(pid: HostPid, own: i32) -> Option<(i32, i32)> {
    let threads = ProcDir::of(pid.0).threads().ok()?;
    threads.into_iter().find_map(|tid| {
        let thread = ProcDir::of(pid.0).thread(tid);
        let status = thread.parsed("status", parse_status).ok()?;
        (status.ns_pid.last() == Some(&own)).then_some((status.tgid, tid))
    })
}
