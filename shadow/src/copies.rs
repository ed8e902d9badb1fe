//! Copies of a job: each has an incarnation number, and only the newest is served (DESIGN §7).
//!
//! ```text
//! new session ── first copy: 1            Resume: copies before it are ended ── the number is raised, durably ── files go back ── served
//! copy that is not the newest: its streams end, and whoever comes to its session is refused, for good
//! ```
//! The number is kept in the undo journal, so it holds between shadows, too; a job without one has it in its image and in the session's log, and
//! only this shadow knows it.
//! # What callers may rely on
//! When a copy begins to be served, nothing is served of an older one, nor ever will be.

use crate::kept::Record;
use crate::saved::{MoveError, SavedSession};
use crate::session::Session;
use crate::sessions::{Membership, NotServed, Sessions};
use crate::undo::{JobId, UndoError};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::{FIRST_COPY, Others};

/// How long what is being done for an older copy may take.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Which copy of which job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyOf {
    pub(crate) job: JobId,
    pub(crate) incarnation: u64,
}

/// Ends a stream, whatever its thread waits for.
pub(crate) type Ender = Box<dyn Fn() + Send + Sync>;

/// Those of the streams of a session.
#[derive(Default)]
pub(crate) struct Enders {
    all: Mutex<HashMap<u64, Ender>>,
    next: AtomicU64,
}

impl fmt::Debug for Enders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enders").finish_non_exhaustive()
    }
}

impl Enders {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Ender>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As long as a stream is served, the session may end it.
    pub(crate) fn keep(&self, ender: Ender) -> KeptEnder<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.all().insert(number, ender);
        let enders = self;
        KeptEnder { enders, number }
    }

    fn end_all(&self) {
        self.all().values().for_each(|end| end());
    }
}

/// A stream that may be ended by others, until this is dropped.
pub(crate) struct KeptEnder<'a> {
    enders: &'a Enders,
    number: u64,
}

impl Drop for KeptEnder<'_> {
    fn drop(&mut self) {
        self.enders.all().remove(&self.number);
    }
}

/// What a shadow knows of copies beside their sessions.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Sessions of copies that are not the newest any more, and which copies they were.
    superseded: Mutex<HashMap<u64, u64>>,
    /// Jobs of which a copy begins.
    begin: Mutex<HashSet<JobId>>,
    /// Rings when one of these has begun.
    begun: Condvar,
}

impl Copies {
    fn beginning(&self) -> MutexGuard<'_, HashSet<JobId>> {
        self.begin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_superseded(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        let all = self.superseded.lock();
        all.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other copy of the job begins.
    fn begin(&self, job: JobId) -> Turn<'_> {
        let all = self
            .begun
            .wait_while(self.beginning(), |all| all.contains(&job));
        all.unwrap_or_else(PoisonError::into_inner).insert(job);
        Turn { copies: self, job }
    }

    /// Why nobody is served in this session any more, if it was one of an older copy.
    pub(crate) fn why_over(&self, session: u64) -> Option<NotServed> {
        let incarnation = *self.all_superseded().get(&session)?;
        Some(NotServed {
            reason: is_superseded(incarnation).into(),
            passing: false,
        })
    }
}

/// No other copy of the job begins as long as there is this.
struct Turn<'a> {
    copies: &'a Copies,
    job: JobId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.copies.beginning().remove(&self.job);
        self.copies.begun.notify_all();
    }
}

/// What a copy is told that is not the newest.
pub(crate) fn is_superseded(incarnation: u64) -> String {
    format!(
        "a newer copy of the job has begun, and this one (copy {incarnation}) is not served any more"
    )
}

impl Session {
    /// Which copy it serves, if that is known yet.
    pub(crate) fn copy_of(&self) -> Option<CopyOf> {
        self.copy.get().copied()
    }

    /// Its number.
    pub(crate) fn incarnation(&self) -> u64 {
        self.copy_of().map_or(FIRST_COPY, |copy| copy.incarnation)
    }

    /// It serves this copy, and never another.
    ///
    /// # Errors
    /// [`UndoError::InUse`] if it serves one already.
    pub(crate) fn be_copy(&self, copy: CopyOf) -> Result<(), UndoError> {
        match self.copy.set(copy) {
            Ok(()) => {
                self.note(|| Some(Record::Copy(copy.job.0, copy.incarnation)));
                Ok(())
            }
            Err(_) if self.copy_of() == Some(copy) => Ok(()),
            Err(_) => Err(UndoError::InUse),
        }
    }

    /// Whoever speaks says which copy of the job it is (0: does not say).
    pub(crate) fn is_copy(&self, incarnation: u64) -> Result<(), NotServed> {
        let expected = self.incarnation();
        if incarnation == 0 || incarnation == expected {
            return Ok(());
        }
        Err(NotServed {
            reason: format!(
                "copy {incarnation} of the job is not served here, expected copy {expected}"
            )
            .into(),
            passing: false,
        })
    }

    /// A newer copy begins.
    fn end_for_newer(&self) {
        self.lose(is_superseded(self.incarnation()));
        self.is_over_with_its_streams();
        self.enders.end_all();
    }
}

impl Membership {
    /// Has the session go on from a state. Copies of the job that this shadow serves are ended before.
    ///
    /// # Errors
    /// [`MoveError`]. If it is one of the state, nothing has been ended.
    pub(crate) fn resume(&self, state: &[u8], others: Others) -> Result<(), MoveError> {
        let saved = SavedSession::from_bytes(state)?;
        self.session.may_resume(&saved)?;
        let Some(copy) = saved.copy() else {
            return self.session.resume(&saved, others, 0);
        };
        let _turn = self.sessions.copies.begin(copy.job);
        let newest = self.sessions.end_copies(copy.job, self.session.id())?;
        let above = newest.max(copy.incarnation);
        self.session.resume(&saved, others, above)
    }
}

impl Sessions {
    /// Ends all sessions of a job but this one; the newest of them, 0 if there was none.
    fn end_copies(&self, job: JobId, but: u64) -> Result<u64, MoveError> {
        let older = |one: &Arc<Session>| {
            one.id() != but && one.copy_of().is_some_and(|copy| copy.job == job)
        };
        let mut all = self.all();
        let before: Vec<_> = all.values().filter(|one| older(one)).cloned().collect();
        let mut newest = 0;
        for session in before {
            let (id, incarnation) = (session.id(), session.incarnation());
            tracing::info!(session = id, incarnation, "a newer copy of the job begins");
            newest = newest.max(incarnation);
            self.copies.all_superseded().insert(id, incarnation);
            session.end_for_newer();
            if session.is_alone() {
                Self::end(&mut all, id);
            }
        }
        let mut left = self
            .ended
            .wait_timeout_while(all, ENDS_WITHIN, |all| all.values().any(older))
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        match left.values_mut().find(|one| older(one)) {
            None => Ok(newest),
            Some(one) => Err(MoveError::NotEnded {
                incarnation: one.incarnation(),
            }),
        }
    }
}
