//! One promise about a job, kept by a test of its own: set up, tried, cleared up.

use super::random::seed;
use super::run::{self, Run};
use super::scenario::{Guest, Job, Mode, Variant, Verdict};
use super::skip;
use super::stage;
use super::user::User;
use std::fs;

/// Carries out `body` with a job of this guest, as an ordinary user (as root, if it is only for root),
/// and clears up whatever happens.
pub fn with_job(guest: &Guest, body: impl FnOnce(&mut Job) -> Result<(), String>) {
    let user = if guest.only_root {
        User::Root
    } else {
        User::Ordinary
    };
    if let Some(reason) = user.missing() {
        return skip::note(&guest.label, &reason);
    }
    let variant = Variant {
        mode: Mode::KillRestart,
        user,
        threads: 0,
    };
    let mut job = Job::new(guest, variant, seed());
    let result = body(&mut job);
    let autopsy = match &result {
        Err(_) => run::autopsy(&run::marked(&job.mark)),
        Ok(()) => String::new(),
    };
    let log: String = job.runs.iter().map(Run::describe).collect();
    drop(std::mem::take(&mut job.runs));
    run::end_marked(&job.mark);
    match result {
        Ok(()) => drop(fs::remove_dir_all(&job.dir)),
        Err(what) => {
            let log = format!("WF_SEED={}\n{what}\n{log}{autopsy}", seed());
            let place = stage::keep_artefacts(&job.dir, &log);
            panic!("{}: {log}\nfiles: {}", guest.label, place.display());
        }
    }
}

/// A verdict that must be a pass.
///
/// # Errors
/// It was not possible here.
pub fn passed(verdict: Verdict) -> Result<(), String> {
    match verdict {
        Verdict::Passed => Ok(()),
        Verdict::Skipped(reason) => Err(format!("skipped: {reason}")),
    }
}

/// Asks wayfarer something about a job, which has to succeed.
pub fn ask(job: &mut Job<'_>, words: &[&str]) -> Result<String, String> {
    match job.tell(words)? {
        (Some(0), said) => Ok(said),
        (code, said) => Err(format!("{words:?}: status {code:?}: {said}")),
    }
}

/// Asks for what has to be refused, with this reason.
pub fn refused(job: &mut Job<'_>, words: &[&str], why: &str) -> Result<(), String> {
    match job.tell(words)? {
        (Some(0), _) => Err(format!("{words:?}: found success, expected a refusal")),
        (_, said) if said.contains(why) => Ok(()),
        (_, said) => Err(format!("{words:?}: found {said:?}, expected {why:?}")),
    }
}
