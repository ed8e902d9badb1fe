//! What a starter begins with: a new job, one that goes on, an image.

use super::end::end_as;
use super::streams::{self, Streams};
use super::{Away, Copies, How, LOOK_AGAIN, Starter};
use crate::args::{Files, ImagesAt, Life as Arguments, Restart, Run, Submit};
use crate::ckpt_server;
use crate::ckpt_server::{Where, newer_than_here};
use crate::jobs::{
    Job, JobError, JobStore, KeptAt, Life, LifeRecord, NewJob, Outputs, Outset, Place,
};
use crate::life::signals::Signals;
use crate::remote::By;
use crate::report::{Exit, Failure, Outcome, chain, tell};
use crate::verbs::{self, restart::Chosen};
use crate::{raw, target};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use starter::life::State;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long what a killed starter has left may take to end.
const ORPHANS_END_WITHIN: Duration = Duration::from_secs(5);

/// `wayfarer run` with a starter.
pub(crate) fn run(store: &JobStore, arguments: &Run) -> Outcome {
    begin_run(store, arguments).inspect_err(|failure| {
        if let (Some(file), Some(message)) = (&arguments.why, failure.message()) {
            note_why(file, &message);
        }
    })
}

/// Writes down for whoever began us why there is no job.
pub(super) fn note_why(file: &Path, message: &str) {
    if let Err(error) = std::fs::write(file, message) {
        tell(&format!("{}: {error}", raw::shown_path(file)));
    }
}

fn begin_run(store: &JobStore, arguments: &Run) -> Outcome {
    let signals = Signals::open()?;
    if arguments.with_parent {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    }
    let name = arguments.name.as_deref().filter(|_| arguments.resume);
    if let Some(name) = name
        && let Some(image) = fetched(store, name, arguments)?
    {
        let restart = Restart {
            image: image.clone(),
            name: Some(name.to_owned()),
            ..goes_on_as(arguments)
        };
        let chosen = verbs::restart::image_file(store, &image)?;
        return self::restart(store, &restart, chosen);
    }
    let found = earlier(store, name, &arguments.command)?;
    let generation = found.as_ref().map_or(0, |found| found.generation);
    let has_image = found.as_ref().is_some_and(|found| found.has_image);
    let has_outset = found.as_ref().is_some_and(|found| found.has_outset);
    let is_continued = has_image || has_outset;
    if let Some(found) = found
        .as_ref()
        .filter(|found| is_continued && found.on.is_some())
    {
        return Err(is_elsewheres(&found.name));
    }
    let again;
    let mut arguments = arguments;
    if let Some(found) = found.as_ref().filter(|_| has_outset) {
        again = Run {
            command: found.command.clone(),
            journal: true,
            ..arguments.clone()
        };
        arguments = &again;
    }
    let confined;
    if found.as_ref().is_some_and(|found| found.confined) && !arguments.confine {
        confined = Run {
            confine: true,
            ..arguments.clone()
        };
        arguments = &confined;
    }
    let replaced = replaced(store, arguments).filter(|_| !is_continued);
    let kept = replaced.as_ref().and_then(ckpt_server::Kept::of);
    // Under a startd, standard error is the job's own file.
    let is_told = arguments.why.is_none() && !is_continued;
    let begins_again = |found: &&Earlier| is_told && found.has_begun && found.is_same;
    if let Some(found) = found.as_ref().filter(begins_again) {
        let name = &found.name;
        tell(&format!(
            "job {name} begins again, as there is no image of it; its files are as it left them (with --journal they go back)"
        ));
    }
    let command = arguments.command.iter().map(raw::encode);
    let registered = verbs::registered(
        store,
        NewJob {
            name: arguments.name.clone(),
            base: arguments.command[0].to_string_lossy().into_owned(),
            replace: arguments.replace,
            continues: is_continued,
            is_same: found.as_ref().is_some_and(|found| found.is_same),
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
            confined: arguments.confine,
        },
    )?;
    let job = registered.map_err(|error| unwritten_since(&error))?;
    if let Some(kept) = kept {
        kept.forget(store);
    }
    let restart = goes_on_as(arguments);
    let copies = Copies {
        how: How::Here {
            run: Some(arguments),
            restart: Box::new(restart),
            image: None,
            is_named: false,
            passed_over: vec![],
        },
        // What an ended job of the same name has left is not this one's.
        go_on: found.is_some(),
        signals,
    };
    keep(store, Some(job), copies, has_image, &arguments.life)
}

