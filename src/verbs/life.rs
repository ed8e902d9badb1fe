//! `wayfarer suspend`, `continue`, `vacate`, `hold`, `release`, `remove`: what is asked of a job's starter.

use super::queue::{self, Waiting};
use crate::args::{self, Continue, ImageRate, Log, Migrate, Release, Remove, Suspend, Vacate};
use crate::ckpt_server;
use crate::jobs::{Job, JobError, JobStore, Life, LifeRecord, ProcessName, process};
use crate::life::{Ask, EVENTS, ask, idle};
use crate::output;
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use crate::sys;
use crate::target;
use nix::unistd::Pid;
use starter::life::{Hold, State};
use std::time::Duration;

/// Between two looks whether a starter has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Lets the job stand still.
pub(crate) fn suspend(store: &JobStore, arguments: &Suspend) -> Outcome {
    asked(store, &arguments.job, Ask::Suspend {}).map(|_| Exit::Done)
}

/// Lets it go on.
pub(crate) fn go_on(store: &JobStore, arguments: &Continue) -> Outcome {
    asked(store, &arguments.job, Ask::Continue {}).map(|_| Exit::Done)
}

/// Has it leave.
pub(crate) fn vacate(store: &JobStore, arguments: &Vacate) -> Outcome {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let what = match arguments.latest {
        true => Ask::VacateLatest {
            at_any_price: false,
        },
        false => Ask::Vacate {
            within_ms: arguments.within.map(ms),
            insists: false,
        },
    };
    left(&asked(store, &arguments.job, what)?)
}

/// Has it go on on another machine; returns when it runs there.
pub(crate) fn migrate(store: &JobStore, arguments: &Migrate) -> Outcome {
    let (name, to) = (&arguments.job, &arguments.to);
    let state = asked(store, name, Ask::Migrate { to: to.clone() })?;
    let job = target::named(store, name)?;
    match job.life.as_ref().and_then(|life| life.on.as_ref()) {
        Some(on) if on != to => {
            let message = format!("job {name} has left, and it goes on on {on}, not on {to}");
            Err(Failure::new(Exit::Failed, message).advise(format!("wayfarer log {name}")))
        }
        _ => left(&state),
    }
}

/// Has its starter make an image.
pub(crate) fn checkpoint(store: &JobStore, name: &str) -> Outcome<()> {
    asked(store, name, Ask::Checkpoint {}).map(drop)
}

/// Has its starter give up the image that it is making.
pub(crate) fn abort(store: &JobStore, name: &str) -> Outcome {
    asked(store, name, Ask::Abort {}).map(|_| Exit::Done)
}

/// Says how fast its images go.
pub(crate) fn image_rate(store: &JobStore, arguments: &ImageRate) -> Outcome {
    let bytes_per_second = arguments.rate.0;
    let ask = Ask::ImageRate { bytes_per_second };
    asked(store, &arguments.job, ask).map(|_| Exit::Done)
}

/// Has it leave, until it is released.
pub(crate) fn hold(store: &JobStore, arguments: &args::Hold) -> Outcome {
    if let Some(waiting) = Waiting::find(store, &arguments.job) {
        return waiting.hold(&arguments.reason);
    }
    let job = target::named(store, &arguments.job)?;
    let hold = Hold::new(arguments.reason.clone(), Hold::BY_USER);
    if let (Life::Ended, Some(life)) = (job.life(), &job.life) {
        life.check_not_over(&job.record.name)?;
        idle::hold(&job, life, &hold)?;
        return Ok(Exit::Done);
    }
    let ask = Ask::hold(hold, false);
    asked(store, &arguments.job, ask).map(|_| Exit::Done)
}

/// Lets a held job go on when it is started again.
pub(crate) fn release(store: &JobStore, arguments: &Release) -> Outcome {
    if let Some(waiting) = Waiting::find(store, &arguments.job) {
        return waiting.release();
    }
    let job = target::named(store, &arguments.job)?;
    let name = &job.record.name;
    match job.life.as_ref().filter(|_| job.life() == Life::Ended) {
        Some(life) if life.state() == Some(State::Held) => {
            idle::release(&job, life, "by its owner")?;
            Ok(Exit::Done)
        }
        found => {
            let state = found.map_or("not held", |life| &life.state);
            let message = format!("job {name} is {state}, expected Held");
            Err(Failure::new(Exit::Failed, message))
        }
    }
}

/// Prints what has happened to it.
pub(crate) fn log(store: &JobStore, arguments: &Log) -> Outcome {
    if let Some(waiting) = Waiting::find(store, &arguments.job) {
        return waiting.log();
    }
    let job = target::named(store, &arguments.job)?;
    let path = job.dir.join(EVENTS);
    match std::fs::read(&path) {
        Ok(text) => output::print_bytes(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("job {} has no event log: it had no starter", arguments.job);
            return Err(Failure::new(Exit::Failed, message));
        }
        Err(error) => return Err(error).context(|| crate::raw::shown_path(&path)),
    }
    Ok(Exit::Done)
}

