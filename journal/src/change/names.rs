//! Names: made, removed, moved.

use super::{Change, Handle};
use crate::format::left::Left;
use crate::format::record::{BindRecord, Holder, ObjectId, Record};
use crate::inode::{Identity, Kind, Seen, Stamp, look, look_at};
use crate::reserve::open_at;
use crate::state::{Noted, State};
use crate::{Journal, JournalError};
use rustix::fd::{BorrowedFd, OwnedFd};

/// A name that is being changed.
#[derive(Debug)]
pub(super) struct Key<'a> {
    fd: BorrowedFd<'a>,
    folder: ObjectId,
    name: &'a [u8],
    /// What it is to have.
    announced: Holder,
}

/// What has a name now.
struct There {
    id: ObjectId,
    handle: OwnedFd,
    seen: Seen,
}

impl There {
    fn holder(this: Option<&There>) -> Holder {
        this.map_or(Holder::Nothing, |there| Holder::Object(there.id))
    }
}

type Name<'a> = (BorrowedFd<'a>, &'a [u8]);

impl Journal {
    /// A file, folder, link or node is about to be made; nothing is saved if the name is taken (`O_CREAT` without `O_EXCL`).
    ///
    /// # Errors
    /// [`JournalError`]: the change must not be made. The errno is the one that the call itself would give, where the name is wrong.
    pub fn before_create<'a>(
        &'a self,
        folder: BorrowedFd<'a>,
        name: &'a [u8],
    ) -> Result<Change<'a>, JournalError> {
        self.before_names(&[(folder, name)], |state, change, keys| {
            if state.there(&keys[0])?.is_none() {
                state.bind(change, keys, &[(Holder::Nothing, Holder::New)])?;
            }
            Ok(())
        })
    }

    /// A name is about to be removed. unlinkat(2).
    ///
    /// # Errors
    /// [`JournalError`]: the change must not be made.
    pub fn before_remove<'a>(
        &'a self,
        folder: BorrowedFd<'a>,
        name: &'a [u8],
    ) -> Result<Change<'a>, JournalError> {
        self.before_names(&[(folder, name)], |state, change, keys| {
            let Some(there) = state.there(&keys[0])? else {
                return Ok(());
            };
            change.take_off_there(state, &there)?;
            state.keep(
                there.id,
                (folder, keys[0].name),
                (&there.handle, &there.seen),
            )?;
            state.bind(change, keys, &[(Holder::Object(there.id), Holder::Nothing)])
        })
    }

    /// A name is about to be moved, over what has the other name, or exchanged with it. renameat2(2).
    ///
    /// # Errors
    /// [`JournalError`]: the change must not be made.
    pub fn before_rename<'a>(
        &'a self,
        from: (BorrowedFd<'a>, &'a [u8]),
        to: (BorrowedFd<'a>, &'a [u8]),
        exchange: bool,
    ) -> Result<Change<'a>, JournalError> {
        self.before_names(&[from, to], |state, change, keys| {
            let Some(moved) = state.there(&keys[0])? else {
                return Ok(());
            };
            let other = state.there(&keys[1])?;
            // Two names of one file stay as they are: rename(2).
            if other.as_ref().is_some_and(|other| other.id == moved.id) {
                return Ok(());
            }
            if exchange && other.is_none() {
                return Ok(());
            }
            change.take_off_there(state, &moved)?;
            if let Some(other) = &other {
                change.take_off_there(state, other)?;
            }
            if moved.seen.kind == Kind::Folder {
                // Its link to the folder above changes.
                state.save_attributes(moved.id, &moved.handle, &moved.seen)?;
            }
            let (moved_holder, other_holder) =
                (There::holder(Some(&moved)), There::holder(other.as_ref()));
            let left = if exchange {
                other_holder
            } else {
                Holder::Nothing
            };
            if let Some(other) = &other {
                if exchange && other.seen.kind == Kind::Folder {
                    state.save_attributes(other.id, &other.handle, &other.seen)?;
                } else if !exchange {
                    state.keep(other.id, (to.0, keys[1].name), (&other.handle, &other.seen))?;
                }
            }
            state.bind(
                change,
                keys,
                &[(moved_holder, left), (other_holder, moved_holder)],
            )
        })
    }

    /// Something open, or open as `O_PATH`, is about to get another name. linkat(2).
    ///
    /// # Errors
    /// [`JournalError`]: the change must not be made.
    pub fn before_link<'a>(
        &'a self,
        source: BorrowedFd<'a>,
        folder: BorrowedFd<'a>,
        name: &'a [u8],
    ) -> Result<Change<'a>, JournalError> {
        self.before_names(&[(folder, name)], |state, change, keys| {
            if state.there(&keys[0])?.is_some() {
                return Ok(());
            }
            let failed = |errno| JournalError::io("look at", "what is to be linked", errno);
            let seen = look(source).map_err(failed)?;
            let id = state.file(source, &seen)?;
            change.take_off(state, id, (Handle::Borrowed(source), &seen))?;
            state.bind(change, keys, &[(Holder::Nothing, Holder::Object(id))])
        })
    }

    /// The names that the journal itself has given to an open file: to be taken from its number of links.
    ///
    /// # Errors
    /// [`JournalError::Io`]
    pub fn own_links(&self, fd: BorrowedFd<'_>) -> Result<u64, JournalError> {
        let seen = look(fd).map_err(|errno| JournalError::io("look at", "a file", errno))?;
        let Identity {
            device,
            inode,
            born,
        } = seen.identity;
        Ok(self.own_links_of(device, inode, born))
    }

    /// The same for what has been looked at already: `st_dev`, `st_ino`, and the time of birth if there is one.
    #[must_use]
    pub fn own_links_of(&self, device: u64, inode: u64, born: Option<Stamp>) -> u64 {
        let identity = Identity {
            device,
            inode,
            born,
        };
        let state = self.lock_state();
        let object = state
            .by_identity
            .get(&identity)
            .and_then(|id| state.object(*id));
        let kept = object.and_then(|object| object.kept);
        kept.is_some_and(|kept| !kept.copied).into()
    }

    fn before_names<'a>(
        &'a self,
        names: &[Name<'a>],
        announce: impl FnOnce(&mut State, &mut Change<'a>, &[Key<'a>]) -> Result<(), JournalError>,
    ) -> Result<Change<'a>, JournalError> {
        let mut change = self.begin_names();
        let mut state = self.lock_state();
        state.usable()?;
        let keys: Result<Vec<Key<'a>>, _> = names.iter().map(|name| state.key(*name)).collect();
        let announced = keys.and_then(|keys| announce(&mut state, &mut change, &keys));
        if announced.is_err() {
            // No record says so.
            change.keys.clear();
        }
        state.or_forget(announced)?;
        change.ready(state)
    }
}

