//! The event log of jobs: HTCondor's job event log, in its text format, which its tools and `JobEventLog` read.
//!
//! ```text
//! Event --text--> lines, the last one "..." --log, under the file's lock--> one write at the file's end
//! ```
//! # What callers may rely on
//! An event is in the file whole or not at all, whoever else appends; what another has left half is ended, so that those
//! who read find the events after it. No string that comes from outside can end an event, or begin one.
//!
//! # What it does not do
//! It does not read the log, keeps no file open between two events, and does not wait until the disk has it.

mod log;
mod text;

pub use log::{EventError, EventLog};
use std::time::Duration;

/// Which job it is, as HTCondor numbers them: a submission, a job of it, and 0 for the job itself.
///
/// Those who read take numbers up to 2³¹ − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobNumber {
    /// Of the submission.
    pub cluster: u32,
    /// Of the job in it.
    pub process: u32,
    /// Of a part of the job; 0.
    pub subprocess: u32,
}

/// Processor time; the log has whole seconds of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In the program.
    pub user: Duration,
    /// In the kernel, for the program.
    pub system: Duration,
}

/// Processor time on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usages {
    /// Of the job, where it runs.
    pub remote: Usage,
    /// Of its shadow, where it was submitted.
    pub local: Usage,
}

/// What went between the job and its shadow, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// By the job.
    pub sent_bytes: u64,
    /// By the job.
    pub received_bytes: u64,
}

/// Why, as a number: HTCondor's codes for holds (1 to 49) and vacates (1000 to 1025), and what they are told apart by further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonCode {
    /// The kind of reason.
    pub code: i32,
    /// Depends on the kind; often an errno.
    pub subcode: i32,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With this status, 0 to 255.
    Exited(i32),
    /// By this signal; there is no core file.
    Signaled(i32),
}

/// What can happen to a job.
///
/// The names of events and fields are those of HTCondor's manual, appendix "job event log codes". Strings may be anything:
/// what they may not contain is replaced when they are written, an address or a name that is missing is `unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// 0: it is in the queue.
    Submitted {
        /// The shadow's address, `<ip:port>`.
        host: String,
        /// Of whoever submitted it; one line.
        notes: Option<String>,
    },
    /// 1: it runs.
    Executing {
        /// The starter's address, `<ip:port>`.
        host: String,
    },
    /// 3: there is a checkpoint, and the job goes on.
    Checkpointed {
        /// Since the job began to run here.
        run: Usages,
        /// Of the checkpoint.
        sent_bytes: u64,
    },
    /// 4: it has left the machine before its end.
    Evicted {
        /// It left with a checkpoint.
        checkpointed: bool,
        /// Since the job began to run there.
        run: Usages,
        /// Since the job began to run there.
        traffic: Traffic,
        /// Why it had to leave.
        reason: Option<String>,
        /// The same as numbers.
        code: Option<ReasonCode>,
    },
    /// 5: it has ended.
    Terminated {
        /// How.
        outcome: Outcome,
        /// Since the job began to run there.
        run: Usages,
        /// Of all its runs.
        total: Usages,
        /// Since the job began to run there.
        run_traffic: Traffic,
        /// Of all its runs.
        total_traffic: Traffic,
    },
    /// 6: its size has changed.
    ImageSize {
        /// Of its address space, in KiB.
        size_kib: u64,
        /// What it needs, in MiB.
        memory_mib: Option<u64>,
        /// What it has in memory, in KiB.
        resident_kib: Option<u64>,
    },
    /// 7: the shadow could not go on.
    ShadowException {
        /// Why.
        message: String,
        /// Since the job began to run there.
        traffic: Traffic,
    },
    /// 8: something that no other event is for.
    Remark {
        /// What, in a line.
        text: String,
    },
    /// 9: it was removed.
    Aborted {
        /// Why.
        reason: Option<String>,
    },
    /// 10: it stands still.
    Suspended {
        /// How many of its processes.
        processes: u32,
    },
    /// 11: it goes on.
    Unsuspended,
    /// 12: it is not run until it is released.
    Held {
        /// Why.
        reason: Option<String>,
        /// The same as numbers.
        code: ReasonCode,
    },
    /// 13: it may run again.
    Released {
        /// Why.
        reason: Option<String>,
    },
    /// 22: the line to its machine is lost, another is tried.
    Disconnected {
        /// Why.
        reason: String,
        /// The machine's name.
        name: String,
        /// The machine's address, `<ip:port>`.
        host: String,
    },
    /// 23: there is another line.
    Reconnected {
        /// The machine's name.
        name: String,
        /// The machine's address, `<ip:port>`.
        host: String,
        /// The starter's address, `<ip:port>`.
        starter: String,
    },
    /// 24: there is none, so the job is started again.
    ReconnectFailed {
        /// Why.
        reason: String,
        /// The machine's name.
        name: String,
    },
}

impl Event {
    /// What HTCondor calls the event type number.
    #[must_use]
    pub fn number(&self) -> u8 {
        match self {
            Event::Submitted { .. } => 0,
            Event::Executing { .. } => 1,
            Event::Checkpointed { .. } => 3,
            Event::Evicted { .. } => 4,
            Event::Terminated { .. } => 5,
            Event::ImageSize { .. } => 6,
            Event::ShadowException { .. } => 7,
            Event::Remark { .. } => 8,
            Event::Aborted { .. } => 9,
            Event::Suspended { .. } => 10,
            Event::Unsuspended => 11,
            Event::Held { .. } => 12,
            Event::Released { .. } => 13,
            Event::Disconnected { .. } => 22,
            Event::Reconnected { .. } => 23,
            Event::ReconnectFailed { .. } => 24,
        }
    }
}
