//! Locks of a job that is stopped here and goes on elsewhere: what they are, and that they are had again before it does.

use super::outward::in_the_way;
use super::table::{Owner, Wanted};
use super::{FileId, Locks, set_whole};
use crate::session::OpenFile;
use bincode::{Decode, Encode};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::{LockMode, Span};

/// How long a restart waits for somebody else's lock.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// All locks of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct SavedLocks {
    /// Numbers are not used again.
    last_process: u64,
    /// Number and process id of those who have record locks, or may have.
    processes: Vec<(u64, u32)>,
    locks: Vec<SavedLock>,
}

impl SavedLocks {
    /// Whether there is one on this file.
    pub(crate) fn has(&self, handle: u64) -> bool {
        self.locks.iter().any(|lock| lock.handle == handle)
    }

    /// Without processes that have ended, and what they had.
    pub(crate) fn keep_living(&mut self, pids: &[u32]) {
        self.processes.retain(|(_, pid)| pids.contains(pid));
        let there = &self.processes;
        self.locks.retain(|lock| match lock.owner {
            SavedOwner::Process(number) => there.iter().any(|(one, _)| *one == number),
            SavedOwner::Description(_) | SavedOwner::Whole(_) => true,
        });
    }
}

/// Whose one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
enum SavedOwner {
    Process(u64),
    Description(u64),
    /// flock(2), by the handle.
    Whole(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
struct SavedLock {
    owner: SavedOwner,
    /// A file that is open: any handle of it.
    handle: u64,
    exclusive: bool,
    first: u64,
    last: u64,
}

/// What is open, by handle.
type Open = [(u64, Arc<OpenFile>)];

fn handle_of(open: &Open, file: FileId) -> Option<u64> {
    let same = || open.iter().filter(|(_, one)| one.id == file);
    let writable = same().find(|(_, one)| one.writable);
    writable.or(same().next()).map(|(handle, _)| *handle)
}

impl Locks {
    /// What there is; none if a lock is on a file that nobody has open.
    pub(crate) fn saved(&self, open: &Open) -> Option<SavedLocks> {
        let state = self.state();
        let mut locks = vec![];
        for (file, owner, piece) in state.table.all() {
            locks.push(SavedLock {
                owner: match owner {
                    Owner::Process(number) => SavedOwner::Process(number),
                    Owner::Description(handle) => SavedOwner::Description(handle),
                },
                handle: handle_of(open, file)?,
                exclusive: piece.mode == LockMode::Exclusive,
                first: piece.span.first,
                last: piece.span.last,
            });
        }
        for (handle, file) in open {
            if let Some(mode) = file.whole() {
                locks.push(SavedLock {
                    owner: SavedOwner::Whole(*handle),
                    handle: *handle,
                    exclusive: mode == LockMode::Exclusive,
                    first: 0,
                    last: Span::END,
                });
            }
        }
        let there = state.attendants.iter();
        let awaited = state.awaited.iter().map(|(number, pid)| (*number, *pid));
        let mut processes: Vec<_> = there.map(|(number, one)| (*number, one.pid)).collect();
        processes.extend(awaited);
        processes.sort_unstable();
        Some(SavedLocks {
            last_process: state.last_process,
            processes,
            locks,
        })
    }

    /// Has them again; or says which cannot be had, because of whom.
    pub(crate) fn take_again(&self, saved: &SavedLocks, open: &Open) -> Result<(), String> {
        self.take_again_within(saved, open, PATIENCE)
    }

    /// The same without waiting; what could be had is had when it is called again.
    pub(crate) fn take_again_at_once(&self, saved: &SavedLocks, open: &Open) -> Result<(), String> {
        self.take_again_within(saved, open, Duration::ZERO)
    }

    fn take_again_within(
        &self,
        saved: &SavedLocks,
        open: &Open,
        patience: Duration,
    ) -> Result<(), String> {
        let mut state = self.state();
        state.last_process = saved.last_process;
        state.awaited = saved.processes.iter().copied().collect();
        drop(state);
        let end = Instant::now() + patience;
        for lock in &saved.locks {
            loop {
                match self.take_one(lock, open) {
                    Err(Errno::AGAIN) if Instant::now() < end => std::thread::sleep(PAUSE),
                    Ok(()) => break,
                    Err(errno) => return Err(why(lock, open, errno)),
                }
            }
        }
        Ok(())
    }

    fn take_one(&self, lock: &SavedLock, open: &Open) -> Result<(), Errno> {
        let file = find(open, lock.handle).ok_or(Errno::BADF)?;
        let mode = lock.mode();
        let owner = match lock.owner {
            SavedOwner::Whole(_) => {
                return set_whole(file, Some(mode)).map_err(super::Refusal::errno);
            }
            SavedOwner::Process(number) => Owner::Process(number),
            SavedOwner::Description(handle) => Owner::Description(handle),
        };
        if lock.first > lock.last || lock.last > Span::END {
            return Err(Errno::INVAL);
        }
        let wanted = Wanted {
            owner,
            file: file.id,
            mode,
            span: lock.span(),
        };
        self.state().take(file, wanted)
    }
}

impl SavedLock {
    fn mode(&self) -> LockMode {
        if self.exclusive {
            LockMode::Exclusive
        } else {
            LockMode::Shared
        }
    }

    fn span(&self) -> Span {
        Span {
            first: self.first,
            last: self.last,
        }
    }
}

fn find(open: &Open, handle: u64) -> Option<&Arc<OpenFile>> {
    let at = open.binary_search_by_key(&handle, |(handle, _)| *handle);
    at.ok().map(|at| &open[at].1)
}

fn why(lock: &SavedLock, open: &Open, errno: Errno) -> String {
    let Some(file) = find(open, lock.handle) else {
        return format!("a lock of handle {}, which is not open", lock.handle);
    };
    let name = crate::names::own_descriptor(std::os::fd::AsRawFd::as_raw_fd(&file.fd));
    let name = rustix::fs::readlink(name, vec![]).unwrap_or_default();
    let name = name.to_string_lossy();
    if errno != Errno::AGAIN {
        return format!("the lock that the job had on {name} cannot be had again ({errno})");
    }
    let by = match in_the_way(file.fd.as_fd(), lock.span(), lock.mode()) {
        Ok(Some(held)) if held.pid > 0 => format!("process {} has one", held.pid),
        _ => "somebody else has one".to_owned(),
    };
    format!("the lock that the job had on {name} cannot be had again: {by}")
}

impl OpenFile {
    /// What it has of flock(2).
    fn whole(&self) -> Option<LockMode> {
        match self.whole.load(Ordering::Relaxed) {
            SHARED => Some(LockMode::Shared),
            EXCLUSIVE => Some(LockMode::Exclusive),
            _ => None,
        }
    }

    /// What it has now.
    pub(super) fn set_whole_to(&self, mode: Option<LockMode>) {
        let value = match mode {
            None => 0,
            Some(LockMode::Shared) => SHARED,
            Some(LockMode::Exclusive) => EXCLUSIVE,
        };
        self.whole.store(value, Ordering::Relaxed);
    }
}

const SHARED: u8 = 1;
const EXCLUSIVE: u8 = 2;
