//! What a process writes to from one image to the next, by the kernel's own account (DESIGN §5; Linux 6.7).
//!
//! ```text
//! stopped: userfaultfd of the job (Workshop::userfaultfd) --begin--> its large memory is watched, all pages protected
//!   runs: the first write to a page lifts its protection, in the kernel
//! stopped: --end--> pages that are protected still; nothing is watched any more
//! ```
//! # What callers may rely on
//! A page that [`Watch::end`] names has not been written to since [`Watch::begin`], by whomever, and has not been replaced by another (unless somebody else
//! protects its pages by PAGEMAP_SCAN). What is not named may or may not have been. When the last descriptor of a watch is closed, nothing is watched
//! any more, and nobody has to do anything for it. What the job has mapped meanwhile beside watched memory stays a mapping of its own, and huge pages
//! of which it has written a part stay small ones (docs/VISIBLE.md).
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

/// Behind the last address that a process may have, without asking for more.
const ADDRESSES: u64 = 0x7fff_ffff_f000;
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
        for range in ranges(pid)? {
            match userfaultfd::register(watch.as_fd(), &range) {
                Ok(()) => {}
                Err(error) if cannot_be(&error) => continue,
                Err(error) => return Err(refused("UFFDIO_REGISTER")(error)),
            }
            // Only what is there: protecting what is not would take page tables.
            let present = Question {
                any_of: PRESENT | SWAPPED,
                protect: true,
                ..Question::default()
            };
            pagemap::scan(&pagemap, range, present, &mut |_| {})
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
    /// [`WatchError`]: nothing is known, and nothing watched.
    pub fn end(self, pid: HostPid) -> Result<Vec<Range<u64>>, WatchError> {
        let refused = |what| {
            move |source| WatchError::Refused {
                pid: pid.0,
                what,
                source,
            }
        };
        let pagemap = open(pid).map_err(refused("its page tables"))?;
        let mut unwritten: Vec<Range<u64>> = vec![];
        let question = Question {
            all_of: WATCHED,
            any_of: PRESENT | SWAPPED,
            none_of: WRITTEN,
            protect: false,
        };
        pagemap::scan(
            &pagemap,
            0..ADDRESSES,
            question,
            &mut |found| match unwritten.last_mut() {
                Some(last) if last.end == found.start => last.end = found.end,
                _ => unwritten.push(found),
            },
        )
        .map_err(refused("PAGEMAP_SCAN"))?;
        // With the last descriptor the kernel forgets all that is watched by it, and nothing else.
        drop(self);
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

/// A mapping that cannot be watched: the kernel may empty it at any time (`EINVAL`; MAP_DROPPABLE), or the program watches it itself (`EBUSY`).
fn cannot_be(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EBUSY))
}

/// What is worth watching.
fn ranges(pid: HostPid) -> Result<Vec<Range<u64>>, ProcfsError> {
    let lines = ProcDir::of(pid.0).parsed("maps", parse_maps)?;
    let is_ours = |line: &&MapsLine| {
        let name = line.name.as_slice();
        let is_anonymous = name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon:");
        !line.shared && line.inode == 0 && is_anonymous && line.end - line.start >= LEAST
    };
    let ours = lines.iter().filter(is_ours);
    Ok(ours.map(|line| line.start..line.end).collect())
}
