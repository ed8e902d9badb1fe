//! Locks of a session's files (docs/adr/0010-locks.md).
//!
//! ```text
//! F_SETLK, F_OFD_SETLK -> table (who in the job) -> outward (one description of ours towards others)
//! flock                -> the kernel, on the description that the job has open
//! in the way: EAGAIN, or parked/ until a bell rings
//! ```
//! # What callers may rely on
//! Nothing here waits but [`parked`]. What a process has goes with its [`Attendance`], what a description has with its
//! handle. A process that has died is not in the way, even before its stream's end has been read.

mod attendance;
mod ends;
mod outward;
mod parked;
mod pieces;
mod saved;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use attendance::Attendance;
pub(crate) use ends::Ends;
pub(crate) use saved::SavedLocks;
pub(crate) use table::FileId;

use crate::session::OpenFile;
use attendance::Attendant;
use outward::Stand;
use parked::Bells;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use table::{LockTable, Owner, Wanted};
use wire::{Held, LockMode, LockOwner, Span};

/// Pieces that the files of a job may have: what it may make us keep, and look through for each lock.
const MOST_PIECES: usize = 16384;
/// Files that a job may have record locks on at once.
const MOST_FILES: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    state: Mutex<State>,
    bells: Bells,
    /// Where it can be had.
    pub(crate) ends: OnceLock<Ends>,
}

#[derive(Debug, Default)]
struct State {
    table: LockTable,
    /// For the files that the table has.
    stands: HashMap<FileId, Stand>,
    attendants: HashMap<u64, Attendant>,
    /// Numbers and ids of processes of a job that goes on, which have not said yet that they are there.
    awaited: HashMap<u64, u32>,
    /// Which handle's end will be told by which name.
    watched: HashMap<i32, u64>,
    last_process: u64,
    last_serial: u64,
}

/// A lock cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Somebody of the job has it: a bell will ring.
    Inside,
    /// Somebody else: nobody will say when it goes.
    Outside,
    /// It never can.
    Failed(Errno),
}

impl Refusal {
    fn errno(self) -> Errno {
        match self {
            Refusal::Inside | Refusal::Outside => Errno::AGAIN,
            Refusal::Failed(errno) => errno,
        }
    }
}

/// A lock that is asked for, with what its handle means.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) handle: u64,
    pub(crate) file: &'a Arc<OpenFile>,
    pub(crate) owner: LockOwner,
    pub(crate) span: Span,
    /// What the end of the description is called; 0: nothing.
    pub(crate) watch: i32,
}

impl Asked<'_> {
    fn owner(&self) -> Owner {
        match self.owner {
            LockOwner::Process(number) => Owner::Process(number),
            LockOwner::Description | LockOwner::Whole => Owner::Description(self.handle),
        }
    }

    fn check(&self) -> Result<(), Errno> {
        if self.span.first > self.span.last || self.span.last > Span::END {
            return Err(Errno::INVAL);
        }
        Ok(())
    }
}

