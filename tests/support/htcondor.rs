//! HTCondor's Python packages, which `scripts/setup` puts into `TARGET/htcondor`.

use super::skip;
use std::path::PathBuf;
use std::process::Command;

/// A Python that has this module; none, noted, where it was not installed.
pub fn reader(test: &str, module: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().expect("the test program");
    // TARGET/PROFILE/deps/TEST
    let python = own.ancestors().nth(3)?.join("htcondor/bin/python");
    let mut command = Command::new("timeout");
    command.arg("60").arg(&python);
    command.args(["-c", &format!("import {module}")]);
    command.env("CONDOR_CONFIG", "/dev/null");
    if command.output().is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let python = python.display();
    let reason = format!("{python} has no {module}: run scripts/setup where PyPI is reached");
    skip::note(test, &reason);
    None
}
