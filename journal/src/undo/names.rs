//! Names: what was there gets its names back, what was not is removed.
//!
//! ```text
//! recreate: folders that are gone       -> side folder
//! fetch:    what is not in its place    -> side folder (files by a further name, folders are moved)
//! detach:   what is in the wrong place  -> away: a further name is removed, the job's own goes to the trash
//! put:      side folder                 -> its places
//! ```

use super::Work;
use super::locate::{found, permit};
use crate::format::record::{Holder, ObjectId, ObjectRecord, ROOT, Record};
use crate::inode::{Kind, Seen, look, look_at};
use crate::reserve::{entry_name, open_at};
use crate::{Durability, JournalError, fault};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

type Key = (ObjectId, Vec<u8>);
type Target = (Key, Option<ObjectId>);
type Wanted = BTreeMap<ObjectId, Vec<Key>>;

impl Work<'_> {
    /// The number of names that were put back.
    pub(super) fn put_names_back(&mut self) -> Result<usize, JournalError> {
        let (keys, wanted) = self.targets()?;
        for id in wanted.keys() {
            self.recreate(*id, &wanted)?;
        }
        self.sync_records()?;
        for (id, places) in &wanted {
            self.fetch(*id, places)?;
        }
        for (key, target) in &keys {
            self.detach(key, *target, &wanted)?;
        }
        let mut put = 0;
        for (key, target) in &keys {
            if let Some(id) = target {
                put += usize::from(self.put(key, *id)?);
            }
        }
        Ok(put)
    }

    /// What each name is to have, and the names that each object is to have.
    fn targets(&mut self) -> Result<(Vec<Target>, Wanted), JournalError> {
        let mut wanted = Wanted::new();
        let mut all: Vec<Target> = vec![];
        for (key, name) in &self.past.names {
            let target = match name.at_mark {
                Holder::Object(id) => Some(id),
                Holder::Nothing | Holder::New => None,
            };
            if let Some(id) = target {
                wanted.entry(id).or_default().push(key.clone());
            }
            all.push((key.clone(), target));
        }
        let mut known = HashMap::from([(ROOT, true)]);
        let mut keys = vec![];
        for (key, target) in all {
            if self.was_there(key.0, &wanted, &mut known)? {
                keys.push((key, target));
            }
        }
        for places in wanted.values_mut() {
            places.retain(|(folder, _)| known.get(folder) == Some(&true));
        }
        wanted.retain(|_, places| !places.is_empty());
        Ok((keys, wanted))
    }

    /// Whether a folder was there at the mark. After a crash there may be some that the job made, and no record says so.
    fn was_there(
        &mut self,
        id: ObjectId,
        wanted: &Wanted,
        known: &mut HashMap<ObjectId, bool>,
    ) -> Result<bool, JournalError> {
        if let Some(known) = known.get(&id) {
            return Ok(*known);
        }
        if !self.past.is_old(id) {
            known.insert(id, false);
            return Ok(false);
        }
        // Until it is known, it is in no folder of its own.
        known.insert(id, false);
        let mut was = false;
        if let Some(places) = wanted.get(&id) {
            for (folder, _) in places {
                was |= self.was_there(*folder, wanted, known)?;
            }
        } else if let Some((folder, name)) = self.find(id)?.and_then(|found| found.place) {
            let other = self.past.names.contains_key(&(folder, name));
            was = !other && self.was_there(folder, wanted, known)?;
        }
        known.insert(id, was);
        Ok(was)
    }

    /// Which inodes the new folders are must be known before anything is put into them.
    fn sync_records(&mut self) -> Result<(), JournalError> {
        if self.state.settings.durability == Durability::Kill {
            return Ok(());
        }
        let synced = self.log.file.sync_data();
        synced.map_err(|error| JournalError::io("sync", &self.state.dir, error))
    }

    fn folder(&mut self, id: ObjectId) -> Result<Arc<OwnedFd>, JournalError> {
        let found = self.locator.folder(self.state, &self.past, id)?;
        let handle = found.ok_or_else(|| JournalError::Lost {
            path: self.state.path(id),
        })?;
        let device = self
            .past
            .objects
            .get(&id)
            .map_or(0, |known| known.identity.device);
        self.devices.entry(device).or_insert_with(|| handle.clone());
        Ok(handle)
    }

    fn failed(&self, what: &'static str, id: ObjectId) -> impl Fn(Errno) -> JournalError + use<> {
        let path = self.state.path(id);
        move |errno| JournalError::io(what, &path, errno)
    }

    /// A folder that is gone is made anew, and what is kept as a copy becomes the object.
    fn recreate(&mut self, id: ObjectId, wanted: &Wanted) -> Result<(), JournalError> {
        let seen = match self.find(id)? {
            Some(found) if self.past.is(id, &found.seen) => return Ok(()),
            Some(found) => found.seen,
            None => self.make_folder(id, wanted)?,
        };
        let record = ObjectRecord {
            id,
            identity: seen.identity,
            kind: seen.kind,
            place: wanted.get(&id).and_then(|places| places.first().cloned()),
            made_in: self.past.objects.get(&id).map_or(0, |known| known.made_in),
            kept: None,
            gone: false,
            remade: true,
        };
        // Its place's folder is explained first.
        if let Some((folder, _)) = &record.place {
            self.explain(*folder)?;
        }
        self.log.push(&Record::Object(record.clone()), &[])?;
        self.log.flush()?;
        self.past.object(record);
        Ok(())
    }

    /// What is known of a folder and those above it is repeated in this segment.
    fn explain(&mut self, id: ObjectId) -> Result<(), JournalError> {
        let mut at = Some(id);
        let mut seen = vec![];
        while let Some(id) = at.filter(|id| !seen.contains(id)) {
            seen.push(id);
            let Some(known) = self.past.objects.get(&id) else {
                break;
            };
            let record = ObjectRecord {
                id,
                identity: known.identity,
                kind: known.kind,
                place: known.places.first().cloned(),
                made_in: known.made_in,
                kept: known.kept,
                gone: known.gone,
                remade: known.remade,
            };
            at = record.place.as_ref().map(|(folder, _)| *folder);
            self.log.push(&Record::Object(record), &[])?;
        }
        Ok(())
    }

    fn make_folder(&mut self, id: ObjectId, wanted: &Wanted) -> Result<Seen, JournalError> {
        let lost = JournalError::Lost {
            path: self.state.path(id),
        };
        let is_folder = |known: &crate::past::Known| known.kind == Kind::Folder;
        if !self.past.objects.get(&id).is_some_and(is_folder) {
            return Err(lost);
        }
        let Some((parent, _)) = wanted.get(&id).and_then(|places| places.first()) else {
            return Err(lost);
        };
        if self.find(*parent)?.is_none() {
            self.recreate(*parent, wanted)?;
        }
        let parent = self.folder(*parent)?;
        let failed = self.failed("make", id);
        let number = self.reserve_for(&parent)?;
        let reserve = &self.state.reserves[number as usize];
        fault::at("recreate")?;
        rustix::fs::mkdirat(&reserve.fd, entry_name(id), Mode::RWXU).map_err(&failed)?;
        let seen = reserve.look_at(id).map_err(&failed)?;
        seen.ok_or_else(|| failed(Errno::NOENT))
    }

    fn reserve_for(&mut self, folder: &OwnedFd) -> Result<u32, JournalError> {
        let seen =
            look(folder).map_err(|errno| JournalError::io("look at", &self.state.dir, errno))?;
        self.state.reserve_for(folder, &seen)
    }

    fn in_place(&mut self, (folder, name): &Key, id: ObjectId) -> Result<bool, JournalError> {
        let failed = self.failed("look at", *folder);
        let handle = self.folder(*folder)?;
        let seen = look_at(&handle, name).map_err(failed)?;
        Ok(seen.is_some_and(|seen| self.past.is(id, &seen)))
    }

    /// Brings what is not in all of its places into a side folder.
    fn fetch(&mut self, id: ObjectId, places: &[Key]) -> Result<(), JournalError> {
        let mut all = true;
        for key in places {
            all &= self.in_place(key, id)?;
        }
        if all {
            return Ok(());
        }
        let found = self.find(id)?.ok_or_else(|| JournalError::Lost {
            path: self.state.path(id),
        })?;
        // If it is kept, it has been found there.
        let Some((folder, name)) = found.place else {
            return Ok(());
        };
        let failed = self.failed("move aside", id);
        let parent = self.folder(folder)?;
        let number = self.reserve_for(&parent)?;
        let reserve = &self.state.reserves[number as usize];
        fault::at("fetch")?;
        let linked = if found.seen.kind == Kind::Folder || self.state.settings.no_links {
            Err(Errno::PERM)
        } else {
            reserve.link(&parent, &name, id)
        };
        match linked {
            Err(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS) => {
                rustix::fs::renameat(&parent, &name, &reserve.fd, entry_name(id))
            }
            linked => linked,
        }
        .map_err(failed)
    }

    /// Removes what does not belong in a place.
    fn detach(
        &mut self,
        (folder, name): &Key,
        target: Option<ObjectId>,
        wanted: &Wanted,
    ) -> Result<(), JournalError> {
        let failed = self.failed("remove from", *folder);
        let handle = self.folder(*folder)?;
        let Some((there_handle, seen)) = open_at(&handle, name).map_err(&failed)? else {
            return Ok(());
        };
        let there = self.past.by_identity.get(&seen.identity).copied();
        let there = there.filter(|id| self.past.is(*id, &seen));
        if there.is_some() && there == target {
            return Ok(());
        }
        fault::at("detach")?;
        let known = there.and_then(|id| self.past.objects.get(&id));
        let has_others = there.is_some_and(|id| wanted.contains_key(&id))
            || (seen.links > 1 && known.is_some_and(|known| !known.new));
        if seen.kind != Kind::Folder && has_others {
            return rustix::fs::unlinkat(&handle, name, AtFlags::empty()).map_err(failed);
        }
        let number = self.reserve_for(&handle)?;
        if seen.kind == Kind::Folder {
            // Its link to the folder above changes, which needs permission.
            permit(&found((there_handle, seen), None, None)).map_err(&failed)?;
        }
        let reserve = &self.state.reserves[number as usize];
        reserve.throw(&handle, name).map_err(failed)
    }

    /// Puts an object in its place; whether it was not there.
    fn put(&mut self, key: &Key, id: ObjectId) -> Result<bool, JournalError> {
        if self.in_place(key, id)? {
            return Ok(false);
        }
        let failed = self.failed("put back", id);
        let folder = self.folder(key.0)?;
        let found = self.find(id)?.ok_or_else(|| JournalError::Lost {
            path: self.state.path(id),
        })?;
        fault::at("put")?;
        let kind = found.seen.kind;
        let (from, own) = match (found.reserve, found.place) {
            (Some(number), _) => {
                let fd = self.state.reserves[number as usize].fd.try_clone();
                let fd =
                    fd.map_err(|error| JournalError::io("open", self.state.path(id), error))?;
                (Arc::new(fd), entry_name(id).into_bytes())
            }
            // It has its other names already.
            (None, Some((other, name))) if kind != Kind::Folder => (self.folder(other)?, name),
            (None, _) => return Err(failed(Errno::NOENT)),
        };
        let linked = if kind == Kind::Folder || self.state.settings.no_links {
            Err(Errno::PERM)
        } else {
            rustix::fs::linkat(&from, &own, &folder, &key.1, AtFlags::empty())
        };
        match linked {
            Err(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS)
                if found.reserve.is_some() =>
            {
                rustix::fs::renameat(&from, &own, &folder, &key.1)
            }
            linked => linked,
        }
        .map_err(failed)?;
        Ok(true)
    }
}
