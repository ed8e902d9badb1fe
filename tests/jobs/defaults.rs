//! Settings that a job never changed are those that a process has by itself, whatever its restarter has.

use super::support::promise::{passed, with_job};
use super::support::run::{Run, clean_command};
use super::{guests_of, simple};
use std::fs;
use std::process::Command;

/// Becomes what its arguments say, without transparent huge pages and with an I/O priority.
const RESTARTER: &str = "import ctypes, os, sys
PR_SET_THP_DISABLE, IOPRIO_SET = 41, 251
libc = ctypes.CDLL(None)
assert libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
assert libc.syscall(IOPRIO_SET, 1, 0, 2 << 13 | 7) == 0
os.execv(sys.argv[1], sys.argv[1:])";

/// Whether it may have transparent huge pages, and its I/O priority.
fn settings(pid: i32) -> Result<(String, String), String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let line = status.lines().find(|line| line.starts_with("THP_enabled:"));
    let line = line.ok_or("no THP_enabled")?.to_owned();
    let said = Command::new("ionice")
        .args(["-p", &pid.to_string()])
        .output();
    let said = said.map_err(|error| format!("ionice: {error}"))?;
    Ok((line, String::from_utf8_lossy(&said.stdout).into_owned()))
}

#[test]
fn a_job_has_no_settings_of_its_restarter() {
    let guest = simple("defaults");
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let of_guest = |job: &super::Job| {
            let pids = guests_of(job, &guest.program);
            settings(*pids.first().ok_or("no process of the guest")?)
        };
        let before = of_guest(job)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        let restart = job.wayfarer(&["restart", "--name", "job"]);
        let mut command = clean_command("/usr/bin/python3");
        command.args(["-c", RESTARTER]).arg(restart.get_program());
        command.args(restart.get_args()).arg(&image);
        let command = job.in_data(command);
        let run = Run::start("the guest, restarted", command, job.user())?;
        job.runs.push(run);
        job.wait_up()?;
        let after = of_guest(job)?;
        if before != after {
            return Err(format!("found {after:?}, expected {before:?}"));
        }
        job.let_go();
        passed(job.wait_pass()?)
    });
}
