//! HTCondor's own reader, from its Python package, which `scripts/setup` puts into `TARGET/htcondor`.

use crate::skip;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How the reader runs: this program, with this script.
const SCRIPT: &str = include_str!("read.py");

/// What it found in a log.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The events, in their order.
    pub(crate) events: Vec<BTreeMap<String, String>>,
    /// How many times it could not read one.
    pub(crate) errors: usize,
}

impl Found {
    /// The number of each event's job.
    pub(crate) fn clusters(&self) -> Vec<&str> {
        let clusters = self.events.iter().map(|event| event["Cluster"].as_str());
        clusters.collect()
    }
}

/// The reader; none, noted, where it was not installed.
pub(crate) fn here(test: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().expect("the test program");
    // TARGET/PROFILE/deps/TEST
    let target = own.ancestors().nth(3).expect("a target directory");
    let python = target.join("htcondor/bin/python");
    let mut command = Command::new("timeout");
    command
        .arg("60")
        .arg(&python)
        .args(["-c", "import htcondor2"]);
    if command.output().expect("runs").status.success() {
        return Some(python);
    }
    let python = python.display();
    let reason = format!("{python} has no htcondor2: run scripts/setup where PyPI is reached");
    skip::note(test, &reason);
    None
}

/// What it finds in these logs, local time being that of `zone`.
pub(crate) fn read(python: &Path, zone: &str, logs: &[PathBuf]) -> Vec<Found> {
    let output = Command::new("timeout")
        .args(["--signal=KILL", "120"])
        .arg(python)
        .args(["-c", SCRIPT])
        .args(logs)
        .env("TZ", zone)
        .env("CONDOR_CONFIG", "/dev/null")
        .output()
        .expect("runs");
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complained}", output.status);
    let said = String::from_utf8(output.stdout).expect("is text");
    let mut all = Vec::<Found>::new();
    for line in said.lines() {
        if line == "log" {
            all.push(Found::default());
            continue;
        }
        let found = all.last_mut().expect("begins with a log");
        match line.split_once('=') {
            None if line == "event" => found.events.push(BTreeMap::new()),
            Some(("error", _)) => found.errors += 1,
            Some((name, value)) => {
                let event = found.events.last_mut().expect("begins with an event");
                event.insert(name.to_owned(), value.to_owned());
            }
            None => panic!("the reader says {line:?}"),
        }
    }
    assert_eq!(all.len(), logs.len());
    all
}
