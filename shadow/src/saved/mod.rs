//! The state of a session at a moment, as bytes: what the image of a job keeps of its files.
//!
//! ```text
//! Session::mark (the job is frozen) -> SavedSession -> bytes -> the image
//! a new Session <- Session::resume  <- SavedSession <- bytes <-'
//! ```
//! # What callers may rely on
//! Handles mean what they meant. Files are found by their names and known by device and inode: another file in
//! a name's place is never taken for the one that was open. Bytes that are no state are refused, saying why.
//!
//! # What it does not do
//! It keeps no contents.

mod file;
mod format;
mod resume;

pub(crate) use file::note;
pub(crate) use format::{SavedAnswer, SavedFile, SavedSession};

/// As [`crate::fuzzed`] says.
#[doc(hidden)]
pub use format::fuzzed;

use crate::session::Session;
use crate::undo::{JobId, UndoError};
use journal::Epoch;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use wire::{MOST_DATA, Request};

/// Why the state of a session cannot be told, or not be had again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The job has something that has no state.
    #[error("{what}, which cannot be carried yet")]
    NotCarried {
        /// What.
        what: String,
    },
    /// More than a message holds.
    #[error("the state of {files} open files takes {found} bytes, expected at most {MOST_DATA}")]
    TooMuch {
        /// So many are open.
        files: usize,
        /// Bytes.
        found: usize,
    },
    /// These bytes are no state of a session.
    #[error("the state of the job's files is damaged: {why}")]
    Damaged {
        /// What was found and what was expected.
        why: String,
    },
    /// The session has been used already.
    #[error("the session has files open already, expected a new one")]
    NotNew,
    /// More open files than a job may have.
    #[error("the job had {found} files open, expected at most {most}")]
    TooManyFiles {
        /// So many.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// The journal cannot go back.
    #[error("the undo journal of the job's files")]
    Journal(#[source] UndoError),
    /// There is none.
    #[error(
        "the job began with an undo journal, and this shadow keeps none (wayfarer shadow --journal DIR)"
    )]
    NoJournal,
    /// There is none any more.
    #[error(
        "the undo journal of job {job} is not there: the job has ended well since then, or this shadow keeps its journals \
         elsewhere (--files keep goes on with the files as they are)"
    )]
    JournalGone {
        /// Whose.
        job: JobId,
    },
    /// What is done for a copy before it takes too long.
    #[error(
        "copy {incarnation} of the job is being served yet: something that it has asked for takes long"
    )]
    NotEnded {
        /// Which.
        incarnation: u64,
    },
    /// What is kept of a job that is removed cannot be removed.
    #[error("what is kept of the job stays: {why}")]
    Stays {
        /// Why.
        why: String,
    },
    /// Somebody else goes on with the job, and that takes too long; or nobody waits for it.
    #[error("another copy of the job is beginning")]
    Begins,
    /// Files are not as they were.
    #[error("{}", list(.0))]
    Changed(Vec<String>),
}

impl MoveError {
    /// Whether it may be otherwise a little later.
    pub(crate) fn passes(&self) -> bool {
        matches!(self, MoveError::NotEnded { .. } | MoveError::Begins)
    }

    /// It and its causes, as much as a refusal has room for.
    pub(crate) fn chain(&self) -> String {
        const MOST: usize = 900;
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let one = error.to_string();
            if !text.ends_with(&one) {
                text += &format!(": {one}");
            }
            cause = error.source();
        }
        if text.len() > MOST {
            let end = (0..=MOST).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
            text += " ...";
        }
        text
    }
}

/// As many as a refusal has room for.
fn list(changed: &[String]) -> String {
    const MOST: usize = 700;
    let mut text = String::new();
    for (index, one) in changed.iter().enumerate() {
        if !text.is_empty() && text.len() + one.len() > MOST {
            text += &format!("; and {} more", changed.len() - index);
            break;
        }
        if !text.is_empty() {
            text += "; ";
        }
        text += one;
    }
    text
}

impl Session {
    /// Answers what has to do with checkpoints; the answer's data are put into `out`.
    pub(crate) fn moved(
        &self,
        request: &Request<'_>,
        data: &[u8],
        pending: &mut PendingMark<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), MoveError> {
        match request {
            Request::Mark(_) => {
                let (state, mark) = self.freeze(&Untold::read(data))?;
                pending.mark = mark;
                pending.unsettled().extend(mark);
                out.extend(state);
            }
            Request::Settle(settle) => pending.settle(settle.committed, data)?,
            _ => {}
        }
        Ok(())
    }

