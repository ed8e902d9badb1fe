//! What can be asked of who gives jobs to this machine (`wayfarer startd drain`, `off` …), and where it keeps things.

use crate::life::Question;
use crate::report::{Explain, Outcome};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(crate) enum Ask {
    /// The record is to be true.
    Status {},
    /// There may be a new job.
    Submitted {
        /// Who hands it in wants to know whether it is let in.
        #[serde(default)]
        job: Option<String>,
    },
    Remove {
        job: String,
    },
    Release {
        job: String,
    },
    Hold {
        job: String,
        reason: String,
    },
    Drain {
        how: How,
        resumes: bool,
        /// START meanwhile; none: as the configuration says.
        #[serde(default)]
        start: Option<String>,
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
            made.context(|| format!("cannot make {}", crate::raw::shown_path(dir)))?;
        }
        Ok(())
    }

    /// The lock of the one that is there, held as long as the file is open; none: there is one.
    pub(crate) fn lock(&self) -> Outcome<Option<File>> {
        let path = self.own.join("lock");
        let describe = || format!("cannot lock {}", crate::raw::shown_path(&path));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .context(describe)?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole())) {
            Ok(_) => Ok(Some(file)),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(errno) => Err(errno).context(describe),
        }
    }

    /// Whether one is there. Nothing is locked for that, not even for a moment: one that begins just now would take us for one.
    pub(crate) fn is_watched(&self) -> bool {
        let Ok(file) = File::open(self.own.join("lock")) else {
            return false;
        };
        let mut found = whole();
        let asked = fcntl(&file, FcntlArg::F_OFD_GETLK(&mut found));
        asked.is_ok() && i32::from(found.l_type) != libc::F_UNLCK
    }
}

/// A lock of an open file (fcntl(2), "Open file description locks"), for one alone.
fn whole() -> flock {
    #[allow(clippy::cast_possible_truncation, reason = "it is 1")]
    let l_type = libc::F_WRLCK as libc::c_short;
    #[allow(clippy::cast_possible_truncation, reason = "it is 0")]
    let l_whence = libc::SEEK_SET as libc::c_short;
    flock {
        l_type,
        l_whence,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_the_lock_and_who_looks_does_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let places = Places::of(dir.path());
        assert!(!places.is_watched());
        places.make().expect("is made");
        assert!(!places.is_watched());
        let held = places.lock().expect("can be locked").expect("is free");
        assert!(places.is_watched());
        assert!(places.lock().expect("can be looked at").is_none());
        drop(held);
        // Nobody who begins is kept off by those who look.
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| (0..2000).filter(|_| places.is_watched()).count());
            for _ in 0..500 {
                let held = places.lock().expect("can be locked");
                assert!(held.is_some(), "found a lock, expected none");
            }
            looks.join().expect("has looked");
        });
        assert!(!places.is_watched());
    }
}