impl Locks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes, changes or gives up a lock, now.
    ///
    /// # Errors
    /// EAGAIN, ENOLCK, EINVAL.
    pub(crate) fn set(&self, asked: &Asked<'_>, mode: Option<LockMode>) -> Result<(), Errno> {
        self.try_set(asked, mode, None).map_err(Refusal::errno)
    }

    /// As [`Locks::set`]; what cannot be had is waited for under this name.
    fn try_set(
        &self,
        asked: &Asked<'_>,
        mode: Option<LockMode>,
        waiter: Option<u64>,
    ) -> Result<(), Refusal> {
        asked.check().map_err(Refusal::Failed)?;
        let mut state = self.state();
        if asked.watch > 0 && !matches!(asked.owner, LockOwner::Process(_)) {
            // One for each handle, however often it is said.
            let known = &asked.file.watch;
            let first =
                known.compare_exchange(0, asked.watch, Ordering::Relaxed, Ordering::Relaxed);
            if first.is_ok() {
                state.watched.insert(asked.watch, asked.handle);
            }
        }
        let result = match asked.owner {
            LockOwner::Whole => {
                drop(state);
                set_whole(asked.file, mode)
            }
            _ => state.set(asked, mode, waiter),
        };
        // Where one of flock's cannot be changed, what was there is gone.
        let less = match asked.owner {
            LockOwner::Whole => true,
            _ => result.is_ok() && mode != Some(LockMode::Exclusive),
        };
        if less {
            self.bells.ring();
        }
        result
    }

    /// What is in the way of a lock.
    ///
    /// # Errors
    /// EINVAL, or what the kernel says.
    pub(crate) fn test(&self, asked: &Asked<'_>, mode: LockMode) -> Result<Option<Held>, Errno> {
        asked.check()?;
        if asked.owner == LockOwner::Whole {
            return Err(Errno::INVAL);
        }
        self.state().test(asked, mode)
    }

    /// What somebody has there himself.
    ///
    /// # Errors
    /// EINVAL.
    pub(crate) fn own(&self, asked: &Asked<'_>) -> Result<Option<Held>, Errno> {
        asked.check()?;
        let state = self.state();
        let owner = asked.owner();
        let pieces = state.table.of(owner, asked.file.id);
        let first = pieces.and_then(|pieces| pieces.overlapping(asked.span).next());
        Ok(first.map(|piece| Held {
            mode: piece.mode,
            span: piece.span,
            pid: state.pid(owner),
        }))
    }

    /// Which handle's end this is, if that was to be told.
    pub(crate) fn ended(&self, watch: i32) -> Option<u64> {
        self.state().watched.remove(&watch)
    }

    /// A description is closed: what it has goes.
    pub(crate) fn end_description(&self, handle: u64, file: &OpenFile) {
        let mut state = self.state();
        state.forget(Owner::Description(handle));
        state.watched.remove(&file.watch.load(Ordering::Relaxed));
        drop(state);
        if file.flocked.load(Ordering::Relaxed) {
            // It may stand for record locks, and live on.
            let _ = rustix::fs::flock(&file.fd, FlockOperation::Unlock);
        }
        self.bells.ring();
    }
}

/// flock(2): another kind of lock, of the description itself.
fn set_whole(file: &OpenFile, mode: Option<LockMode>) -> Result<(), Refusal> {
    let operation = match mode {
        Some(LockMode::Shared) => FlockOperation::NonBlockingLockShared,
        Some(LockMode::Exclusive) => FlockOperation::NonBlockingLockExclusive,
        None => FlockOperation::Unlock,
    };
    file.flocked.store(true, Ordering::Relaxed);
    // Where one cannot be changed, what was there is gone.
    file.set_whole_to(None);
    match rustix::fs::flock(&file.fd, operation) {
        Err(Errno::AGAIN) => return Err(Refusal::Outside),
        result => result.map_err(Refusal::Failed)?,
    }
    file.set_whole_to(mode);
    if file.ended.load(Ordering::SeqCst) {
        let _ = rustix::fs::flock(&file.fd, FlockOperation::Unlock);
        return Err(Refusal::Failed(Errno::BADF));
    }
    Ok(())
}

impl State {
    fn set(
        &mut self,
        asked: &Asked<'_>,
        mode: Option<LockMode>,
        waiter: Option<u64>,
    ) -> Result<(), Refusal> {
        let (owner, file) = (asked.owner(), asked.file.id);
        if asked.file.ended.load(Ordering::SeqCst) {
            return Err(Refusal::Failed(Errno::BADF));
        }
        if let LockOwner::Process(number) = asked.owner {
            match self.attendants.get_mut(&number) {
                Some(process) => process.at_exec.clear(),
                // Another of its threads is just saying that it is there.
                None if self.awaited.contains_key(&number) => {}
                None => return Err(Refusal::Failed(Errno::NOLCK)),
            }
        }
        let Some(mode) = mode else {
            self.change(owner, file, asked.span, None);
            return Ok(());
        };
        let wanted = Wanted {
            owner,
            file,
            mode,
            span: asked.span,
        };
        self.forget_the_dead(wanted);
        if let Some(waiter) = waiter {
            self.table.wait_is_over(waiter);
        }
        let inside = self.table.blockers(wanted).next().is_some();
        let refusal = if inside {
            Refusal::Inside
        } else {
            match self.take(asked.file, wanted) {
                Err(Errno::AGAIN) => Refusal::Outside,
                result => return result.map_err(Refusal::Failed),
            }
        };
        if let Some(waiter) = waiter {
            if self.table.would_deadlock(wanted) {
                return Err(Refusal::Failed(Errno::DEADLK));
            }
            self.table.wait(waiter, wanted);
        }
        Err(refusal)
    }

