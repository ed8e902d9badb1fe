//! A job on another machine and its shadow here, over lines that may break.

use super::far::{Errand, Far, Reached};
use super::ssh::Ssh;
use super::streams::JobState;
use crate::launch;
use crate::report::{Exit, Failure, Outcome, tell};
use line::Preface;
use shadow::{Sessions, carry};
use starter::Status;
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::Token;

/// The first pause between two attempts to reach the other machine again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(20));

/// What serves a job.
pub(crate) struct Service<'a> {
    pub(crate) far: Far<'a>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) token: Token,
    pub(crate) job: Arc<JobState>,
}

/// It is over.
pub(crate) enum Over {
    /// The job has ended so.
    Ended(Status, Ssh),
    /// The other machine is there, and has not begun the job.
    Refused(Failure),
    /// It cannot be reached, or not any more.
    Lost(Failure),
}

impl Service<'_> {
    /// Serves it until it is over. `by` is told of each ssh, and says whether to go on when one has ended.
    pub(crate) fn serve(&self, errand: Errand<'_>, by: impl Fn(Option<&Ssh>) -> bool) -> Over {
        let mut preface = Preface {
            token: self.token,
            environment: Some(environment()),
        };
        let mut reached = match self.far.reach(errand, &preface) {
            Ok(reached) => reached,
            Err(unreached) if unreached.has_refused() => return Over::Refused(unreached.failure),
            Err(unreached) => return Over::Lost(unreached.failure),
        };
        // It is the job's since then.
        preface.environment = None;
        let mut again = false;
        loop {
            by(Some(&reached.ssh));
            let carried = carry(reached.line, &self.sessions, &self.job.taker(again));
            if let Some(status) = self.job.status() {
                return Over::Ended(status, reached.ssh);
            }
            if !by(None) {
                return Over::Lost(Failure::new(Exit::Lost, "the job has been left"));
            }
            let failure = carried.err().map(Failure::from);
            let lost = self.far.lost(reached.ssh, failure);
            if reached.place.is_empty() || lost.is_for_ever() {
                return Over::Lost(lost.failure);
            }
            tell(&format!("{}; trying again", lost.failure));
            reached = match self.reach_again(&reached.place, &preface) {
                Ok(reached) => reached,
                Err(failure) => return Over::Lost(failure),
            };
            tell(&format!("{} is reached again", self.far.host));
            again = true;
        }
    }

    /// A line in the place of one that broke, as long as the lease lasts.
    fn reach_again(&self, place: &[u8], preface: &Preface) -> Outcome<Reached> {
        let began = Instant::now();
        let lease = self.far.arguments.lease;
        let (mut pause, longest) = PAUSES;
        loop {
            let unreached = match self.far.reach(Errand::Reattach(place), preface) {
                Ok(reached) => return Ok(reached),
                Err(unreached) => unreached,
            };
            let left = lease.saturating_sub(began.elapsed());
            if unreached.is_for_ever() || left.is_zero() {
                return Err(unreached.failure);
            }
            std::thread::sleep(pause.min(left));
            pause = longest.min(pause * 2);
        }
    }
}

/// Names that mean something only on the machine where they are set.
const OF_THIS_MACHINE: [&[u8]; 7] = [
    b"SSH_",
    b"XDG_RUNTIME_DIR=",
    b"XDG_SESSION_",
    b"DBUS_",
    b"DISPLAY=",
    b"WAYLAND_DISPLAY=",
    b"XAUTHORITY=",
];

/// Ours is the job's: its programs are found where ours are.
fn environment() -> Vec<u8> {
    let entries = launch::environment()
        .into_iter()
        .map(CString::into_bytes_with_nul);
    let kept = entries.filter(|entry| {
        !OF_THIS_MACHINE
            .iter()
            .any(|prefix| entry.starts_with(prefix))
    });
    kept.flatten().collect()
}