impl Change<'_> {
    fn take_off_there(&mut self, state: &mut State, there: &There) -> Result<(), JournalError> {
        let handle = there.handle.try_clone();
        let handle = handle.map_err(|error| JournalError::io("hold", "a file", error))?;
        self.take_off(state, there.id, (Handle::Owned(handle), &there.seen))
    }
}

impl State {
    fn key<'a>(&mut self, (fd, name): Name<'a>) -> Result<Key<'a>, JournalError> {
        let bare = name
            .iter()
            .rposition(|byte| *byte != b'/')
            .map_or(&name[..0], |at| &name[..=at]);
        if bare.is_empty() || bare == b"." || bare == b".." || bare.contains(&b'/') {
            return Err(JournalError::Unsupported {
                what: "a change of a name that is none",
            });
        }
        Ok(Key {
            fd,
            folder: self.folder(fd)?,
            name: bare,
            announced: Holder::Nothing,
        })
    }

    fn there(&mut self, key: &Key<'_>) -> Result<Option<There>, JournalError> {
        let failed = |errno| JournalError::io("look at", "a name", errno);
        let Some((handle, seen)) = open_at(key.fd, key.name).map_err(failed)? else {
            return Ok(None);
        };
        let id = self.holder(&seen, (key.folder, key.name));
        Ok(Some(There { id, handle, seen }))
    }

    /// Announces what names will have.
    fn bind<'a>(
        &mut self,
        change: &mut Change<'a>,
        keys: &[Key<'a>],
        holders: &[(Holder, Holder)],
    ) -> Result<(), JournalError> {
        self.operation += 1;
        change.operation = self.operation;
        for (key, (before, after)) in keys.iter().zip(holders) {
            let failed = |errno| JournalError::io("look at", "a folder", errno);
            let seen = look(key.fd).map_err(failed)?;
            self.save_attributes(key.folder, key.fd, &seen)?;
            for holder in [before, after] {
                if let Holder::Object(id) = holder {
                    self.refer(*id)?;
                    self.saving |= !self.is_new(*id);
                }
            }
            if let Holder::Object(id) = before {
                let epoch = self.epoch();
                if let Some(object) = self.objects.get_mut(id) {
                    let needed = std::mem::replace(&mut object.needed_by, epoch);
                    self.noted.push(Noted::Needed(*id, needed));
                }
            }
            let saved = (key.folder, key.name.to_vec());
            if self.saved.names.insert(saved.clone()) {
                self.saving |= !self.is_new(key.folder);
                self.noted.push(Noted::Name(saved.0, saved.1));
            }
            self.push_bind(change.operation, key, (*before, *after))?;
            change.keys.push(Key {
                announced: *after,
                ..*key
            });
        }
        Ok(())
    }

    fn push_bind(
        &mut self,
        operation: u64,
        key: &Key<'_>,
        (before, after): (Holder, Holder),
    ) -> Result<(), JournalError> {
        let record = BindRecord {
            operation,
            folder: key.folder,
            name: key.name.to_vec(),
            before,
            after,
        };
        self.log.push(&Record::Bind(record), &[])
    }

    /// Looks at what the names have now, and writes down what was not announced so.
    pub(super) fn settle_names(&mut self, change: &Change<'_>) -> Result<(), JournalError> {
        let mut holders = vec![];
        for key in &change.keys {
            let failed =
                |errno| JournalError::io("look at", self.path(key.folder).join("..."), errno);
            let seen = look_at(key.fd, key.name).map_err(failed)?;
            let place = Some((key.folder, key.name.to_vec()));
            let now = match (seen, key.announced) {
                (None, _) => Holder::Nothing,
                (Some(seen), Holder::New) => {
                    let epoch = self.epoch();
                    let id = self.register(&seen, place.clone(), epoch);
                    self.set_left(id, Left::of(&seen))?;
                    Holder::Object(id)
                }
                (Some(seen), _) => Holder::Object(self.holder(&seen, (key.folder, key.name))),
            };
            if let Holder::Object(id) = now
                && let Some(object) = self.objects.get_mut(&id)
            {
                object.place = place;
                holders.push(id);
            }
            if now != key.announced {
                if let Holder::Object(id) = now {
                    self.refer(id)?;
                }
                self.push_bind(change.operation, key, (Holder::New, now))?;
                if let Holder::Object(id) = key.announced {
                    // It stays where it was.
                    self.refer_anew(id)?;
                }
            }
        }
        for (id, handle) in &change.objects {
            let failed = |errno| JournalError::io("look at", "what lost its name", errno);
            let seen = look(handle).map_err(failed)?;
            let Some(object) = self.objects.get_mut(id) else {
                continue;
            };
            let here = |place: &(ObjectId, Vec<u8>)| {
                let mut keys = change.keys.iter();
                keys.any(|key| key.folder == place.0 && key.name == place.1)
            };
            if object.place.as_ref().is_some_and(here) && !holders.contains(id) {
                object.place = None;
            }
            let copied = object.kept.is_some_and(|kept| kept.copied);
            if seen.links == 0 && (object.kind == Kind::Folder || copied) && !object.gone {
                // Its number may be another's from now on.
                object.gone = true;
                let identity = object.identity;
                if self.by_identity.get(&identity) == Some(id) {
                    self.by_identity.remove(&identity);
                }
                self.refer_anew(*id)?;
            }
        }
        Ok(())
    }
}
