//! Configurations, read here and by the real library: every name has the same value, but for what docs/CONFIG.md enumerates.
//!
//! `cases/*.conf` are written by hand. Besides, random ones: always the same; `WF_FULL=1` compares some thousands that nobody
//! has seen, `WF_SEED=n` those of a seed.
#![allow(clippy::expect_used, reason = "a test")]

mod disk;
mod generator;
mod known;
#[path = "../original/oracle.rs"]
mod oracle;
#[path = "../../../tests/support/skip.rs"]
mod skip;

use classad::config::{Config, ConfigError, ConfigOptions};
use disk::{Disk, lay_out};
use known::Difference;
use oracle::Oracle;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

const SCRIPT: &str = include_str!("oracle.py");
const USUAL_SEED: u64 = 20_261_124;

/// What the original finds out about the machine, which is not compared.
const DETECTED: &[&str] = &[
    "DETECTED_CPUS",
    "DETECTED_CORES",
    "DETECTED_MEMORY",
    "HOSTNAME",
];

/// Names whose defaults refer to what a case sets, and others that have nothing to do with it.
const DERIVED: &[&str] = &[
    "config_root",
    "enable_classad_caching",
    "periodic_checkpoint",
    "adstash_read_pools",
    "collector_host_string",
    "collector_name",
    "collector_forward_claimed_private_ads",
];

struct Comparison {
    oracle: Oracle,
    disk: Disk,
    options: ConfigOptions,
    directory: tempfile::TempDir,
    values: usize,
    refused: usize,
    /// What kills the original, or makes it expand for ever.
    deadly: usize,
    /// Values that are of no use here: what the original makes of them is chance.
    faults: usize,
    known: BTreeMap<&'static str, usize>,
    differing: Vec<String>,
}

impl Comparison {
    /// None, and why: there is no oracle.
    fn start(test: &str) -> Option<Self> {
        let mut oracle = match Oracle::start(SCRIPT) {
            Ok(oracle) => oracle,
            Err(reason) => {
                skip::note(test, &reason);
                return None;
            }
        };
        let built_in = oracle.ask(&json!({})).expect("an answer").expect("values");
        let detected = DETECTED.iter().filter_map(|name| {
            let value = text_of(&built_in[name.to_lowercase()])?;
            Some(((*name).to_owned(), value))
        });
        let disk = Disk {
            detected: detected.collect(),
        };
        Some(Self {
            oracle,
            disk,
            options: ConfigOptions {
                subsystem: Some("TOOL".to_owned()),
                ..ConfigOptions::default()
            },
            directory: tempfile::tempdir().expect("a directory"),
            values: 0,
            refused: 0,
            deadly: 0,
            faults: 0,
            known: BTreeMap::new(),
            differing: vec![],
        })
    }

    fn place(&self, whose: &str) -> PathBuf {
        // Both have the same files, and neither sees what the other has written.
        self.directory.path().join(whose).join("case")
    }

    fn differ(&mut self, case: &str, name: Option<&str>, original: &str, ours: &str) {
        let difference = Difference {
            case,
            name,
            original,
            ours,
        };
        match difference.known() {
            Some(known) => *self.known.entry(known).or_default() += 1,
            None => self.differing.push(format!(
                "{} in\n{case}\n    original {original}\n    here     {ours}",
                name.unwrap_or("whether it is read")
            )),
        }
    }

    fn ours(&self, case: &str) -> Result<Config, ConfigError> {
        let directory = self.place("ours");
        lay_out(case, &directory).expect("files");
        let path = directory.join("main");
        let path = path.to_str().expect("a name that is UTF-8");
        Config::examine(path, &self.disk, &self.options)
    }

