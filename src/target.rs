//! What `JOB|PID` on the command line means: a living job, or any process.

use crate::jobs::{Job, JobError, JobProcesses, JobStore, Life, Outset, process};
use crate::report::{Exit, Explain, Failure, Outcome};
use ckpt_lib::procfs::living_thread;
use starter::life::State;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// A job or process that the user named.
#[derive(Debug)]
pub(crate) struct Target {
    /// The process: the job's first, or the one that was named.
    pub(crate) pid: i32,
    /// The job it belongs to.
    pub(crate) job: Option<Job>,
    /// The job's processes (of a process without a job: itself).
    pub(crate) processes: JobProcesses,
}

/// What the caller is going to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Send it a signal.
    Signal,
    /// Copy it: it has to have left the loader behind.
    Copy,
}

/// How long a job that is just being started or restarted is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Finds the job or process of this name or number.
///
/// A number is a process; if it belongs to a job, the job is meant only when it is the
/// job's first process or its supervisor, whether the job was registered or is an image that somebody
/// has executed.
pub(crate) fn find(store: &JobStore, text: &str, purpose: Purpose) -> Outcome<Target> {
    match text.parse::<i32>() {
        Ok(pid) => find_process(store, pid, purpose),
        Err(_) => find_job(store, text, purpose),
    }
}

/// The job of this name, whether it lives or not.
pub(crate) fn named(store: &JobStore, name: &str) -> Outcome<Job> {
    store.find(name).map_err(missing)
}

/// An absent job is a usage error, anything else is not.
pub(crate) fn missing(error: JobError) -> Failure {
    match error {
        JobError::Missing { .. } => {
            let advice = "wayfarer ps lists the jobs; --dir names another directory of jobs";
            let failure: Outcome<()> = Err(error).exit(Exit::Usage).advise(|| advice.to_owned());
            failure.err().unwrap_or_else(Failure::reader_gone)
        }
        other => other.into(),
    }
}

fn find_job(store: &JobStore, name: &str, purpose: Purpose) -> Outcome<Target> {
    let mut job = None;
    let (pid, processes) = wait_for_root(&format!("job {name}"), purpose, || {
        let found = named(store, name)?;
        check_living(&found)?;
        if let Some(host) = found.runs_on() {
            let message = format!("job {name} runs on {host}: its processes are not here");
            let advice = format!("wayfarer suspend, checkpoint, vacate, migrate or kill {name}");
            return Err(Failure::new(Exit::Usage, message).advise(advice));
        }
        let supervisor = found.supervisor();
        job = Some(found);
        Ok(supervisor)
    })?;
    Ok(Target {
        pid,
        job,
        processes,
    })
}

