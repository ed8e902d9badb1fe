//! Traces: what happened on a machine, row by row, as CSV.
//!
//! ```text
//! time,keyboard,console,load,job,command
//! 2026-11-23 08:00:00,0,,0.1,,                      a key was pressed now; the console is as it was
//! 2026-11-23 08:10:00,busy,busy,0.8,,               somebody types, until a row says how long nobody has
//! 2026-11-23 09:00:00,0,0,0.1,"[ Owner = ""ann""; SimWork = 7200 ]",
//! 2026-11-23 12:00:00,,,,,vacate
//! ```
//! # What callers may rely on
//! What is printed is read back as the same. Any bytes are a [`Trace`] or a [`TraceError`], within limits.

use crate::machine::{Drain, Moment, Shutdown};
use classad::{ClassAd, Context, Nowhere, ParseError, Value, parse_ad};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// The most rows: a week, a row for each second, and some.
const MOST_ROWS: usize = 1_000_000;
/// The columns, in the order in which they are written; they are found by their names.
const COLUMNS: [&str; 6] = ["time", "keyboard", "console", "load", "job", "command"];

/// A text that is no trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// It is no CSV.
    #[error("the trace is no CSV")]
    Csv {
        /// Why.
        #[source]
        reason: csv::Error,
    },
    /// A column is missing, or is none of the trace's.
    #[error("the trace's first line: {found:?} is no column, expected {COLUMNS:?}, with time")]
    Column {
        /// What is there.
        found: String,
    },
    /// A cell says nothing.
    #[error("row {row} of the trace: {column} {found:?} is not {expected}")]
    Cell {
        /// Which row, from 1, without the first line.
        row: usize,
        /// Which column.
        column: &'static str,
        /// What is there.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// A job is no ad.
    #[error("row {row} of the trace: the job is no ad")]
    Job {
        /// Which row, from 1.
        row: usize,
        /// Why.
        #[source]
        reason: ParseError,
    },
    /// A column is there twice.
    #[error("the trace's first line: {name} is there twice")]
    Twice {
        /// Which.
        name: &'static str,
    },
    /// What a job says of the simulation says nothing.
    #[error("row {row} of the trace: {name} is {found}, expected a whole number of seconds")]
    Seconds {
        /// Which row, from 1.
        row: usize,
        /// The attribute.
        name: &'static str,
        /// Its value.
        found: String,
    },
    /// A row is earlier than the one before.
    #[error("row {row} of the trace is earlier than the one before")]
    Order {
        /// Which row, from 1.
        row: usize,
    },
    /// Too many rows.
    #[error("the trace has more than {limit} rows")]
    TooLong {
        /// The limit.
        limit: usize,
    },
}

/// Keys at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The last one was pressed so many seconds before.
    Idle(i64),
    /// They are pressed all the time.
    Busy,
}

/// What somebody tells the machine to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `vacate`, `vacate fast`.
    Vacate {
        /// Without time to vacate.
        fast: bool,
    },
    /// `checkpoint`.
    Checkpoint,
    /// `drain graceful`, `drain quick`, `drain fast`, with `resume` behind or not.
    Drain {
        /// How.
        how: Drain,
        /// Whether it goes on afterwards.
        resumes: bool,
    },
    /// `cancel drain`.
    CancelDrain,
    /// `release`: all jobs that are held may go on.
    Release,
    /// `shutdown peaceful`, `shutdown graceful`, `shutdown fast`.
    Shutdown(Shutdown),
}

/// What happened at a moment: what is none stays as it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// When, on the machine's own clock.
    pub at: Moment,
    /// Keys of any terminal.
    pub keyboard: Option<Keys>,
    /// Keys of the console.
    pub console: Option<Keys>,
    /// The load that is not of jobs, from now on.
    pub load: Option<f64>,
    /// A job comes.
    pub job: Option<Arc<ClassAd>>,
    /// Somebody tells the machine what to do.
    pub command: Option<Command>,
}

/// Rows, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The rows.
    pub rows: Vec<Row>,
}

impl Trace {
    /// Reads one.
    ///
    /// # Errors
    /// [`TraceError`], with the row.
    pub fn parse(text: &[u8]) -> Result<Self, TraceError> {
        let mut reader = csv::ReaderBuilder::new()
            .comment(Some(b'#'))
            .trim(csv::Trim::All)
            .from_reader(text);
        let csv = |reason| TraceError::Csv { reason };
        let mut places = [None; COLUMNS.len()];
        for (place, name) in reader.headers().map_err(csv)?.iter().enumerate() {
            let column = COLUMNS.iter().position(|column| *column == name);
            let found = || TraceError::Column {
                found: name.to_owned(),
            };
            let column = column.ok_or_else(found)?;
            if places[column].replace(place).is_some() {
                let name = COLUMNS[column];
                return Err(TraceError::Twice { name });
            }
        }
        if places[0].is_none() {
            let found = "no time".to_owned();
            return Err(TraceError::Column { found });
        }
        let mut trace = Trace::default();
        let mut last = Moment::MIN;
        for (record, row) in reader.records().zip(1..) {
            let record = record.map_err(csv)?;
            if row > MOST_ROWS {
                return Err(TraceError::TooLong { limit: MOST_ROWS });
            }
            let cell = |column: usize| {
                places[column]
                    .and_then(|place| record.get(place))
                    .unwrap_or("")
            };
            let parsed = row_of(row, &cell)?;
            if parsed.at < last {
                return Err(TraceError::Order { row });
            }
            last = parsed.at;
            trace.rows.push(parsed);
        }
        Ok(trace)
    }
}

