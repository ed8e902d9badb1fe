//! All that the shadow changes in files, and nothing else does (`clippy.toml` forbids the calls elsewhere).
//!
//! ```text
//! serve/ ──> Changes::... ── announce ──> journal: the old state is kept ── the change is made ── what was left is noted
//!                              `─ no journal: the change is made
//! ```
//! # What callers may rely on
//! With a journal, no change is made whose old state is not kept: if it cannot be, the job gets ENOSPC (no room), EDQUOT (its limit) or
//! EIO, and the log says of which file and why. Errors that the call itself would have had are the call's.
//!
//! # What it does not do
//! It does not ask whether something *may* be changed: that is `serve/`'s and `names/`'s.

mod attributes;
mod contents;
mod names;
mod opening;

use journal::{Change, Journal, JournalError};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use wire::Attributes;

/// How often a name is looked at anew because somebody else makes and removes it.
const TRIES: u32 = 1000;

/// Makes changes, announced to a journal if there is one.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Set before the first change, and never again.
    journal: OnceLock<Arc<Journal>>,
    /// The journal may be needed when the session has ended.
    stays: AtomicBool,
}

/// What is changed, for the log.
#[derive(Clone, Copy)]
enum About<'a> {
    Open(BorrowedFd<'a>),
    Name(BorrowedFd<'a>, &'a [u8]),
}

impl About<'_> {
    fn path(self) -> PathBuf {
        let name_of = |fd: BorrowedFd<'_>| {
            let name = rustix::fs::readlink(own_descriptor(fd), vec![]);
            name.map_or_else(
                |_| PathBuf::from("?"),
                |name| Path::new(OsStr::from_bytes(name.as_bytes())).to_owned(),
            )
        };
        match self {
            About::Open(fd) => name_of(fd),
            About::Name(folder, name) => name_of(folder).join(OsStr::from_bytes(name)),
        }
    }
}

impl Changes {
    pub(crate) fn with(journal: Arc<Journal>) -> Self {
        Changes {
            journal: OnceLock::from(journal),
            stays: AtomicBool::new(true),
        }
    }

    /// Whether somebody may want to go back by the journal when the session has ended.
    pub(crate) fn stay(&self, stays: bool) {
        self.stays.store(stays, Ordering::Relaxed);
    }

    /// Nobody will.
    pub(crate) fn is_done(&self) -> bool {
        !self.stays.load(Ordering::Relaxed)
    }

    /// Everything that is changed from now on goes through it; false if there is one already.
    pub(crate) fn go_through(&self, journal: Arc<Journal>) -> bool {
        self.journal.set(journal).is_ok()
    }

    pub(crate) fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.get()
    }

    /// The journal's own part of the job's end.
    pub(crate) fn take_journal(&mut self) -> Option<Arc<Journal>> {
        self.journal.take()
    }

    /// The names that the journal has given to a file.
    pub(crate) fn own_links(&self, of: &Attributes) -> u64 {
        let born = of.born.map(|born| journal::Stamp {
            seconds: born.seconds,
            nanoseconds: born.nanoseconds,
        });
        self.journal
            .get()
            .map_or(0, |journal| journal.own_links_of(of.device, of.inode, born))
    }

    /// Announces a change; it may be made while the answer lives, if there is no error.
    fn before<'a>(
        &'a self,
        what: &'static str,
        about: About<'_>,
        announce: impl FnOnce(&'a Journal) -> Result<Change<'a>, JournalError>,
    ) -> Result<Option<Change<'a>>, Errno> {
        let Some(journal) = self.journal.get() else {
            return Ok(None);
        };
        announce(journal)
            .map(Some)
            .map_err(|error| refused(what, about, &error))
    }

    /// A kind of change that could not be taken back.
    fn unsupported(what: &'static str, about: About<'_>) -> Errno {
        let name = about.path();
        tracing::warn!(what, name = %name.display(), "refused: it could not be undone");
        Errno::OPNOTSUPP
    }
}

/// What the job is told if its change cannot be journalled.
fn refused(what: &'static str, about: About<'_>, error: &JournalError) -> Errno {
    if let Some(errno) = error.of_the_call() {
        return errno;
    }
    let errno = match error.errno() {
        errno @ (Errno::NOSPC | Errno::DQUOT) => errno,
        _ if matches!(error, JournalError::Unsupported { .. }) => Errno::OPNOTSUPP,
        _ => Errno::IO,
    };
    let name = about.path();
    let error: &dyn std::error::Error = error;
    tracing::error!(
        error, what, name = %name.display(),
        "refused: what is there cannot be kept for an undo"
    );
    errno
}

fn own_descriptor(fd: impl AsFd) -> String {
    crate::names::own_descriptor(fd.as_fd().as_raw_fd())
}
