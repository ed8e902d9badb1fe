//! `wayfarer ps`.

use super::ad::ad;
use crate::args::Ps;
use crate::classad;
use crate::jobs::{Job, JobError, JobStore, Life, process};
use crate::output::{self, Table};
use crate::report::{Exit, Outcome, chain, tell};
use crate::target;
use serde::Serialize;
use starter::life::State;
use std::path::PathBuf;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    jobs: Vec<JobLine>,
}

#[derive(Serialize)]
struct JobLine {
    name: String,
    state: &'static str,
    host: String,
    supervisor_pid: i32,
    root_pid: Option<i32>,
    root_pid_in_job: Option<i32>,
    processes: usize,
    started_at: u64,
    generation: u64,
    last_checkpoint_at: Option<u64>,
    #[serde(with = "crate::raw::some_path")]
    image: Option<PathBuf>,
    image_bytes: Option<u64>,
    command: Vec<String>,
}

/// Lists the jobs, or removes those that have ended.
pub(crate) fn ps(store: &JobStore, arguments: &Ps) -> Outcome {
    if arguments.prune {
        return match arguments.jobs.as_slice() {
            [] => prune_all(store),
            names => {
                for name in names {
                    prune_named(store, name)?;
                }
                Ok(Exit::Done)
            }
        };
    }
    let jobs = selected(store, &arguments.jobs)?;
    if arguments.long {
        let ads = jobs.iter().map(|job| Ok(classad::text(&ad(job)?)));
        let ads = ads.collect::<Outcome<Vec<_>>>()?;
        output::print_bytes(&ads.join(&b'\n'))?;
        return Ok(Exit::Done);
    }
    let lines: Vec<JobLine> = jobs.iter().map(line).collect();
    if arguments.json {
        output::print_json(SCHEMA_VERSION, &Report { jobs: lines })?;
    } else {
        output::print(&render(&lines))?;
    }
    Ok(Exit::Done)
}

fn selected(store: &JobStore, names: &[String]) -> Outcome<Vec<Job>> {
    if !names.is_empty() {
        return names
            .iter()
            .map(|name| store.find(name).map_err(target::missing))
            .collect();
    }
    let mut jobs = vec![];
    for job in store.list()? {
        match job {
            Ok(job) => jobs.push(job),
            Err(error) => tell(&chain(&error)),
        }
    }
    Ok(jobs)
}

/// Removes what has ended here, and directories that hold nothing.
fn prune_all(store: &JobStore) -> Outcome {
    for job in selected(store, &[])? {
        let name = &job.record.name;
        match job.life() {
            Life::Living => {}
            Life::Elsewhere { host } => {
                tell(&format!("job {name} is on host {host} and is kept"));
            }
            Life::Ended => match kept_for(&job, false)? {
                Some(why) => tell(&why),
                None => removed(name, store.remove(&job)?)?,
            },
        }
    }
    for (name, images) in store.unrecorded()? {
        if images == 0 {
            removed(&name, store.remove_unreadable(&name)?)?;
        } else {
            tell(&format!(
                "{name} has {images} images but no record and is kept; ps --prune {name} removes it"
            ));
        }
    }
    Ok(Exit::Done)
}

/// Removes one that was named, even if nothing can be known about it.
fn prune_named(store: &JobStore, name: &str) -> Outcome<()> {
    let job = match store.find(name) {
        Ok(job) => job,
        Err(JobError::Record(error)) if error.is_damage() => {
            return removed(name, store.remove_unreadable(name)?);
        }
        Err(error @ JobError::Missing { .. }) => {
            let unrecorded = store.unrecorded()?;
            if unrecorded.iter().all(|(found, _)| found != name) {
                return Err(target::missing(error));
            }
            return removed(name, store.remove_unreadable(name)?);
        }
        Err(error) => return Err(error.into()),
    };
    if job.life() == Life::Living {
        tell(&format!("job {name} lives and is kept"));
        return Ok(());
    }
    if let Some(why) = kept_for(&job, true)? {
        tell(&why);
        return Ok(());
    }
    removed(name, store.remove(&job)?)
}

