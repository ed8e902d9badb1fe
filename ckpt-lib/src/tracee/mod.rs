//! Quiescing: bringing every thread of a job to a stop it can be copied in.
//!
//! ```text
//! running --seize all--> settling --all stopped--> quiesced --drop--> running
//!                           `--deadline, death--> running, or gone
//! ```
//! # What callers may rely on
//! While a [`Quiesced`] exists, no thread of the job executes an instruction.
//! Dropping it lets the job run, so no error path can leave a job stopped.
//! A `Quiesced` belongs to the thread that made it (ptrace knows threads, not processes).
//!
//! # What it does not do
//! It runs nothing in the job (see [`crate::inject`]).

mod memory;
pub mod reenter;
mod thread;

pub use memory::Memory;
pub use thread::{BeforeStop, StoppedThread};

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

/// A process id as wayfarer itself sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPid(pub i32);

/// A thread id as wayfarer itself sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostTid(pub i32);

/// Why a job could not be stopped, or a stopped thread not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// The process has ended.
    #[error("process {pid} has ended")]
    Gone {
        /// Which.
        pid: i32,
    },
    /// The kernel does not let us trace it.
    #[error("may not trace thread {tid} of process {pid}")]
    Denied {
        /// Which process.
        pid: i32,
        /// Which thread.
        tid: i32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Somebody else traces it.
    #[error("process {pid} is traced by process {tracer}")]
    Traced {
        /// Which.
        pid: i32,
        /// By whom.
        tracer: i32,
    },
    /// It did not come to a stop in time.
    #[error("thread {tid} of process {pid} did not stop within {waited_ms} ms")]
    Deadline {
        /// Which process.
        pid: i32,
        /// Which thread.
        tid: i32,
        /// How long it was given.
        waited_ms: u64,
    },
    /// A request about a stopped thread failed.
    #[error("cannot {what} of thread {tid}")]
    Request {
        /// Which thread.
        tid: i32,
        /// What was asked.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// A job at rest. While it exists no thread of the job executes an instruction.
#[derive(Debug)]
pub struct Quiesced {
    processes: Vec<StoppedProcess>,
    one_thread_only: PhantomData<*const ()>,
}

/// A process all of whose threads are at a ptrace stop.
#[derive(Debug)]
pub struct StoppedProcess {
    /// Its id.
    pub pid: HostPid,
    /// Its threads, the leader first (unless the leader has ended before the others).
    pub threads: Vec<StoppedThread>,
    /// The signal of job control that it is stopped by.
    pub group_stopped: Option<i32>,
    memory: Memory,
}

impl Quiesced {
    /// Stops all threads of these processes.
    ///
    /// # Errors
    /// [`StopError`]; everything that had been stopped runs again.
    pub fn stop(_roots: &[HostPid], _deadline: Duration) -> Result<Quiesced, StopError> {
        unimplemented!("lands within the hour")
    }

    /// The processes, in the order they were asked for.
    #[must_use]
    pub fn processes(&self) -> &[StoppedProcess] {
        &self.processes
    }

    /// The processes, to work in them.
    pub fn processes_mut(&mut self) -> &mut [StoppedProcess] {
        &mut self.processes
    }

    /// Lets all threads go on; calls that would return EINTR only because of the stop are entered again.
    ///
    /// # Errors
    /// The first thread that could not be let go, after all have been tried.
    pub fn resume(self) -> Result<(), StopError> {
        unimplemented!("lands within the hour")
    }

    /// Kills all processes.
    ///
    /// # Errors
    /// The first that could not be killed, after all have been tried.
    pub fn kill(self) -> Result<(), StopError> {
        unimplemented!("lands within the hour")
    }
}

impl StoppedProcess {
    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// One of its threads.
    #[must_use]
    pub fn thread(&self, tid: HostTid) -> Option<&StoppedThread> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }
}
