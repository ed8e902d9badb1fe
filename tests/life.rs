//! Jobs with a starter: images as work is done, leaving, going on, whoever is killed on the way.

#[path = "life/ads.rs"]
mod ads;
#[path = "life/beginning.rs"]
mod beginning;
#[path = "life/brim.rs"]
mod brim;
#[path = "life/commands.rs"]
mod commands;
#[path = "life/compile.rs"]
mod compile;
#[path = "life/full.rs"]
mod full;
#[path = "life/gone.rs"]
mod gone;
#[path = "life/growth.rs"]
mod growth;
#[path = "life/images.rs"]
mod images;
#[path = "life/inside.rs"]
mod inside;
#[path = "life/keeping.rs"]
mod keeping;
#[path = "life/killed.rs"]
mod killed;
#[path = "life/leaving.rs"]
mod leaving;
#[path = "life/marks.rs"]
mod marks;
#[path = "life/nice.rs"]
mod nice;
#[path = "life/notify.rs"]
mod notify;
#[path = "life/outputs.rs"]
mod outputs;
#[path = "life/passing.rs"]
mod passing;
#[path = "life/programs.rs"]
mod programs;
#[path = "life/rates.rs"]
mod rates;
#[path = "life/restarting.rs"]
mod restarting;
#[path = "life/starters.rs"]
mod starters;
mod support;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::chain;
use support::promise::{ask, refused, with_job};
use support::run::{self, Run, finish};
use support::scenario::{Guest, Job};
use support::user::User;

/// One step of a test, on a loaded machine.
const STEP: Duration = Duration::from_secs(30);
/// A whole job, with all that is done to it.
const WHOLE: Duration = Duration::from_secs(90);

/// Each line of its file follows from the one before, and so does what it says at last. It ends when it is let go.
const CHAIN: &str = r#"
import hashlib, os, sys, time
def links():
    link = b"begin"
    while True:
        for _ in range(300):
            link = hashlib.sha256(link).digest()
        yield link.hex()
out = open("chain", "wb", buffering=0)
for number, link in enumerate(links()):
    out.write(b"%d %s\n" % (number, link.encode()))
    if os.path.exists(os.environ["WF_GO"]):
        break
    time.sleep(0.02)
print("at last", link, flush=True)
"#;

fn chain(label: &str) -> Guest {
    Guest::new(label, "/usr/bin/python3", &["-c", CHAIN])
}

/// Starts the job with these options, or goes on with it.
fn start(job: &mut Job, options: &[&str]) -> Result<(), String> {
    let command = starting(job, options);
    let run = Run::start(THE_GUEST, command, User::Ordinary)?;
    job.runs.push(run);
    Ok(())
}

const THE_GUEST: &str = "the guest, with a starter";

fn starting(job: &mut Job, options: &[&str]) -> std::process::Command {
    let mut command = job.wayfarer(&["run", "--quiet", "--name", "job"]);
    command.args(options).arg("--").arg(&job.guest.program);
    command.args(&job.guest.arguments);
    job.equip(&mut command);
    command
}

fn starter<'a>(job: &'a mut Job<'_>) -> Result<&'a mut Run, String> {
    let mut runs = job.runs.iter_mut().rev();
    let found = runs.find(|run| run.label.starts_with("the guest"));
    found.ok_or_else(|| "nothing was started".to_owned())
}

fn signal_starter(job: &mut Job, signal: Signal) -> Result<(), String> {
    let pid = Pid::from_raw(starter(job)?.pid().cast_signed());
    kill(pid, signal).map_err(|error| format!("{signal}: {error}"))
}

/// How the starter has ended: its status, or 128 and the signal; and nothing is left.
fn end(job: &mut Job) -> Result<i32, String> {
    let status = starter(job)?.wait(WHOLE)?;
    let mark = job.mark.clone();
    let gone = run::poll(STEP, || run::marked(&mark).is_empty().then_some(()));
    gone.ok_or_else(|| format!("processes are left: {:?}", run::marked(&mark)))?;
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).ok_or_else(|| status.to_string())
}

