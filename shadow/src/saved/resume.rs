//! A new session that goes on from a state.

use super::{MoveError, SavedSession};
use crate::copies::{CopyOf, Next};
use crate::session::Session;
use crate::undo::UndoError;
use journal::{Epoch, Files, JournalError};
use std::time::{Duration, Instant};
use wire::Others;

/// A session ends as soon as its streams have.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

impl Session {
    /// Whether it may go on from this state; nothing is changed.
    pub(crate) fn may_resume(&self, saved: &SavedSession, asked: Others) -> Result<(), MoveError> {
        if self.next_handle() != 1 {
            return Err(MoveError::NotNew);
        }
        let goes_back = saved.epoch.is_some() && asked != Others::Keep;
        if goes_back && self.journals.is_none() {
            return Err(MoveError::NoJournal);
        }
        let most = self.limits().open_files;
        if saved.files.len() > most {
            return Err(MoveError::TooManyFiles {
                found: saved.files.len(),
                most,
            });
        }
        saved
            .answers
            .iter()
            .try_for_each(|one| one.reply().map(drop))
    }

    /// Goes on from a state, as the next copy of the job; if that cannot be, the session stays empty and no file is changed
    /// but for what [`Others::RollBack`] has cut already.
    ///
    /// # Errors
    /// [`MoveError`]; all files that are not as they were are listed at once.
    pub(crate) fn resume(
        &self,
        saved: &SavedSession,
        asked: Others,
        next: Next,
    ) -> Result<(), MoveError> {
        let _still = self.stand_still();
        self.may_resume(saved, asked)?;
        let replies: Result<Vec<_>, _> = saved.answers.iter().map(|one| one.reply()).collect();
        let replies = replies?;
        let others = self.roll_back(saved, asked, next)?;
        // Behind another journal it is another job: nobody goes back from one to the other by numbers of epochs.
        let has_no_journals = self.journals.is_none() && self.copy_of().is_none();
        if let Some(copy) = saved.copy().filter(|_| has_no_journals) {
            let (incarnation, starter) = (next.above + 1, next.by.starter);
            let copy = CopyOf {
                incarnation,
                starter,
                ..copy
            };
            self.be_copy(copy).map_err(MoveError::Journal)?;
        }
        // First those that change nothing: what is refused is refused before a file is cut.
        let (mut open, mut changed) = (vec![], vec![]);
        if others == Others::RollBack {
            let looks = saved.files.iter();
            changed
                .extend(looks.filter_map(|file| file.find(self, Others::Keep, Some(asked)).err()));
        }
        if changed.is_empty() {
            for file in &saved.files {
                match file.find(self, others, Some(asked)) {
                    Ok(found) => open.push((file, found)),
                    Err(why) => changed.push(why),
                }
            }
        }
        if !changed.is_empty() {
            return Err(MoveError::Changed(changed));
        }
        for (file, found) in open {
            let opened = file.open_again(self, found);
            let opened = opened.map_err(|why| MoveError::Changed(vec![why]))?;
            self.insert_as(file.handle, opened);
        }
        self.begin_handles_at(saved.next_handle);
        let again = self.locks.take_again(&saved.locks, &self.all_open());
        again.map_err(|why| MoveError::Changed(vec![why]))?;
        for (saved, reply) in saved.answers.iter().zip(replies) {
            self.lanes.remember(saved.lane, saved.number, reply);
        }
        if let Some(log) = &self.log {
            log.begin_anew(|| self.known());
        }
        Ok(())
    }

    /// Has the job's journal bring all files back; what is still to be done about those that are open.
    fn roll_back(
        &self,
        saved: &SavedSession,
        others: Others,
        next: Next,
    ) -> Result<Others, MoveError> {
        let (Some(CopyOf { job, .. }), Some(epoch)) = (saved.copy(), saved.epoch) else {
            return Ok(others);
        };
        let Some(journals) = &self.journals else {
            return match others {
                Others::Keep => Ok(others),
                Others::Fail | Others::RollBack => Err(MoveError::NoJournal),
            };
        };
        let files = match others {
            Others::Keep => Files::Keep,
            Others::Fail => Files::Fail,
            Others::RollBack => Files::RollBack,
        };
        let began = Instant::now();
        loop {
            match self.open_old_journal(journals, job, next) {
                Ok(true) => break,
                // It goes on with another, and nobody goes back behind that.
                Ok(false) if others == Others::Keep => return Ok(others),
                Ok(false) => return Err(MoveError::JournalGone { job }),
                // The copy that has just been killed: its session is ending.
                Err(UndoError::Journal(JournalError::InUse { .. }))
                    if began.elapsed() < ENDS_WITHIN =>
                {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(MoveError::Journal(error)),
            }
        }
        self.journal_stays();
        let undone = self.undo_to(Epoch(epoch), files);
        let undone = undone.map_err(MoveError::Journal)?;
        let strange = undone.differences.len();
        let incarnation = self.incarnation();
        tracing::info!(%job, incarnation, epoch, strange, kept = undone.kept, "a job goes on from a mark");
        Ok(Others::Keep)
    }
}
