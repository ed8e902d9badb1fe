//! A job that the starter itself has begun, and what is said about it on the control stream.
//!
//! ```text
//! starter -> shadow   1 exited, status     2 killed, signal        records of 5 bytes: kind, number
//!                     5 and 6, before these: processor time, of programs and of the kernel for them, in hundredths of a second
//! shadow -> starter   3 signal             4 the job is left, 0: it is ended
//! ```

use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// How long a job may take to end when the line is lost.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of a record.
const RECORD: usize = 5;

/// A record of the control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// How the job has ended.
    Ended(Status),
    /// A signal for the job.
    Signal(u32),
    /// Nobody waits for the job any more.
    Leave,
    /// Processor time that it has used, in hundredths of a second.
    User(u32),
    /// The kernel's for it.
    System(u32),
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this status.
    Exited(u32),
    /// By this signal.
    Killed(u32),
}

impl From<ExitStatus> for Status {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Status::Exited(code as u32),
            (None, Some(signal)) => Status::Killed(signal as u32),
            (None, None) => Status::Exited(1),
        }
    }
}

impl Notice {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; RECORD] {
        let (kind, number) = match self {
            Notice::Ended(Status::Exited(status)) => (1, status),
            Notice::Ended(Status::Killed(signal)) => (2, signal),
            Notice::Signal(signal) => (3, signal),
            Notice::Leave => (4, 0),
            Notice::User(time) => (5, time),
            Notice::System(time) => (6, time),
        };
        let number = number.to_le_bytes();
        [kind, number[0], number[1], number[2], number[3]]
    }

    /// Takes one from the beginning of what has come; none: not yet whole, or unknown and left out.
    #[must_use]
    pub fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        while bytes.len() >= RECORD {
            let number = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
            let kind = bytes[0];
            bytes.drain(..RECORD);
            match kind {
                1 => return Some(Notice::Ended(Status::Exited(number))),
                2 => return Some(Notice::Ended(Status::Killed(number))),
                3 => return Some(Notice::Signal(number)),
                4 => return Some(Notice::Leave),
                5 => return Some(Notice::User(number)),
                6 => return Some(Notice::System(number)),
                _ => {}
            }
        }
        None
    }
}

/// A started job, and our ends of its input and outputs.
pub struct Job {
    child: Child,
    /// Input, output, errors.
    pub(crate) ends: Option<[OwnedFd; 3]>,
    pub(crate) status: Option<Status>,
    heed: Option<Box<Heed>>,
}

/// Does what a signal means for a job, though it is not for the process that we have begun; whether it did.
pub type Heed = dyn Fn(i32) -> bool;

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("child", &self.child)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Job {
    /// Of a child that was given pipes.
    #[must_use]
    pub fn new(mut child: Child) -> Option<Self> {
        let (input, output, errors) = (
            child.stdin.take()?,
            child.stdout.take()?,
            child.stderr.take()?,
        );
        Some(Job {
            child,
            ends: Some([input.into(), output.into(), errors.into()]),
            status: None,
            heed: None,
        })
    }

    /// Of a child whose starter is at home: in place of its input and output goes what its supervisor and that starter say to each
    /// other, through `tie`.
    ///
    /// # Errors
    /// No descriptor is left, or the child's errors are not ours to read.
    pub fn tied(mut child: Child, tie: OwnedFd, heed: Box<Heed>) -> std::io::Result<Self> {
        let errors = child.stderr.take();
        let errors = errors.ok_or(std::io::ErrorKind::BrokenPipe)?;
        Ok(Job {
            child,
            ends: Some([tie.try_clone()?, tie, errors.into()]),
            status: None,
            heed: Some(heed),
        })
    }

    /// Looks whether it has ended.
    pub(crate) fn look(&mut self) -> bool {
        if self.status.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.status = Some(status.into());
        }
        self.status.is_some()
    }

    /// What is said of it at last, when it has ended so.
    pub(crate) fn last_notices(status: Status) -> Vec<u8> {
        let used = getrusage(UsageWho::RUSAGE_CHILDREN);
        let hundredths =
            |time: TimeVal| u32::try_from(time.num_milliseconds() / 10).unwrap_or(u32::MAX);
        let used = used.map(|used| {
            [
                Notice::User(hundredths(used.user_time())),
                Notice::System(hundredths(used.system_time())),
            ]
        });
        let notices = used.into_iter().flatten().chain([Notice::Ended(status)]);
        notices.flat_map(Notice::to_bytes).collect()
    }

    /// Ends it: SIGHUP, and SIGKILL if that is not enough. `signals` tells of its end.
    pub(crate) fn end(&mut self, signals: &SignalFd) {
        let begun = Instant::now();
        self.signal(Signal::SIGHUP as u32);
        while !self.look() {
            let left = ENDS_WITHIN.saturating_sub(begun.elapsed());
            if left.is_zero() {
                self.signal(Signal::SIGKILL as u32);
            }
            let pause = Timespec {
                tv_sec: left.as_secs() as i64 + 1,
                tv_nsec: 0,
            };
            let mut fds = [PollFd::new(signals, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&pause));
            while let Ok(Some(_)) = signals.read_signal() {}
        }
    }

    /// Sends it a signal; one that is none is left out.
    pub(crate) fn signal(&self, number: u32) {
        let signal = i32::try_from(number)
            .ok()
            .and_then(|number| Signal::try_from(number).ok());
        if let (Some(signal), None) = (signal, self.status) {
            if self.heed.as_ref().is_some_and(|heed| heed(signal as i32)) {
                return;
            }
            let pid = Pid::from_raw(self.child.id() as i32);
            // It has not been waited for, so the number is its own.
            let _: Result<(), Errno> = kill(pid, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_read_back_and_unknown_ones_are_left_out() {
        let all = [
            Notice::Ended(Status::Exited(3)),
            Notice::Signal(15),
            Notice::Leave,
            Notice::Ended(Status::Killed(9)),
        ];
        let mut bytes = vec![77, 0, 0, 0, 0];
        for notice in all {
            bytes.extend(notice.to_bytes());
        }
        bytes.extend([1, 2]);
        let read: Vec<_> = std::iter::from_fn(|| Notice::take(&mut bytes)).collect();
        assert_eq!(read, all);
        assert_eq!(bytes, [1, 2]);
    }
}