    /// Nobody of the job is in the way: the table gets it if nobody else is either.
    fn take(&mut self, open: &Arc<OpenFile>, wanted: Wanted) -> Result<(), Errno> {
        let Wanted {
            owner,
            file,
            mode,
            span,
        } = wanted;
        if self.table.count() >= MOST_PIECES {
            return Err(Errno::NOLCK);
        }
        if !self.table.has(file) {
            if self.stands.len() >= MOST_FILES {
                return Err(Errno::NOLCK);
            }
            self.stands.insert(file, Stand::new(open)?);
        }
        // One that can only read stays while it has locks: to change it would give them up in between.
        let stand = self.stands.get(&file).filter(|stand| stand.can(mode));
        let stand = stand.ok_or(Errno::NOLCK);
        let taken = stand.and_then(|stand| {
            let before = self.table.most(file, span);
            let mut after = before.clone();
            // What it has itself may become less.
            let lowers = self.table.of(owner, file).is_some() && mode == LockMode::Shared;
            after.raise(span, mode);
            stand.change(&before, &after)?;
            self.table.put(owner, file, span, Some(mode));
            if lowers {
                let least = self.table.most(file, span);
                stand.change(&after, &least)?;
            }
            Ok(())
        });
        if !self.table.has(file) {
            self.stands.remove(&file);
        }
        taken
    }

    /// An owner has less than before.
    fn change(&mut self, owner: Owner, file: FileId, span: Span, mode: Option<LockMode>) {
        let before = self.table.most(file, span);
        self.table.put(owner, file, span, mode);
        let after = self.table.most(file, span);
        if let Some(stand) = self.stands.get(&file) {
            // Nobody can be in the way of less; what failed is in the log.
            let _ = stand.change(&before, &after);
        }
        if !self.table.has(file) {
            self.stands.remove(&file);
        }
    }

    fn test(&mut self, asked: &Asked<'_>, mode: LockMode) -> Result<Option<Held>, Errno> {
        let wanted = Wanted {
            owner: asked.owner(),
            file: asked.file.id,
            mode,
            span: asked.span,
        };
        self.forget_the_dead(wanted);
        let inside = self
            .table
            .blockers(wanted)
            .min_by_key(|(_, piece)| piece.span.first);
        if let Some((owner, piece)) = inside {
            return Ok(Some(Held {
                mode: piece.mode,
                span: piece.span,
                pid: self.pid(owner),
            }));
        }
        match self.stands.get(&wanted.file) {
            Some(stand) => outward::in_the_way(stand.as_fd(), wanted.span, mode),
            None => outward::in_the_way(asked.file.fd.as_fd(), wanted.span, mode),
        }
    }

    /// As F_GETLK tells it.
    fn pid(&self, owner: Owner) -> i32 {
        let attendant = match owner {
            Owner::Process(number) => self.attendants.get(&number),
            Owner::Description(_) => None,
        };
        attendant.map_or(-1, |one| i32::try_from(one.pid).unwrap_or(-1))
    }

    /// All that an owner has goes.
    fn forget(&mut self, owner: Owner) {
        for file in self.table.files_of(owner) {
            self.change(owner, file, Span::ALL, None);
        }
    }

    /// The kernel closes the streams of a process before anybody can see that it has ended.
    fn forget_the_dead(&mut self, wanted: Wanted) {
        let mut dead: Vec<u64> = vec![];
        for (owner, _) in self.table.blockers(wanted) {
            if let Owner::Process(number) = owner
                && !dead.contains(&number)
                && !self.awaited.contains_key(&number)
                && self.attendants.get(&number).is_none_or(Attendant::is_gone)
            {
                dead.push(number);
            }
        }
        for number in dead {
            self.forget(Owner::Process(number));
        }
    }
}
