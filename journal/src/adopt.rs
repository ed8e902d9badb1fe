//! After the process or the machine has ended without the journal having been closed: what is in doubt is taken as the job's.
//!
//! Records that only say what the job left are not made durable, and a change that was being made may have been made or not. So when
//! the journal is opened again, what is there is looked at, once, and written down:
//! - after the end of the process: the names of the last change, and objects that were being changed;
//! - after the end of the machine: all that has not changed since it was started anew.

use crate::JournalError;
use crate::check::{names_in, unless_forbidden};
use crate::format::left::Left;
use crate::format::record::{BindRecord, Holder, ObjectId, Record};
use crate::inode::{Kind, Seen, Stamp, look_at};
use crate::past::Past;
use crate::reserve::open_at;
use crate::state::State;
use crate::undo::locate::Locator;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;

impl State {
    /// Takes what is in doubt as the job's. `since` is the start of the machine, if it has been started anew.
    pub(crate) fn adopt(&mut self, since: Option<Stamp>) -> Result<(), JournalError> {
        let oldest = self.manifest.epochs.first().map_or(0, |entry| entry.number);
        let past = Past::read(self, oldest)?;
        let mut work = Adopting {
            believed: since,
            locator: Locator::new(false),
        };
        work.names(self, &past)?;
        for (id, known) in &past.objects {
            // In folders that were there before, each change of a name is durable before it is made.
            if since.is_some()
                && known.kind == Kind::Folder
                && known.made_in >= self.epoch()
                && let Some(found) = unless_forbidden(work.locator.find(self, &past, *id))?
            {
                work.contents(self, &past, (*id, found.handle))?;
            }
        }
        for id in &past.touched {
            let left = self.left(*id)?;
            let Some(found) = unless_forbidden(work.locator.find(self, &past, *id))? else {
                continue;
            };
            if !past.is(*id, &found.seen) {
                continue;
            }
            let print = found.seen.print;
            let other = left.print.is_some_and(|left| left != print);
            if left.in_flight || (other && work.believes(print.changed)) {
                let conflict = left.conflict;
                self.set_left(
                    *id,
                    Left {
                        conflict,
                        ..Left::of(&found.seen)
                    },
                )?;
            }
            let object = self.objects.get_mut(id);
            if found.place.is_some()
                && let Some(object) = object.filter(|object| object.place != found.place)
            {
                object.place = found.place;
                self.refer_anew(*id)?;
            }
        }
        self.log.flush()?;
        self.noted.clear();
        self.saving = false;
        Ok(())
    }
}

/// What lies in an old folder was there at the mark, as far as no record says otherwise.
fn is_new(state: &State, id: ObjectId) -> bool {
    let epoch = state.epoch();
    state
        .object(id)
        .is_some_and(|object| object.made_in >= epoch)
}

struct Adopting {
    believed: Option<Stamp>,
    locator: Locator,
}

impl Adopting {
    fn believes(&self, changed: Stamp) -> bool {
        self.believed.is_some_and(|since| changed < since)
    }

    fn names(&mut self, state: &mut State, past: &Past) -> Result<(), JournalError> {
        let current = state.manifest.epochs.last();
        let first = current.and_then(|epoch| epoch.segments.first());
        let first = first.map_or(0, |entry| entry.number);
        for ((folder, name), bound) in &past.names {
            // What the mark has sealed is durable.
            let last = bound.operation == past.last_operation;
            if bound.segment < first || !(last || self.believed.is_some()) {
                continue;
            }
            let Some(found) = unless_forbidden(self.locator.find(state, past, *folder))? else {
                continue;
            };
            let now = match look_at(&found.handle, name) {
                Err(Errno::ACCESS) => continue,
                now => {
                    now.map_err(|errno| JournalError::io("look at", state.path(*folder), errno))?
                }
            };
            let changed = now.map_or(found.seen.print.changed, |now| now.print.changed);
            let in_doubt = last && self.believed.is_none();
            if !past.fits(bound.left, now.as_ref()) && (in_doubt || self.believes(changed)) {
                let id = state.adopt_name((*folder, name), now.as_ref())?;
                let opened = open_at(&found.handle, name);
                let opened =
                    opened.map_err(|errno| JournalError::io("open", state.path(*folder), errno))?;
                if let (Some(id), Some((handle, seen))) = (id, opened)
                    && seen.kind == Kind::Folder
                    && self.believed.is_some()
                    && is_new(state, id)
                {
                    self.contents(state, past, (id, Arc::new(handle)))?;
                }
            }
        }
        Ok(())
    }

    /// All that is in a folder that the job has made.
    fn contents(
        &mut self,
        state: &mut State,
        past: &Past,
        (folder, handle): (ObjectId, Arc<OwnedFd>),
    ) -> Result<(), JournalError> {
        let mut waiting = vec![(folder, handle)];
        while let Some((folder, handle)) = waiting.pop() {
            let failed = |errno| JournalError::io("read", state.path(folder), errno);
            for (name, seen, handle) in names_in(&handle).map_err(failed)? {
                if !self.believes(seen.print.changed) {
                    continue;
                }
                // It may not have been found before: the folder may have been moved.
                let bound = past.names.get(&(folder, name.clone()));
                let id = match bound.map(|bound| bound.left) {
                    Some(left @ Holder::Object(id)) if past.fits(left, Some(&seen)) => Some(id),
                    _ => state.adopt_name((folder, &name), Some(&seen))?,
                };
                if let (Some(id), Kind::Folder) = (id, seen.kind)
                    && is_new(state, id)
                {
                    waiting.push((id, Arc::new(handle)));
                }
            }
        }
        Ok(())
    }
}

impl State {
    /// Writes down what has a name, as if the job had just put it there.
    fn adopt_name(
        &mut self,
        (folder, name): (ObjectId, &[u8]),
        now: Option<&Seen>,
    ) -> Result<Option<ObjectId>, JournalError> {
        let place = Some((folder, name.to_vec()));
        let id = match now {
            None => None,
            Some(seen) => {
                let known = self.known(seen);
                let id = known.unwrap_or_else(|| self.register(seen, place.clone(), self.epoch()));
                // Getting its name has changed its look.
                let conflict = self.left(id)?.conflict;
                self.set_left(
                    id,
                    Left {
                        conflict,
                        ..Left::of(seen)
                    },
                )?;
                Some(id)
            }
        };
        self.refer(folder)?;
        if let Some(id) = id {
            if let Some(object) = self.objects.get_mut(&id) {
                object.place = place;
            }
            self.refer(id)?;
        }
        self.operation += 1;
        let record = BindRecord {
            operation: self.operation,
            folder,
            name: name.to_vec(),
            before: if id.is_some() {
                Holder::Nothing
            } else {
                Holder::New
            },
            after: id.map_or(Holder::Nothing, Holder::Object),
        };
        self.log.push(&Record::Bind(record), &[])?;
        self.saved.names.insert((folder, name.to_vec()));
        Ok(id)
    }
}
