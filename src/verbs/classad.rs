//! `wayfarer classad eval EXPR`, `match A B`, `print FILE`.

use crate::args::{AdSyntax, Classad, ClassadVerb, EvalAd, MatchAds, PrintAds};
use crate::config::{Site, user_maps};
use crate::output;
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome};
use ::classad::config::{Config, ConfigOptions, UserMaps};
use ::classad::{ClassAd, Context, Match, Surroundings, Value, parse_any_ads, parse_expression};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, stdin};
use std::path::Path;

/// The version of what is reported as JSON.
const SCHEMA_VERSION: u32 = 1;
/// The largest file of ads.
const MOST_BYTES: u64 = 16 << 20;

/// Does one of them.
pub(crate) fn classad(arguments: &Classad) -> Outcome {
    match &arguments.what {
        ClassadVerb::Eval(eval) => evaluate(eval),
        ClassadVerb::Match(both) => compare(both),
        ClassadVerb::Print(print) => show(print),
    }
}

/// This machine, and its clock.
pub(crate) struct Here {
    zone: TimeZone,
    users: UserMaps,
}

impl Here {
    pub(crate) fn new() -> Self {
        let zone = TimeZone::system();
        let users = UserMaps::default();
        Here { zone, users }
    }

    /// With maps of users, for `userMap()`.
    pub(crate) fn with_users(self, users: UserMaps) -> Self {
        Here { users, ..self }
    }

    /// Those maps.
    pub(crate) fn users(&self) -> &UserMaps {
        &self.users
    }

    fn moment(at_seconds: i64) -> Timestamp {
        Timestamp::from_second(at_seconds).unwrap_or_default()
    }
}

impl Surroundings for Here {
    fn now(&self) -> i64 {
        Timestamp::now().as_second()
    }

    fn utc_offset(&self, at_seconds: i64) -> i32 {
        self.zone.to_offset(Here::moment(at_seconds)).seconds()
    }

    fn zone_name(&self, at_seconds: i64) -> String {
        let moment = Here::moment(at_seconds);
        self.zone.to_offset_info(moment).abbreviation().to_owned()
    }

    fn random(&self) -> i32 {
        // The standard library's keys are random.
        let random = RandomState::new().build_hasher().finish();
        i32::try_from(random >> 33).unwrap_or(0)
    }

    fn home(&self, user: &str) -> Option<String> {
        crate::users::home_of(user)
    }

    fn map_user(&self, map: &str, user: &str) -> Option<String> {
        self.users.find(map, user)
    }

    fn debug(&self, message: &str) {
        crate::report::tell(message);
    }
}

/// The ads of a file, in whatever syntax.
fn read(path: &Path) -> Outcome<Vec<ClassAd>> {
    let shown = || raw::shown_path(path).to_string();
    let mut text = vec![];
    let read = if path == Path::new("-") {
        stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut text)
    } else {
        let file = File::open(path).context(shown).exit(Exit::Usage)?;
        file.take(MOST_BYTES + 1).read_to_end(&mut text)
    };
    read.context(shown)?;
    if text.len() as u64 > MOST_BYTES {
        let size = || std::fs::metadata(path).ok().map(|found| found.len());
        let size = size().filter(|size| *size > MOST_BYTES);
        let size = size.map_or_else(|| "more".to_owned(), |size| format!("{size} bytes"));
        let message = format!("{}: {size}, at most {MOST_BYTES} bytes are read", shown());
        return Err(Failure::new(Exit::Usage, message));
    }
    parse_any_ads(&text).context(shown).exit(Exit::Usage)
}

/// The one ad of a file.
fn read_one(path: &Path) -> Outcome<ClassAd> {
    let mut ads = read(path)?;
    if ads.len() > 1 {
        let message = format!("{} has {} ads, not one", raw::shown_path(path), ads.len());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(ads.pop().unwrap_or_default())
}

/// The maps of users of a configuration.
fn users_of(path: &Path) -> Outcome<UserMaps> {
    let Some(name) = path.to_str() else {
        let message = format!("{}: its name is not UTF-8", raw::shown_path(path));
        return Err(Failure::new(Exit::Usage, message));
    };
    let config = Config::read(name, &Site::new(), &ConfigOptions::default()).exit(Exit::Usage)?;
    user_maps(&config)
}

fn evaluate(arguments: &EvalAd) -> Outcome {
    let expr = parse_expression(&arguments.expression);
    let expr = expr
        .context(|| "the expression".to_owned())
        .exit(Exit::Usage)?;
    let mut here = Here::new();
    if let Some(path) = &arguments.config {
        here = here.with_users(users_of(path)?);
    }
    let mut context = Context::new(&here);
    if let Some(my) = &arguments.my {
        context = context.with_my(read_one(my)?);
    }
    if let Some(target) = &arguments.target {
        context = context.with_target(read_one(target)?);
    }
    let value = context.eval(&expr)?;
    if arguments.json {
        let (kind, value) = (kind(&value), value.to_json());
        output::print(&format!(
            "{{\"schema_version\": {SCHEMA_VERSION}, \"type\": \"{kind}\", \"value\": {value}}}\n"
        ))?;
    } else {
        output::print(&format!("{value}\n"))?;
    }
    Ok(Exit::Done)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Undefined => "undefined",
        Value::Error => "error",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) => "integer",
        Value::Real(_) => "real",
        Value::String(_) => "string",
        Value::AbsTime(_) => "absolute time",
        Value::RelTime(_) => "relative time",
        Value::List(_) => "list",
        Value::Ad(_) => "ad",
    }
}

/// What two ads have to say about each other.
#[derive(Serialize)]
struct Report {
    matches: bool,
    a_accepts_b: bool,
    b_accepts_a: bool,
    a_ranks_b: f64,
    b_ranks_a: f64,
}

fn compare(arguments: &MatchAds) -> Outcome {
    let (left, right) = (read_one(&arguments.left)?, read_one(&arguments.right)?);
    let both = Match::of(left, right, &Here::new())?;
    let report = Report {
        matches: both.is_symmetric(),
        a_accepts_b: both.left_accepts,
        b_accepts_a: both.right_accepts,
        a_ranks_b: both.left_rank,
        b_ranks_a: both.right_rank,
    };
    if arguments.json {
        output::print_json(SCHEMA_VERSION, &report)?;
    } else {
        let says = |accepts: bool| if accepts { "accepts" } else { "refuses" };
        let line = |one: &Path, accepts: bool, other: &Path, rank: f64| {
            let (one, other) = (raw::shown_path(one), raw::shown_path(other));
            format!("{one} {} {other}, rank {rank}\n", says(accepts))
        };
        let (a, b) = (&arguments.left, &arguments.right);
        let first = line(a, report.a_accepts_b, b, report.a_ranks_b);
        output::print(&(first + &line(b, report.b_accepts_a, a, report.b_ranks_a)))?;
    }
    Ok(if report.matches {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn show(arguments: &PrintAds) -> Outcome {
    let mut text = vec![];
    for ad in read(&arguments.file)? {
        match arguments.syntax {
            AdSyntax::Old => text.extend(ad.to_old().into_bytes()),
            AdSyntax::New => text.extend(ad.to_string().into_bytes()),
            AdSyntax::Json => text.extend(ad.to_json().into_bytes()),
        }
        text.push(b'\n');
    }
    output::print_bytes(&text)?;
    Ok(Exit::Done)
}
