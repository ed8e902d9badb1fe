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
//! It gives the job no terminal. If it is killed itself, the job is ended: its files are behind it. Only a job with a life of its own
//! (crate::life) goes on then.

use crate::args::Submit;
use crate::away::{Errand, Far, JobState, Over, Service, Ssh};
use crate::jobs::{JobError, JobStore};
use crate::life;
use crate::limits;
use crate::report::{self, Exit, Failure, Outcome};
use crate::rights::{Executes, keep_those_about_files};
use crate::sys;
use crate::temporary::{self, Temporary};
use crate::verbs::shadow::{allowed, new_token, sessions};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use starter::{Notice, Status};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing_subscriber::filter::LevelFilter;

/// So often a signal is passed on to the job; then the job is left.
const PATIENCE: usize = 3;
/// How long a starter may take to end a job that is left.
const LEFT_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take until it is known here how a job has ended that hears nothing any more.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Runs the job; returns if it could not be run, or is lost.
pub(crate) fn submit(
    store: &dyn Fn() -> Result<JobStore, JobError>,
    arguments: &Submit,
) -> Outcome {
    if arguments.has_life() {
        return life::submit(&store()?, arguments);
    }
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
    keep_those_about_files(&[], Executes::Others)?;
    let mode = umask(Mode::empty());
    let token = new_token()?;
    let mut allowed = allowed(&arguments.allow)?;
    let temporary = temporary::cover(&mut allowed, Temporary::of_now());
    let sessions = sessions(allowed, token, None, store().ok().as_ref())?.of_lines();
    let sessions = Arc::new(sessions.in_domains(arguments.methods.sight.domains()));
    sessions.watch();
    let directory = arguments.directory()?;
    let [host, ..] = arguments.on.as_slice() else {
        return Err(Failure::new(Exit::Usage, "--on: expected a machine"));
    };
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let job = JobState::new(input, Box::new(io::stdout()), Box::new(io::stderr()));
    let job = Arc::new(job);
    let leaving = Arc::new(Leaving::default());
    let (passing, left) = (job.clone(), leaving.clone());
    limits::thread(move || pass_signals(&passed, &passing, &left))?;
    let service = Service {
        far: Far {
            host,
            mode,
            directory: &directory,
            arguments,
            quotes: false,
        },
        sessions,
        token,
        job,
    };
    let over = service.serve(Errand::Run, |ssh| {
        ssh.into_iter().for_each(|ssh| leaving.by(ssh));
        leaving.signal().is_none()
    });
    drop(temporary);
    if let Over::Ended(status, _) = over {
        match status {
            Status::Exited(status) => std::process::exit(status as i32),
            Status::Killed(signal) => sys::end_by_signal(signal as i32),
        }
    }
    if let Some(signal) = leaving.signal() {
        sys::end_by_signal(signal as i32);
    }
    match over {
        Over::Refused(failure) | Over::Lost(failure) => Err(failure),
        Over::Ended(..) => Ok(Exit::Done),
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
