//! What is asked of a machine, and why there may be no answer.

use std::io;
use std::path::{Path, PathBuf};

/// Files that say what a machine is and does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Document {
    /// `/proc/loadavg`.
    LoadAverage,
    /// `/proc/meminfo`.
    Memory,
    /// `/proc/cpuinfo`.
    Processors,
    /// `/proc/interrupts`.
    Interrupts,
    /// Who is logged in, utmp(5).
    Logins,
    /// `/etc/issue`.
    Issue,
    /// os-release(5).
    OsRelease,
    /// `/etc/hosts`.
    Hosts,
}

impl Document {
    /// Where it is.
    #[must_use]
    pub fn path(self) -> &'static Path {
        Path::new(match self {
            Document::LoadAverage => "/proc/loadavg",
            Document::Memory => "/proc/meminfo",
            Document::Processors => "/proc/cpuinfo",
            Document::Interrupts => "/proc/interrupts",
            Document::Logins => "/run/utmp",
            Document::Issue => "/etc/issue",
            Document::OsRelease => "/etc/os-release",
            Document::Hosts => "/etc/hosts",
        })
    }
}

/// uname(2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// `Linux`.
    pub sysname: String,
    /// The machine's own name, often without a domain.
    pub nodename: String,
    /// Of the kernel.
    pub release: String,
    /// Of the kernel's build.
    pub version: String,
    /// `x86_64`.
    pub machine: String,
}

/// What a clock on the wall shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalTime {
    /// Days since Sunday: 0 to 6.
    pub day: i64,
    /// Minutes since midnight: 0 to 1439.
    pub minute: i64,
}

/// A machine that can be asked. All moments are seconds since 1970.
pub trait Source {
    /// The bytes of a file.
    ///
    /// # Errors
    /// Those of reading it.
    fn read(&self, document: Document) -> io::Result<Vec<u8>>;

    /// `/proc/PID/stat`.
    ///
    /// # Errors
    /// Those of reading it; a process that is gone has none.
    fn process(&self, pid: i32) -> io::Result<Vec<u8>>;

    /// The clock.
    fn now(&self) -> i64;

    /// What clocks on the walls of this machine's place show at a moment.
    fn local_time(&self, at: i64) -> LocalTime;

    /// uname(2).
    fn system(&self) -> System;

    /// All terminals there are: consoles, serial lines, pseudo-terminals.
    fn terminals(&self) -> Vec<PathBuf>;

    /// When a terminal or another device was last read from. None if it is not there, or is no device that people use.
    fn used_at(&self, device: &Path) -> Option<i64>;

    /// When a file was last written or touched.
    fn touched_at(&self, file: &Path) -> Option<i64>;

    /// Whether an input device has had an event since this was asked last. None where none can be read.
    fn had_input(&self) -> Option<bool>;

    /// How much memory the control group of this process may have, in bytes; none without a limit.
    fn memory_limit(&self) -> Option<u64>;

    /// KiB that an ordinary user may write into a folder's file system.
    ///
    /// # Errors
    /// Those of statvfs(3).
    fn free_disk_kib(&self, folder: &Path) -> io::Result<u64>;
}

/// Why a machine could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// A file that every machine has could not be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What a file says has no meaning.
    #[error("{} does not say {expected}", path.display())]
    Strange {
        /// Which.
        path: PathBuf,
        /// What is missing.
        expected: &'static str,
    },
    /// The file system of the jobs' folder cannot be asked.
    #[error("the free room in {} cannot be found out", folder.display())]
    Disk {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A file that must be there, and what `parse` makes of it.
pub(super) fn understood<T>(
    source: &dyn Source,
    document: Document,
    expected: &'static str,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, MeasureError> {
    let path = || document.path().to_owned();
    let bytes = source
        .read(document)
        .map_err(|source| MeasureError::Unreadable {
            path: path(),
            source,
        })?;
    parse(&bytes).ok_or_else(|| MeasureError::Strange {
        path: path(),
        expected,
    })
}
