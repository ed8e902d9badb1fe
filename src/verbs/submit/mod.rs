//! `wayfarer submit`: a job on another machine, its files, input and outputs here.
//!
//! ```text
//! submit ──spawns──> ssh ═══ its two pipes ═══ wayfarer run --shadow stdio ──> job
//!  shadow, our stdin, stdout, stderr      ^        (copied there first, if it is not)
//!  the line breaks: another ssh ═══ wayfarer reattach ─hands its pipes over─'
//! ```
//! # What callers may rely on
//! It ends as the job does. A line that breaks is made anew, as long as the lease lasts, and nothing of the job's input and outputs is lost
//! or comes twice. If the other machine stays away, it says so and ends with status 5, and the job is ended there when its lease is over.
//!
//! # What it does not do
//! It gives the job no terminal. If it is killed itself, the job is ended: its files are behind it.

mod far;
mod streams;

use crate::args::Submit;
use crate::launch;
use crate::report::{self, Failure, Outcome, tell};
use crate::sys;
use crate::verbs::shadow::{new_token, sessions};
use far::{Errand, Far, Reached, Ssh};
use line::Preface;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use shadow::carry;
use starter::{Notice, Status};
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use streams::JobState;
use tracing_subscriber::filter::LevelFilter;

/// So often a signal is passed on to the job; then the job is left.
const PATIENCE: usize = 3;
/// How long a starter may take to end a job that is left.
const LEFT_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take until it is known here how a job has ended that hears nothing any more.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// The first pause between two attempts to reach the other machine again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(20));

/// Runs the job; returns if it could not be run, or is lost.
pub(crate) fn submit(arguments: &Submit) -> Outcome {
    report::log(LevelFilter::WARN);
    // Before there is another thread, which would have them.
    let passed = [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGHUP,
    ];
    let passed: SigSet = passed.into_iter().collect();
    passed.thread_block()?;
    let mode = umask(Mode::empty());
    let token = new_token()?;
    let sessions = sessions(&arguments.allow, token, None)?.of_lines();
    let sessions = Arc::new(sessions.in_domains(arguments.methods.sight.domains()));
    sessions.watch();
    let directory = match &arguments.chdir {
        Some(directory) => std::path::absolute(directory)?,
        None => std::env::current_dir()?,
    };
    let far = Far {
        mode,
        directory: &directory,
        arguments,
    };
    let job = Arc::new(JobState::default());
    let leaving = Arc::new(Leaving::default());
    let (passing, left) = (job.clone(), leaving.clone());
    std::thread::spawn(move || pass_signals(&passed, &passing, &left));
    let mut preface = Preface {
        token,
        environment: Some(environment()),
    };
    let mut reached = far.reach(Errand::Run, &preface)?;
    // It is the job's since then.
    preface.environment = None;
    let mut again = false;
    loop {
        leaving.by(&reached.ssh);
        let carried = carry(reached.line, &sessions, &job.taker(again));
        match job.status() {
            Some(Status::Exited(status)) => std::process::exit(status as i32),
            Some(Status::Killed(signal)) => sys::end_by_signal(signal as i32),
            None => {}
        }
        if let Some(signal) = leaving.signal() {
            sys::end_by_signal(signal as i32);
        }
        let failure = carried.err().map(Failure::from);
        let lost = far.lost(reached.ssh, failure);
        if reached.place.is_empty() || lost.is_for_ever() {
            return Err(lost.failure);
        }
        tell(&format!("{}; trying again", lost.failure));
        reached = reach_again(&far, &reached.place, &preface)?;
        tell(&format!("{} is reached again", arguments.on));
        again = true;
    }
}

/// A line in the place of one that broke, as long as the lease lasts.
fn reach_again(far: &Far<'_>, place: &[u8], preface: &Preface) -> Outcome<Reached> {
    let began = Instant::now();
    let lease = far.arguments.lease;
    let (mut pause, longest) = PAUSES;
    loop {
        let unreached = match far.reach(Errand::Reattach(place), preface) {
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

/// Whether the job is to be left, and what would have to be ended for it.
#[derive(Default)]
struct Leaving {
    signal: Mutex<Option<Signal>>,
    ssh: Mutex<Option<nix::unistd::Pid>>,
}

impl Leaving {
    fn by(&self, ssh: &Ssh) {
        *self.ssh.lock().unwrap_or_else(PoisonError::into_inner) = Some(ssh.pid());
    }

    fn signal(&self) -> Option<Signal> {
        *self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By this signal. The starter ends the job if it can be told, else when it has waited long enough.
    fn leave(&self, job: &JobState, signal: Signal) {
        *self.signal.lock().unwrap_or_else(PoisonError::into_inner) = Some(signal);
        // The line ends then, and with it this process. Where it cannot be told, the job may have just ended.
        let told = job.tell(Notice::Leave);
        std::thread::sleep(if told { LEFT_WITHIN } else { ENDS_WITHIN });
        let ssh = self.ssh.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ssh) = *ssh {
            let _ = nix::sys::signal::kill(ssh, Signal::SIGTERM);
        }
        sys::end_by_signal(signal as i32);
    }
}

/// Signals that come to us are the job's.
fn pass_signals(passed: &SigSet, job: &JobState, leaving: &Leaving) {
    for _ in 0..PATIENCE {
        let Ok(signal) = passed.wait() else { return };
        if !job.tell(Notice::Signal(signal as u32)) {
            leaving.leave(job, signal);
        }
    }
    if let Ok(signal) = passed.wait() {
        leaving.leave(job, signal);
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
