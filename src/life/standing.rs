//! The processes of a job on this machine: stopped, let go, killed, all of them.

use super::copy::kill;
use crate::jobs::process;
use crate::sys;
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// How long those that are stopped are waited for: one that the kernel works for stops behind that.
const STANDS_WITHIN: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Does to the job under this supervisor what the signal is for; whether there is anything else to be done than to send it.
pub(crate) fn heed(supervisor: Pid, signal: i32) -> bool {
    match signal {
        libc::SIGSTOP => stop_job(supervisor),
        libc::SIGCONT => let_job_go(supervisor),
        libc::SIGKILL => return kill_job(supervisor),
        _ => return false,
    }
    true
}

/// Kills it; whether there was one.
pub(super) fn kill_job(supervisor: Pid) -> bool {
    let found = process::find_job(supervisor.as_raw());
    let first = found.init.or(found.root);
    first.into_iter().for_each(|pid| kill(Pid::from_raw(pid)));
    first.is_some()
}

pub(super) fn stop_job(supervisor: Pid) {
    // Who is not stopped yet may begin others, or end while they are looked for, which takes its children out of sight for once.
    let (mut stopped, mut in_vain) = (vec![], 0);
    while in_vain < 2 {
        let found = process::find_job(supervisor.as_raw()).all.into_iter();
        let new: Vec<i32> = found.filter(|pid| !stopped.contains(pid)).collect();
        in_vain = if new.is_empty() { in_vain + 1 } else { 0 };
        for pid in new {
            let _ = sys::send_signal(Pid::from_raw(pid), libc::SIGSTOP);
            stopped.push(pid);
        }
    }
    // A word to go on may come next, and is for those that stand still: a stop that is behind it would be for ever.
    let until = Instant::now() + STANDS_WITHIN;
    let runs =
        |pid: &i32| process::state(*pid).is_ok_and(|state| !matches!(state, 'T' | 't' | 'Z' | 'X'));
    while stopped.iter().any(runs) && Instant::now() < until {
        std::thread::sleep(LOOK_AGAIN);
    }
}

pub(super) fn let_job_go(supervisor: Pid) {
    let found = process::find_job(supervisor.as_raw());
    let standing: Vec<i32> = found
        .all
        .into_iter()
        .filter(|pid| is_to_stop(*pid))
        .collect();
    // It passes the signal on to a job that runs.
    if standing.is_empty() && !is_to_stop(supervisor.as_raw()) {
        return;
    }
    for pid in standing.into_iter().rev() {
        let _ = sys::send_signal(Pid::from_raw(pid), libc::SIGCONT);
    }
    let _ = sys::send_signal(supervisor, libc::SIGCONT);
}

/// Whether it stands still, or will when whoever traces it lets it go: the stop that it was sent would come behind our word to go on.
fn is_to_stop(pid: i32) -> bool {
    // In this order: whichever of its threads takes the stop meanwhile stands still then, before the others do.
    process::has_pending(pid, libc::SIGSTOP)
        || process::threads(pid).into_iter().any(|thread| {
            process::read_stat(thread).is_ok_and(|stat| matches!(stat.state, 'T' | 't'))
        })
}
