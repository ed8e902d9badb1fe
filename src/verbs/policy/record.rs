//! A trace of this machine, row by row.

use super::observe;
use crate::args::RecordPolicy;
use crate::output;
use crate::report::{Exit, Failure, Outcome};
use crate::verbs::classad::Here;
use classad::Surroundings;
use starter::measure::{Observation, Watch};
use starter::simulate::{Keys, Row, Trace};
use std::time::{Duration, Instant};

/// Looks at it again and again, and prints a row each time.
pub(super) fn record(arguments: &RecordPolicy) -> Outcome {
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
    loop {
        let seen = observe(&mut watch)?;
        let mut row = row(&seen, &here);
        // A clock that is set back, as at the end of summer time: a trace goes forward only.
        row.at = row.at.max(last);
        last = row.at;
        let rows = vec![row];
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
