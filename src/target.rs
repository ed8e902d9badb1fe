//! What `JOB|PID` on the command line means: a living job, or any process.

use crate::jobs::{Job, JobError, JobProcesses, JobStore, Life, process};
use crate::report::{Exit, Explain, Failure, Outcome};

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

/// Finds the job or process of this name or number.
///
/// A number is a process; if it belongs to a job, the job is meant only when it is the
/// job's first process or its supervisor.
pub(crate) fn find(store: &JobStore, text: &str) -> Outcome<Target> {
    match text.parse::<i32>() {
        Ok(pid) => find_process(store, pid),
        Err(_) => find_job(store.find(text).map_err(missing)?),
    }
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

fn find_job(job: Job) -> Outcome<Target> {
    let name = &job.record.name;
    match job.life() {
        Life::Living => {}
        Life::Ended => {
            let failure = Failure::new(Exit::Failed, format!("job {name} has ended"));
            return Err(match job.images()?.last() {
                Some(_) => failure.advise(format!("wayfarer restart {name}")),
                None => failure,
            });
        }
        Life::Elsewhere { host } => {
            let message = format!("job {name} is on host {host}, not on this one");
            return Err(Failure::new(Exit::Failed, message).advise("the same command there"));
        }
    }
    let processes = job.processes();
    let Some(pid) = processes.root else {
        let message = format!("job {name} has no process: it is being started or is ending");
        return Err(Failure::new(Exit::Failed, message).advise("again in a moment"));
    };
    let job = Some(job);
    Ok(Target {
        pid,
        job,
        processes,
    })
}

fn find_process(store: &JobStore, pid: i32) -> Outcome<Target> {
    let stat = match process::read_stat(pid) {
        Ok(stat) => stat,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::new(Exit::Usage, format!("no process {pid}")));
        }
        Err(error) => return Err(error).context(|| format!("cannot look at process {pid}")),
    };
    // A directory of jobs that cannot be read says nothing about a process.
    if let Ok(Some(job)) = store.find_by_pid(pid) {
        let processes = job.processes();
        let is_supervisor = job.record.supervisor == stat.name || processes.init == Some(pid);
        if is_supervisor || processes.root == Some(pid) {
            return find_job(job);
        }
    }
    Ok(Target {
        pid,
        job: None,
        processes: JobProcesses {
            init: None,
            root: Some(pid),
            all: vec![pid],
        },
    })
}