impl How<'_> {
    /// The shadow that keeps images, if one does.
    pub(super) fn kept_at(&self, by: By) -> Option<KeptAt> {
        let How::Here { restart, .. } = self else {
            return None;
        };
        let identity = restart.identity_file.as_ref();
        let identity = identity.and_then(|path| std::path::absolute(path).ok());
        Some(KeptAt {
            address: restart.shadow.as_ref()?.to_string(),
            identity: identity.map(raw::encode),
            starter: by.starter(),
        })
    }
}

/// The ended job whose name the new one takes.
fn replaced(store: &JobStore, arguments: &Run) -> Option<Job> {
    let name = arguments.name.as_ref().filter(|_| arguments.replace)?;
    let job = store.find(name).ok()?;
    (job.life() == Life::Ended).then_some(job)
}

/// How a job that was begun so goes on from an image.
fn goes_on_as(arguments: &Run) -> Restart {
    Restart {
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
        confine: arguments.confine,
        nice: arguments.nice,
        with_parent: false,
        starter_fd: None,
        prepared: vec![],
        life: arguments.life.clone(),
    }
}

/// What has come of a job of this name that was on another machine last.
fn fetched(store: &JobStore, name: &str, arguments: &Run) -> Outcome<Option<PathBuf>> {
    let at = Where {
        shadow: arguments.shadow.as_ref(),
        identity: arguments.identity_file.as_deref(),
        lease: arguments.lease,
        life: &arguments.life,
    };
    if let Ok(job) = store.find(name) {
        let_end(&job);
    }
    newer_than_here(store, name, &at)
}

/// A job of this name that has begun before, and may go on.
struct Earlier {
    name: String,
    command: Vec<OsString>,
    generation: u64,
    has_image: bool,
    has_outset: bool,
    /// It is begun with `--confine`, whether that is said again or not.
    confined: bool,
    /// It ran on another machine.
    on: Option<String>,
    /// A copy of it has run.
    has_begun: bool,
    /// It was begun with this command.
    is_same: bool,
}

