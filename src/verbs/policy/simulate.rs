//! A policy's day: what happened, how long it was where, what was done and lost.

use super::{SCHEMA_VERSION, configuration, detected, plot, read, setting};
use crate::args::SimulatePolicy;
use crate::config::user_maps;
use crate::measured;
use crate::output::{self, Table};
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use serde::Serialize;
use starter::machine::{Dialect, Order};
use starter::simulate::{Fault, Report, Setting, Step, Trace, civil};

pub(super) fn simulate(arguments: &SimulatePolicy) -> Outcome {
    let which = &arguments.which;
    let config = configuration(which)?;
    let shown = || raw::shown_path(&arguments.trace).to_string();
    let trace = Trace::parse(&read(&arguments.trace)?)
        .context(shown)
        .exit(Exit::Usage)?;
    let seconds = arguments
        .until
        .map(|until| i64::try_from(until.as_secs()).unwrap_or(i64::MAX));
    let day = Setting {
        dialect: which.dialect,
        detected: detected(which, config.as_ref())?,
        seconds,
        attributes: classad::ClassAd::new(),
        users: config
            .as_ref()
            .map(user_maps)
            .transpose()?
            .unwrap_or_default(),
    };
    let settings = |name: &str| setting(config.as_ref(), which, name);
    let report = starter::simulate::simulate(&settings, &day, &trace);
    let report = report.map_err(|fault| match (fault, &config) {
        (Fault::Policy { reason }, Some(config)) => measured::placed(config, reason),
        (fault, _) => fault.into(),
    });
    let report = report.exit(Exit::Usage)?;
    for doubt in &report.doubts {
        tell(doubt);
    }
    if let Some(path) = &arguments.plot {
        let failed = |error| Failure::new(Exit::Failed, format!("the plot: {error}"));
        let drawn = plot::draw(&report, &trace).map_err(failed)?;
        std::fs::write(path, drawn).context(|| raw::shown_path(path).to_string())?;
    }
    match which.json {
        true => output::print_json(SCHEMA_VERSION, &as_json(&report, which.dialect))?,
        false => output::print(&as_text(&report, which.dialect))?,
    }
    Ok(Exit::Done)
}

