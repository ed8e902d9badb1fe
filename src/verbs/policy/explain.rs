//! Why an expression has its value, term by term.

use super::running::{Running, WhichSlot, running};
use super::{SCHEMA_VERSION, configuration, detected, options, read, setting};
use crate::args::ExplainPolicy;
use crate::config::{Site, user_maps};
use crate::jobs::JobStore;
use crate::measured::{self, Measured};
use crate::output;
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use crate::verbs::classad::Here;
use classad::config::Config;
use classad::{
    ClassAd, Context, Explanation, Expr, FoundIn, Surroundings, parse_any_ads, parse_expression,
};
use serde::Serialize;
use starter::machine::{Detected, Event, Machine, SlotId, settings_of};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is not known where nobody looks at the machine.
const UNSEEN: &[&str] = &[
    "KeyboardIdle",
    "ConsoleIdle",
    "LoadAvg",
    "CondorLoadAvg",
    "TotalLoadAvg",
    "TotalCondorLoadAvg",
    "CpuIsBusy",
    "CpuBusyTime",
    "CpuBusyValue",
];

/// Names of the configuration that a slot's ad has by another name.
const ALSO_CALLED: &[(&str, &str)] = &[
    ("IS_OWNER", "IsOwner"),
    ("CPU_BUSY", "CpuBusy"),
    ("SLOT_WEIGHT", "SlotWeight"),
];

pub(super) fn explain(store: Option<&JobStore>, arguments: &ExplainPolicy) -> Outcome {
    let expr = parse_expression(&arguments.expression);
    let expr = expr
        .context(|| "the expression".to_owned())
        .exit(Exit::Usage)?;
    let running = match store.filter(|_| asks_the_startd(arguments)) {
        Some(store) => running(store, arguments.slot)?.filter(|it| is_meant(arguments, it)),
        None => None,
    };
    let config = match (configuration(&arguments.which)?, &running) {
        (Some(config), _) => Some(config),
        (None, Some(running)) => Some(its_configuration(arguments, running)?),
        (None, None) => None,
    };
    let users = config.as_ref().map(user_maps).transpose()?;
    let here = Here::new().with_users(users.unwrap_or_default());
    let mut my = match (&running, config) {
        (Some(running), Some(config)) => running_ad(arguments, running, &config, &here)?,
        (_, config) => machine_ad(arguments, config, &here)?,
    };
    if let Some(path) = &arguments.my {
        lay_over(&mut my, &ad_of_slot(path, arguments.slot)?);
    }
    let mut context = Context::new(&here).with_my(my);
    let job = running.and_then(|running| running.job);
    match (&arguments.target, job) {
        (Some(path), _) => context = context.with_target(one_ad(path)?),
        (None, Some(job)) => context = context.with_target(job),
        (None, None) => {}
    }
    let why = context.explain(&expr);
    match arguments.which.json {
        true => output::print_json(SCHEMA_VERSION, &Term::from(&why))?,
        false => {
            let mut lines = vec![];
            line(&why, 0, &mut lines);
            let widest = lines.iter().map(|(text, _)| text.chars().count()).max();
            let widest = widest.unwrap_or(0).min(72);
            let lines = lines
                .iter()
                .map(|(text, value)| format!("{text:widest$}  {value}\n"));
            output::print(&lines.collect::<String>())?;
        }
    }
    Ok(Exit::Done)
}

/// Whether it is about the machine as it is: not about another one.
fn asks_the_startd(arguments: &ExplainPolicy) -> bool {
    let which = &arguments.which;
    arguments.my.is_none() && which.cpus.is_none() && which.memory.is_none()
}

/// Whether it is about the startd's slots: a configuration of another era has others.
fn is_meant(arguments: &ExplainPolicy, running: &Running) -> bool {
    let which = &arguments.which;
    which.config.is_none() || which.dialect.to_string() == running.record.dialect
}

/// What the startd that is there goes by.
fn its_configuration(arguments: &ExplainPolicy, running: &Running) -> Outcome<Config> {
    let path = PathBuf::from(raw::decode(&running.record.config));
    let dialect = running.record.dialect.parse();
    crate::startd::configuration(&path, dialect.unwrap_or(arguments.which.dialect))
}

/// The ad of a slot of the startd that is there, with the expressions of a configuration: its own, or another one.
fn running_ad(
    arguments: &ExplainPolicy,
    running: &Running,
    config: &Config,
    here: &Here,
) -> Outcome<ClassAd> {
    let is_its_own = arguments.which.config.is_none();
    let settings = settings_of(config);
    let found = Measured::once(config)?.detected(config)?;
    let machine = Machine::begin(&settings, config.dialect(), &found, here.now());
    let machine = machine
        .map_err(|error| measured::placed(config, error))
        .exit(Exit::Usage)?;
    for doubt in machine.doubts() {
        tell(&doubt);
    }
    // Parts have the policy of their slot; a configuration that has no such slot has nothing to say of it.
    let slot = machine.slot(SlotId::of(arguments.slot.number));
    let Some(slot) = slot else {
        return Err(no_slot(arguments, &machine));
    };
    let mut ad = running.ad.clone();
    let said = &slot.policy().attributes;
    match is_its_own {
        // It has said all but START, where that is TRUE for everybody.
        true => {
            ad = said.clone();
            lay_over(&mut ad, &running.ad);
        }
        false => lay_over(&mut ad, said),
    }
    also_called(&mut ad);
    Ok(ad)
}

fn lay_over(ad: &mut ClassAd, over: &ClassAd) {
    for (name, expr) in over.iter() {
        ad.insert(name.clone(), Arc::clone(expr));
    }
}