fn row_of<'c>(row: usize, cell: &impl Fn(usize) -> &'c str) -> Result<Row, TraceError> {
    let wrong = |column: usize, expected| TraceError::Cell {
        row,
        column: COLUMNS[column],
        found: cell(column).to_owned(),
        expected,
    };
    let at =
        moment(cell(0)).ok_or_else(|| wrong(0, "YYYY-MM-DD HH:MM:SS, or seconds since 1970"))?;
    let keys = |column| match cell(column) {
        "" => Ok(None),
        "busy" => Ok(Some(Keys::Busy)),
        text => match text.parse::<f64>() {
            #[allow(clippy::cast_possible_truncation, reason = "seconds, cut")]
            Ok(idle) if (0.0..1e12).contains(&idle) => Ok(Some(Keys::Idle(idle as i64))),
            _ => Err(wrong(column, "busy, or the seconds that it has been idle")),
        },
    };
    let load = match cell(3) {
        "" => None,
        text => match text.parse::<f64>() {
            Ok(load) if (0.0..1e6).contains(&load) => Some(load),
            _ => return Err(wrong(3, "a load average")),
        },
    };
    let job = match cell(4) {
        "" => None,
        text => {
            let ad = parse_ad(text).map_err(|reason| TraceError::Job { row, reason })?;
            Some(Arc::new(seconds_of(ad, row)?))
        }
    };
    let command = match cell(5) {
        "" => None,
        text => Some(command(text).ok_or_else(|| wrong(5, "a command"))?),
    };
    Ok(Row {
        at,
        keyboard: keys(1)?,
        console: keys(2)?,
        load,
        job,
        command,
    })
}

fn command(text: &str) -> Option<Command> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let drain = |word| match word {
        "graceful" => Some(Drain::Graceful),
        "quick" => Some(Drain::Quick),
        "fast" => Some(Drain::Fast),
        _ => None,
    };
    Some(match words[..] {
        ["vacate"] => Command::Vacate { fast: false },
        ["vacate", "fast"] => Command::Vacate { fast: true },
        ["checkpoint"] => Command::Checkpoint,
        ["cancel", "drain"] => Command::CancelDrain,
        ["release"] => Command::Release,
        ["drain", how] => Command::Drain {
            how: drain(how)?,
            resumes: false,
        },
        ["drain", how, "resume"] => Command::Drain {
            how: drain(how)?,
            resumes: true,
        },
        ["shutdown", "peaceful"] => Command::Shutdown(Shutdown::Peaceful),
        ["shutdown", "graceful"] => Command::Shutdown(Shutdown::Graceful),
        ["shutdown", "fast"] => Command::Shutdown(Shutdown::Fast),
        _ => return None,
    })
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Vacate { fast: false } => f.write_str("vacate"),
            Command::Vacate { fast: true } => f.write_str("vacate fast"),
            Command::Checkpoint => f.write_str("checkpoint"),
            Command::CancelDrain => f.write_str("cancel drain"),
            Command::Release => f.write_str("release"),
            Command::Drain { how, resumes } => {
                let how = format!("{how:?}").to_lowercase();
                write!(f, "drain {how}{}", if *resumes { " resume" } else { "" })
            }
            Command::Shutdown(how) => write!(f, "shutdown {}", format!("{how:?}").to_lowercase()),
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", COLUMNS.join(","))?;
        let keys = |keys: &Option<Keys>| match keys {
            None => String::new(),
            Some(Keys::Busy) => "busy".to_owned(),
            Some(Keys::Idle(seconds)) => seconds.to_string(),
        };
        for row in &self.rows {
            let load = row.load.map(|load| load.to_string()).unwrap_or_default();
            let job = row
                .job
                .as_ref()
                .map(|job| job.to_string().replace('"', "\"\""));
            let job = job.map(|job| format!("\"{job}\"")).unwrap_or_default();
            let command = row
                .command
                .map(|command| command.to_string())
                .unwrap_or_default();
            let (keyboard, console) = (keys(&row.keyboard), keys(&row.console));
            writeln!(
                f,
                "{},{keyboard},{console},{load},{job},{command}",
                civil(row.at)
            )?;
        }
        Ok(())
    }
}

/// A moment as a trace has it: `YYYY-MM-DD HH:MM:SS` on the machine's own clock.
pub fn civil(at: Moment) -> String {
    match jiff::Timestamp::from_second(at) {
        Ok(moment) => moment.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => at.to_string(),
    }
}

/// The moment that a trace's text is.
pub fn moment(text: &str) -> Option<Moment> {
    if let Ok(seconds) = text.parse::<i64>() {
        let years = 0..253_402_300_800;
        return years.contains(&seconds).then_some(seconds);
    }
    let text = text.replacen('T', " ", 1);
    let text = match text.matches(':').count() {
        1 => format!("{text}:00"),
        _ => text,
    };
    let civil = jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M:%S", &text).ok()?;
    let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(zoned.timestamp().as_second())
}

/// A job whose work and leaving are whole numbers of seconds, if it says them.
fn seconds_of(job: ClassAd, row: usize) -> Result<ClassAd, TraceError> {
    let job = Arc::new(job);
    for name in ["SimWork", "SimVacate"] {
        if job.get(name).is_none() {
            continue;
        }
        let value = Context::new(&Nowhere)
            .with_my(Arc::clone(&job))
            .eval_attribute(name);
        let found = match value {
            Ok(Value::Integer(_)) => continue,
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        return Err(TraceError::Seconds { row, name, found });
    }
    Ok(Arc::unwrap_or_clone(job))
}
