//! `wayfarer io`: what a job does with its remote files (condor_q -io).

use crate::args::Io;
use crate::jobs::{FileNumbers, JobStore, Life};
use crate::output::{self, Table};
use crate::raw;
use crate::remote::used_by;
use crate::report::{Exit, Failure, Outcome};
use crate::target::{self, Purpose};
use c_shim::usage::{Count, Numbers, Used};
use serde::Serialize;
use std::cmp::Reverse;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    job: Option<String>,
    /// Seconds since 1970; none: now.
    as_of: Option<u64>,
    all: FileNumbers,
    /// None: it is only known of all together.
    names: Option<FileNumbers>,
    files: Vec<FileLine>,
}

#[derive(Serialize)]
struct FileLine {
    name: String,
    #[serde(flatten)]
    numbers: FileNumbers,
}

/// Says what a job does with its files, or of an ended one what it had done by its last checkpoint.
pub(crate) fn io(store: &JobStore, arguments: &Io) -> Outcome {
    let report = match ended(store, &arguments.target)? {
        Some(report) => report,
        None => living(store, &arguments.target)?,
    };
    if arguments.json {
        output::print_json(SCHEMA_VERSION, &report)?;
    } else {
        output::print(&render(&report))?;
    }
    Ok(Exit::Done)
}

fn ended(store: &JobStore, name: &str) -> Outcome<Option<Report>> {
    if name.parse::<i32>().is_ok() {
        return Ok(None);
    }
    let job = store.find(name).map_err(target::missing)?;
    if job.life() != Life::Ended {
        return Ok(None);
    }
    let last = job.record.last_checkpoint.as_ref();
    let known = last.and_then(|last| Some((last.taken_at, last.files.clone()?)));
    let Some((taken_at, all)) = known else {
        let message =
            format!("job {name} has ended, and what it did with remote files was not written down");
        let advice = "it is written down at each checkpoint of a job with --shadow";
        return Err(Failure::new(Exit::Failed, message).advise(advice));
    };
    Ok(Some(Report {
        job: Some(name.to_owned()),
        as_of: Some(taken_at),
        all,
        names: None,
        files: vec![],
    }))
}

fn living(store: &JobStore, name: &str) -> Outcome<Report> {
    let target = target::find(store, name, Purpose::Signal)?;
    let Some(used) = used_by(target.pid)? else {
        let message = format!("process {} has no remote files", target.pid);
        return Err(Failure::new(Exit::Failed, message));
    };
    Ok(Report {
        job: target.job.map(|job| job.record.name),
        as_of: None,
        all: numbers(&used.all()),
        names: Some(numbers(&used.names)),
        files: lines(&used),
    })
}

/// Those with the most bytes first.
fn lines(used: &Used) -> Vec<FileLine> {
    let mut files: Vec<_> = used.files.iter().collect();
    files.sort_by_key(|file| {
        let bytes = [Count::ReadBytes, Count::WrittenBytes].map(|what| file.numbers.get(what));
        Reverse((
            bytes[0].saturating_add(bytes[1]),
            file.numbers.get(Count::Trips),
        ))
    });
    let line = |file: &c_shim::usage::UsedFile| FileLine {
        name: raw::encode(OsStr::from_bytes(&file.name)),
        numbers: numbers(&file.numbers),
    };
    files.into_iter().map(line).collect()
}

/// As they are written down.
pub(super) fn numbers(counted: &Numbers) -> FileNumbers {
    let reads = counted.get(Count::Reads);
    FileNumbers {
        opens: counted.get(Count::Opens),
        reads,
        read_bytes: counted.get(Count::ReadBytes),
        writes: counted.get(Count::Writes),
        write_bytes: counted.get(Count::WrittenBytes),
        seeks: counted.get(Count::Seeks),
        round_trips: counted.get(Count::Trips),
        // One call may need several trips, or one trip serve several calls.
        read_hits: reads.saturating_sub(counted.get(Count::ReadTrips)),
        waited_us: counted.get(Count::WaitedNs) / 1000,
    }
}

fn render(report: &Report) -> String {
    let mut table = Table::new(&[
        "OPENS", "READS", "READ", "HITS", "WRITES", "WRITTEN", "SEEKS", "TRIPS", "WAITED", "FILE",
    ]);
    let mut push = |numbers: &FileNumbers, name: &str| {
        let hits = match numbers.reads {
            0 => "-".to_owned(),
            reads => format!("{} %", numbers.read_hits.saturating_mul(100) / reads),
        };
        table.push(vec![
            numbers.opens.to_string(),
            numbers.reads.to_string(),
            output::bytes(numbers.read_bytes),
            hits,
            numbers.writes.to_string(),
            output::bytes(numbers.write_bytes),
            numbers.seeks.to_string(),
            numbers.round_trips.to_string(),
            format!("{:.1} ms", numbers.waited_us as f64 / 1000.0),
            name.to_owned(),
        ]);
    };
    for file in &report.files {
        push(&file.numbers, &file.name);
    }
    if let Some(names) = &report.names {
        push(names, "(names)");
    }
    push(&report.all, "(all)");
    let mut text = table.render();
    if let Some(moment) = report.as_of {
        let ago = output::ago(moment);
        text.push_str(&format!("as of its last checkpoint, {ago}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_calls_that_needed_no_trip() {
        let all = FileNumbers {
            reads: 200,
            read_hits: 150,
            read_bytes: 2048,
            ..FileNumbers::default()
        };
        let report = Report {
            job: None,
            as_of: None,
            all,
            names: None,
            files: vec![],
        };
        let text = render(&report);
        assert!(text.contains("75 %") && text.contains("2.0 KiB"), "{text}");
        assert!(
            render(&Report {
                all: FileNumbers::default(),
                ..report
            })
            .contains('-')
        );
    }
}
