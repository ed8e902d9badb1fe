//! Waiting for a lock: the stream's thread is parked, other streams are served.
//!
//! ```text
//! tried --in the way--> parked --bell, or a while has passed--> tried ... --had--> Done
//!                          `--a message, or the stream's end--> EINTR
//! ```

use super::{Asked, Locks, Refusal};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wire::LockMode;

/// How long the kernel is not asked again who outside the job has a lock: from the first, twice as long each time, to the
/// last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));
/// A bell rings for all that happens in the job; this is for what we have not thought of.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One for each that is parked.
#[derive(Debug, Default)]
pub(super) struct Bells {
    all: Mutex<HashMap<u64, Arc<OwnedFd>>>,
    last: AtomicU64,
}

impl Bells {
    /// Something has become free, perhaps.
    pub(super) fn ring(&self) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for bell in all.values() {
            // It fails if it rings already so often that it could not be counted.
            // An eventfd, no file.
            #[allow(clippy::disallowed_methods)]
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }
}

/// A place among the parked; given back when dropped.
struct Parked<'a> {
    locks: &'a Locks,
    name: u64,
    bell: Arc<OwnedFd>,
}

impl<'a> Parked<'a> {
    fn new(locks: &'a Locks) -> Result<Self, Errno> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let name = locks.bells.last.fetch_add(1, Ordering::Relaxed);
        let mut all = locks
            .bells
            .all
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.insert(name, bell.clone());
        drop(all);
        Ok(Parked { locks, name, bell })
    }

    /// Whether the peer has said something, or gone.
    fn pause(&self, peer: BorrowedFd<'_>, longest: Duration) -> Result<bool, Errno> {
        let mut both = [
            PollFd::from_borrowed_fd(peer, PollFlags::IN | PollFlags::RDHUP),
            PollFd::new(&*self.bell, PollFlags::IN),
        ];
        let longest = Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: longest.subsec_nanos().into(),
        };
        match poll(&mut both, Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        Ok(!both[0].revents().is_empty())
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        let bells = &self.locks.bells.all;
        let mut all = bells.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.name);
        drop(all);
        self.locks.state().table.wait_is_over(self.name);
    }
}

impl Locks {
    /// Takes a lock when it can be had; `is_open` says whether it still can.
    ///
    /// # Errors
    /// EINTR: the peer has said something, or gone; EDEADLK; EBADF; as [`Locks::set`].
    pub(crate) fn wait(
        &self,
        asked: &Asked<'_>,
        mode: LockMode,
        peer: BorrowedFd<'_>,
        is_open: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        let parked = Parked::new(self)?;
        let (mut pause, most) = PAUSES;
        loop {
            let longest = match self.try_set(asked, Some(mode), Some(parked.name)) {
                Ok(()) => return Ok(()),
                Err(Refusal::Failed(errno)) => return Err(errno),
                Err(Refusal::Inside) => LONGEST_PAUSE,
                Err(Refusal::Outside) => {
                    let next = most.min(pause * 2);
                    std::mem::replace(&mut pause, next)
                }
            };
            if parked.pause(peer, longest)? {
                return Err(Errno::INTR);
            }
            if !is_open() {
                return Err(Errno::BADF);
            }
        }
    }
}
