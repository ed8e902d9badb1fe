//! `wayfarer machine`.

use crate::args;
use crate::config::Site;
use crate::jobs::JobStore;
use crate::measured;
use crate::output::{self, Table};
use crate::raw;
use crate::report::{Exit, Explain, Outcome};
use crate::startd::{self, Ask, Record, SlotLine};
use crate::verbs::startd::asked;
use ::classad::config::{Config, ConfigOptions, Dialect};
use ::classad::{ClassAd, parse_old_ad};
use ckpt_lib::platform::Platform;
use serde::Serialize;
use starter::measure::{
    Activity, Benchmarks, Facts, Here, Kind, Look, Machine, Score, Settings, Slot, State, Watch,
};
use std::path::PathBuf;
use std::sync::Arc;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    dialect: String,
    /// An ad for each slot, as ClassAds in JSON.
    ads: Vec<serde_json::Value>,
}

/// Measures this machine: the slots of a startd that is there, else as one slot that has all of it and begins now.
pub(crate) fn machine(store: Option<&JobStore>, arguments: &args::Machine) -> Outcome {
    let ads = measure(store, arguments)?;
    if arguments.json {
        let value = |ad: &ClassAd| serde_json::from_slice(&ad.to_json().into_bytes());
        let report = Report {
            dialect: arguments.dialect.to_string(),
            ads: ads.iter().map(value).collect::<Result<_, _>>()?,
        };
        output::print_json(SCHEMA_VERSION, &report)?;
    } else if arguments.long {
        let texts = ads.iter().map(|ad| ad.to_old().into_bytes());
        let texts: Vec<_> = texts.collect();
        output::print_bytes(&texts.join(&b'\n'))?;
    } else {
        output::print(&render(&ads))?;
    }
    Ok(Exit::Done)
}

/// The configuration that was named, or that of the startd that is there.
fn configured(record: Option<&Record>, arguments: &args::Machine) -> Outcome<Option<Config>> {
    let of_startd = record.map(|record| PathBuf::from(raw::decode(&record.config)));
    let Some(path) = arguments.config.clone().or(of_startd) else {
        return Ok(None);
    };
    let dialect = match (
        &arguments.config,
        record.map(|record| record.dialect.parse()),
    ) {
        (None, Some(Ok(dialect))) => dialect,
        _ => arguments.dialect,
    };
    startd::configuration(&path, dialect).map(Some)
}

/// What the startd that is there says of its slots.
pub(super) fn watched(store: &JobStore) -> Outcome<Option<Record>> {
    if startd::record(store)?.is_none() {
        return Ok(None);
    }
    asked(store, Ask::Status {})?;
    startd::record(store)
}

fn measure(store: Option<&JobStore>, arguments: &args::Machine) -> Outcome<Vec<ClassAd>> {
    let machine = || "this machine cannot be measured".to_owned();
    let here = Here::with_inputs([]);
    let facts = Facts::of(&here).context(machine)?;
    let platform = Platform::of_this_machine();
    let record = store.map(watched).transpose()?.flatten();
    let config = configured(record.as_ref(), arguments)?;
    let mut settings = match &config {
        Some(config) => measured::settings(config, &facts, &platform)?,
        None => Settings::default_of(arguments.dialect, facts.processors.threads),
    };
    match &config {
        Some(config) if record.is_none() => measured::add_listed(&mut settings, config, 1)?,
        Some(_) => {}
        None => measured::offer(&mut settings, &platform),
    }
    settings
        .watched
        .stamps
        .extend(arguments.console_stamp.iter().cloned());
    if let Some(execute) = &arguments.execute {
        settings.execute.clone_from(execute);
    }
    let mut benchmarks = Benchmarks::default();
    if arguments.benchmark {
        let score = Score::measure();
        benchmarks.note(starter::measure::Source::now(&here), score);
    }
    let look = Look::now(&here, &mut Watch::once(), &settings).context(machine)?;
    let memory = settings.memory_mib_of(&facts);
    let slots = match &record {
        Some(record) => record
            .slots
            .iter()
            .filter_map(|line| slot(line, look.at))
            .collect(),
        None => vec![Slot::whole(settings.cpus_of(&facts), memory, look.at)],
    };
    let machine = Machine {
        facts: &facts,
        look: &look,
        settings: &settings,
        benchmarks: &benchmarks,
        slots: &slots,
        started_at: record.as_ref().map_or(look.at, |record| record.since),
    };
    let mut ads = machine.ads();
    match &record {
        // What its policy and its jobs add is the startd's to say.
        Some(record) => {
            let lines = record
                .slots
                .iter()
                .filter(|line| slot(line, look.at).is_some());
            for (ad, line) in ads.iter_mut().zip(lines) {
                for (name, expr) in parse_old_ad(&line.ad)?.iter() {
                    ad.insert(name.clone(), Arc::clone(expr));
                }
            }
        }
        None => offer(&mut ads, config.as_ref(), arguments.dialect)?,
    }
    Ok(ads)
}