/// A span as `H:MM:SS`.
fn span(seconds: i64) -> String {
    format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

fn slot_name(dialect: Dialect, slot: starter::machine::SlotId) -> String {
    let name = format!(
        "{}{}",
        starter::machine::rules(dialect).slot_prefix,
        slot.number
    );
    match slot.part {
        Some(part) => format!("{name}_{part}"),
        None => name,
    }
}

/// What of a step is told: slot, what, number, why.
fn told(step: &Step, dialect: Dialect) -> Option<(String, String, Option<u8>, String)> {
    Some(match &step.order {
        Order::Changed(change) => (
            slot_name(dialect, change.slot),
            format!("{} -> {}", change.from, change.to),
            change.transition.number_in(dialect),
            change.reason.to_owned(),
        ),
        Order::Checkpoint(slot) => {
            let (name, what) = (slot_name(dialect, *slot), "an image".to_owned());
            (
                name,
                what,
                None,
                "PERIODIC_CHECKPOINT is TRUE, or asked for".to_owned(),
            )
        }
        Order::Hold { slot, reason, .. } => (
            slot_name(dialect, *slot),
            "the job is to be held".to_owned(),
            None,
            reason.clone(),
        ),
        Order::Warn {
            slot,
            name,
            value,
            counts_as,
        } => {
            let what = format!("{name} is {value}");
            (
                slot_name(dialect, *slot),
                what,
                None,
                format!("it counts as {counts_as}"),
            )
        }
        Order::Fatal { name, value } => {
            let what = format!("{name} is {value}");
            (
                String::new(),
                what,
                None,
                "nobody can say whose the machine is: it is shut down, fast".to_owned(),
            )
        }
        Order::Drained { resumes } => {
            let why = if *resumes {
                "and goes on"
            } else {
                "and stays so"
            };
            (String::new(), "drained".to_owned(), None, why.to_owned())
        }
        Order::ShutDown => (
            String::new(),
            "shut down".to_owned(),
            None,
            "no job is left".to_owned(),
        ),
        _ => return None,
    })
}

fn as_text(report: &Report, dialect: Dialect) -> String {
    let mut text = String::new();
    let mut add = |table: Table| {
        text.push_str(&table.render());
        text.push('\n');
    };
    let mut timeline = Table::new(&["TIME", "SLOT", "WHAT", "NUMBER", "JOB", "WHY"]);
    for step in &report.timeline {
        if let Some((slot, what, number, why)) = told(step, dialect) {
            let number = number.map(|number| number.to_string()).unwrap_or_default();
            let job = step.job.map(|job| job.to_string()).unwrap_or_default();
            timeline.push(vec![civil(step.at), slot, what, number, job, why]);
        }
    }
    add(timeline);
    let mut places = Table::new(&["SLOT", "PLACE", "TIME", "SHARE"]);
    for ((slot, place), seconds) in report.spent.iter().filter(|(_, seconds)| **seconds > 0) {
        let of_slot = report.spent.iter().filter(|((other, _), _)| other == slot);
        let all: i64 = of_slot.map(|(_, seconds)| seconds).sum();
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        let share = 100.0 * *seconds as f64 / all.max(1) as f64;
        places.push(vec![
            slot.clone(),
            place.to_string(),
            span(*seconds),
            format!("{share:.1}%"),
        ]);
    }
    add(places);
    let mut jobs = Table::new(&[
        "JOB",
        "OWNER",
        "CAME",
        "DONE",
        "STARTS",
        "IMAGES",
        "LOST",
        "GOODPUT",
        "BADPUT",
        "SUSPENDED",
        "WHY",
    ]);
    for (job, number) in report.jobs.iter().zip(1_usize..) {
        jobs.push(vec![
            number.to_string(),
            job.owner.clone(),
            civil(job.came),
            match (job.done, &job.held) {
                (Some(done), _) => civil(done),
                (None, Some(_)) => "held".to_owned(),
                (None, None) => "-".to_owned(),
            },
            job.starts.to_string(),
            job.images.to_string(),
            job.killed.to_string(),
            span(job.goodput),
            span(job.badput),
            span(job.suspended),
            job.held.clone().unwrap_or_else(|| job.why.join("; ")),
        ]);
    }
    add(jobs);
    text.push_str(&format!(
        "goodput {}, badput {}\n",
        span(report.goodput()),
        span(report.badput())
    ));
    text
}

#[derive(Serialize)]
struct Day {
    began: String,
    ended: String,
    goodput_s: i64,
    badput_s: i64,
    timeline: Vec<Line>,
    places: Vec<Spent>,
    jobs: Vec<JobLine>,
    doubts: Vec<String>,
}

#[derive(Serialize)]
struct Line {
    time: String,
    slot: String,
    what: String,
    from: Option<String>,
    to: Option<String>,
    number: Option<u8>,
    job: Option<usize>,
    why: String,
}

#[derive(Serialize)]
struct Spent {
    slot: String,
    place: String,
    seconds: i64,
}

#[derive(Serialize)]
struct JobLine {
    owner: String,
    came: String,
    done: Option<String>,
    held: Option<String>,
    why: Vec<String>,
    starts: u32,
    images: u32,
    killed: u32,
    goodput_s: i64,
    badput_s: i64,
    suspended_s: i64,
    leaving_s: i64,
}

fn as_json(report: &Report, dialect: Dialect) -> Day {
    let line = |step: &Step| {
        let (slot, what, number, why) = told(step, dialect)?;
        let (from, to) = match &step.order {
            Order::Changed(change) => (Some(change.from.to_string()), Some(change.to.to_string())),
            _ => (None, None),
        };
        Some(Line {
            time: civil(step.at),
            slot,
            what,
            from,
            to,
            number,
            job: step.job,
            why,
        })
    };
    let places = report.spent.iter().map(|((slot, place), seconds)| Spent {
        slot: slot.clone(),
        place: place.to_string(),
        seconds: *seconds,
    });
    let jobs = report.jobs.iter().map(|job| JobLine {
        owner: job.owner.clone(),
        came: civil(job.came),
        done: job.done.map(civil),
        held: job.held.clone(),
        why: job.why.clone(),
        starts: job.starts,
        images: job.images,
        killed: job.killed,
        goodput_s: job.goodput,
        badput_s: job.badput,
        suspended_s: job.suspended,
        leaving_s: job.leaving,
    });
    Day {
        began: civil(report.began),
        ended: civil(report.ended),
        goodput_s: report.goodput(),
        badput_s: report.badput(),
        timeline: report.timeline.iter().filter_map(line).collect(),
        places: places.collect(),
        jobs: jobs.collect(),
        doubts: report.doubts.clone(),
    }
}
