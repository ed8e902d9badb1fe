//! Jobs that are given to this machine as its owner's policy allows, and as an ordinary user: keys, commands, whoever is killed on the way.

#[path = "startd/admission.rs"]
mod admission;
#[path = "startd/commands.rs"]
mod commands;
#[path = "startd/files.rs"]
mod files;
#[path = "startd/killed.rs"]
mod killed;
#[path = "startd/many.rs"]
mod many;
#[path = "startd/owner.rs"]
mod owner;
#[path = "startd/policy.rs"]
mod policy;
#[path = "startd/slots.rs"]
mod slots;
mod support;
#[path = "startd/wishes.rs"]
mod wishes;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::time::Duration;
use support::chain;
use support::promise::{ask, refused, with_job};
use support::run::{self, Run, finish};
use support::scenario::{Guest, Job};
use support::user::User;

/// One step of a test, on a loaded machine. Jobs have 60 seconds to leave a startd that is gone.
const STEP: Duration = Duration::from_secs(90);
/// The label of what gives jobs to the machine.
const STARTD: &str = "the startd";

/// Each line of its file follows from the one before, and so does what it says at last. It ends when it is let go.
const CHAIN: &str = r#"
import hashlib, os, sys, time
def links():
    link = b"begin"
    while True:
        for _ in range(300):
            link = hashlib.sha256(link).digest()
        yield link.hex()
out = open(sys.argv[1], "wb", buffering=0)
for number, link in enumerate(links()):
    out.write(b"%d %s\n" % (number, link.encode()))
    if os.path.exists(os.environ["WF_GO"]):
        break
    time.sleep(0.02)
print("at last", link, flush=True)
"#;

/// One slot, no keys, no benchmarks, a look at everything each second.
const PLAIN: &str = "
NUM_CPUS = 1
NUM_SLOTS = 1
POLLING_INTERVAL = 1
UPDATE_INTERVAL = 1
RunBenchmarks = False
PERIODIC_CHECKPOINT = False
START = True
SUSPEND = False
PREEMPT = False
KILL = False
";

type Tried = Result<(), String>;

fn guest(label: &str) -> Guest {
    Guest::new(label, "/usr/bin/python3", &[])
}

/// Writes a configuration: [`PLAIN`], and what comes after it.
fn configure(job: &Job, policy: &str) {
    let text = format!("{PLAIN}\n{policy}\n");
    fs::write(job.dir.join("data/policy"), text).expect("a configuration");
}

/// Begins the startd with its configuration, and waits until it listens.
fn begin(job: &mut Job) -> Tried {
    begin_as(job, &[])
}

fn begin_as(job: &mut Job, options: &[&str]) -> Tried {
    let mut command = job.wayfarer(&["startd", "--config", "policy"]);
    command.args(options);
    let run = Run::start(STARTD, command, User::Ordinary)?;
    job.runs.push(run);
    until(job, "a startd", |status| status["is_running"] == true).map(drop)
}

fn begun(job: &mut Job, policy: &str) -> Tried {
    configure(job, policy);
    begin(job)
}

fn startd<'a>(job: &'a mut Job<'_>) -> Result<&'a mut Run, String> {
    let mut runs = job.runs.iter_mut().rev();
    let found = runs.find(|run| run.label == STARTD);
    found.ok_or_else(|| "nothing was started".to_owned())
}

fn signal(job: &mut Job, signal: Signal) -> Tried {
    let pid = Pid::from_raw(startd(job)?.pid().cast_signed());
    kill(pid, signal).map_err(|error| format!("{signal}: {error}"))
}

/// Hands in a job of this name, with these lines in its description.
fn submit(job: &mut Job, name: &str, lines: &str) -> Tried {
    fs::write(job.dir.join("data/chain.py"), CHAIN).expect("a program");
    let text = format!(
        "executable = /usr/bin/python3\narguments = chain.py {name}.chain\noutput = {name}.out\nerror = {name}.err\n\
         getenv = true\n{lines}\nqueue\n"
    );
    let file = format!("{name}.sub");
    fs::write(job.dir.join("data").join(&file), text).expect("a job file");
    let mut command = job.wayfarer(&["startd", "submit", "--name", name, &file]);
    job.equip(&mut command);
    let (status, run) = finish("submit", command, User::Ordinary, STEP)?;
    match status.success() {
        true => Ok(()),
        false => Err(run.describe()),
    }
}

