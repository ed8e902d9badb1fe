//! A job's ad: how it fares, under the names of Condor's job ad (condor manual, "Job ClassAd Attributes"). `status` shows what of it
//! changes, `ps -l` all.

use crate::classad::{self, Ad};
use crate::jobs::{Counted, FileNumbers, Job, Life, LifeRecord, Output};
use crate::raw;
use crate::report::Outcome;
use crate::users;
use nix::unistd::Uid;
use serde::Serialize;
use serde_json::{Value, json};
use starter::life::State;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// How a job fares.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Faring {
    pub(super) name: String,
    /// Of the starter's state machine; of a job without one, Running or Ended.
    pub(super) state: String,
    /// Condor's number for that.
    job_status: u32,
    has_starter: bool,
    pub(super) remote_host: String,
    pub(super) num_ckpts: u64,
    pub(super) last_ckpt_time: Option<u64>,
    #[serde(with = "crate::raw::some_path")]
    image: Option<PathBuf>,
    /// KiB.
    pub(super) image_size: Option<u64>,
    /// What the last image needs of a machine.
    last_checkpoint_platform: Option<String>,
    /// Machine and system where it was made: there is no other yet.
    ckpt_arch: Option<&'static str>,
    ckpt_op_sys: Option<&'static str>,
    /// What it had done with remote files when that was made.
    #[serde(flatten)]
    files: Option<FileNumbers>,
    /// Why the last checkpoint was refused, if it was.
    pub(super) checkpoint_refused: Option<String>,
    /// The image that was passed over last, and why, if there was one.
    pub(super) image_passed_over: Option<String>,
    /// What was cut off its files when they went back.
    #[serde(skip)]
    pub(super) tails: Vec<String>,
    #[serde(flatten)]
    pub(super) counted: Counted,
}

/// How this one does.
pub(super) fn faring(job: &Job) -> Faring {
    let record = &job.record;
    let life = job.life.as_ref();
    let has_starter = life.is_some_and(|life| life.has_starter());
    let noted = life.and_then(|life| life.state());
    let state = match (job.life(), noted) {
        (Life::Living, Some(state)) if has_starter => state.name().to_owned(),
        (Life::Living, _) if job.processes().root.is_none() => State::Starting.name().to_owned(),
        (Life::Living, _) => State::Running.name().to_owned(),
        (Life::Elsewhere { host }, _) => format!("on {host}"),
        (Life::Ended, Some(state)) if state.is_last() => state.name().to_owned(),
        // Its starter was killed.
        (Life::Ended, Some(_)) => State::Idle.name().to_owned(),
        (Life::Ended, None) => "Ended".to_owned(),
    };
    let last = record.last_checkpoint.as_ref();
    Faring {
        name: record.name.clone(),
        job_status: number(&state),
        state,
        has_starter,
        remote_host: life
            .and_then(|life| life.on.clone())
            .unwrap_or_else(|| record.place.host.clone()),
        num_ckpts: record.generation,
        last_ckpt_time: last.map(|last| last.taken_at),
        image: last.map(|last| last.image.clone()),
        image_size: last.map(|last| last.size() >> 10),
        last_checkpoint_platform: last.and_then(|last| last.platform.clone()),
        ckpt_arch: last.map(|_| "X86_64"),
        ckpt_op_sys: last.map(|_| "LINUX"),
        files: last.and_then(|last| last.files.clone()),
        checkpoint_refused: life.and_then(|life| life.refused.clone()),
        image_passed_over: life.and_then(|life| life.passed_over.clone()),
        tails: life.map(|life| life.tails.clone()).unwrap_or_default(),
        counted: life.map(LifeRecord::counted_so_far).unwrap_or_default(),
    }
}

/// `JobStatus` (condor manual, "Job ClassAd Attributes").
fn number(state: &str) -> u32 {
    match State::from_name(state) {
        Some(State::Idle | State::Starting | State::Restarting) => 1,
        Some(State::Removed) => 3,
        Some(State::Completed) => 4,
        Some(State::Held) => 5,
        Some(State::Suspended) => 7,
        Some(
            State::Running
            | State::Checkpointing
            | State::Vacating
            | State::Killing
            | State::Reconnecting,
        ) => 2,
        None if state == "Ended" => 4,
        None => 2,
    }
}

/// All that is known of a job: how it fares, whose it is, and what it is. What is not known is not there.
pub(super) fn ad(job: &Job) -> Outcome<Ad> {
    let record = &job.record;
    let mut ad = attributes(&faring(job))?;
    if job.life.is_none() {
        // Nobody has counted.
        for name in attributes(&Counted::default())?.keys() {
            ad.remove(name);
        }
    }
    let dates = [
        "JobStartDate",
        "JobCurrentStartDate",
        "EnteredCurrentStatus",
    ];
    let is_unset = |name: &str, value: &Value| dates.contains(&name) && *value == 0;
    ad.retain(|name, value| !value.is_null() && !is_unset(name, value));
    let mut add = |name: &str, value: Value| {
        ad.entry(name.to_owned()).or_insert(value);
    };
    add("MyType", json!("Job"));
    if record.number > 0 {
        add("ClusterId", json!(record.number));
    }
    add("ProcId", json!(0));
    if let Ok(found) = job.dir.metadata() {
        add("Owner", json!(users::name_of(Uid::from_raw(found.uid()))));
    }
    if let Some((program, words)) = record.command.split_first() {
        add("Cmd", json!(program));
        add("Arguments", json!(classad::arguments(words)));
    }
    if !record.cwd.as_os_str().is_empty() {
        add("Iwd", json!(raw::encode(&record.cwd)));
    }
    let outputs = [
        ("Out", &record.outputs.out),
        ("Err", &record.outputs.errors),
    ];
    for (name, output) in outputs {
        if let Some(path) = output.as_ref().and_then(Output::lasting_path) {
            add(name, json!(raw::encode(path)));
        }
    }
    add("JobCurrentStartDate", json!(record.started_at));
    if record.restarted_from.is_none() {
        add("JobStartDate", json!(record.started_at));
    }
    // A job at home is begun when it is submitted.
    if let Some(begun) = ad.get("JobStartDate").cloned() {
        ad.insert("QDate".to_owned(), begun);
    }
    Ok(ad)
}

fn attributes(of: &impl Serialize) -> Outcome<Ad> {
    Ok(serde_json::from_value(serde_json::to_value(of)?)?)
}