/// Finds it; ends as it did if it is completed.
fn earlier(store: &JobStore, name: Option<&str>, command: &[OsString]) -> Outcome<Option<Earlier>> {
    let Some(name) = name else {
        return Ok(None);
    };
    let job = match store.find(name) {
        Ok(job) => job,
        Err(JobError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let_end(&job);
    target::check_ended(&job)?;
    if let Some(life) = &job.life {
        if let Some(end) = life.end() {
            tell(&format!("job {name} was completed before"));
            end_as(end);
        }
        refuse_if_held(&job, life)?;
        if life.state() == Some(State::Removed) {
            let message = format!("job {name} was killed by its owner");
            let failure = Failure::new(Exit::Failed, message);
            return Err(failure.advise(match life.on {
                Some(_) => "--replace without --resume, to begin it anew".to_owned(),
                None => format!("wayfarer restart {name}, or --replace"),
            }));
        }
    }
    refuse_if_over(&job)?;
    let has_outset = Outset::is_in(&job.dir);
    let has_image = !job.known_images()?.is_empty();
    let words: Vec<String> = command.iter().map(raw::encode).collect();
    let is_same = words == job.record.command;
    if !is_same && (has_image || has_outset) {
        let was = job.record.command.join(" ");
        tell(&format!("job {name} goes on as it was begun: {was}"));
    }
    let words = job.record.command.iter();
    Ok(Some(Earlier {
        name: name.to_owned(),
        command: words.map(|word| raw::decode(word)).collect(),
        generation: job.record.generation,
        has_image,
        has_outset,
        confined: job.record.confined && (has_image || has_outset),
        on: job.life.as_ref().and_then(|life| life.on.clone()),
        has_begun: job
            .life
            .as_ref()
            .is_some_and(|life| life.counted.num_job_starts > 0),
        is_same,
    }))
}

fn is_elsewheres(name: &str) -> Failure {
    let message = format!("job {name} runs on other machines, with its files here");
    let advice = format!("wayfarer submit --on HOST --resume --name {name} COMMAND");
    Failure::new(Exit::Usage, message).advise(advice)
}

/// `wayfarer submit` with a starter, which stays here.
pub(crate) fn submit(store: &JobStore, arguments: &Submit) -> Outcome {
    let signals = Signals::open()?;
    if !arguments.methods.want_remote_io {
        let message = "a job without remote files cannot have a life of its own at home";
        return Err(Failure::new(Exit::Usage, message).advise("run, on the other machine"));
    }
    if arguments.life.policy.is_some() {
        let message = "--policy is about the machine where the job runs, which is not this one";
        return Err(Failure::new(Exit::Usage, message));
    }
    let mode = umask(Mode::empty());
    umask(mode);
    let name = arguments.name.as_deref().filter(|_| arguments.resume);
    let found = earlier(store, name, &arguments.command)?;
    let has_image = found.as_ref().is_some_and(|found| found.has_image);
    let continued = found
        .as_ref()
        .filter(|found| found.has_image || found.has_outset);
    if let Some(found) = continued.filter(|found| found.on.is_none()) {
        let name = &found.name;
        let message = format!("job {name} has run on this machine, with its files");
        let advice = format!("wayfarer run --resume --name {name} COMMAND");
        return Err(Failure::new(Exit::Usage, message).advise(advice));
    }
    let confined;
    let mut arguments = arguments;
    if found.as_ref().is_some_and(|found| found.confined) && !arguments.confine {
        confined = Submit {
            confine: true,
            ..arguments.clone()
        };
        arguments = &confined;
    }
    let command = continued.map_or(&arguments.command, |found| &found.command);
    let registered = verbs::registered(
        store,
        NewJob {
            name: arguments.name.clone(),
            base: command[0].to_string_lossy().into_owned(),
            replace: arguments.replace,
            continues: continued.is_some(),
            is_same: found.as_ref().is_some_and(|found| found.is_same),
            command: command.iter().map(raw::encode).collect(),
            generation: continued.map_or(0, |found| found.generation),
            root_pid: None,
            journal: false,
            restarted_from: None,
            outputs: Outputs::default(),
            is_copy: false,
            confined: arguments.confine,
        },
    )?;
    let mut job = registered.map_err(|error| unwritten_since(&error))?;
    let begun = (|| -> Outcome<Away<'_>> {
        let allowed = streams::allowed(&arguments.allow, &job.dir)?;
        let streams = match continued {
            Some(_) => Streams::load(&job.dir)?,
            None => Streams::prepare(&job.dir, &allowed)?,
        };
        job.record.outputs = streams.outputs();
        job.record.save(&job.dir)?;
        let wrapped = streams.around(command);
        Away::new(arguments, mode, streams, (wrapped, allowed))
    })();
    let away = match begun {
        Ok(away) => away,
        Err(failure) => {
            if continued.is_none() {
                Streams::withdraw(&job.dir);
            }
            job.withdraw();
            return Err(failure);
        }
    };
    if away.streams.is_silent() {
        let name = &job.record.name;
        tell(&format!(
            "what job {name} writes is shown at its end; until then: wayfarer tail -f {name}"
        ));
    }
    let copies = Copies {
        how: How::Away(Box::new(away)),
        go_on: found.is_some(),
        signals,
    };
    keep(store, Some(job), copies, has_image, &arguments.life)
}

fn unwritten_since(error: &JobError) -> Failure {
    let message = format!(
        "a job that is not written down cannot have a starter: {}",
        chain(error)
    );
    Failure::new(Exit::Failed, message)
}

fn unwritten() -> Failure {
    let message = "a job that is not written down cannot have a starter";
    Failure::new(Exit::Failed, message)
}

/// `wayfarer restart` with a starter.
pub(crate) fn restart(store: &JobStore, arguments: &Restart, chosen: Chosen) -> Outcome {
    let signals = Signals::open()?;
    if let Some(job) = &chosen.job
        && let Some(life) = &job.life
    {
        refuse_if_held(job, life)?;
        if life.on.is_some() {
            return Err(is_elsewheres(&job.record.name));
        }
    }
    let snapshot = chosen.snapshot()?;
    let mut chosen = chosen;
    let mut fetched = None;
    let registered = verbs::restart::register(store, arguments, &chosen, &snapshot, None)?;
    if let Some(job) = registered
        .as_ref()
        .filter(|_| ckpt_server::is_fetched(store, &chosen.path))
    {
        // It is one of the job's now.
        let path = job.image_path(snapshot.taken.generation)?;
        std::fs::rename(&chosen.path, &path)?;
        fetched = Some((path.clone(), chosen.path));
        (chosen.path, chosen.is_named) = (path, false);
    }
    let restart = Restart {
        files: Some(arguments.files.unwrap_or(Files::RollBack)),
        ..arguments.clone()
    };
    let copies = Copies {
        how: How::Here {
            run: None,
            restart: Box::new(restart),
            image: Some((chosen.path, snapshot.taken.generation)),
            is_named: chosen.is_named,
            passed_over: chosen.passed_over,
        },
        go_on: true,
        signals,
    };
    keep(store, registered, copies, true, &arguments.life).inspect_err(|_| {
        // There is no such job then, and it may be fetched again.
        if let Some((there, back)) = &fetched {
            let _ = std::fs::rename(there, back);
        }
    })
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

/// Of a job whose record cannot be read its event log may say that it is over.
fn refuse_if_over(job: &Job) -> Outcome<()> {
    // One that never had a starter has none.
    if job.life.is_some() || !LifeRecord::is_in(&job.dir) {
        return Ok(());
    }
    let how = match super::chronicle::last_event(&job.dir, job.record.number) {
        Some(5) => "has ended",
        Some(9) => "was killed by its owner",
        Some(12) => "is held",
        _ => return Ok(()),
    };
    let name = &job.record.name;
    let message = format!("job {name} {how}, as its event log says; its record cannot be read");
    let failure = Failure::new(Exit::Failed, message);
    Err(failure.advise(format!(
        "wayfarer restart {name}, if it has an image, or --replace without --resume"
    )))
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

impl Copies<'_> {
    /// Refuses a job whose files are here.
    fn have_shadow(&self) -> Outcome<()> {
        let has_shadow = match &self.how {
            How::Here { restart, .. } => restart.shadow.is_some(),
            // They come home, where its shadow is.
            How::Away(_) => true,
        };
        if has_shadow {
            return Ok(());
        }
        let message = "--images shadow is for jobs whose files are at a shadow (--shadow ADDRESS)";
        Err(Failure::new(Exit::Usage, message))
    }
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
        return Err(unwritten());
    };
    let placed = match &arguments.images {
        Some(ImagesAt::Dir(images)) => job.keep_images_in(images).map_err(Failure::from),
        Some(ImagesAt::Shadow) => copies.have_shadow(),
        None => Ok(()),
    };
    let begun = placed.and_then(|()| Starter::begin(store, &job, copies, has_image, arguments));
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
