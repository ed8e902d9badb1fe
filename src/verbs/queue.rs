//! Jobs in the queue of this machine's startd, for commands that are about jobs: those that have not begun have no directory yet.
//!
//! ```text
//! hold, release, status, log, remove JOB ──jobs/JOB?──> its starter, its directory (life.rs, status.rs)
//!                                     `──spool/JOB.job?──> the startd, or the spool where there is none
//! ```

use super::startd::asked;
use crate::jobs::{JobError, JobStore, Life};
use crate::output::{self, Table};
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use crate::startd::{self, Ask, JobLine, Places, Record};
use starter::life::State;
use std::fs;
use std::io::ErrorKind;

const SCHEMA_VERSION: u32 = 1;

/// A job that has not begun.
pub(super) struct Waiting<'a> {
    store: &'a JobStore,
    places: Places,
    name: &'a str,
}

impl<'a> Waiting<'a> {
    /// The job of this name, if it waits in the queue and has no directory.
    pub(super) fn find(store: &'a JobStore, name: &'a str) -> Option<Self> {
        let places = Places::of(store.dir());
        let is_there = startd::file_of(&places.spool, name).is_file();
        let is_new = || matches!(store.find(name), Err(JobError::Missing { .. }));
        (is_there && is_new()).then_some(Waiting {
            store,
            places,
            name,
        })
    }

    /// It does not begin before it is released.
    pub(super) fn hold(&self, reason: &str) -> Outcome {
        let (job, reason) = (self.name.to_owned(), reason.to_owned());
        asked(self.store, Ask::Hold { job, reason })?;
        Ok(Exit::Done)
    }

    /// It may begin.
    pub(super) fn release(&self) -> Outcome {
        let job = self.name.to_owned();
        asked(self.store, Ask::Release { job })?;
        Ok(Exit::Done)
    }

    /// Nothing has happened to it.
    pub(super) fn log(&self) -> Outcome {
        let line = self.line()?;
        let why = because(&line);
        tell(&format!(
            "job {} is {}, and has not begun: nothing has happened to it yet{why}",
            line.name, line.state
        ));
        Ok(Exit::Done)
    }

    /// Shows how it waits.
    pub(super) fn show(&self, as_json: bool) -> Outcome {
        let line = self.line()?;
        if as_json {
            output::print_json(SCHEMA_VERSION, &Shown::of(&line))?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(&["JOB", &line.name]);
        table.push(vec!["state".to_owned(), line.state.clone()]);
        let reason = match line.state.as_str() {
            "Held" => "held because",
            _ => "waits because",
        };
        if !line.why.is_empty() {
            table.push(vec![reason.to_owned(), line.why.join("; ")]);
        }
        output::print(&table.render())?;
        Ok(Exit::Done)
    }

    fn line(&self) -> Outcome<JobLine> {
        if self.places.is_watched() {
            asked(self.store, Ask::Status {})?;
        }
        let record = Record::load(&self.places.record)?;
        let mut lines = record.map(|record| record.jobs).unwrap_or_default();
        if !self.places.is_watched() {
            lines = without_startd(self.store, &self.places, lines);
        }
        let found = lines.into_iter().find(|line| line.name == self.name);
        found.ok_or_else(|| no_job(self.name))
    }
}

/// What is known of a job that has not begun, in the words of `status`.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(rename = "Name")]
    name: &'a str,
    #[serde(rename = "State")]
    state: &'a str,
    #[serde(rename = "HoldReason", skip_serializing_if = "Option::is_none")]
    hold_reason: Option<String>,
    #[serde(rename = "HoldReasonCode", skip_serializing_if = "Option::is_none")]
    hold_code: Option<i32>,
    #[serde(rename = "NumJobStarts")]
    starts: u64,
    #[serde(rename = "NumCkpts")]
    images: u64,
    why: &'a [String],
}

impl<'a> Shown<'a> {
    fn of(line: &'a JobLine) -> Self {
        let is_held = line.state == "Held";
        Shown {
            name: &line.name,
            state: &line.state,
            hold_reason: is_held.then(|| line.why.join("; ")),
            hold_code: line.hold_code,
            starts: line.starts,
            images: line.images,
            why: &line.why,
        }
    }
}

fn because(line: &JobLine) -> String {
    match line.why.is_empty() {
        true => String::new(),
        false => format!(" ({})", line.why.join("; ")),
    }
}

fn no_job(name: &str) -> Failure {
    Failure::new(Exit::Usage, format!("no job {name} in the queue"))
}

/// Takes a job out of the queue; whether it was there.
pub(super) fn leave(store: &JobStore, name: &str) -> Outcome<bool> {
    let places = Places::of(store.dir());
    let file = startd::file_of(&places.spool, name);
    if !file.exists() {
        return Ok(false);
    }
    if places.is_watched() {
        let job = name.to_owned();
        asked(store, Ask::Remove { job })?;
        return Ok(true);
    }
    match fs::remove_file(&file) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context(|| format!("cannot remove job {name}")),
    }
}

/// The same for who wants nothing else.
pub(super) fn remove(store: &JobStore, name: &str) -> Outcome {
    match leave(store, name)? {
        true => Ok(Exit::Done),
        false => Err(no_job(name)),
    }
}

/// The queue where no startd is: what is in the spool, and what the jobs' own records say of them.
pub(super) fn without_startd(
    store: &JobStore,
    places: &Places,
    known: Vec<JobLine>,
) -> Vec<JobLine> {
    let is_queued = |name: &str| startd::file_of(&places.spool, name).is_file();
    let mut lines: Vec<JobLine> = known
        .into_iter()
        .filter(|line| is_queued(&line.name))
        .collect();
    let files = fs::read_dir(&places.spool).into_iter().flatten().flatten();
    for file in files {
        let path = file.path();
        if let Some(name) = startd::name_of(&path)
            && !lines.iter().any(|line| line.name == name)
        {
            lines.push(new_line(name));
        }
    }
    lines.sort_by(|one, other| one.name.cmp(&other.name));
    for line in &mut lines {
        as_recorded(store, line);
    }
    lines
}

/// One that was handed in since.
fn new_line(name: &str) -> JobLine {
    JobLine {
        name: name.to_owned(),
        number: 0,
        state: "Idle".to_owned(),
        slot: None,
        submitted: 0,
        starts: 0,
        images: 0,
        why: vec![],
        hold_code: None,
        is_removed: false,
        is_admitted: false,
    }
}

/// A job as its own record has it.
fn as_recorded(store: &JobStore, line: &mut JobLine) {
    line.slot = None;
    let Ok(job) = store.find(&line.name) else {
        if !matches!(line.state.as_str(), "Held" | "Damaged") {
            line.state = "Idle".to_owned();
        }
        return;
    };
    line.images = job.record.generation;
    let Some(life) = &job.life else {
        return;
    };
    line.starts = life.counted.num_job_starts;
    let is_over = job.life() == Life::Ended;
    line.state = match life.state() {
        Some(State::Held) => "Held",
        Some(state @ (State::Completed | State::Removed)) => state.name(),
        _ if is_over => "Idle",
        // Its starter lives, and knows that its startd does not.
        _ => "Leaving",
    }
    .to_owned();
    line.why = match (&life.counted.hold_reason, line.state.as_str()) {
        (Some(reason), "Held") => vec![reason.clone()],
        _ => vec![],
    };
}
