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
use journal::{Epoch, JournalError};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::{FIRST_COPY, Others, TakeUp};

/// How long what is being done for an older copy, or another that begins, is waited for; who comes is then told to ask again.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// So many copies that are over, and jobs, are remembered at most. Of one that is forgotten there is no session, which is a refusal, too.
const MOST_REMEMBERED: usize = 1 << 16;

/// Which copy of which job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyOf {
    pub(crate) job: JobId,
    pub(crate) incarnation: u64,
    /// Who has begun it; 0: that is not known.
    pub(crate) starter: u64,
}

/// Who begins a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By {
    pub(crate) starter: u64,
    /// Whoever has the job.
    takes: bool,
}

impl By {
    /// Who does not say who he is has been told to by a command.
    pub(crate) const ANYBODY: By = By {
        starter: 0,
        takes: true,
    };

    pub(crate) fn of(asked: &TakeUp) -> Self {
        By {
            starter: asked.starter,
            takes: asked.takes,
        }
    }

    /// Who gives up what he has kept going himself.
    pub(crate) fn only(starter: u64) -> Self {
        By {
            starter,
            takes: false,
        }
    }

    /// Who goes on with what he has kept going himself does not if somebody else has gone on with it. That he has begun the newest himself he may not
    /// know: his line broke before he was told, or what came behind that has failed.
    pub(crate) fn may_follow(self, newest: u64, starter: u64) -> Result<(), UndoError> {
        match self.takes || newest <= FIRST_COPY || starter == self.starter {
            true => Ok(()),
            false => Err(UndoError::Taken { newest }),
        }
    }
}

/// What is known of the copy that begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    /// Its number is above this.
    pub(crate) above: u64,
    pub(crate) by: By,
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
    /// The newest copies that have begun here, and by whom.
    newest: Mutex<HashMap<JobId, (u64, u64)>>,
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

    fn all_newest(&self) -> MutexGuard<'_, HashMap<JobId, (u64, u64)>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other copy of the job begins; none if that takes too long.
    fn begin(&self, job: JobId) -> Option<Turn<'_>> {
        let others = |all: &mut HashSet<JobId>| all.contains(&job);
        let all = self
            .begun
            .wait_timeout_while(self.beginning(), ENDS_WITHIN, others);
        let (mut all, waited) = all.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        all.insert(job);
        Some(Turn { copies: self, job })
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

fn remember<K: Copy + Eq + Hash, V>(all: &mut HashMap<K, V>, key: K, value: V) {
    if all.len() >= MOST_REMEMBERED
        && let Some(one) = all.keys().next().copied()
    {
        all.remove(&one);
    }
    all.insert(key, value);
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
                let CopyOf {
                    job,
                    incarnation,
                    starter,
                } = copy;
                self.note(|| Some(Record::Copy(job.0, incarnation, starter)));
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
    /// Has the session go on from a state. Copies of the job that this shadow serves are ended before, but not for who has
    /// lost it to somebody else. `is_there`: whether anybody still wants it.
    ///
    /// # Errors
    /// [`MoveError`]. If it is one of the state, nothing has been ended.
    pub(crate) fn resume(
        &self,
        state: &[u8],
        (others, by): (Others, By),
        is_there: &dyn Fn() -> bool,
    ) -> Result<(), MoveError> {
        let saved = SavedSession::from_bytes(state)?;
        self.session.may_resume(&saved, others)?;
        let next = |above| Next { above, by };
        let Some(copy) = saved.copy() else {
            return self.session.resume(&saved, others, next(0));
        };
        let until = Instant::now() + ENDS_WITHIN;
        let turn = self.sessions.copies.begin(copy.job);
        let _turn = turn.filter(|_| is_there()).ok_or(MoveError::Begins)?;
        let copies = &self.sessions.copies;
        let known = copies.all_newest().get(&copy.job).copied();
        let (known, starter) = known.unwrap_or_default();
        by.may_follow(known, starter).map_err(MoveError::Journal)?;
        let goes_back = saved.epoch.filter(|_| others != Others::Keep).map(Epoch);
        self.sessions.has_mark(copy.job, goes_back)?;
        let newest = self
            .sessions
            .end_copies((copy.job, by), self.session.id(), until)?;
        if !is_there() {
            return Err(MoveError::Begins);
        }
        let above = newest.max(known).max(copy.incarnation);
        self.session.resume(&saved, others, next(above))?;
        if let Some(copy) = self.session.copy_of() {
            let begun = (copy.incarnation, copy.starter);
            remember(&mut copies.all_newest(), copy.job, begun);
        }
        self.session.lets_images_go();
        Ok(())
    }

    /// The job that this state is of is removed: its copies are ended, and what is kept of it goes, its images and its journal; but not for who has lost it to
    /// somebody else.
    ///
    /// # Errors
    /// [`MoveError`]; then it may not all have gone.
    pub(crate) fn forget(
        &self,
        state: &[u8],
        by: By,
        is_there: &dyn Fn() -> bool,
    ) -> Result<(), MoveError> {
        let Some(copy) = SavedSession::from_bytes(state)?.copy() else {
            return Ok(());
        };
        let until = Instant::now() + ENDS_WITHIN;
        let copies = &self.sessions.copies;
        let turn = copies.begin(copy.job);
        let _turn = turn.filter(|_| is_there()).ok_or(MoveError::Begins)?;
        let known = copies.all_newest().get(&copy.job).copied();
        let (known, starter) = known.unwrap_or_default();
        by.may_follow(known, starter).map_err(MoveError::Journal)?;
        let journals = self.session.journals.as_ref();
        // Nobody is ended for who may not. Of a journal that is in use the session knows.
        let may = journals.map_or(Ok(()), |journals| journals.may_remove(copy.job, by));
        match may {
            Ok(()) | Err(UndoError::InUse) => {}
            Err(error) => return Err(MoveError::Journal(error)),
        }
        let images = self.session.images.as_ref();
        images
            .map_or(Ok(()), |images| {
                images.may_forget(copy.job, copy.incarnation)
            })
            .map_err(|why| MoveError::Stays { why })?;
        let newest = self
            .sessions
            .end_copies((copy.job, by), self.session.id(), until)?;
        if !is_there() {
            return Err(MoveError::Begins);
        }
        images
            .map_or(Ok(()), |images| images.forget(copy.job, copy.incarnation))
            .map_err(|why| MoveError::Stays { why })?;
        if let Some(journals) = journals {
            journals
                .remove_by(copy.job, by)
                .map_err(MoveError::Journal)?;
        }
        // Who comes back that had it before does not go on with it.
        let newest = known.max(newest);
        if newest > FIRST_COPY {
            remember(&mut copies.all_newest(), copy.job, (newest, by.starter));
        }
        tracing::info!(job = %copy.job, "a job is removed");
        Ok(())
    }
}

