//! What a starter has to say: always to `jobs/NAME/starter.log`, and aloud where that harms nothing.
//!
//! A standard error that is a regular file is the job's: it goes back with the job, and what we wrote there would be cut off at each
//! restart, or stand in the way of what the job writes.

use crate::report::tell;
use nix::sys::stat::{SFlag, fstat};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

pub(super) const NAME: &str = "starter.log";

#[derive(Debug)]
pub(super) struct Voice {
    aloud: bool,
}

impl Voice {
    /// Begins the log, or goes on with it. Without one it is silent there.
    pub(super) fn open(dir: &Path) -> Self {
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(dir.join(NAME));
        match log {
            Ok(log) => tracing_subscriber::fmt()
                .with_writer(Mutex::new(log))
                .with_ansi(false)
                .with_target(false)
                .init(),
            Err(error) => tell(&format!("{}: no log: {error}", crate::raw::shown_path(dir))),
        }
        let kind = fstat(std::io::stderr()).map(|stat| stat.st_mode & SFlag::S_IFMT.bits());
        Voice {
            aloud: kind != Ok(SFlag::S_IFREG.bits()),
        }
    }

    /// Something that concerns the job's owner.
    pub(super) fn say(&self, message: &str) {
        tracing::warn!("{message}");
        if self.aloud {
            tell(message);
        }
    }
}
