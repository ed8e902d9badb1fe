//! What a starter is told by signals: Condor's to its starter, a batch system's, the terminal's.
//!
//! | signal | sent by a process | by the terminal |
//! |---|---|---|
//! | TERM, TSTP | vacate | the job has it, too |
//! | INT | leave at once, with the last image | |
//! | USR1, CONT | suspend, continue | |
//! | USR2 | checkpoint | |
//! | others | passed on to the job | |

use crate::report::Outcome;
use crate::sys;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use starter::life::Command;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Signals, read from a descriptor; none comes otherwise.
#[derive(Debug)]
pub(super) struct Signals {
    fd: SignalFd,
    /// What was blocked before.
    mask: SigSet,
    /// Ends of children were ignored before.
    ignored_children: bool,
}

/// What one of them means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A child of ours has changed.
    Child,
    Command(Command),
    /// It is the job's.
    PassOn(i32),
    Nothing,
}

impl Meaning {
    /// Whether somebody wants us to be gone.
    pub(super) fn is_to_leave(&self) -> bool {
        let Meaning::Command(command) = self else {
            return false;
        };
        matches!(
            command,
            Command::Vacate { .. } | Command::VacateLatest { .. }
        )
    }
}

impl Signals {
    pub(super) fn open() -> Outcome<Self> {
        let mut all = SigSet::all();
        // What we do wrong ourselves ends us.
        for fault in [
            nix::sys::signal::Signal::SIGSEGV,
            nix::sys::signal::Signal::SIGBUS,
            nix::sys::signal::Signal::SIGILL,
            nix::sys::signal::Signal::SIGFPE,
            nix::sys::signal::Signal::SIGABRT,
        ] {
            all.remove(fault);
        }
        let mut mask = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&all), Some(&mut mask))?;
        // Else nobody would hear of them.
        let ignored_children = sys::ignore_children(false)?;
        let fd = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Signals {
            fd,
            mask,
            ignored_children,
        })
    }

    /// In a process of its own: signals are as they were.
    pub(super) fn give_back(&self) -> nix::Result<()> {
        if self.ignored_children {
            sys::ignore_children(true)?;
        }
        self.mask.thread_set_mask()
    }

    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next that has come.
    pub(super) fn next(&mut self, vacate_within: Option<Duration>) -> Option<Meaning> {
        let info = self.fd.read_signal().ok()??;
        let signal = info.ssi_signo.cast_signed();
        let by_kernel = info.ssi_code == libc::SI_KERNEL;
        Some(meaning(signal, by_kernel, vacate_within))
    }
}

fn meaning(signal: i32, by_kernel: bool, vacate_within: Option<Duration>) -> Meaning {
    let vacate = Command::Vacate {
        within: vacate_within,
        insists: true,
    };
    match signal {
        libc::SIGCHLD => Meaning::Child,
        // The whole group of the terminal has these, and the job is of it.
        libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGWINCH if by_kernel => {
            Meaning::Nothing
        }
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU if by_kernel => Meaning::Nothing,
        libc::SIGTERM | libc::SIGTSTP => Meaning::Command(vacate),
        libc::SIGINT => Meaning::Command(Command::VacateLatest { at_any_price: true }),
        libc::SIGUSR1 => Meaning::Command(Command::Suspend),
        libc::SIGUSR2 => Meaning::Command(Command::Checkpoint),
        libc::SIGCONT => Meaning::Command(Command::Continue),
        libc::SIGPIPE | libc::SIGXFSZ => Meaning::Nothing,
        other => Meaning::PassOn(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_jobs_and_signals_are_commands() {
        let by = |signal, kernel| meaning(signal, kernel, Some(Duration::from_secs(7)));
        let vacate = Command::Vacate {
            within: Some(Duration::from_secs(7)),
            insists: true,
        };
        assert_eq!(by(libc::SIGTERM, false), Meaning::Command(vacate.clone()));
        assert_eq!(by(libc::SIGTSTP, false), Meaning::Command(vacate));
        assert_eq!(by(libc::SIGTSTP, true), Meaning::Nothing);
        assert_eq!(by(libc::SIGINT, true), Meaning::Nothing);
        let latest = Command::VacateLatest { at_any_price: true };
        assert_eq!(by(libc::SIGINT, false), Meaning::Command(latest));
        assert_eq!(by(libc::SIGHUP, false), Meaning::PassOn(libc::SIGHUP));
    }
}
