//! What a process writes to from one image to the next, by the kernel's own account (DESIGN §5; Linux 6.7).
//!
//! ```text
//! stopped: userfaultfd of the job (Workshop::userfaultfd) --begin--> its large memory is watched, all pages protected
//!   runs: the first write to a page lifts its protection, in the kernel
//! stopped: --end--> pages that are protected still; nothing is watched any more
//! ```
//! # What callers may rely on
//! A page that [`Watch::end`] names has not been written to since [`Watch::begin`], by whomever, and has not been replaced by another. What is not named
//! may or may not have been. When the last descriptor of a watch is closed, nothing is watched any more: a job whose watcher is killed is as it was.
//!
//! # What it does not do
//! It watches no memory that is shared or of files, and no small mappings: reading those costs nothing.

use crate::procfs::{MapsLine, ProcDir, ProcfsError, parse_maps};
use crate::sys::pagemap::{self, PRESENT, Question, SWAPPED, WATCHED, WRITTEN};
use crate::sys::userfaultfd;
use crate::tracee::HostPid;
use loader::layout::Hash;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Mappings from this length on are watched.
const LEAST: u64 = 1 << 20;

/// A process that is watched.
#[derive(Debug)]
pub struct Watch {
    userfaultfd: OwnedFd,
    /// The image that was made when it began ([`loader::layout::Header::id`]).
    image: Hash,
}

/// Why a process is not watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The kernel refused.
    #[error("what process {pid} writes cannot be watched: {what}")]
    Refused {
        /// Which.
        pid: i32,
        /// What was asked of the kernel.
        what: &'static str,
        /// What it said: `EINVAL`, `ENOTTY` before Linux 6.7.
        #[source]
        source: io::Error,
    },
    /// Its mappings could not be read.
    #[error(transparent)]
    Maps(#[from] ProcfsError),
}

impl Watch {
    /// One that another process of ours has begun, and when it did made this image.
    #[must_use]
    pub fn taken_over(userfaultfd: OwnedFd, image: Hash) -> Self {
        Watch { userfaultfd, image }
    }

    /// Watches a stopped process by its userfaultfd, to which nothing was said before. The image that is made now is to be named by
    /// [`Watch::of`].
    ///
    /// # Errors
    /// [`WatchError`]; nothing is watched.
    pub fn begin(userfaultfd: OwnedFd, pid: HostPid) -> Result<Self, WatchError> {
        let refused = |what| {
            move |source| WatchError::Refused {
                pid: pid.0,
                what,
                source,
            }
        };
        let watch = Watch {
            userfaultfd,
            image: [0; 32],
        };
        userfaultfd::begin(watch.as_fd()).map_err(refused("UFFD_FEATURE_WP_ASYNC"))?;
        let pagemap = open(pid).map_err(refused("its page tables"))?;
        for range in ranges(pid, LEAST)? {
            let registered = userfaultfd::register(watch.as_fd(), &range);
            if !is_watched(registered).map_err(refused("UFFDIO_REGISTER"))? {
                continue;
            }
            // Only what is there: protecting what is not would take page tables.
            let present = Question {
                any_of: PRESENT | SWAPPED,
                protect: true,
                ..Question::default()
            };
            pagemap::ask(&pagemap, range, present, &mut |_| {})
                .map_err(refused("PAGEMAP_SCAN that protects"))?;
        }
        Ok(watch)
    }

    /// The same, known to have begun with this image.
    #[must_use]
    pub fn of(self, image: Hash) -> Self {
        Watch { image, ..self }
    }

    /// The image that was made when it began.
    #[must_use]
    pub fn image(&self) -> Hash {
        self.image
    }

    /// What a stopped process has not written to since it is watched, in order; it is not watched any more.
    ///
    /// # Errors
    /// [`WatchError`]: nothing is known, and parts may be watched until the last descriptor of this watch is closed.
    pub fn end(&self, pid: HostPid) -> Result<Vec<Range<u64>>, WatchError> {
        let refused = |what| {
            move |source| WatchError::Refused {
                pid: pid.0,
                what,
                source,
            }
        };
        let pagemap = open(pid).map_err(refused("its page tables"))?;
        // Parts of what was watched may be small by now.
        let ranges = ranges(pid, 0)?;
        let mut unwritten: Vec<Range<u64>> = vec![];
        let all = ranges.first().map_or(0, |range| range.start)
            ..ranges.last().map_or(0, |range| range.end);
        let question = Question {
            all_of: WATCHED,
            any_of: PRESENT | SWAPPED,
            none_of: WRITTEN,
            protect: false,
        };
        let asked = pagemap::ask(
            &pagemap,
            all,
            question,
            &mut |found| match unwritten.last_mut() {
                Some(last) if last.end == found.start => last.end = found.end,
                _ => unwritten.push(found),
            },
        );
        for range in &ranges {
            let ended = userfaultfd::unregister(self.as_fd(), range);
            is_watched(ended).map_err(refused("UFFDIO_UNREGISTER"))?;
        }
        asked.map_err(refused("PAGEMAP_SCAN"))?;
        Ok(unwritten)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.userfaultfd.as_fd()
    }
}

fn open(pid: HostPid) -> io::Result<File> {
    File::open(format!("/proc/{}/pagemap", pid.0))
}

/// Whether a mapping can be watched: not one that the kernel may empty at any time (`EINVAL`; MAP_DROPPABLE), nor one that the program watches
/// itself (`EBUSY`).
fn is_watched(asked: io::Result<()>) -> io::Result<bool> {
    match asked.as_ref().map_err(io::Error::raw_os_error) {
        Ok(()) => Ok(true),
        Err(Some(libc::EINVAL | libc::EBUSY)) => Ok(false),
        Err(_) => asked.map(|()| false),
    }
}

/// Private anonymous mappings of at least this length.
fn ranges(pid: HostPid, least: u64) -> Result<Vec<Range<u64>>, ProcfsError> {
    let lines = ProcDir::of(pid.0).parsed("maps", parse_maps)?;
    let is_ours = |line: &&MapsLine| {
        let name = line.name.as_slice();
        let is_anonymous = name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon:");
        !line.shared && line.inode == 0 && is_anonymous && line.end - line.start >= least
    };
    let ours = lines.iter().filter(is_ours);
    Ok(ours.map(|line| line.start..line.end).collect())
}
