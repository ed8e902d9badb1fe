//! A trace of this machine, row by row; where a startd is there, with the jobs that it is given, and its owner's part of the load.

use super::observe;
use crate::args::RecordPolicy;
use crate::jobs::JobStore;
use crate::output;
use crate::report::{Exit, Failure, Outcome};
use crate::startd::{self, JobLine, Places, Record};
use crate::verbs::classad::Here;
use crate::verbs::machine::watched;
use classad::{ClassAd, Context, Expr, Nowhere, Surroundings, Value, parse_old_ad};
use starter::measure::{Observation, Watch};
use starter::simulate::{Keys, Row, Trace};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Looks at it again and again, and prints a row each time.
pub(super) fn record(store: Option<&JobStore>, arguments: &RecordPolicy) -> Outcome {
    if arguments.every < Duration::from_secs(1) {
        let message = "--every is shorter than a second: rows have whole seconds";
        return Err(Failure::new(Exit::Usage, message));
    }
    let here = Here::new();
    let mut watch = Watch::over_time();
    let begun = Instant::now();
    let mut next = begun;
    let mut head = true;
    let mut last = i64::MIN;
    let mut known = BTreeSet::new();
    loop {
        let seen = observe(&mut watch)?;
        let mut row = row(&seen, &here);
        // A clock that is set back, as at the end of summer time: a trace goes forward only.
        row.at = row.at.max(last);
        last = row.at;
        let at = row.at;
        let mut jobs = vec![];
        // Whoever is just ending, or begins, is there at the next look.
        if let Some(store) = store
            && let Ok(Some(startd)) = watched(store)
        {
            row.load = owners_load(&startd).or(row.load);
            jobs = new_jobs(store, &startd, &mut known);
        }
        let mut rows = vec![row];
        for (index, job) in jobs.into_iter().enumerate() {
            if index > 0 {
                rows.push(Row {
                    at,
                    ..Row::default()
                });
            }
            if let Some(row) = rows.last_mut() {
                row.job = Some(job);
            }
        }
        let text = Trace { rows }.to_string();
        let line = match std::mem::take(&mut head) {
            true => text.as_str(),
            false => text.split_once('\n').map_or("", |(_, rows)| rows),
        };
        output::print(line)?;
        next += arguments.every;
        if arguments.span.is_some_and(|span| next - begun > span) {
            return Ok(Exit::Done);
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// The load that is not of the startd's jobs.
fn owners_load(startd: &Record) -> Option<f64> {
    let ad = parse_old_ad(&startd.slots.first()?.ad).ok()?;
    let load = |name: &str| match Context::new(&Nowhere)
        .with_my(ad.clone())
        .eval_attribute(name)
    {
        Ok(Value::Real(load)) => Some(load),
        #[allow(clippy::cast_precision_loss, reason = "a load")]
        Ok(Value::Integer(load)) => Some(load as f64),
        _ => None,
    };
    let owners = load("TotalLoadAvg")? - load("TotalCondorLoadAvg")?;
    Some((owners.max(0.0) * 100.0).round() / 100.0)
}

/// Jobs of the startd that were not there at the last look, in their order.
fn new_jobs(
    store: &JobStore,
    startd: &Record,
    known: &mut BTreeSet<(String, i64)>,
) -> Vec<Arc<ClassAd>> {
    let there: BTreeSet<_> = startd
        .jobs
        .iter()
        .map(|job| (job.name.clone(), job.submitted))
        .collect();
    let spool = Places::of(store.dir()).spool;
    let owner = startd::owner();
    let ad = |job: &JobLine| {
        let path = startd::file_of(&spool, &job.name);
        let mut ad = startd::load(&path).ok()?.ad;
        // It is nobody's business who reads the trace.
        ad.remove("Environment");
        ad.remove("Env");
        if ad.get("Owner").is_none() {
            ad.insert("Owner", Expr::string(owner.as_str()));
        }
        Some(Arc::new(ad))
    };
    let new = startd
        .jobs
        .iter()
        .filter(|job| !known.contains(&(job.name.clone(), job.submitted)));
    let jobs = new.filter_map(ad).collect();
    *known = there;
    jobs
}

fn row(seen: &Observation, here: &Here) -> Row {
    Row {
        // Traces have the machine's own clock.
        at: seen.time + i64::from(here.utc_offset(seen.time)),
        keyboard: Some(Keys::Idle(seen.keyboard_idle.max(0))),
        console: Some(Keys::Idle(seen.console_idle.max(0))),
        load: Some((seen.load * 100.0).round() / 100.0),
        ..Row::default()
    }
}
