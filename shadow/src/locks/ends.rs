//! The ends of open file descriptions, as the kernel of the job's machine tells them: an inotify instance whose watches are
//! the job's placeholders. It comes with [`wire::Request::WatchEnds`] from where that kernel is ours too.

use crate::session::Session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Bytes of `struct inotify_event` without a name.
const EVENT_LEN: usize = 16;
const IN_DELETE_SELF: u32 = 0x400;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Whatever it is, no more is done with it than to read it.
    fd: OwnedFd,
    /// Held while events are read and heeded: whoever has it next finds all heeded that were there.
    heeding: Mutex<()>,
}

impl Ends {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Ends {
            fd,
            heeding: Mutex::default(),
        }
    }

    /// Takes note of what has ended by now.
    pub(crate) fn heed(&self, session: &Session) {
        let _heeding = self.heeding.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut one = [PollFd::new(&self.fd, PollFlags::IN)];
        while matches!(poll(&mut one, Some(&now)), Ok(1)) && self.read(session) == Read::Events {}
    }

    /// Takes note of what ends until the peer says something; whether more is to be expected.
    pub(crate) fn watch(&self, session: &Session, peer: BorrowedFd<'_>) -> bool {
        loop {
            let mut both = [
                PollFd::from_borrowed_fd(peer, PollFlags::IN),
                PollFd::new(&self.fd, PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
            if !both[0].revents().is_empty() {
                return true;
            }
            if !both[1].revents().is_empty() {
                let heeding = self.heeding.lock().unwrap_or_else(PoisonError::into_inner);
                let read = self.read(session);
                drop(heeding);
                if read == Read::End {
                    return false;
                }
            }
        }
    }

    fn read(&self, session: &Session) -> Read {
        let mut events = [0; 256 * EVENT_LEN];
        let len = match rustix::io::read(&self.fd, &mut events) {
            Ok(len @ 1..) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Read::Nothing,
            _ => return Read::End,
        };
        let mut left = &events[..len];
        while let Some((event, rest)) = left.split_first_chunk::<EVENT_LEN>() {
            let word = |at: usize| {
                let bytes = [event[at], event[at + 1], event[at + 2], event[at + 3]];
                u32::from_ne_bytes(bytes)
            };
            let name_len = word(12) as usize;
            left = rest.get(name_len..).unwrap_or_default();
            if word(4) & IN_DELETE_SELF != 0 {
                session.description_ended(word(0) as i32);
            }
        }
        Read::Events
    }
}

/// What reading has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Events,
    Nothing,
    /// It is not what it was said to be.
    End,
}
