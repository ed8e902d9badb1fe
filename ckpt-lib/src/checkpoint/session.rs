//! The session of a job whose files are at a shadow: its state at the freeze goes into the image.

use super::CheckpointError;
use crate::capture::ProcessUsed;
use crate::image::Away;
use crate::snapshot::{DescriptionKind, SnapshotV1};
use std::path::Path;
use std::sync::Arc;

/// Whoever can ask the shadow.
pub trait JobSession {
    /// The job is frozen: the state of its session, which the image keeps.
    ///
    /// # Errors
    /// It has none, or the shadow cannot be asked; then there is no checkpoint.
    fn mark(&mut self) -> Result<Vec<u8>, SessionError>;

    /// The job is frozen, and its memory is not read yet: what its first process has used of processors.
    ///
    /// # Errors
    /// It cannot be noted where the job's copies will look for it; then there is no checkpoint.
    fn used(&mut self, _used: &ProcessUsed) -> Result<(), SessionError> {
        Ok(())
    }

    /// All that is of the moment of the freeze has been read, and the job goes on.
    fn goes_on(&mut self) {}

    /// The job stands still until it is killed: where the contents of its image go, if that counts only on another machine.
    ///
    /// # Errors
    /// Nobody is there; then there is no checkpoint.
    fn away(&mut self) -> Result<Option<Arc<dyn Away>>, SessionError> {
        Ok(None)
    }

    /// The image has its name here. Where it counts only on another machine, what has not gone there yet is brought there.
    ///
    /// # Errors
    /// It is not there; then there is no checkpoint.
    fn carry(&mut self, _image: &Path) -> Result<(), SessionError> {
        Ok(())
    }

    /// The checkpoint for which the last [`JobSession::mark`] was is on the disk, or was given up.
    fn settle(&mut self, committed: bool);

    /// Whether the job may be killed, now that the checkpoint counts.
    ///
    /// # Errors
    /// Where it is to go on, the image is not known to be: the job goes on here.
    fn may_leave(&mut self) -> Result<(), SessionError> {
        Ok(())
    }

    /// The image counts, and the job is killed now: what comes next is SIGKILL.
    fn kills(&mut self) {}
}

/// Why a session has no state.
pub type SessionError = Box<dyn std::error::Error + Send + Sync>;

/// Marks, and gives up again unless it is told that there is an image.
pub(super) struct Marked<'a> {
    session: Option<&'a mut dyn JobSession>,
    state: Vec<u8>,
}

impl<'a> Marked<'a> {
    pub(super) fn now(session: Option<&'a mut dyn JobSession>) -> Result<Self, CheckpointError> {
        let Some(session) = session else {
            return Ok(Marked {
                session: None,
                state: vec![],
            });
        };
        let state = session.mark().map_err(CheckpointError::Session)?;
        Ok(Marked {
            session: Some(session),
            state,
        })
    }

    /// Puts the state where the restart looks for it.
    pub(super) fn note(&self, snapshot: &mut SnapshotV1) -> Result<(), CheckpointError> {
        let kinds = snapshot.descriptions.iter_mut().map(|one| &mut one.kind);
        for kind in kinds {
            if let DescriptionKind::Session { state } = kind {
                if self.state.is_empty() {
                    let why = "the job has a session at a shadow, and nobody has asked the shadow";
                    return Err(CheckpointError::Session(why.into()));
                }
                state.clone_from(&self.state);
            }
        }
        Ok(())
    }

    pub(super) fn used(&mut self, used: &[ProcessUsed]) -> Result<(), CheckpointError> {
        match (&mut self.session, used.first()) {
            (Some(session), Some(used)) => session.used(used).map_err(CheckpointError::Session),
            _ => Ok(()),
        }
    }

    pub(super) fn goes_on(&mut self) {
        if let Some(session) = &mut self.session {
            session.goes_on();
        }
    }

    /// Gives up if the image does not come where it has to be.
    pub(super) fn carry(&mut self, image: &Path) -> Result<(), CheckpointError> {
        match &mut self.session {
            Some(session) => session.carry(image).map_err(CheckpointError::Carry),
            None => Ok(()),
        }
    }

    /// Whoever is to hear that the job is killed.
    pub(super) fn committed(mut self) -> Option<&'a mut dyn JobSession> {
        let session = self.session.take()?;
        session.settle(true);
        Some(session)
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        if let Some(session) = &mut self.session {
            session.settle(false);
        }
    }
}