impl Sessions {
    /// Refuses a state whose mark the journal does not have any more, before anybody is ended for it.
    fn has_mark(&self, job: JobId, mark: Option<Epoch>) -> Result<(), MoveError> {
        let is_its = |one: &&Arc<Session>| one.job() == Some(job);
        let session = self.all().values().find(is_its).cloned();
        let (Some(session), Some(found)) = (session, mark) else {
            return Ok(());
        };
        let marks = session.marks().map_err(MoveError::Journal)?;
        let bounds = (marks.first(), marks.last());
        match bounds {
            (Some(oldest), Some(newest)) if marks.iter().all(|mark| mark.epoch != found) => {
                let (oldest, newest) = (oldest.epoch, newest.epoch);
                let error = JournalError::NoEpoch {
                    found,
                    oldest,
                    newest,
                };
                Err(MoveError::Journal(error.into()))
            }
            _ => Ok(()),
        }
    }

    /// Ends all sessions of a job but this one; the newest of them, 0 if there was none.
    fn end_copies(
        &self,
        (job, by): (JobId, By),
        but: u64,
        until: Instant,
    ) -> Result<u64, MoveError> {
        let older = |one: &Arc<Session>| {
            one.id() != but && one.copy_of().is_some_and(|copy| copy.job == job)
        };
        let mut all = self.all();
        let before: Vec<_> = all.values().filter(|one| older(one)).cloned().collect();
        let copies = before.iter().filter_map(|one| one.copy_of());
        let newest = copies.max_by_key(|copy| copy.incarnation);
        let (newest, starter) = newest.map_or((0, 0), |copy| (copy.incarnation, copy.starter));
        by.may_follow(newest, starter).map_err(MoveError::Journal)?;
        let ends: Vec<_> = before.iter().map(Arc::downgrade).collect();
        for session in &before {
            let (id, incarnation) = (session.id(), session.incarnation());
            tracing::info!(session = id, incarnation, "a newer copy of the job begins");
            remember(&mut self.copies.all_superseded(), id, incarnation);
            session.end_for_newer();
            if session.is_alone() {
                Self::end(&mut all, id);
            }
        }
        // What that closes takes its time.
        drop(all);
        drop(before);
        let mut left = self
            .ended
            .wait_timeout_while(
                self.all(),
                until.saturating_duration_since(Instant::now()),
                |all| all.values().any(older),
            )
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        if let Some(one) = left.values_mut().find(|one| older(one)) {
            let incarnation = one.incarnation();
            return Err(MoveError::NotEnded { incarnation });
        }
        drop(left);
        // What its threads let go of last may be written then.
        while ends.iter().any(|one| one.strong_count() > 0) {
            if Instant::now() > until {
                let incarnation = newest;
                return Err(MoveError::NotEnded { incarnation });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(newest)
    }
}