/// Kills it, and removes what is known of it.
pub(crate) fn remove(store: &JobStore, arguments: &Remove) -> Outcome {
    // Else the startd would begin it again.
    let was_queued = queue::leave(store, &arguments.job)?;
    if was_queued && matches!(store.find(&arguments.job), Err(JobError::Missing { .. })) {
        output::print(&format!("removed {} (0 images)\n", arguments.job))?;
        return Ok(Exit::Done);
    }
    let mut job = target::named(store, &arguments.job)?;
    if job.life() == Life::Living {
        say_if_out_of_reach(&job);
        // The startd has asked it before us.
        if !was_queued {
            asked(store, &arguments.job, Ask::Kill {})?;
        }
        let starter = job.life.as_ref().map(|life| life.starter);
        // It may still tell somebody, who is to find what is known of the job.
        while starter.is_some_and(ProcessName::is_alive) {
            std::thread::sleep(LOOK_AGAIN);
        }
        job = target::named(store, &arguments.job)?;
    }
    let kept = ckpt_server::Kept::of(&job);
    let images = store.remove(&job)?;
    if let Some(kept) = kept {
        kept.forget(store);
    }
    output::print(&format!("removed {} ({images} images)\n", arguments.job))?;
    Ok(Exit::Done)
}

/// Its copy on another machine does not hear it now.
fn say_if_out_of_reach(job: &Job) {
    let life = job.life.as_ref();
    let is_cut = |life: &&LifeRecord| life.state() == Some(State::Reconnecting);
    if let Some(host) = life.filter(is_cut).and_then(|life| life.on.as_ref()) {
        let name = &job.record.name;
        tell(&format!(
            "{host} is not reached: the copy of job {name} there ends as soon as it is, or with its lease"
        ));
    }
}

/// The last signal that is not a real-time one.
const LAST_NAMED: i32 = 31;

/// Kills a job that has a starter; it does not go on.
pub(crate) fn kill(job: &Job) -> Outcome<()> {
    told(job, Ask::Kill {})
}

/// Has a signal sent to the first process of a job that runs on another machine, or done what that means.
pub(crate) fn signal_elsewhere(job: &Job, number: i32) -> Outcome<()> {
    if number > LAST_NAMED {
        let name = &job.record.name;
        let message = format!(
            "job {name} runs elsewhere, where signal {number} cannot be sent: expected 1 to {LAST_NAMED}"
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    let what = match number {
        libc::SIGKILL => Ask::Kill {},
        libc::SIGSTOP => Ask::Suspend {},
        libc::SIGCONT => Ask::Continue {},
        number => Ask::Signal { number },
    };
    told(job, what)
}

fn told(job: &Job, what: Ask) -> Outcome<()> {
    let life = job.life.as_ref();
    let reply = ask(&job.dir, what, || life.into_iter().for_each(wake))?;
    match reply.reason {
        None => Ok(()),
        Some(reason) => Err(Failure::new(Exit::Failed, reason)),
    }
}

/// Lets a starter go on that its terminal has stopped; its job stays as it is.
fn wake(life: &LifeRecord) {
    let starter = life.starter.pid;
    if process::read_stat(starter).is_ok_and(|stat| stat.state == 'T') {
        let _ = sys::send_signal(Pid::from_raw(starter), libc::SIGCONT);
    }
}

/// Asks the starter of the job of this name; the state behind that.
fn asked(store: &JobStore, name: &str, what: Ask) -> Outcome<String> {
    let job = target::named(store, name)?;
    target::check_living(&job)?;
    let Some(life) = job.life.as_ref().filter(|life| life.has_starter()) else {
        return Err(without_starter(&job, &what));
    };
    let reply = ask(&job.dir, what, || wake(life))?;
    match reply.reason {
        None => Ok(reply.state),
        Some(reason) => Err(Failure::new(Exit::Failed, format!("job {name}: {reason}"))),
    }
}

fn without_starter(job: &Job, what: &Ask) -> Failure {
    let name = &job.record.name;
    let failure = Failure::new(Exit::Failed, format!("job {name} has no starter"));
    match what {
        Ask::Suspend {} => failure.advise(format!("wayfarer kill -s STOP {name}")),
        Ask::Continue {} => failure.advise(format!("wayfarer kill -s CONT {name}")),
        Ask::Vacate { .. } | Ask::Hold { .. } => {
            failure.advise(format!("wayfarer checkpoint {name} --then kill"))
        }
        Ask::Checkpoint {} => failure.advise(format!("wayfarer checkpoint {name}")),
        Ask::Abort {} | Ask::ImageRate { .. } => {
            failure.advise("its images are made by whoever asks for them, with --image-rate")
        }
        Ask::Migrate { .. } => {
            failure.advise("wayfarer submit --on HOST --every TIME: such jobs move")
        }
        Ask::VacateLatest { .. } | Ask::Kill {} | Ask::Signal { .. } => {
            failure.advise(format!("wayfarer kill -s KILL {name}"))
        }
    }
}

/// Says from what it will go on.
fn left(state: &str) -> Outcome {
    output::print(&format!("{state}\n"))?;
    Ok(Exit::Done)
}
