//! A session's undo journal: marks, and going back to them.
//!
//! ```text
//! session begins ── journal of its own, DIR/<job> ── mark ── mark ── ...
//!                                                     `── abort: as if it had not been     undo_to: files as they were there
//! ends: the journal is closed and stays, until the job is complete, or somebody opens it again for it
//! ```
//! # What callers may rely on
//! Between [`Session::mark`] and [`Session::undo_to`] whatever else the session is asked is served; a mark waits for changes that are being
//! made. What is open stays open, across marks and undos.

use crate::changes::Changes;
use crate::copies::{self, By, CopyOf, Next};
use crate::kept::Record;
use crate::saved::SavedSession;
use crate::session::Session;
use journal::{Brim, Durability, Epoch, Files, Journal, JournalError, Mark, Settings, Undone};
use rustix::io::Errno;
use std::fmt;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

/// A job, wherever it runs and however often it is restarted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct JobId(pub [u8; 16]);

impl JobId {
    /// A new one.
    ///
    /// # Errors
    /// What reading `/dev/urandom` says.
    pub fn random() -> io::Result<Self> {
        let mut id = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut id)?;
        Ok(JobId(id))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A session could not do what has to do with its journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// The shadow was started without one.
    #[error("the session has no undo journal: found none, expected one (--journal DIR)")]
    NoJournal,
    /// Somebody holds the journal.
    #[error("the session's undo journal is in use, expected to be the only user")]
    InUse,
    /// Another copy of the job has had the journal since.
    #[error("{}: found copy {newest} in the undo journal", copies::is_superseded(*ours))]
    Superseded {
        /// Number of this copy.
        ours: u64,
        /// Of the newest.
        newest: u64,
    },
    /// Somebody else has had the job go on since.
    #[error("a newer copy of the job has begun (copy {newest}), and not from here")]
    Taken {
        /// Number of the newest copy.
        newest: u64,
    },
    /// What the journal says.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Where the journals of all sessions lie, and how they work.
#[derive(Clone, Debug)]
pub struct Journals {
    dir: PathBuf,
    settings: Settings,
    keep: bool,
}

impl Journals {
    /// In a folder, which is made if it is not there.
    ///
    /// # Errors
    /// Why it cannot be made or found.
    pub fn new(dir: &Path, durability: Durability) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir)?;
        let dir = dir.canonicalize()?;
        journal::sweep(&dir)?;
        Ok(Journals {
            dir,
            settings: Settings {
                durability,
                ..Settings::default()
            },
            keep: false,
        })
    }

    /// Also the journals of jobs that were never checkpointed, or have ended well, stay.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.keep = true;
        self
    }

    /// At most so many bytes of old state for each session; a change that needs more is refused with EDQUOT.
    #[must_use]
    pub fn limited(mut self, most_bytes: u64) -> Self {
        self.settings.most_bytes = most_bytes;
        self
    }

    /// The same; who waits there is told when nearly as many are kept, of any session.
    #[must_use]
    pub fn with_brim(mut self, brim: Arc<Brim>) -> Self {
        self.settings.brim = Some(brim);
        self
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Side folders may lie in the roots of what the job may change, which it cannot remove.
    pub(crate) fn with_roots<'a>(mut self, roots: impl Iterator<Item = &'a Path>) -> Self {
        self.settings.side_folders = roots.map(Path::to_owned).collect();
        self
    }

    /// Removes the journal of the job that this state of a session is of: nobody goes back any more. Whether there was one.
    ///
    /// # Errors
    /// [`UndoError::InUse`] while somebody has it; [`UndoError::Journal`].
    pub fn remove_of(&self, state: &[u8]) -> Result<bool, UndoError> {
        let saved = SavedSession::from_bytes(state).ok();
        let Some(copy) = saved.and_then(|saved| saved.copy()) else {
            return Ok(false);
        };
        match self.open_unused(copy.job)? {
            Some(journal) => Ok(journal.remove().map(|()| true)?),
            None => Ok(false),
        }
    }

    /// Removes the journal of a job which nobody else has taken over, unless journals are kept.
    ///
    /// # Errors
    /// As [`Journals::remove_of`], and [`UndoError::Taken`].
    pub(crate) fn remove_by(&self, job: JobId, by: By) -> Result<(), UndoError> {
        match self.open_for(job, by)? {
            Some(journal) if self.keep => Ok(journal.close()?),
            Some(journal) => Ok(journal.remove()?),
            None => Ok(()),
        }
    }

    /// Whether that would be refused.
    ///
    /// # Errors
    /// As [`Journals::remove_by`].
    pub(crate) fn may_remove(&self, job: JobId, by: By) -> Result<(), UndoError> {
        match self.open_for(job, by)? {
            Some(journal) => Ok(journal.close()?),
            None => Ok(()),
        }
    }

    /// The journal of a job, if there is one and nobody else has taken the job over.
    fn open_for(&self, job: JobId, by: By) -> Result<Option<Journal>, UndoError> {
        let Some(journal) = self.open_unused(job)? else {
            return Ok(None);
        };
        match by.may_follow(journal.incarnation(), journal.starter()) {
            Ok(()) => Ok(Some(journal)),
            Err(error) => {
                journal.close()?;
                Err(error)
            }
        }
    }

    /// Opens a job's journal, if it has one that nobody has open.
    fn open_unused(&self, job: JobId) -> Result<Option<Journal>, UndoError> {
        self.open_existing(job).map_err(|error| match error {
            JournalError::InUse { .. } => UndoError::InUse,
            error => error.into(),
        })
    }

    /// Opens a job's journal, if it has one.
    fn open_existing(&self, job: JobId) -> Result<Option<Journal>, JournalError> {
        Journal::open_existing(&self.dir.join(job.to_string()), &self.settings)
    }

    /// Opens a job's journal, or begins it.
    ///
    /// # Errors
    /// [`JournalError`]
    pub fn open(&self, job: JobId) -> Result<Journal, JournalError> {
        Journal::open(&self.dir.join(job.to_string()), &self.settings)
    }
}

