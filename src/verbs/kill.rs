//! `wayfarer kill JOB|PID`.

use crate::args::{Kill, signal_name};
use crate::jobs::{JobStore, process};
use crate::remote::gate;
use crate::report::{Exit, Failure, Outcome};
use crate::target::{self, Purpose};
use nix::errno::Errno;

/// Sends the signal to the job's first process.
pub(crate) fn kill(store: &JobStore, arguments: &Kill) -> Outcome {
    if let Ok(job) = store.find(&arguments.target)
        && job.runs_on().is_some()
        && arguments.signal != 0
    {
        super::life::signal_elsewhere(&job, arguments.signal)?;
        return Ok(Exit::Done);
    }
    let target = target::find(store, &arguments.target, Purpose::Signal)?;
    let pid = nix::unistd::Pid::from_raw(target.pid);
    if let (libc::SIGKILL, Some(job)) = (arguments.signal, &target.job)
        && job.has_starter()
    {
        // Or it would go on from its last image.
        super::life::kill(job)?;
        return Ok(Exit::Done);
    }
    if matches!(
        arguments.signal,
        libc::SIGHUP
            | libc::SIGINT
            | libc::SIGQUIT
            | libc::SIGTERM
            | libc::SIGUSR1
            | libc::SIGUSR2
            | libc::SIGXCPU
    ) {
        gate::is_told_to_end(target.pid);
    }
    // The supervisor stops when its job does, so that a shell notices.
    let is_stopped = |pid: i32| matches!(process::state(pid), Ok('T'));
    let supervisor = target.job.as_ref().map(|job| job.record.supervisor.pid);
    let supervisor = supervisor.filter(|supervisor| {
        arguments.signal == libc::SIGCONT && (is_stopped(target.pid) || is_stopped(*supervisor))
    });
    let sent = match arguments.signal {
        0 => nix::sys::signal::kill(pid, None),
        number => crate::sys::send_signal(pid, number),
    };
    if let Some(supervisor) = supervisor {
        // One that runs would pass it on once more.
        let _ = crate::sys::send_signal(nix::unistd::Pid::from_raw(supervisor), libc::SIGCONT);
    }
    match sent {
        Ok(()) => Ok(Exit::Done),
        Err(errno) => {
            let signal = signal_name(arguments.signal);
            let message = format!("cannot send {signal} to process {pid}: {}", errno.desc());
            let failure = Failure::new(Exit::Failed, message);
            Err(match errno {
                Errno::EPERM => failure.advise("as the owner of that process"),
                _ => failure,
            })
        }
    }
}
