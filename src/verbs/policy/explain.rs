//! Why an expression has its value, term by term.

use super::{SCHEMA_VERSION, configuration, detected, options, read, setting};
use crate::args::ExplainPolicy;
use crate::config::{Site, user_maps};
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
use starter::machine::{Detected, Event, Machine, SlotId};
use std::path::Path;

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

pub(super) fn explain(arguments: &ExplainPolicy) -> Outcome {
    let expr = parse_expression(&arguments.expression);
    let expr = expr
        .context(|| "the expression".to_owned())
        .exit(Exit::Usage)?;
    let mut here = Here::new();
    if let Some(config) = configuration(&arguments.which)? {
        here = here.with_users(user_maps(&config)?);
    }
    let mut my = machine_ad(arguments, &here)?;
    if let Some(path) = &arguments.my {
        for (name, bound) in one_ad(path)?.iter() {
            my.insert(name.clone(), std::sync::Arc::clone(bound));
        }
    }
    let mut context = Context::new(&here).with_my(my);
    if let Some(path) = &arguments.target {
        context = context.with_target(one_ad(path)?);
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

/// The ad of a slot with this configuration, on this machine and now; with an ad of one's own, without looking at it.
fn machine_ad(arguments: &ExplainPolicy, here: &Here) -> Outcome<ClassAd> {
    let which = &arguments.which;
    let config = match configuration(which)? {
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
    let users = user_maps(&config)?;
    let mut machine = machine
        .with_utc_offset(here.utc_offset(now))
        .with_users(users);
    let event = match &mut measured {
        None => Event::Time,
        Some(measured) => {
            machine = machine.with_name(measured.name());
            Event::Seen(measured.seen(&[], 1)?.0)
        }
    };
    machine.step(event, now);
    let id = SlotId::of(arguments.slot);
    let Some(slot) = machine.slot(id) else {
        let message = format!(
            "there is no slot {}, but {}",
            arguments.slot,
            machine.slots().len()
        );
        return Err(Failure::new(Exit::Usage, message));
    };
    let mut ad = machine.ad(id, now).unwrap_or_default();
    // What is published of START may be less.
    for (name, expr) in slot.ad().iter() {
        ad.insert(name.clone(), std::sync::Arc::clone(expr));
    }
    if arguments.my.is_some() {
        // Nobody has looked.
        for name in UNSEEN {
            ad.remove(*name);
        }
    }
    for (name, attribute) in ALSO_CALLED {
        if ad.get(*name).is_none() && ad.get(*attribute).is_some() {
            ad.insert(*name, Expr::attribute(*attribute));
        }
    }
    for doubt in machine.doubts() {
        tell(&doubt);
    }
    Ok(ad)
}

fn one_ad(path: &Path) -> Outcome<ClassAd> {
    let shown = || raw::shown_path(path).to_string();
    let mut ads = parse_any_ads(&read(path)?)
        .context(shown)
        .exit(Exit::Usage)?;
    if ads.len() > 1 {
        let message = format!("{} has {} ads, not one", shown(), ads.len());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(ads.pop().unwrap_or_default())
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
    skipped: bool,
    parts: Vec<Term>,
}

impl From<&Explanation> for Term {
    fn from(why: &Explanation) -> Self {
        Term {
            expression: why.text.clone(),
            value: value_of(why),
            found_in: side(why),
            skipped: why.is_skipped,
            parts: why.parts.iter().map(Term::from).collect(),
        }
    }
}