impl Session {
    /// Everything that is changed from now on goes through this journal.
    #[must_use]
    pub fn with_journal(mut self, journal: Arc<Journal>) -> Self {
        self.changes = Changes::with(journal);
        self
    }

    /// Has a journal begun before the first request is served: a new job's, unless [`Session::open_journal`] was before.
    ///
    /// # Errors
    /// ENOSPC if there is no room for it, else EIO; the log says why.
    pub(crate) fn begin_journal(&self) -> Result<(), Errno> {
        let Some(journals) = &self.journals else {
            return Ok(());
        };
        if self.changes.journal().is_some() {
            return Ok(());
        }
        let _one = self
            .beginning
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.changes.journal().is_some() {
            return Ok(());
        }
        let begun = self.first_copy();
        let begun = begun.and_then(|_| self.open_journal(journals));
        match begun {
            Ok(job) => {
                tracing::info!(%job, "a journal begins");
                if journals.keep {
                    self.journal_stays();
                }
                Ok(())
            }
            Err(error) => {
                let errno = match &error {
                    UndoError::Journal(error) => error.errno(),
                    _ => Errno::IO,
                };
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "a journal cannot be begun");
                Err(match errno {
                    Errno::NOSPC | Errno::DQUOT => errno,
                    _ => Errno::IO,
                })
            }
        }
    }

    /// Which copy it is: the first of a new job, if it was none yet.
    ///
    /// # Errors
    /// [`UndoError::Journal`], if a job cannot have a number.
    pub(crate) fn first_copy(&self) -> Result<CopyOf, UndoError> {
        if let Some(copy) = self.copy_of() {
            return Ok(copy);
        }
        let job = JobId::random().map_err(|source| JournalError::Io {
            what: "read",
            path: "/dev/urandom".into(),
            source,
        })?;
        // Somebody else may have been first.
        let _ = self.be_copy(CopyOf {
            job,
            incarnation: wire::FIRST_COPY,
            starter: 0,
        });
        self.copy_of().ok_or(UndoError::InUse)
    }

    /// Goes on with the journal of the job, or begins it; which job's.
    ///
    /// # Errors
    /// [`UndoError`]
    pub(crate) fn open_journal(&self, journals: &Journals) -> Result<JobId, UndoError> {
        let CopyOf { job, .. } = self.first_copy()?;
        self.note(|| Some(Record::Journal));
        self.have_journal(journals.open(job)?).map(|()| job)
    }

    /// Goes on with a job's journal as the next copy of it; false if there is none any more.
    ///
    /// # Errors
    /// [`UndoError`]
    pub(crate) fn open_old_journal(
        &self,
        journals: &Journals,
        job: JobId,
        next: Next,
    ) -> Result<bool, UndoError> {
        let Some(journal) = journals.open_existing(job)? else {
            return Ok(false);
        };
        let newest = journal.incarnation();
        if let Err(error) = next.by.may_follow(newest, journal.starter()) {
            journal.close()?;
            return Err(error);
        }
        self.be_copy(CopyOf {
            job,
            incarnation: newest.max(next.above) + 1,
            starter: next.by.starter,
        })?;
        // Whoever goes on with this session lets it stay: there is an image that needs it.
        self.note(|| Some(Record::JournalStays(true)));
        self.changes.stay(true);
        self.note(|| Some(Record::Journal));
        self.have_journal(journal).map(|()| true)
    }

    /// The journal of the job. Its number is raised before anything is done with it.
    fn have_journal(&self, journal: Journal) -> Result<(), UndoError> {
        let (ours, newest) = (self.incarnation(), journal.incarnation());
        if ours < newest {
            journal.close()?;
            return Err(UndoError::Superseded { ours, newest });
        }
        let starter = self.copy_of().map_or(0, |copy| copy.starter);
        journal.raise_incarnation(ours, starter)?;
        if !self.changes.go_through(Arc::new(journal)) {
            return Err(UndoError::InUse);
        }
        Ok(())
    }

    /// The journal is needed when the session has ended.
    pub(crate) fn journal_stays(&self) {
        if self.job().is_some() && self.changes.is_done() {
            self.note(|| Some(Record::JournalStays(true)));
        }
        self.changes.stay(true);
    }

    /// What the job has made outlives a power loss, unless whoever began the shadow does not reckon with one.
    pub(crate) fn make_durable(&self) {
        let durability = self
            .journals
            .as_ref()
            .map(|journals| journals.settings.durability);
        if durability != Some(Durability::Kill) {
            // Nobody knows all file systems on which it has made something.
            rustix::fs::sync();
        }
    }

    /// The job is complete: its journal goes with the session, when a power loss cannot take what the job has made instead.
    pub(crate) fn journal_goes(&self) {
        let journals = self.journals.as_ref().filter(|journals| !journals.keep);
        let (Some(_), Some(job)) = (journals, self.job()) else {
            return;
        };
        if self.changes.is_done() {
            return;
        }
        self.make_durable();
        tracing::info!(%job, "a job is complete, and its journal goes");
        self.note(|| Some(Record::JournalStays(false)));
        self.changes.stay(false);
    }

    /// Which journal it is.
    pub(crate) fn job(&self) -> Option<JobId> {
        let copy = self.copy_of().filter(|_| self.changes.journal().is_some());
        copy.map(|copy| copy.job)
    }

    /// The session's journal, if it has one.
    #[must_use]
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.changes.journal()
    }

    fn undo_journal(&self) -> Result<&Arc<Journal>, UndoError> {
        self.journal().ok_or(UndoError::NoJournal)
    }

    /// A mark that can be gone back to: waits for the changes that are being made. To be called at the moment of the checkpoint, when the job
    /// makes no calls. The note (4096 bytes at most) comes back with the mark; the image's name, say.
    ///
    /// # Errors
    /// [`UndoError`]; then there is no new mark, and the epoch before goes on.
    pub fn mark(&self, note: &[u8]) -> Result<Mark, UndoError> {
        let epoch = self.undo_journal()?.begin_epoch(note)?;
        let note = note.to_vec();
        Ok(Mark { epoch, note })
    }

    /// The checkpoint for which a mark was made did not come to be: what has been changed since belongs to the mark before.
    ///
    /// # Errors
    /// [`UndoError`], also for the first mark.
    pub fn abort(&self, mark: Epoch) -> Result<(), UndoError> {
        Ok(self.undo_journal()?.abort_epoch(mark)?)
    }

    /// The oldest checkpoint that is kept is now the one of this mark: what only older ones need is let go.
    ///
    /// # Errors
    /// [`UndoError`]
    pub fn forget_before(&self, mark: Epoch) -> Result<(), UndoError> {
        Ok(self.undo_journal()?.forget_before(mark)?)
    }

    /// All marks that can be gone back to, oldest first; the first is the job's begin until it is forgotten.
    ///
    /// # Errors
    /// [`UndoError::NoJournal`]
    pub fn marks(&self) -> Result<Vec<Mark>, UndoError> {
        Ok(self.undo_journal()?.marks())
    }

    /// What an undo to this mark would destroy of somebody else's. Nothing is changed.
    ///
    /// # Errors
    /// [`UndoError`]
    pub fn differences(&self, mark: Epoch) -> Result<Vec<journal::Difference>, UndoError> {
        Ok(self.undo_journal()?.check(mark)?)
    }

    /// All files become what they were at this mark, which goes on from there; later marks are gone. Answers that were remembered since are forgotten.
    /// If somebody else has changed files of the job, `files` decides, and the answer lists them.
    ///
    /// # Errors
    /// [`JournalError::Differs`] with [`Files::Fail`]: nothing was undone. Others: the undo is interrupted; no change is served
    /// until it is called again with the same mark, or the journal is opened again and it is called then.
    pub fn undo_to(&self, mark: Epoch, files: Files) -> Result<Undone, UndoError> {
        Ok(self.undo_journal()?.undo_to(mark, files)?)
    }

    /// Remembers the answer to a numbered request (1 MiB at most), which survives the shadow's end, and is rolled back with the files.
    ///
    /// # Errors
    /// [`UndoError`]
    pub fn remember(&self, request: u64, answer: &[u8]) -> Result<(), UndoError> {
        Ok(self.undo_journal()?.remember(request, answer)?)
    }

    /// What was remembered of this request.
    #[must_use]
    pub fn answer_to(&self, request: u64) -> Option<Vec<u8>> {
        self.journal()?.answer(request)
    }

    /// The peer has the answers to all requests below this one.
    ///
    /// # Errors
    /// [`UndoError`]
    pub fn forget_answers_below(&self, request: u64) -> Result<(), UndoError> {
        Ok(self.undo_journal()?.forget_answers_below(request)?)
    }

    /// The job is complete: what it has done stays, and its journal and all that was kept goes. Only of a session that nobody uses any more.
    ///
    /// # Errors
    /// [`UndoError`]
    pub fn complete(mut self) -> Result<(), UndoError> {
        let journal = self.changes.take_journal().ok_or(UndoError::NoJournal)?;
        match Arc::into_inner(journal) {
            Some(journal) => Ok(journal.remove()?),
            None => Err(UndoError::InUse),
        }
    }
}

/// A session's end is no end of its job if there is an image of it: then the journal stays.
impl Drop for Changes {
    fn drop(&mut self) {
        let end = if self.is_done() {
            Journal::remove
        } else {
            Journal::close
        };
        let journal = self.take_journal().and_then(Arc::into_inner);
        if let Some(Err(error)) = journal.map(end) {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "a journal could not be closed");
        }
    }
}
