//! What is said of an image that was made.

use crate::args::{self, Checkpoint};
use crate::jobs::{CheckpointNote, Job, Made};
use crate::output;
use crate::raw;
use crate::report::Outcome;
use ckpt_lib::CheckpointReport;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
pub(super) struct Report {
    job: Option<String>,
    pid: i32,
    #[serde(with = "raw::path")]
    image: PathBuf,
    generation: u64,
    image_bytes: u64,
    #[serde(flatten)]
    made: Made,
    killed: bool,
}

/// How it was made.
pub(super) fn made(of: &CheckpointReport) -> Made {
    let processes = &of.snapshot.processes;
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let digits = of.image.id.iter().map(|byte| format!("{byte:02x}"));
    Made {
        id: digits.collect(),
        frozen_us: micros(of.frozen),
        writing_us: micros(of.writing),
        took_us: micros(of.took),
        processes: processes.len(),
        threads: processes.iter().map(|process| process.threads.len()).sum(),
    }
}

/// The command that we are has made it.
pub(super) fn report(
    pid: i32,
    job: Option<&Job>,
    made_here: CheckpointReport,
    then: args::Then,
) -> Report {
    Report {
        job: job.map(|job| job.record.name.clone()),
        pid,
        made: made(&made_here),
        generation: made_here.snapshot.taken.generation,
        image_bytes: made_here.image.len,
        killed: then == args::Then::Kill,
        image: made_here.image.path,
    }
}

/// The job's starter has made it, and written it down.
pub(super) fn noted(job: &Job, note: CheckpointNote, made: Made) -> Report {
    Report {
        job: Some(job.record.name.clone()),
        pid: job.processes().root.unwrap_or(0),
        image: note.image,
        generation: note.generation,
        image_bytes: note.image_bytes,
        made,
        killed: false,
    }
}

/// Says it, as was asked for.
pub(super) fn tell(arguments: &Checkpoint, report: &Report) -> Outcome<()> {
    if arguments.json {
        return output::print_json(SCHEMA_VERSION, report);
    }
    let ms = |us: u64| format!("{:.1} ms", us as f64 / 1000.0);
    let end = if report.killed { ", then killed" } else { "" };
    output::print(&format!(
        "{} ({}, frozen for {}, {} in all{end})\n",
        raw::shown_path(&report.image),
        output::bytes(report.image_bytes),
        ms(report.made.frozen_us),
        ms(report.made.took_us),
    ))
}