/// Why a job that has no copy is not over. One without a starter that was named is given up.
fn kept_for(job: &Job, is_named: bool) -> Outcome<Option<String>> {
    let name = &job.record.name;
    Ok(match left(job) {
        Some(state) => Some(format!(
            "job {name} is {} and can go on, and is kept; wayfarer remove {name} removes it",
            state.name()
        )),
        None if job.life.is_some() || is_named => None,
        None => match job.images()?.len() {
            0 => None,
            images => Some(format!(
                "job {name} has {images} images to go on from, and is kept; ps --prune {name} removes it"
            )),
        },
    })
}

/// Idle or Held, of a job with a starter that has no copy and is not over.
fn left(job: &Job) -> Option<State> {
    match job.life.as_ref()?.state() {
        Some(State::Completed | State::Removed) => None,
        Some(State::Held) => Some(State::Held),
        // Its starter may have been killed.
        _ => Some(State::Idle),
    }
}

fn removed(name: &str, images: usize) -> Outcome<()> {
    output::print(&format!("removed {name} ({images} images)\n"))
}

fn line(job: &Job) -> JobLine {
    let record = &job.record;
    let life = job.life();
    let processes = match life {
        Life::Living => job.processes(),
        _ => process::JobProcesses::default(),
    };
    let root = processes.root;
    let state = match life {
        Life::Living if job.runs_on().is_some() => state_away(job),
        Life::Living => root.map_or("starting", state_of),
        Life::Ended => match left(job) {
            Some(State::Held) => "held",
            Some(_) => "idle",
            None => "ended",
        },
        Life::Elsewhere { .. } => "elsewhere",
    };
    let last = record
        .last_checkpoint
        .as_ref()
        .filter(|last| last.image.exists());
    JobLine {
        name: record.name.clone(),
        state,
        host: job.runs_on().unwrap_or(&record.place.host).to_owned(),
        supervisor_pid: record.supervisor.pid,
        root_pid: root,
        root_pid_in_job: root.and_then(|pid| process::namespace_pids(pid).last().copied()),
        processes: processes.all.len(),
        started_at: record.started_at,
        generation: record.generation,
        last_checkpoint_at: record.last_checkpoint.as_ref().map(|last| last.taken_at),
        image: last.map(|last| last.image.clone()),
        image_bytes: last.map(|last| last.image_bytes),
        command: record.command.clone(),
    }
}

/// Of a job on another machine, as its starter knows it.
fn state_away(job: &Job) -> &'static str {
    match job.life.as_ref().and_then(|life| life.state()) {
        Some(State::Suspended) => "stopped",
        Some(State::Running | State::Checkpointing | State::Vacating | State::Reconnecting) => {
            "running"
        }
        Some(State::Starting | State::Restarting) | None => "starting",
        Some(_) => "ending",
    }
}

fn state_of(root: i32) -> &'static str {
    match process::state(root) {
        Ok('T') => "stopped",
        Ok('t') => "traced",
        Ok('Z' | 'X') | Err(_) => "ending",
        Ok(_) => "running",
    }
}

fn render(lines: &[JobLine]) -> String {
    let head = [
        "NAME",
        "PID",
        "STATE",
        "SINCE",
        "GEN",
        "CHECKPOINT",
        "IMAGE",
        "COMMAND",
    ];
    let mut table = Table::new(&head);
    let dash = || "-".to_owned();
    for line in lines {
        let state = match line.state {
            "elsewhere" => format!("on {}", line.host),
            state => state.to_owned(),
        };
        table.push(vec![
            line.name.clone(),
            line.root_pid.map_or_else(dash, |pid| pid.to_string()),
            state,
            output::ago(line.started_at),
            line.generation.to_string(),
            line.last_checkpoint_at.map_or_else(dash, output::ago),
            line.image_bytes.map_or_else(dash, output::bytes),
            shortened(&line.command.join(" ")),
        ]);
    }
    table.render()
}

/// A command line that does not fill the screen.
fn shortened(command: &str) -> String {
    const LONGEST: usize = 48;
    let plain = crate::raw::shown(command);
    if plain.chars().count() <= LONGEST {
        return plain;
    }
    let mut short: String = plain.chars().take(LONGEST - 1).collect();
    short.push('…');
    short
}
