//! `wayfarer policy simulate`, `explain`, `record`, `submit`.

mod explain;
mod plot;
mod record;
mod running;
mod simulate;
mod submit;

pub(crate) use running::WhichSlot;
pub(crate) use submit::{judged, judged_by, with_owner};

use crate::args::{Policy as Arguments, PolicyVerb, WhichPolicy};
use crate::config::Site;
use crate::inventory;
use crate::jobs::JobStore;
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome};
use classad::config::{Config, ConfigOptions};
use starter::machine::{Detected, settings_of};
use starter::measure::{Dialect, Here, Observation, Settings, Watch};
use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;

/// The version of what is reported as JSON.
const SCHEMA_VERSION: u32 = 1;
/// The largest trace, and the largest ad.
const MOST_BYTES: u64 = 256 << 20;

/// Does one of them.
pub(crate) fn policy(store: Option<&JobStore>, arguments: &Arguments) -> Outcome {
    match &arguments.what {
        PolicyVerb::Simulate(arguments) => simulate::simulate(arguments),
        PolicyVerb::Explain(arguments) => explain::explain(store, arguments),
        PolicyVerb::Record(arguments) => record::record(store, arguments),
        PolicyVerb::Submit(arguments) => submit::submit(arguments),
    }
}

/// The configuration that a policy is in.
fn configuration(which: &WhichPolicy) -> Outcome<Option<Config>> {
    let Some(path) = &which.config else {
        return Ok(None);
    };
    let shown = || raw::shown_path(path).to_string();
    let Some(name) = path.to_str() else {
        let message = format!("{}: its name is not UTF-8", shown());
        return Err(Failure::new(Exit::Usage, message));
    };
    let config = Config::read(name, &Site::new(), &options(which));
    let config = config.context(shown).exit(Exit::Usage)?;
    Ok(Some(config))
}

fn options(which: &WhichPolicy) -> ConfigOptions {
    ConfigOptions {
        dialect: which.dialect,
        ..ConfigOptions::default()
    }
}

/// What the machine has: this one's processors, unless others are named; room; and what the configuration's inventories say.
///
/// # Errors
/// An inventory cannot be taken.
fn detected(which: &WhichPolicy, config: Option<&Config>) -> Outcome<Detected> {
    let known = |name: &str| config?.get(name)?.parse::<i64>().ok();
    let here = |variable| {
        let count = nix::unistd::sysconf(variable).ok().flatten();
        count.filter(|count| *count > 0)
    };
    let cpus = which.cpus.map(i64::from).or_else(|| known("DETECTED_CPUS"));
    let memory_mib = which
        .memory
        .map(i64::from)
        .or_else(|| known("DETECTED_MEMORY"));
    Ok(Detected {
        cpus: cpus
            .or_else(|| here(nix::unistd::SysconfVar::_NPROCESSORS_ONLN))
            .unwrap_or(1),
        memory_mib: memory_mib.unwrap_or(1024),
        // A simulated machine has room.
        disk_kib: 1 << 30,
        swap_kib: 1 << 24,
        inventories: config.map_or(Ok(vec![]), inventory::taken)?,
    })
}

/// Looks at this machine: keys and load.
fn observe(watch: &mut Watch) -> Outcome<Observation> {
    let settings = Settings::default_of(Dialect::V25, 1);
    let seen = Observation::now(&Here::new(), watch, &settings, 0.0);
    seen.context(|| "this machine cannot be looked at".to_owned())
}

/// The value of a setting; `--cpus` and `--memory` are stronger than what was detected.
fn setting(config: Option<&Config>, which: &WhichPolicy, name: &str) -> Option<String> {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    match (which.cpus, which.memory) {
        // It is `$(DETECTED_CPUS)` by itself.
        (Some(cpus), _) if is("NUM_CPUS") => {
            let written = config.and_then(|config| config.get(name));
            let detected = config.and_then(|config| config.get("DETECTED_CPUS"));
            written
                .filter(|written| detected.as_ref() != Some(written))
                .or_else(|| Some(cpus.to_string()))
        }
        _ => settings_of(config?)(name),
    }
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    let shown = || raw::shown_path(path).to_string();
    let mut bytes = vec![];
    let read = if path == Path::new("-") {
        stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut bytes)
    } else {
        let file = File::open(path).context(shown).exit(Exit::Usage)?;
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes)
    };
    read.context(shown)?;
    if bytes.len() as u64 > MOST_BYTES {
        let message = format!("{} is longer than {MOST_BYTES} bytes", shown());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(bytes)
}