/// What is offered to jobs, and what that refers to.
const OFFERED: [&str; 5] = [
    "IS_VALID_CHECKPOINT_PLATFORM",
    "IsValidCheckpointPlatform",
    "Requirements",
    "Start",
    "WithinResourceLimits",
];

/// Puts what slots of this configuration would offer into ads.
fn offer(ads: &mut [ClassAd], config: Option<&Config>, dialect: Dialect) -> Outcome<()> {
    let none;
    let config = match config {
        Some(config) => config,
        None => {
            let options = ConfigOptions {
                dialect,
                ..ConfigOptions::default()
            };
            none = Config::parse("", &Site::new(), &options)?;
            &none
        }
    };
    let published = measured::published(config)?;
    for ad in ads {
        for name in OFFERED {
            if let Some(expr) = published.get(name) {
                ad.insert(name, Arc::clone(expr));
            }
        }
    }
    Ok(())
}

/// A slot as a startd has written it down.
fn slot(line: &SlotLine, now: i64) -> Option<Slot> {
    let cpus = u32::try_from(line.cpus).unwrap_or(0);
    let memory = u64::try_from(line.memory).unwrap_or(0);
    let (mut states, mut activities) = (State::ALL.into_iter(), Activity::ALL.into_iter());
    Some(Slot {
        id: line.id,
        sub_id: line.sub_id,
        kind: [Kind::Static, Kind::Partitionable, Kind::Dynamic]
            .into_iter()
            .find(|kind| kind.name() == line.kind)?,
        state: states.find(|state| state.name() == line.state)?,
        activity: activities.find(|activity| activity.name() == line.activity)?,
        entered_state_at: line.entered_state,
        entered_activity_at: line.entered_activity,
        ..Slot::whole(cpus, memory, now)
    })
}

/// What people want to know first.
fn render(ads: &[ClassAd]) -> String {
    const SHOWN: [&str; 10] = [
        "Name",
        "OpSys",
        "Arch",
        "State",
        "Activity",
        "LoadAvg",
        "KeyboardIdle",
        "Cpus",
        "Memory",
        "Disk",
    ];
    let mut table = Table::new(&SHOWN.map(str::to_uppercase).each_ref().map(String::as_str));
    for ad in ads {
        let cell = |name: &&str| {
            let text = ad.get(*name).map(|expr| expr.to_string());
            let text = text.unwrap_or_else(|| "-".to_owned());
            match (*name, text.parse::<i64>(), text.parse::<f64>()) {
                ("KeyboardIdle", Ok(seconds), _) => since(seconds),
                ("Memory", Ok(mib), _) => output::bytes(u64::try_from(mib).unwrap_or(0) << 20),
                ("Disk", Ok(kib), _) => output::bytes(u64::try_from(kib).unwrap_or(0) << 10),
                ("LoadAvg", _, Ok(load)) => format!("{load:.2}"),
                _ => text.trim_matches('"').to_owned(),
            }
        };
        table.push(SHOWN.iter().map(cell).collect());
    }
    table.render()
}

/// For how long, in the largest unit that fits.
fn since(seconds: i64) -> String {
    if seconds >= starter::measure::NEVER {
        return "never used".to_owned();
    }
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}
