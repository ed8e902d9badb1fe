//! What can be asked of who gives jobs to this machine (`wayfarer startd drain`, `off` …), and where it keeps things.

use crate::life::Question;
use crate::report::{Explain, Outcome};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long others may look whether there is one.
const OTHERS_LOOK_FOR: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(crate) enum Ask {
    /// The record is to be true.
    Status {},
    /// There may be a new job.
    Submitted {},
    Remove {
        job: String,
    },
    Release {
        job: String,
    },
    Drain {
        how: How,
        resumes: bool,
    },
    CancelDrain {},
    Off {
        how: How,
    },
    Vacate {
        slot: Option<String>,
        fast: bool,
    },
    Checkpoint {
        slot: Option<String>,
    },
    Reconfig {},
}

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum How {
    Peaceful,
    Graceful,
    Quick,
    Fast,
}

impl Question for Ask {
    const WHO: &'static str = "startd";
}

/// Where things are, beneath the directory of jobs:
///
/// ```text
/// startd.json     how slots and queue are (record.rs)
/// startd/control  where it listens; startd/lock  held while it is there
/// spool/NAME.job  a job: an ad of the old syntax (job_file.rs)
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) record: PathBuf,
    pub(crate) own: PathBuf,
    pub(crate) spool: PathBuf,
}

impl Places {
    /// In this directory of jobs.
    pub(crate) fn of(dir: &Path) -> Self {
        Places {
            record: dir.join("startd.json"),
            own: dir.join("startd"),
            spool: dir.join("spool"),
        }
    }

    /// Makes them, for nobody else.
    pub(crate) fn make(&self) -> Outcome<()> {
        for dir in [&self.own, &self.spool] {
            let made = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir);
            made.context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(())
    }

    /// The lock of the one that is there; none: there is one. Whoever only looks whether there is one has it for a moment.
    pub(crate) fn lock(&self) -> Outcome<Option<Flock<File>>> {
        let end = Instant::now() + OTHERS_LOOK_FOR;
        loop {
            match self.lock_now(FlockArg::LockExclusiveNonblock)? {
                None if Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
                locked => return Ok(locked),
            }
        }
    }

    fn lock_now(&self, how: FlockArg) -> Outcome<Option<Flock<File>>> {
        let path = self.own.join("lock");
        let describe = || format!("cannot lock {}", path.display());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .context(describe)?;
        match Flock::lock(file, how) {
            Ok(held) => Ok(Some(held)),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(errno).context(describe),
        }
    }

    /// Whether one is there.
    pub(crate) fn is_watched(&self) -> bool {
        self.own.is_dir() && matches!(self.lock_now(FlockArg::LockSharedNonblock), Ok(None))
    }
}
