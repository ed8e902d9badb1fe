//! `wayfarer status JOB`: how a job fares, under the names of Condor's job ad.

use crate::args::Status;
use crate::jobs::{Counted, Job, JobStore, Life, unix_now};
use crate::output::{self, Table};
use crate::report::{Exit, Outcome};
use crate::target;
use serde::Serialize;
use starter::life::State;
use std::path::PathBuf;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    name: String,
    /// Of the starter's state machine; of a job without one, Running or Ended.
    state: String,
    /// Condor's number for that.
    job_status: u32,
    has_starter: bool,
    remote_host: String,
    num_ckpts: u64,
    last_ckpt_time: Option<u64>,
    #[serde(with = "crate::raw::some_path")]
    image: Option<PathBuf>,
    /// KiB.
    image_size: Option<u64>,
    /// Why the last checkpoint was refused, if it was.
    checkpoint_refused: Option<String>,
    #[serde(flatten)]
    counted: Counted,
}

/// Shows it.
pub(crate) fn status(store: &JobStore, arguments: &Status) -> Outcome {
    let job = target::named(store, &arguments.job)?;
    let report = report(&job);
    match arguments.json {
        true => output::print_json(SCHEMA_VERSION, &report)?,
        false => output::print(&render(&report))?,
    }
    Ok(Exit::Done)
}

fn report(job: &Job) -> Report {
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
    Report {
        name: record.name.clone(),
        job_status: number(&state),
        state,
        has_starter,
        remote_host: record.place.host.clone(),
        num_ckpts: record.generation,
        last_ckpt_time: last.map(|last| last.taken_at),
        image: last.map(|last| last.image.clone()),
        image_size: last.map(|last| last.image_bytes >> 10),
        checkpoint_refused: life.and_then(|life| life.refused.clone()),
        counted: life.map(|life| life.counted.clone()).unwrap_or_default(),
    }
}

/// `JobStatus` (condor manual, "Job ClassAd Attributes").
fn number(state: &str) -> u32 {
    match State::from_name(state) {
        Some(State::Idle | State::Starting | State::Restarting) => 1,
        Some(State::Removed | State::Killing) => 3,
        Some(State::Completed) => 4,
        Some(State::Held) => 5,
        Some(State::Suspended) => 7,
        Some(State::Running | State::Checkpointing | State::Vacating) => 2,
        None if state == "Ended" => 4,
        None => 2,
    }
}

fn render(report: &Report) -> String {
    let counted = &report.counted;
    let mut table = Table::new(&["JOB", &report.name]);
    let mut line = |name: &str, value: String| table.push(vec![name.to_owned(), value]);
    let entered = counted.entered_current_status;
    let since = match entered {
        0 => String::new(),
        entered => format!(", {}", output::ago(entered)),
    };
    line("state", format!("{}{since}", report.state));
    if let Some(reason) = &counted.hold_reason {
        line("held because", reason.clone());
    }
    line("host", report.remote_host.clone());
    let checkpoint = match (report.last_ckpt_time, report.image_size) {
        (Some(time), Some(kib)) => format!(
            "{} in all, the last {} ({})",
            report.num_ckpts,
            output::ago(time),
            output::bytes(kib << 10)
        ),
        _ => "none".to_owned(),
    };
    line("checkpoints", checkpoint);
    if let Some(reason) = &report.checkpoint_refused {
        line("refused last", reason.clone());
    }
    if counted.num_job_starts > 0 {
        let starts = format!(
            "{} of the job, {} from an image",
            counted.num_job_starts, counted.num_restarts
        );
        line("copies", starts);
        let present = unix_now().saturating_sub(counted.job_start_date);
        line("begun", output::ago(unix_now() - present));
        let cpu = format!(
            "{:.1} s, {:.1} s in the kernel (of copies that have ended)",
            counted.remote_user_cpu, counted.remote_sys_cpu
        );
        line("processor", cpu);
    }
    if counted.total_suspensions > 0 {
        let stood = format!(
            "{} times, {:.1} s",
            counted.total_suspensions, counted.cumulative_suspension_time
        );
        line("suspended", stood);
    }
    match (counted.exit_code, counted.exit_signal) {
        (Some(code), _) => line("ended with", format!("status {code}")),
        (_, Some(signal)) => line("ended by", crate::args::signal_name(signal)),
        _ => {}
    }
    table.render()
}