    /// Compares every name that the case sets here, and those that it asks for.
    fn case(&mut self, case: &str, all: bool) {
        let ours = self.ours(case);
        let mut names: BTreeSet<String> = asked(case).map(str::to_owned).collect();
        if let Ok(config) = &ours {
            let set = config
                .settings()
                .into_iter()
                .filter(|setting| !setting.is_built_in);
            names.extend(set.map(|setting| setting.name.to_owned()));
        }
        let theirs = self.place("theirs");
        lay_out(case, &theirs).expect("files");
        let request = json!({
            "path": theirs.join("main"),
            "names": names,
            "environment": { disk::SET.0: disk::SET.1 },
            "all": all,
        });
        let answer = self
            .oracle
            .ask(&request)
            .expect("an answer")
            .unwrap_or_default();
        let has_fault = ours
            .as_ref()
            .is_ok_and(|config| !config.faults().is_empty());
        if answer["signal"].is_number() {
            // A circle, or a function that ends the original: here it is at least said.
            self.deadly += 1;
            if !has_fault && ours.is_ok() {
                self.differ(
                    case,
                    None,
                    &answer.to_string(),
                    "a configuration without a fault",
                );
            }
            return;
        }
        let is_refused = answer["refused"] == true;
        let config = match ours {
            Err(_) if is_refused => {
                self.refused += 1;
                return;
            }
            Err(error) => return self.differ(case, None, "a configuration", &error.to_string()),
            Ok(_) if is_refused => return self.differ(case, None, "refused", "a configuration"),
            Ok(config) => config,
        };
        let useless: BTreeSet<String> = {
            let faults = config.faults().iter();
            let functions = faults.filter(|fault| !matches!(fault, ConfigError::Expression { .. }));
            functions
                .filter_map(|fault| Some(fault.name()?.to_lowercase()))
                .collect()
        };
        self.faults += useless.len();
        for name in &names {
            if useless.contains(&name.to_lowercase()) {
                continue;
            }
            self.values += 1;
            let here = |whose: &str| self.place(whose).to_string_lossy().into_owned();
            let value = config
                .get(name)
                .unwrap_or_default()
                .replace(&here("ours"), "@DIR@");
            let original = text_of(&answer["values"][name]).unwrap_or_default();
            let original = original.replace(&here("theirs"), "@DIR@");
            let is_typed = answer["values"][name].is_object();
            let is_same = match is_typed {
                true => original.eq_ignore_ascii_case(&value) || value.is_empty(),
                false => original == value,
            };
            if !is_same {
                self.differ(case, Some(name), &original, &value);
            }
        }
        for other in answer["others"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
        {
            let is_set = names.iter().any(|name| name.eq_ignore_ascii_case(other));
            if !is_set && !DERIVED.contains(&other) {
                self.differ(case, Some(other), "set", "not set");
            }
        }
    }

    fn finish(self, what: &str) {
        println!(
            "{what}: {} values compared, {} configurations refused by both, {} differ, {} have killed the original, \
             {} values that are of no use here",
            self.values,
            self.refused,
            self.differing.len(),
            self.deadly,
            self.faults
        );
        for (name, count) in &self.known {
            println!("known: {count} {name}");
        }
        for difference in self.differing.iter().take(20) {
            println!("{difference}");
        }
        assert!(self.values > 0, "nothing was compared");
        assert!(
            self.differing.is_empty(),
            "{what}: {} differ",
            self.differing.len()
        );
    }
}

/// A value as text: what the library has made of it, if it has a type.
fn text_of(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Object(typed) => {
            let value = typed.values().next()?;
            Some(
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned),
            )
        }
        _ => None,
    }
}

/// The names in lines `#? NAME …`.
fn asked(case: &str) -> impl Iterator<Item = &str> {
    let lines = case.lines().filter_map(|line| line.strip_prefix("#?"));
    lines.flat_map(str::split_whitespace)
}

fn cases(text: &str) -> impl Iterator<Item = &str> {
    text.split("====\n").skip(1)
}

fn compare(test: &str, text: &str, all: bool) {
    let Some(mut comparison) = Comparison::start(test) else {
        return;
    };
    for case in cases(text) {
        comparison.case(case, all);
    }
    comparison.finish(test);
}

#[test]
fn assignments_are_those_of_the_original() {
    let text = include_str!("cases/assignments.conf");
    compare("assignments_are_those_of_the_original", text, false);
}

#[test]
fn lines_are_joined_as_by_the_original() {
    let text = include_str!("cases/lines.conf");
    compare("lines_are_joined_as_by_the_original", text, false);
}

#[test]
fn macros_are_expanded_as_by_the_original() {
    let text = include_str!("cases/macros.conf");
    compare("macros_are_expanded_as_by_the_original", text, false);
}

#[test]
fn functions_do_what_the_originals_do() {
    let text = include_str!("cases/functions.conf");
    compare("functions_do_what_the_originals_do", text, false);
}

#[test]
fn conditions_are_those_of_the_original() {
    let text = include_str!("cases/conditions.conf");
    compare("conditions_are_those_of_the_original", text, false);
}

#[test]
fn templates_set_what_the_originals_set() {
    let text = include_str!("cases/templates.conf");
    compare("templates_set_what_the_originals_set", text, true);
}

#[test]
fn files_are_included_as_by_the_original() {
    let text = include_str!("cases/files.conf");
    compare("files_are_included_as_by_the_original", text, false);
}

#[test]
fn random_configurations_are_read_as_by_the_original() {
    let test = "random_configurations_are_read_as_by_the_original";
    let Some(mut comparison) = Comparison::start(test) else {
        return;
    };
    let variable = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_full = variable("WF_FULL") == Some(1);
    let seed = variable("WF_SEED").unwrap_or_else(|| match is_full {
        true => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        false => USUAL_SEED,
    });
    let rounds = variable("WF_ROUNDS").unwrap_or(if is_full { 5_000 } else { 150 });
    println!("seed {seed}, {rounds} configurations");
    let mut generator = generator::Generator::new(seed);
    for _ in 0..rounds {
        comparison.case(&generator.configuration(), false);
    }
    comparison.finish(test);
}
