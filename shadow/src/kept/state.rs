//! Where a shadow keeps what it is to know when it is started again: its token, and a log for each session.
//!
//! ```text
//! DIR/lock             locked (flock) by the shadow that uses it
//!     token            proves that a process belongs to a job of this shadow
//!     sessions/ID/log  a session
//! ```
// These are no files of a job's.
#![allow(clippy::disallowed_methods)]

use super::log::Log;
use super::record::{Known, read};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::Token;

/// One that has just been killed may be ending yet.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// What a shadow knows of its jobs cannot be had or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The folder cannot be used.
    #[error("cannot keep the state of sessions in {}", path.display())]
    Unusable {
        /// The folder, or a file in it.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// By another shadow.
    #[error("{} is in use by another shadow, expected to be the only user", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// A job began with a journal.
    #[error("sessions in {} have undo journals, and this shadow keeps none, expected --journal as it was", path.display())]
    NoJournal {
        /// The folder.
        path: PathBuf,
    },
}

/// See the module.
#[derive(Debug)]
pub struct State {
    dir: PathBuf,
    _lock: File,
}

/// A session that was kept.
pub(crate) struct KeptSession {
    pub(crate) id: u64,
    pub(crate) dir: PathBuf,
    /// Or why it cannot go on.
    pub(crate) known: Result<Known, String>,
}

impl State {
    /// In a folder, which is made if it is not there.
    ///
    /// # Errors
    /// [`StateError`]
    pub fn open(dir: &Path) -> Result<Self, StateError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |source| StateError::Unusable { path, source }
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let sessions = dir.join("sessions");
        builder.create(&sessions).map_err(unusable(&sessions))?;
        let dir = dir.canonicalize().map_err(unusable(dir))?;
        let path = dir.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(&path).map_err(unusable(&path))?;
        let began = Instant::now();
        loop {
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if began.elapsed() < ENDS_WITHIN => {
                    std::thread::sleep(PAUSE);
                }
                Err(Errno::WOULDBLOCK) => return Err(StateError::InUse { path: dir }),
                Err(errno) => return Err(unusable(&path)(errno.into())),
            }
        }
        Ok(State { dir, _lock: lock })
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The token of this shadow's jobs: the one that there was, or `new`.
    ///
    /// # Errors
    /// [`StateError::Unusable`]
    pub fn token(&self, new: Token) -> Result<Token, StateError> {
        let path = self.dir.join("token");
        if let Ok(bytes) = fs::read(&path)
            && let Ok(token) = Token::try_from(bytes)
        {
            return Ok(token);
        }
        // Whole or not there.
        let written = (|| {
            let beside = self.dir.join("token.new");
            let mut options = OpenOptions::new();
            options.create(true).write(true).truncate(true).mode(0o600);
            options.open(&beside)?.write_all(&new)?;
            fs::rename(beside, &path)
        })();
        written.map_err(|source| StateError::Unusable { path, source })?;
        Ok(new)
    }

    fn session_dir(&self, id: u64) -> PathBuf {
        self.dir.join("sessions").join(format!("{id:016x}"))
    }

    /// A new session, whose number was never used before.
    pub(super) fn begin(&self, known: Known) -> io::Result<(u64, Log)> {
        let mut random = [0; 8];
        loop {
            File::open("/dev/urandom")?.read_exact(&mut random)?;
            let id = u64::from_ne_bytes(random);
            let dir = self.session_dir(id);
            if id != 0 && !dir.exists() {
                return Ok((id, Log::begin_if_possible(dir, known)));
            }
        }
    }

    /// All that are kept.
    pub(super) fn sessions(&self) -> Result<Vec<KeptSession>, StateError> {
        let path = self.dir.join("sessions");
        let entries = fs::read_dir(&path);
        let entries = entries.map_err(|source| StateError::Unusable { path, source })?;
        let mut found = vec![];
        for entry in entries.flatten() {
            let name = entry.file_name();
            let id = name
                .to_str()
                .and_then(|name| u64::from_str_radix(name, 16).ok());
            let Some(id) = id.filter(|id| *id != 0) else {
                continue;
            };
            let dir = entry.path();
            let known = match fs::read(dir.join("log")) {
                Ok(bytes) => read(&bytes),
                Err(error) => Err(error.to_string()),
            };
            found.push(KeptSession { id, dir, known });
        }
        Ok(found)
    }
}
