//! Changes: the old state is saved before, what was left is noted after.
//!
//! ```text
//! before_...: look ─> records ─> written ─> durable ─> in flight ── the caller's change ── drop: look ─> slot, records
//!             `─────────── state locked ──┘  (group)                                            state locked
//! ```

mod attributes;
mod contents;
mod keep;
mod names;
mod objects;

pub(crate) use attributes::xattrs;

use crate::format::left::Left;
use crate::format::record::ObjectId;
use crate::inode::{Kind, Seen, look};
use crate::state::State;
use crate::{Journal, JournalError, fault};
use names::Key;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{MutexGuard, PoisonError, RwLockReadGuard};

/// A change that may be made now, while this lives. It holds up marks, and if names are changed other such changes.
#[derive(Debug)]
#[must_use = "the change is to be made while this lives"]
pub struct Change<'a> {
    journal: &'a Journal,
    objects: Vec<(ObjectId, Handle<'a>)>,
    keys: Vec<Key<'a>>,
    /// Records that were written count only for what was announced.
    operation: u64,
    _names: Option<MutexGuard<'a, ()>>,
    _gate: RwLockReadGuard<'a, ()>,
}

/// What is changed.
#[derive(Debug)]
enum Handle<'a> {
    Borrowed(BorrowedFd<'a>),
    Owned(OwnedFd),
}

impl AsFd for Handle<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Handle::Borrowed(fd) => *fd,
            Handle::Owned(fd) => fd.as_fd(),
        }
    }
}

impl Journal {
    /// A change that has been announced to nobody yet.
    fn begin_change(&self) -> Change<'_> {
        Change {
            journal: self,
            objects: vec![],
            keys: vec![],
            operation: 0,
            _names: None,
            _gate: self.gate.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// As [`Journal::begin_change`], of names.
    fn begin_names(&self) -> Change<'_> {
        let mut change = self.begin_change();
        change._names = Some(self.names.lock().unwrap_or_else(PoisonError::into_inner));
        change
    }
}

impl<'a> Change<'a> {
    /// Whether nothing was announced: the name to be made is taken, or there is nothing to be removed, moved or linked over. The
    /// call must then say so, and not be made: meanwhile somebody else may have made or removed it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.keys.is_empty()
    }

    /// Something is going to be changed: from now on it may look otherwise.
    fn take_off(
        &mut self,
        state: &mut State,
        id: ObjectId,
        (handle, seen): (Handle<'a>, &Seen),
    ) -> Result<(), JournalError> {
        state.take_off(id, seen)?;
        self.objects.push((id, handle));
        Ok(())
    }

    /// The records are written, and durable if they matter; the change may be made.
    fn ready(mut self, mut state: MutexGuard<'_, State>) -> Result<Self, JournalError> {
        if let Err(error) = state.write_records() {
            self.keys.clear();
            state.saving = false;
            drop(state);
            return Err(error);
        }
        if state.saving {
            state.important_end = state.log.end;
            state.saving = false;
        }
        let position = state.important_end;
        drop(state);
        self.journal.make_durable(position)?;
        fault::at("change")?;
        Ok(self)
    }

    fn settle(&self) -> Result<(), JournalError> {
        if self.objects.is_empty() && self.keys.is_empty() {
            return Ok(());
        }
        fault::at("settle")?;
        let mut state = self.journal.lock_state();
        if state.dead {
            return Ok(());
        }
        let settled = state.settle_names(self).and_then(|()| state.log.flush());
        state.noted.clear();
        state.saving = false;
        if let Err(error) = settled {
            state.dead = true;
            return Err(error);
        }
        for (id, handle) in &self.objects {
            let seen = look(handle)
                .map_err(|errno| JournalError::io("look at", state.path(*id), errno))?;
            state.land(*id, &seen)?;
        }
        Ok(())
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        match self.settle() {
            Ok(()) | Err(JournalError::Killed { .. }) => {}
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "what a change has left could not be noted");
            }
        }
    }
}

impl State {
    /// A change of an object begins. Whether somebody else has changed it since the job did is seen here.
    fn take_off(&mut self, id: ObjectId, seen: &Seen) -> Result<(), JournalError> {
        let mut left = self.left(id)?;
        let epoch = self.epoch();
        let Some(object) = self.objects.get_mut(&id) else {
            return Ok(());
        };
        let touched = object.touched_in >= epoch;
        object.in_flight += 1;
        object.touched_in = epoch;
        if object.in_flight > 1 {
            return Ok(());
        }
        let other = left.print.is_some_and(|print| print != seen.print);
        if other && !left.in_flight && seen.kind != Kind::Folder {
            // What is there now is the state at the mark, if this is the first change since.
            let lost = if touched { epoch } else { epoch - 1 };
            if left.conflict < lost {
                let name = self.path(id);
                tracing::warn!(name = %name.display(), "somebody else changes a file that the job writes");
                left.conflict = lost;
            }
        }
        left.in_flight = true;
        self.set_left(id, left)
    }

    /// A change of an object has ended.
    fn land(&mut self, id: ObjectId, seen: &Seen) -> Result<(), JournalError> {
        let Some(object) = self.objects.get_mut(&id) else {
            return Ok(());
        };
        object.in_flight = object.in_flight.saturating_sub(1);
        if object.in_flight > 0 {
            return Ok(());
        }
        let left = Left {
            conflict: self.left(id)?.conflict,
            ..Left::of(seen)
        };
        self.set_left(id, left)
    }
}
