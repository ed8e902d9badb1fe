//! Taking notice of threads that die while we wait for something that waits for that.
//!
//! A thread that executes a program kills the others of its process and goes on when their tracer has
//! taken notice of it. Until then it holds the lock that `PTRACE_SEIZE` of it needs (`cred_guard_mutex`,
//! fs/exec.c, kernel/ptrace.c): who traces some threads of a process and seizes another may wait for
//! himself. Nor is the end of a killed process's first thread told before that of all others, which nobody may
//! be waiting for. A second thread of ours may reap what the first one traces.

use crate::sys::ptrace;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long seizing, or a stop, may take before somebody looks after the dead.
const PATIENCE: Duration = Duration::from_millis(20);

/// Reaps, until it is dropped, those of some threads that have ended.
#[derive(Debug)]
pub(super) struct Reaper {
    tids: Arc<Mutex<Vec<i32>>>,
    /// Closed, it ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Starts with no thread to look after. Without a second thread there is no reaping, and what would
    /// have needed it ends by its deadline or not at all: no worse than before.
    pub(super) fn start() -> Self {
        let tids = Arc::new(Mutex::new(vec![]));
        let (end, ended) = mpsc::channel();
        let listed = Arc::clone(&tids);
        let reap = move || {
            while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                for tid in listed.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    ptrace::reap(*tid);
                }
            }
        };
        let thread = std::thread::Builder::new().name("reaper".to_owned());
        Reaper {
            tids,
            end: Some(end),
            thread: thread.spawn(reap).ok(),
        }
    }

    /// Looks after one thread more.
    pub(super) fn look_after(&self, tid: i32) {
        let mut listed = self.tids.lock().unwrap_or_else(PoisonError::into_inner);
        listed.push(tid);
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