fn report(job: &mut Job, words: &[&str]) -> Result<Value, String> {
    // The log would be full of these.
    let command = job.wayfarer(words);
    let (status, run) = finish("a report", command, User::Ordinary, STEP)?;
    match status.success() {
        true => serde_json::from_str(&run.out.text()).map_err(|error| error.to_string()),
        false => Err(run.describe()),
    }
}

fn status(job: &mut Job) -> Result<Value, String> {
    report(job, &["startd", "status", "--json"])
}

/// How a job fares, by its starter.
fn faring(job: &mut Job, name: &str) -> Result<Value, String> {
    report(job, &["status", "--json", name])
}

/// Waits until slots and queue are as wanted.
fn until(job: &mut Job, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value, String> {
    let mut last = Err("no status".to_owned());
    let found = run::poll(STEP, || {
        last = status(job);
        last.as_ref().ok().filter(|status| wanted(status)).cloned()
    });
    found.ok_or_else(|| format!("not within {STEP:?}: {what}; {last:?}"))
}

/// Waits until a job of the queue is in this state.
fn until_job(job: &mut Job, name: &str, state: &str) -> Result<Value, String> {
    until(job, &format!("{name} {state}"), |status| {
        line_of(status, name)["state"] == state
    })
}

/// Waits until the starter of a job says this of it.
fn until_fares(
    job: &mut Job,
    name: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value, String> {
    let mut last = Err("no status".to_owned());
    let found = run::poll(STEP, || {
        last = faring(job, name);
        last.as_ref().ok().filter(|status| wanted(status)).cloned()
    });
    found.ok_or_else(|| format!("not within {STEP:?}: {what}; {last:?}"))
}

/// A job of the queue; null if it is not there.
fn line_of(status: &Value, name: &str) -> Value {
    let lines = status["jobs"].as_array().cloned().unwrap_or_default();
    let found = lines.into_iter().find(|line| line["name"] == name);
    found.unwrap_or(Value::Null)
}

fn place(status: &Value) -> String {
    let slot = &status["slots"][0];
    let word = |name: &str| slot[name].as_str().unwrap_or("-").to_owned();
    format!("{}/{}", word("state"), word("activity"))
}

/// Waits until the startd's log says this: what it has said is read a moment later.
fn until_said(job: &mut Job, expected: &str) -> Tried {
    let mut said = String::new();
    let found = run::poll(STEP, || {
        said = startd(job).ok()?.err.text();
        said.contains(expected).then_some(())
    });
    found.ok_or_else(|| format!("not within {STEP:?}: {expected:?} in {said}"))
}

/// Waits until the chain of a job is longer than now.
fn until_longer(job: &Job, name: &str) -> Tried {
    let path = job.dir.join(format!("data/{name}.chain"));
    let len = || fs::metadata(&path).map_or(0, |file| file.len());
    let before = len();
    let longer = run::poll(STEP, || (len() > before).then_some(()));
    longer.ok_or_else(|| format!("job {name} does not work"))
}

/// What a job has left is what one leaves that nobody has disturbed.
fn check_chain(job: &Job, name: &str) -> Tried {
    let data = job.dir.join("data");
    let (status, check) = chain::check(&data, &format!("{name}.chain"), STEP)?;
    let read = |suffix: &str| fs::read_to_string(data.join(format!("{name}.{suffix}")));
    let (said, complained) = (
        read("out").unwrap_or_default(),
        read("err").unwrap_or_default(),
    );
    match status.success() && said == check.out.text() && complained.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{}found {said:?}, {complained:?}",
            check.describe()
        )),
    }
}

/// The jobs are let go, and end as if nothing had been.
fn ends_well(job: &mut Job, names: &[&str]) -> Tried {
    job.let_go();
    until(job, "no jobs", |status| {
        status["jobs"] == Value::Array(vec![])
    })?;
    names.iter().try_for_each(|name| check_chain(job, name))
}

/// The startd ends with this status when it is told to, and nothing is left.
fn ends(job: &mut Job, by: Signal, expected: i32) -> Tried {
    signal(job, by)?;
    has_ended(job, expected)
}

fn has_ended(job: &mut Job, expected: i32) -> Tried {
    let status = startd(job)?.wait(STEP)?;
    nothing_is_left(job)?;
    match status.code() {
        Some(code) if code == expected => Ok(()),
        _ => Err(format!(
            "the startd: found {status}, expected status {expected}"
        )),
    }
}

fn nothing_is_left(job: &Job) -> Tried {
    let gone = run::poll(STEP, || run::marked(&job.mark).is_empty().then_some(()));
    gone.ok_or_else(|| format!("processes are left: {:?}", run::marked(&job.mark)))
}