    /// The state of the session, which no request changes meanwhile, and the journal's mark.
    ///
    /// # Errors
    /// [`MoveError`]; then there is no mark.
    pub fn freeze(&self, untold: &Untold) -> Result<(Vec<u8>, Option<Epoch>), MoveError> {
        // A job that has asked nothing yet may be marked, too.
        self.begin_journal()
            .map_err(|_| MoveError::Journal(UndoError::NoJournal))?;
        let _still = self.stand_still();
        let stored = self.store_all();
        stored.map_err(|(errno, name)| MoveError::NotCarried {
            what: format!(
                "what was written to {name}, which is compressed, cannot be stored ({errno})"
            ),
        })?;
        let mut open = self.all_open();
        open.retain(|(handle, file)| {
            let is_offered = file.offered.load(Ordering::Relaxed);
            untold.has_open(*handle, is_offered)
        });
        let gone = self.all_gone();
        let is_open = |file: &SavedFile| untold.has_open(file.handle, file.offered);
        if let Some((_, why)) = gone.iter().find(|(file, _)| is_open(file)) {
            let what =
                format!("the job has a file open of which this shadow knows only that {why}");
            return Err(MoveError::NotCarried { what });
        }
        let copy = self.first_copy().map_err(MoveError::Journal)?;
        let locks = self.locks.saved(&open);
        let locks = locks.ok_or_else(|| MoveError::NotCarried {
            what: "the job has a lock on a file that it does not have open".to_owned(),
        })?;
        let mut files = vec![];
        for (handle, file) in &open {
            files.push(file::save(*handle, file)?);
        }
        let mark = match self.job() {
            Some(_) => Some(self.mark(b"").map_err(MoveError::Journal)?.epoch),
            None => None,
        };
        let mut pending = PendingMark {
            session: self,
            mark,
        };
        let saved = SavedSession {
            copy: Some((copy.job.0, copy.incarnation)),
            epoch: mark.map(|epoch| epoch.0),
            next_handle: self.next_handle(),
            files,
            locks,
            answers: self.lanes.answers(),
        };
        let bytes = saved.to_bytes();
        if bytes.len() > MOST_DATA {
            pending.give_up();
            return Err(MoveError::TooMuch {
                files: open.len(),
                found: bytes.len(),
            });
        }
        self.journal_stays();
        Ok((bytes, mark))
    }
}

/// The mark of the state of a session, and in whose journal it is, if it has one.
#[must_use]
pub fn mark_of(state: &[u8]) -> Option<(JobId, Epoch)> {
    let saved = SavedSession::from_bytes(state).ok()?;
    Some((saved.copy()?.job, Epoch(saved.epoch?)))
}

/// The number of the copy of a job in whose image this state is; none: it is no state of a numbered one.
#[must_use]
pub fn copy_of(state: &[u8]) -> Option<u64> {
    Some(SavedSession::from_bytes(state).ok()?.copy()?.incarnation)
}

/// What the job knows of its handles and has not told yet: the data of a [`wire::Mark`].
#[derive(Clone, Debug, Default)]
pub struct Untold {
    closed: HashSet<u64>,
    taken: HashSet<u64>,
}

impl Untold {
    /// From handles of 8 bytes, little-endian: how many are closed, these, and then those that were offered and are open.
    #[must_use]
    pub fn read(data: &[u8]) -> Self {
        let mut words = data
            .chunks_exact(8)
            .filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)));
        let closed = words.next().unwrap_or(0);
        let closed = usize::try_from(closed).unwrap_or(usize::MAX);
        Untold {
            closed: words.by_ref().take(closed).collect(),
            taken: words.collect(),
        }
    }

    fn has_open(&self, handle: u64, is_offered: bool) -> bool {
        !self.closed.contains(&handle) && (!is_offered || self.taken.contains(&handle))
    }
}

/// The mark of a checkpoint of which it is not known yet whether there will be an image. If nobody says (he was killed), there may be one,
/// and it stays, beside those of the last two images.
pub(crate) struct PendingMark<'a> {
    session: &'a Session,
    mark: Option<Epoch>,
}

impl<'a> PendingMark<'a> {
    pub(crate) fn none(session: &'a Session) -> Self {
        PendingMark {
            session,
            mark: None,
        }
    }

    fn unsettled(&self) -> MutexGuard<'_, HashSet<Epoch>> {
        let unsettled = self.session.unsettled.lock();
        unsettled.unwrap_or_else(PoisonError::into_inner)
    }

    /// There is an image, or there is not. Marks before those that are needed, which are told, go, or before those of the last two images.
    fn settle(&mut self, committed: bool, needed: &[u8]) -> Result<(), MoveError> {
        if !committed {
            self.give_up();
        }
        let Some(mark) = self.mark.take() else {
            return Ok(());
        };
        let marks = self.session.marks().map_err(MoveError::Journal)?;
        let mut unsettled = self.unsettled();
        unsettled.remove(&mark);
        let of_images = marks.iter().map(|mark| mark.epoch);
        let of_images: Vec<Epoch> = of_images.filter(|mark| !unsettled.contains(mark)).collect();
        let last_two = match of_images[..] {
            [.., before, _] if needed.is_empty() => Some(before),
            _ => None,
        };
        let mut needed = needed
            .as_chunks()
            .0
            .iter()
            .map(|epoch| Epoch(u64::from_le_bytes(*epoch)));
        let oldest = needed.find(|needed| marks.iter().any(|mark| mark.epoch == *needed));
        if let Some(before) = oldest.or(last_two) {
            unsettled.retain(|mark| *mark >= before);
            let kept = self.session.forget_before(before);
            kept.map_err(MoveError::Journal)?;
        }
        Ok(())
    }

    fn give_up(&mut self) {
        if let Some(mark) = self.mark.take()
            && let Err(error) = self.session.abort(mark)
        {
            // It costs room, and nothing else.
            tracing::warn!(%error, "the mark of a checkpoint that was given up stays");
        }
    }
}