fn also_called(ad: &mut ClassAd) {
    for (name, attribute) in ALSO_CALLED {
        if ad.get(*name).is_none() && ad.get(*attribute).is_some() {
            ad.insert(*name, Expr::attribute(*attribute));
        }
    }
}

fn no_slot(arguments: &ExplainPolicy, machine: &Machine) -> Failure {
    let message = format!(
        "there is no slot {}, but {}",
        arguments.slot,
        machine.slots().len()
    );
    Failure::new(Exit::Usage, message)
}

/// The ad of a slot with this configuration, on this machine and now; with an ad of one's own, without looking at it.
fn machine_ad(arguments: &ExplainPolicy, config: Option<Config>, here: &Here) -> Outcome<ClassAd> {
    let which = &arguments.which;
    let config = match config {
        Some(config) => config,
        None if arguments.my.is_some() => return Ok(ClassAd::new()),
        None => Config::parse("", &Site::new(), &options(which))?,
    };
    let settings = |name: &str| setting(Some(&config), which, name);
    let mut measured = match arguments.my {
        Some(_) => None,
        None => Some(Measured::once(&config)?),
    };
    let found = match &mut measured {
        None => detected(which, Some(&config))?,
        Some(measured) => {
            let here = measured.detected(&config)?;
            Detected {
                cpus: which.cpus.map_or(here.cpus, i64::from),
                memory_mib: which.memory.map_or(here.memory_mib, i64::from),
                ..here
            }
        }
    };
    let now = here.now();
    let machine = Machine::begin(&settings, which.dialect, &found, now);
    let machine = machine
        .map_err(|error| measured::placed(&config, error))
        .exit(Exit::Usage)?;
    let mut machine = machine
        .with_utc_offset(here.utc_offset(now))
        .with_users(here.users().clone());
    let event = match &mut measured {
        None => Event::Time,
        Some(measured) => {
            machine = machine.with_name(measured.name());
            Event::Seen(measured.seen(&[], 1)?.0)
        }
    };
    machine.step(event, now);
    // With an ad of one's own, it may be of a part.
    let part = arguments.slot.part.filter(|_| arguments.my.is_none());
    let id = SlotId {
        number: arguments.slot.number,
        part,
    };
    let Some(slot) = machine.slot(id) else {
        return Err(no_slot(arguments, &machine));
    };
    let mut ad = machine.ad(id, now).unwrap_or_default();
    // What is published of START may be less.
    lay_over(&mut ad, slot.ad());
    if arguments.my.is_some() {
        // Nobody has looked.
        for name in UNSEEN {
            ad.remove(*name);
        }
    }
    also_called(&mut ad);
    for doubt in machine.doubts() {
        tell(&doubt);
    }
    Ok(ad)
}

fn ads(path: &Path) -> Outcome<Vec<ClassAd>> {
    let shown = || raw::shown_path(path).to_string();
    let ads = parse_any_ads(&read(path)?).context(shown);
    ads.exit(Exit::Usage)
}

fn one_ad(path: &Path) -> Outcome<ClassAd> {
    let mut ads = ads(path)?;
    if ads.len() > 1 {
        let shown = raw::shown_path(path);
        let message = format!("{shown} has {} ads, not one", ads.len());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(ads.pop().unwrap_or_default())
}

/// Its only ad, or that of a slot, as `wayfarer machine -l` prints them.
fn ad_of_slot(path: &Path, which: WhichSlot) -> Outcome<ClassAd> {
    let mut ads = ads(path)?;
    if ads.len() <= 1 {
        return Ok(ads.pop().unwrap_or_default());
    }
    let count = ads.len();
    let found = ads.into_iter().find(|ad| which.is_of(ad));
    found.ok_or_else(|| {
        let shown = raw::shown_path(path);
        let message = format!("{shown} has {count} ads, and none of slot {which}");
        Failure::new(Exit::Usage, message).advise("--slot SLOTID")
    })
}

fn value_of(why: &Explanation) -> String {
    match &why.value {
        Ok(value) => value.to_string(),
        Err(error) => format!("no value: {error}"),
    }
}

fn side(why: &Explanation) -> Option<&'static str> {
    Some(match why.found? {
        FoundIn::My => "MY",
        FoundIn::Target => "TARGET",
    })
}

fn line(why: &Explanation, depth: usize, lines: &mut Vec<(String, String)>) {
    let mut value = match why.is_skipped {
        true => "not looked at: what stands before it decides".to_owned(),
        false => value_of(why),
    };
    if let Some(side) = side(why).filter(|_| !why.is_skipped) {
        value.push_str(&format!("  ({side})"));
    }
    if let Some(missing) = why.missing.as_ref().filter(|_| !why.is_skipped) {
        value.push_str(&format!("  ({missing})"));
    }
    lines.push((format!("{}{}", "  ".repeat(depth), why.text), value));
    for part in &why.parts {
        line(part, depth + 1, lines);
    }
}

#[derive(Serialize)]
struct Term {
    expression: String,
    value: String,
    found_in: Option<&'static str>,
    missing: Option<String>,
    skipped: bool,
    parts: Vec<Term>,
}

impl From<&Explanation> for Term {
    fn from(why: &Explanation) -> Self {
        Term {
            expression: why.text.clone(),
            value: value_of(why),
            found_in: side(why),
            missing: why.missing.as_ref().map(ToString::to_string),
            skipped: why.is_skipped,
            parts: why.parts.iter().map(Term::from).collect(),
        }
    }
}
