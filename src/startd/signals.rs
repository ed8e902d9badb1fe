//! What a startd is told by signals: TERM graceful, INT and QUIT fast, HUP the configuration again.

use super::ask::{Ask, How};
use crate::report::Outcome;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};

/// Signals, read from a descriptor.
#[derive(Debug)]
pub(super) struct Signals {
    fd: SignalFd,
    /// What was blocked before, and is in what we start.
    pub(super) mask: SigSet,
}

/// What one of them means.
pub(super) enum Meaning {
    /// A child of ours has changed.
    Child,
    Asked(Ask),
}

impl Signals {
    pub(super) fn open() -> Outcome<Self> {
        let mut ours = SigSet::empty();
        for signal in [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGHUP,
            Signal::SIGCHLD,
        ] {
            ours.add(signal);
        }
        let mut mask = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&ours), Some(&mut mask))?;
        // Else nobody would hear of them.
        crate::sys::ignore_children(false)?;
        let fd = SignalFd::with_flags(&ours, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Signals { fd, mask })
    }

    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next that has come.
    pub(super) fn next(&self) -> Option<Meaning> {
        let info = self.fd.read_signal().ok()??;
        Some(match info.ssi_signo.cast_signed() {
            libc::SIGCHLD => Meaning::Child,
            libc::SIGHUP => Meaning::Asked(Ask::Reconfig {}),
            libc::SIGTERM => Meaning::Asked(Ask::Off { how: How::Graceful }),
            _ => Meaning::Asked(Ask::Off { how: How::Fast }),
        })
    }
}