/// Waits until the job is there under its supervisor, which may be another after a while.
fn wait_for_root(
    name: &str,
    purpose: Purpose,
    mut supervisor: impl FnMut() -> Outcome<Option<i32>>,
) -> Outcome<(i32, JobProcesses)> {
    let end = Instant::now() + PATIENCE;
    loop {
        let supervisor = supervisor()?;
        let processes = supervisor.map(process::find_job).unwrap_or_default();
        let root = supervisor.zip(processes.root);
        if let Some((supervisor, pid)) = root
            && (purpose == Purpose::Signal || has_settled(supervisor, pid))
        {
            return Ok((pid, processes));
        }
        if Instant::now() > end {
            if let Some((_, pid)) = root.filter(|(supervisor, _)| has_let_go(*supervisor)) {
                // It runs, but somebody traces it all the time.
                crate::permission::check_traceable(pid)?;
            }
            let message = format!("{name} is still being started, restarted or traced");
            return Err(Failure::new(Exit::Failed, message).advise("again in a moment"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Refuses a job that lives, here or elsewhere.
pub(crate) fn check_ended(job: &Job) -> Outcome<()> {
    let name = &job.record.name;
    match job.life() {
        Life::Ended => Ok(()),
        Life::Living => Err(Failure::new(
            Exit::Failed,
            format!("job {name} is there already"),
        )),
        Life::Elsewhere { host } => {
            let message = format!("job {name} is on host {host}, not on this one");
            let failure = Failure::new(Exit::Failed, message);
            let left = job.life.as_ref().and_then(|life| life.lease_left(&job.dir));
            Err(match left {
                Some(left) => failure.advise(format!(
                    "again in {} s, if that machine is gone",
                    left.as_secs() + 1
                )),
                None => failure,
            })
        }
    }
}

/// Why nothing can be asked of a job that has no copy.
fn is_not_there(job: &Job) -> Outcome<Failure> {
    let name = &job.record.name;
    let has_image = job.images()?.last().is_some();
    let failed = |how: &str| Failure::new(Exit::Failed, format!("job {name} {how}"));
    let state = job.life.as_ref().map(|life| life.state());
    Ok(match state {
        Some(Some(State::Completed)) => failed("has ended: it is completed"),
        Some(Some(State::Removed)) => failed("has ended: it was killed by its owner"),
        Some(Some(State::Held)) => failed("has left, and is held")
            .advise(format!("wayfarer release {name}, or remove {name}")),
        // Idle, or its starter was killed.
        Some(_) if has_image || Outset::is_in(&job.dir) => {
            let failure = failed("has left, and can go on (restart JOB or run --resume)");
            match has_image {
                true => failure.advise(format!("wayfarer restart {name}")),
                false => failure,
            }
        }
        Some(_) => failed("has left, and there is no image of it"),
        None if has_image => failed("has ended").advise(format!("wayfarer restart {name}")),
        None => failed("has ended"),
    })
}

pub(crate) fn check_living(job: &Job) -> Outcome<()> {
    let name = &job.record.name;
    match job.life() {
        Life::Living => Ok(()),
        Life::Ended => Err(is_not_there(job)?),
        Life::Elsewhere { host } => {
            let message = format!("job {name} is on host {host}, not on this one");
            Err(Failure::new(Exit::Failed, message).advise("the same command there"))
        }
    }
}

/// Whether the job's own program runs. Its supervisor gives up every descriptor of the job at that
/// moment, the standard ones included (they are always open when it starts).
fn has_settled(supervisor: i32, pid: i32) -> bool {
    has_let_go(supervisor) && process::tracer(living_thread(pid)) == 0
}

fn has_let_go(supervisor: i32) -> bool {
    let stdin = format!("/proc/{supervisor}/fd/0");
    match std::fs::symlink_metadata(stdin) {
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

fn find_process(store: &JobStore, pid: i32, purpose: Purpose) -> Outcome<Target> {
    let stat = match process::read_stat(pid) {
        Ok(stat) => stat,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::new(Exit::Usage, format!("no process {pid}")));
        }
        Err(error) => return Err(error).context(|| format!("cannot look at process {pid}")),
    };
    if let Some(process) = process::process_of_thread(pid).filter(|process| *process != pid) {
        let message = format!("{pid} is a thread of process {process}, expected a process");
        return Err(Failure::new(Exit::Usage, message).advise(format!("process {process}")));
    }
    // A directory of jobs that cannot be read says nothing about a process.
    if let Ok(Some(job)) = store.find_by_pid(pid) {
        let processes = job.processes();
        let is_supervisor = job.record.supervisor == stat.name || processes.init == Some(pid);
        if is_supervisor || processes.root == Some(pid) {
            return find_job(store, &job.record.name, purpose);
        }
    }
    // A job that nobody has written down: an image that was executed.
    if let Some(supervisor) = process::supervisor_of(pid) {
        let name = format!("the job of process {pid}");
        let living = || match process::read_stat(supervisor) {
            Ok(stat) if !"ZX".contains(stat.state) => Ok(Some(supervisor)),
            _ => Err(Failure::new(Exit::Failed, format!("{name} has ended"))),
        };
        let (root, processes) = wait_for_root(&name, purpose, living)?;
        if [Some(supervisor), processes.init, processes.root].contains(&Some(pid)) {
            return Ok(Target {
                pid: root,
                job: None,
                processes,
            });
        }
    }
    Ok(Target {
        pid,
        job: None,
        processes: JobProcesses {
            init: None,
            reaper: None,
            root: Some(pid),
            all: vec![pid],
        },
    })
}