fn expect_end(job: &mut Job, expected: i32) -> Result<(), String> {
    match end(job)? {
        found if found == expected => Ok(()),
        found => Err(format!("status: found {found}, expected {expected}")),
    }
}

/// A report of the command's about the job.
fn report(job: &mut Job, verb: &str) -> Result<serde_json::Value, String> {
    // The log would be full of these.
    let command = job.wayfarer(&[verb, "--json", "job"]);
    let (status, run) = finish(verb, command, User::Ordinary, STEP)?;
    match status.success() {
        true => serde_json::from_str(&run.out.text()).map_err(|error| error.to_string()),
        false => Err(run.describe()),
    }
}

fn status_of(job: &mut Job) -> Result<serde_json::Value, String> {
    report(job, "status")
}

/// Waits until the job's status is as wanted.
fn until(
    job: &mut Job,
    what: &str,
    wanted: impl Fn(&serde_json::Value) -> bool,
) -> Result<serde_json::Value, String> {
    let mut last = Err("no status".to_owned());
    let found = run::poll(STEP, || {
        last = status_of(job);
        last.as_ref().ok().filter(|status| wanted(status)).cloned()
    });
    found.ok_or_else(|| format!("not within {STEP:?}: {what}; {last:?}"))
}

fn until_images(job: &mut Job, count: u64) -> Result<(), String> {
    let what = format!("{count} checkpoints");
    until(job, &what, |status| {
        status["NumCkpts"].as_u64() >= Some(count) && status["State"] == "Running"
    })
    .map(drop)
}

/// Waits until the chain is longer than now.
fn until_longer(job: &Job) -> Result<(), String> {
    let path = job.dir.join("data/chain");
    let len = || fs::metadata(&path).map_or(0, |file| file.len());
    let before = len();
    run::poll(STEP, || (len() > before).then_some(())).ok_or("the job does not work".to_owned())
}

/// The job's first process, as this machine knows it, once it is there.
fn root_of(job: &mut Job) -> Result<Pid, String> {
    process_of(job, "root_pid")
}

fn process_of(job: &mut Job, which: &str) -> Result<Pid, String> {
    let found = run::poll(STEP, || {
        let report = report(job, "ps").ok()?;
        let line = &report["jobs"][0];
        line["root_pid"].as_i64()?;
        i32::try_from(line[which].as_i64()?).ok()
    });
    found
        .map(Pid::from_raw)
        .ok_or_else(|| format!("the job has no {which}"))
}

fn images(job: &Job) -> Vec<PathBuf> {
    let entries = fs::read_dir(job.dir.join("state/jobs/job/images"));
    let mut paths: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    paths
}

/// What the guest has said last: its last image may be of a job that had said it already.
fn said_last(job: &Job) -> String {
    let runs = job.runs.iter().rev();
    let guests = runs.filter(|run| run.label.starts_with("the guest"));
    let said = guests
        .map(|run| run.out.text())
        .find(|said| !said.is_empty());
    said.unwrap_or_default()
}

/// The chain is as one that nobody has disturbed.
fn check_chain(job: &Job) -> Result<(), String> {
    let (status, check) = chain::check(&job.dir.join("data"), "chain", WHOLE)?;
    let said = said_last(job);
    match status.success() && said == check.out.text() {
        true => Ok(()),
        false => Err(format!("{}found {said:?}", check.describe())),
    }
}

/// It is let go, and ends as if nothing had been.
fn ends_well(job: &mut Job) -> Result<(), String> {
    job.let_go();
    expect_end(job, 0)?;
    check_chain(job)
}

/// It goes on, and ends as if nothing had been.
fn goes_on_to_its_end(job: &mut Job, options: &[&str]) -> Result<(), String> {
    let options = [&["--resume"], options].concat();
    start(job, &options)?;
    ends_well(job)
}
