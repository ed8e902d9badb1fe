//! What can go wrong, and what the job is told of it.

use crate::{Difference, Epoch};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// The journal could not do what it should. Nothing is half done then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A system call failed.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file of the journal is not what it should be.
    #[error("{}: {what}: found {found}, expected {expected}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which part of it.
        what: &'static str,
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
    /// The journal was written by another version.
    #[error("{}: journal format version {found}, expected {expected}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version there.
        found: u32,
        /// The version that is read.
        expected: u32,
    },
    /// Another process has it open.
    #[error("{}: the journal is in use by another process", path.display())]
    InUse {
        /// Its folder.
        path: PathBuf,
    },
    /// There is no room for the old state: the change is refused.
    #[error("the journal holds {used} bytes and may hold {most}")]
    Full {
        /// Bytes that it would hold.
        used: u64,
        /// Bytes that it may hold.
        most: u64,
    },
    /// The state at that mark is not kept.
    #[error("epoch {found} is not kept: epochs {oldest} to {newest} are")]
    NoEpoch {
        /// Which was asked for.
        found: Epoch,
        /// The oldest that is kept.
        oldest: Epoch,
        /// The one that is going on.
        newest: Epoch,
    },
    /// An undo has begun and must be finished first.
    #[error("an undo to epoch {to} was interrupted and must be finished first")]
    Undoing {
        /// Where to.
        to: Epoch,
    },
    /// Somebody else has changed files: nothing was undone.
    #[error(
        "{} changed by somebody else: {}",
        count(differences),
        list(differences)
    )]
    Differs {
        /// All of them.
        differences: Vec<Difference>,
    },
    /// Something that was there is nowhere to be found.
    #[error("{} cannot be put back: it is in none of the places where it was", path.display())]
    Lost {
        /// Its name at the mark.
        path: PathBuf,
    },
    /// A kind of change that could not be taken back.
    #[error("{what} cannot be undone")]
    Unsupported {
        /// Which.
        what: &'static str,
    },
    /// An earlier write to the journal failed: no change is safe any more.
    #[error("the journal failed earlier, and takes no more changes")]
    Dead,
    /// A test let the process "die" here.
    #[error("killed at {name}")]
    Killed {
        /// The fault point.
        name: &'static str,
    },
}

impl JournalError {
    /// What the job's call is to return: EDQUOT when it may hold no more, the system's own answer, else EIO.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            JournalError::Io { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
            JournalError::Full { .. } => Errno::DQUOT,
            JournalError::Unsupported { .. } => Errno::INVAL,
            _ => Errno::IO,
        }
    }

    /// What the call itself would have said, if that is all: the name is wrong, or may not be looked at.
    #[must_use]
    pub fn of_the_call(&self) -> Option<Errno> {
        match self {
            JournalError::Io {
                what: "look at",
                source,
                ..
            } => Errno::from_io_error(source).filter(|errno| *errno != Errno::IO),
            _ => None,
        }
    }

    pub(crate) fn io(
        what: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        JournalError::Io {
            what,
            path: path.as_ref().to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn damaged(
        path: impl AsRef<Path>,
        what: &'static str,
        found: impl ToString,
        expected: impl ToString,
    ) -> Self {
        JournalError::Damaged {
            path: path.as_ref().to_owned(),
            what,
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}

fn count(differences: &[Difference]) -> String {
    match differences.len() {
        1 => "a file was".to_owned(),
        many => format!("{many} files were"),
    }
}

fn list(differences: &[Difference]) -> String {
    let texts: Vec<String> = differences
        .iter()
        .take(5)
        .map(ToString::to_string)
        .collect();
    let more = if differences.len() > 5 { ", ..." } else { "" };
    texts.join(", ") + more
}
