//! What a starter begins with: a new job, one that goes on, an image.

use super::end::end_as;
use super::{Copies, LOOK_AGAIN, Starter};
use crate::args::{Files, Life as Arguments, Restart, Run};
use crate::jobs::{Job, JobError, JobStore, Life, LifeRecord, NewJob, Outputs, Outset, Place};
use crate::life::signals::Signals;
use crate::report::{Exit, Failure, Outcome, tell};
use crate::verbs::{self, restart::Chosen};
use crate::{raw, target};
use nix::sys::signal::Signal;
use starter::life::State;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long what a killed starter has left may take to end.
const ORPHANS_END_WITHIN: Duration = Duration::from_secs(5);

/// `wayfarer run` with a starter.
pub(crate) fn run(store: &JobStore, arguments: &Run) -> Outcome {
    let signals = Signals::open()?;
    if arguments.with_parent {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    }
    let found = match (&arguments.name, arguments.resume) {
        (Some(name), true) => match store.find(name) {
            Ok(job) => Some(job),
            Err(JobError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        },
        _ => None,
    };
    let mut generation = 0;
    let (mut has_image, mut has_outset) = (false, false);
    let again;
    let mut arguments = arguments;
    if let Some(job) = &found {
        let_end(job);
        target::check_ended(job)?;
        if let Some(life) = &job.life {
            if let Some(end) = life.end() {
                let name = &job.record.name;
                tell(&format!("job {name} was completed before"));
                end_as(end);
            }
            refuse_if_held(job, life)?;
            if life.state() == Some(State::Removed) {
                let name = &job.record.name;
                let message = format!("job {name} was killed by its owner");
                let failure = Failure::new(Exit::Failed, message);
                return Err(failure.advise(format!("wayfarer restart {name}, or --replace")));
            }
        }
        let words: Vec<String> = arguments.command.iter().map(raw::encode).collect();
        has_outset = Outset::is_in(&job.dir);
        has_image = !job.known_images()?.is_empty();
        if words != job.record.command && (has_image || has_outset) {
            let was = job.record.command.join(" ");
            tell(&format!(
                "job {} goes on as it was begun: {was}",
                job.record.name
            ));
        }
        generation = job.record.generation;
        if has_outset && !has_image {
            again = Run {
                command: job
                    .record
                    .command
                    .iter()
                    .map(|word| raw::decode(word))
                    .collect(),
                journal: true,
                ..arguments.clone()
            };
            arguments = &again;
        }
    }
    let command = arguments.command.iter().map(raw::encode);
    let registered = verbs::register(
        store,
        NewJob {
            name: arguments.name.clone(),
            base: arguments.command[0].to_string_lossy().into_owned(),
            replace: arguments.replace,
            continues: has_image || has_outset,
            command: command.collect(),
            generation,
            root_pid: None,
            journal: arguments.journal,
            restarted_from: None,
            // With an image, its copy will have those of that.
            outputs: match has_image {
                true => Outputs::default(),
                false => Outputs::of_self(),
            },
            is_copy: false,
        },
    )?;
    let restart = Restart {
        image: PathBuf::new(),
        name: None,
        shadow: arguments.shadow.clone(),
        identity_file: arguments.identity_file.clone(),
        lease: arguments.lease,
        sight: arguments.methods.sight.clone(),
        files: Some(Files::RollBack),
        pids: arguments.pids,
        journal: arguments.journal,
        accept_new_ids: false,
        degraded: false,
        inherit_fd: vec![],
        life: arguments.life.clone(),
    };
    let copies = Copies {
        run: Some(arguments),
        // What an ended job of the same name has left is not this one's.
        go_on: found.is_some(),
        restart,
        image: None,
        signals,
    };
    keep(store, registered, copies, has_image, &arguments.life)
}

/// `wayfarer restart` with a starter.
pub(crate) fn restart(store: &JobStore, arguments: &Restart, chosen: Chosen) -> Outcome {
    let signals = Signals::open()?;
    if let Some(job) = &chosen.job
        && let Some(life) = &job.life
    {
        refuse_if_held(job, life)?;
    }
    let snapshot = chosen.snapshot()?;
    let registered = verbs::restart::register(store, arguments, &chosen, &snapshot, None)?;
    let copies = Copies {
        run: None,
        go_on: true,
        restart: Restart {
            files: Some(arguments.files.unwrap_or(Files::RollBack)),
            ..arguments.clone()
        },
        image: Some((chosen.path, snapshot.taken.generation)),
        signals,
    };
    keep(store, registered, copies, true, &arguments.life)
}

/// A supervisor whose starter was killed is about to end.
fn let_end(job: &Job) {
    let is_orphan =
        |life: &LifeRecord| Place::here().same_pids(&life.place) && !life.starter.is_alive();
    let end = Instant::now() + ORPHANS_END_WITHIN;
    while job.life.as_ref().is_some_and(is_orphan)
        && job.life() == Life::Living
        && Instant::now() < end
    {
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn refuse_if_held(job: &Job, life: &LifeRecord) -> Outcome<()> {
    if life.state() != Some(State::Held) {
        return Ok(());
    }
    let name = &job.record.name;
    let reason = life
        .counted
        .hold_reason
        .as_deref()
        .unwrap_or("no reason is known");
    let failure = Failure::new(Exit::Failed, format!("job {name} is held: {reason}"));
    Err(failure.advise(format!("wayfarer release {name}")))
}

/// Keeps the job until it has ended or left; does not return then.
fn keep(
    store: &JobStore,
    job: Option<Job>,
    copies: Copies<'_>,
    has_image: bool,
    arguments: &Arguments,
) -> Outcome {
    let Some(job) = job else {
        let message = "a job that is not written down cannot have a starter";
        return Err(Failure::new(Exit::Failed, message));
    };
    let begun = Starter::begin(store, &job, copies, has_image, arguments);
    let mut starter = match begun {
        Ok(starter) => starter,
        Err(failure) => {
            job.withdraw();
            return Err(failure);
        }
    };
    let leave = starter.work()?;
    starter.conclude(&job, leave)
}
