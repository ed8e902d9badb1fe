//! Epochs: where they begin, are merged, and are forgotten.

use crate::format::manifest::{EpochEntry, Manifest, SegmentEntry};
use crate::format::record::{AnswerRecord, Record};
use crate::journal::remove_old_segments;
use crate::state::{Saved, State};
use crate::{Journal, JournalError};
use std::fmt;
use std::sync::PoisonError;

/// An epoch: the time from a mark to the next. A number is never used again for another one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A mark that can be gone back to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mark {
    /// The epoch that begins with it.
    pub epoch: Epoch,
    /// What the caller wanted to remember.
    pub note: Vec<u8>,
}

/// Most bytes of a note.
const LONGEST_NOTE: usize = 4096;

impl Journal {
    /// The epoch that is going on.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.lock_state().epoch())
    }

    /// All marks that can be gone back to, oldest first. The first is that of the journal's begin until it is forgotten.
    #[must_use]
    pub fn marks(&self) -> Vec<Mark> {
        let state = self.lock_state();
        let entries = state.manifest.epochs.iter();
        entries
            .map(|entry| Mark {
                epoch: Epoch(entry.number),
                note: entry.mark.clone(),
            })
            .collect()
    }

    /// The number of the newest copy of the job, which is served and no other; the first is 1.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.lock_state().manifest.incarnation
    }

    /// Who has begun it; 0, if that is not known.
    #[must_use]
    pub fn starter(&self) -> u64 {
        self.lock_state().manifest.starter
    }

    /// From now on the newest copy is the one of this number, begun by this starter, if it was not a newer one already. Durable when it returns; also while an undo is
    /// interrupted.
    ///
    /// # Errors
    /// [`JournalError`]; then it is the one before.
    pub fn raise_incarnation(&self, incarnation: u64, starter: u64) -> Result<(), JournalError> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock_state();
        if state.dead {
            return Err(JournalError::Dead);
        }
        if state.manifest.incarnation >= incarnation {
            return Ok(());
        }
        let mut manifest = state.manifest.clone();
        (manifest.incarnation, manifest.starter) = (incarnation, starter);
        state.commit(manifest)
    }

    /// Where an interrupted undo leads, if one has begun.
    #[must_use]
    pub fn undoing(&self) -> Option<Epoch> {
        let state = self.lock_state();
        state.manifest.undoing.map(|undoing| Epoch(undoing.to))
    }

    /// A mark: waits for the changes that are being made; all later ones belong to a new epoch. The note may have 4096 bytes.
    ///
    /// # Errors
    /// [`JournalError`]; then the epoch before goes on.
    pub fn begin_epoch(&self, note: &[u8]) -> Result<Epoch, JournalError> {
        if note.len() > LONGEST_NOTE {
            return Err(JournalError::Unsupported {
                what: "a note of more than 4096 bytes",
            });
        }
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock_state();
        state.usable()?;
        let mut manifest = state.manifest.clone();
        let (epoch, segment) = (manifest.next_epoch, manifest.next_segment);
        manifest.next_epoch += 1;
        manifest.next_segment += 1;
        seal(&mut manifest, state.log.end);
        manifest.epochs.push(EpochEntry {
            number: epoch,
            mark: note.to_vec(),
            segments: vec![SegmentEntry {
                number: segment,
                len: None,
            }],
        });
        let mut log = state.new_segment(segment)?;
        for (request, answer) in &state.answers {
            let record = AnswerRecord {
                request: *request,
                at_mark: true,
            };
            log.push(&Record::Answer(record), answer)?;
        }
        log.flush()?;
        state.sync_with(&log)?;
        log.durable = log.end;
        state.commit(manifest)?;
        state.log = log;
        state.important_end = 0;
        state.saved = Saved::default();
        state.count_kept();
        state.write_head(false)?;
        Ok(Epoch(epoch))
    }

    /// The image for which an epoch began did not come to be: the epoch becomes part of the one before.
    ///
    /// # Errors
    /// [`JournalError::NoEpoch`], also for the oldest.
    pub fn abort_epoch(&self, epoch: Epoch) -> Result<(), JournalError> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock_state();
        state.usable()?;
        let mut manifest = state.manifest.clone();
        let place = manifest
            .epochs
            .iter()
            .position(|entry| entry.number == epoch.0);
        let Some(place) = place.filter(|place| *place > 0) else {
            return Err(no_epoch(&state, epoch));
        };
        let aborted = manifest.epochs.remove(place);
        manifest.epochs[place - 1].segments.extend(aborted.segments);
        // What was saved since this mark is saved since the one before, too.
        state.commit(manifest)
    }

    /// The oldest image that is kept is now that of `epoch`: what only older ones need is released.
    ///
    /// # Errors
    /// [`JournalError::NoEpoch`]; [`JournalError::Io`] when something could not be removed, which the next
    /// [`Journal::open`] does.
    pub fn forget_before(&self, epoch: Epoch) -> Result<(), JournalError> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock_state();
        state.usable()?;
        if !state.manifest.has_epoch(epoch.0) {
            return Err(no_epoch(&state, epoch));
        }
        let mut manifest = state.manifest.clone();
        manifest.epochs.retain(|entry| entry.number >= epoch.0);
        state.commit(manifest)?;
        remove_old_segments(&self.dir, &state.manifest)?;
        state.release()?;
        state.fill();
        Ok(())
    }
}

/// The last segment gets no more records.
pub(crate) fn seal(manifest: &mut Manifest, len: u64) {
    let last = manifest.epochs.last_mut();
    if let Some(entry) = last.and_then(|epoch| epoch.segments.last_mut()) {
        entry.len = Some(len);
    }
}

pub(crate) fn no_epoch(state: &State, found: Epoch) -> JournalError {
    let oldest = state.manifest.epochs.first();
    JournalError::NoEpoch {
        found,
        oldest: Epoch(oldest.map_or(0, |entry| entry.number)),
        newest: Epoch(state.epoch()),
    }
}

impl State {
    /// Lets another manifest count. If it is not known which one does, no change is safe any more.
    pub(crate) fn commit(&mut self, manifest: Manifest) -> Result<(), JournalError> {
        if let Err(error) = manifest.write(&self.dir, self.settings.durability) {
            let there = Manifest::read(&self.dir);
            self.dead = !there.is_ok_and(|there| there.as_ref() == Some(&self.manifest));
            return Err(error);
        }
        self.manifest = manifest;
        Ok(())
    }
}
