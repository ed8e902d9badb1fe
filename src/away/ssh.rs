//! The ssh through which the other machine is reached: what it says last, and its end.

use super::last_words::LastWords;
use crate::limits;
use crate::report::Outcome;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How long it may stay when nothing goes through it any more: as long as a job is given to end, and something.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// How long what it has said may take to come when it has ended.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(500);

/// A running ssh. It is waited for before its number may be another's.
pub(crate) struct Ssh {
    child: Child,
    /// The same, to be waited for.
    process: OwnedFd,
    said: LastWords,
    /// Ends when it, or whom it has left behind, says no more.
    saying: Receiver<()>,
}

impl Ssh {
    /// Of a child that has just begun; it is ended if it cannot be looked after.
    ///
    /// # Errors
    /// As pidfd_open(2), and of beginning a thread.
    pub(super) fn new(mut child: Child) -> Outcome<Self> {
        let said = LastWords::default();
        let looked_after = look_after(&mut child, &said);
        if looked_after.is_err() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        let (process, saying) = looked_after?;
        Ok(Self {
            child,
            process,
            said,
            saying,
        })
    }

    /// What it writes, and what it reads; once.
    pub(super) fn pipes(&mut self) -> Option<(ChildStdout, ChildStdin)> {
        self.child.stdout.take().zip(self.child.stdin.take())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Waits for its end, which is made if it does not come.
    pub(crate) fn end(self) -> Option<ExitStatus> {
        self.end_with_words().0
    }

    /// The same, and what it said last.
    pub(super) fn end_with_words(mut self) -> (Option<ExitStatus>, String) {
        if !self.ends_within(ENDS_WITHIN) {
            // It is not reaped yet.
            let _ = kill(self.pid(), Signal::SIGTERM);
        }
        let status = self.child.wait().ok();
        // Whoever it leaves behind (ControlPersist) may hold its standard error open.
        let _ = self.saying.recv_timeout(LAST_WORDS_WITHIN);
        (status, self.said.in_short())
    }

    fn ends_within(&self, time: Duration) -> bool {
        let then = Instant::now() + time;
        loop {
            let left = then.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok();
            let mut it = [PollFd::new(&self.process, PollFlags::IN)];
            match poll(&mut it, left.as_ref()) {
                Err(Errno::INTR) => {}
                ended => return ended.is_ok_and(|count| count > 0),
            }
        }
    }
}

/// What tells its end, and what tells that it says no more.
fn look_after(child: &mut Child, said: &LastWords) -> Outcome<(OwnedFd, Receiver<()>)> {
    let process = rustix::process::Pid::from_child(child);
    let process = pidfd_open(process, PidfdFlags::empty())?;
    let (ends, saying) = mpsc::channel::<()>();
    if let Some(mut errors) = child.stderr.take() {
        let mut said = said.clone();
        limits::thread(move || {
            let _ends = ends;
            io::copy(&mut errors, &mut said)
        })?;
    }
    Ok((process, saying))
}
