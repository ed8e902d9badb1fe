//! What the journal knows: objects, what has been saved in this epoch, answers. All of it is read back from the segments.

use crate::boot::Boot;
use crate::format::left::{Left, LeftHead, LeftTable};
use crate::format::manifest::Manifest;
use crate::format::record::{Kept, ObjectId, ObjectRecord, ROOT, Record};
use crate::format::segment::Segment;
use crate::inode::{Identity, Kind, Seen, Stamp, look};
use crate::ranges::Ranges;
use crate::reserve::Reserve;
use crate::{Durability, JournalError, Settings, fault};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

/// Something in a file system that a record speaks of.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) identity: Identity,
    pub(crate) kind: Kind,
    pub(crate) place: Option<(ObjectId, Vec<u8>)>,
    pub(crate) made_in: u64,
    pub(crate) kept: Option<Kept>,
    pub(crate) gone: bool,
    pub(crate) remade: bool,
    /// The last segment that has a record of it.
    pub(crate) written_in: u64,
    /// The last epoch in which it lost a name.
    pub(crate) needed_by: u64,
    /// The last epoch in which the job changed it.
    pub(crate) touched_in: u64,
    /// Its slot, once that was read.
    pub(crate) left: Option<Left>,
    /// Changes that are being made.
    pub(crate) in_flight: u32,
}

/// What has been saved since the last mark.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    pub(crate) names: HashSet<(ObjectId, Vec<u8>)>,
    /// With the size at the mark.
    pub(crate) attributes: HashMap<ObjectId, u64>,
    pub(crate) blocks: HashMap<ObjectId, Ranges>,
}

/// What was noted in memory for records that are not written yet.
#[derive(Debug)]
pub(crate) enum Noted {
    Name(ObjectId, Vec<u8>),
    Attributes(ObjectId),
    Blocks(ObjectId, Range<u64>),
    NewObject(ObjectId),
    Written(ObjectId, u64),
    Kept(ObjectId),
    Needed(ObjectId, u64),
}

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) dir: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) boot: Boot,
    pub(crate) manifest: Manifest,
    pub(crate) log: Segment,
    pub(crate) reserves: Vec<Reserve>,
    pub(crate) table: LeftTable,
    pub(crate) objects: HashMap<ObjectId, Object>,
    pub(crate) by_identity: HashMap<Identity, ObjectId>,
    pub(crate) next_object: u64,
    pub(crate) saved: Saved,
    pub(crate) answers: BTreeMap<u64, Vec<u8>>,
    pub(crate) operation: u64,
    /// Bytes of all segments but the last, and of what is kept.
    pub(crate) used: u64,
    /// It was not closed: slots may say that a change is being made.
    pub(crate) crashed: bool,
    /// The machine has been started anew without it having been closed, then.
    pub(crate) power_lost: Option<Stamp>,
    pub(crate) dead: bool,
    pub(crate) noted: Vec<Noted>,
    /// Side folders with new links that are not durable yet.
    pub(crate) unsynced_reserves: HashSet<u32>,
    /// Among the records that wait are some without which a change could not be undone.
    pub(crate) saving: bool,
    /// The segment's bytes up to the last such record.
    pub(crate) important_end: u64,
}

impl State {
    pub(crate) fn epoch(&self) -> u64 {
        self.manifest.current()
    }

    pub(crate) fn object(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(&id)
    }

    /// Gives a number to something that is there.
    pub(crate) fn register(
        &mut self,
        seen: &Seen,
        place: Option<(ObjectId, Vec<u8>)>,
        made_in: u64,
    ) -> ObjectId {
        let id = ObjectId(self.next_object);
        self.next_object += 1;
        let object = Object {
            identity: seen.identity,
            kind: seen.kind,
            place,
            made_in,
            kept: None,
            gone: false,
            remade: false,
            written_in: 0,
            needed_by: 0,
            touched_in: made_in,
            left: Some(Left::default()),
            in_flight: 0,
        };
        self.insert(id, object);
        self.noted.push(Noted::NewObject(id));
        id
    }

    fn insert(&mut self, id: ObjectId, object: Object) {
        insert(&mut self.objects, &mut self.by_identity, id, object);
    }

    /// The number of something that is there, if it has one.
    pub(crate) fn known(&self, seen: &Seen) -> Option<ObjectId> {
        let id = *self.by_identity.get(&seen.identity)?;
        let object = self.objects.get(&id)?;
        (object.kind == seen.kind && !object.gone).then_some(id)
    }

    /// Sees to it that the segment says what this number means, and where it is.
    pub(crate) fn refer(&mut self, id: ObjectId) -> Result<(), JournalError> {
        let number = self.log.number;
        let mut chain = vec![];
        let mut at = Some(id);
        while let Some(id) = at {
            let Some(object) = self.objects.get_mut(&id) else {
                break;
            };
            if object.written_in == number {
                break;
            }
            let before = std::mem::replace(&mut object.written_in, number);
            self.noted.push(Noted::Written(id, before));
            chain.push(id);
            at = object.place.as_ref().map(|(folder, _)| *folder);
        }
        // Folders first: wherever the records are torn, none speaks of a folder that is not explained.
        for id in chain.into_iter().rev() {
            if let Some(object) = self.objects.get(&id) {
                self.log.push(&Record::Object(object.record(id)), &[])?;
            }
        }
        Ok(())
    }

    /// As [`State::refer`], again: something about it has changed.
    pub(crate) fn refer_anew(&mut self, id: ObjectId) -> Result<(), JournalError> {
        if let Some(object) = self.objects.get_mut(&id) {
            let before = std::mem::replace(&mut object.written_in, 0);
            self.noted.push(Noted::Written(id, before));
        }
        self.refer(id)
    }

    /// Writes the records that wait, if there is room for them; else forgets them, and all that was noted for them.
    pub(crate) fn write_records(&mut self) -> Result<(), JournalError> {
        let room = self.room().and_then(|()| self.keep_room());
        let written = room.and_then(|()| self.log.flush());
        match written {
            Ok(()) => {
                self.noted.clear();
                Ok(())
            }
            Err(error) => {
                self.forget_noted();
                Err(error)
            }
        }
    }

    /// Writes the records that wait; what was noted for this change is still forgotten if it fails later.
    pub(crate) fn write_some_records(&mut self) -> Result<(), JournalError> {
        self.room()?;
        self.log.flush()
    }

    /// Has the disk keep room for what is to be noted when the change has been made, which nothing may prevent.
    fn keep_room(&mut self) -> Result<(), JournalError> {
        /// Records of some changes that are being made, with names as long as they may be, and their slots.
        const RECORDS: u64 = 32 << 10;
        const OBJECTS: u64 = 64;
        self.log.keep_room(RECORDS)?;
        self.table.keep_room(self.next_object + OBJECTS)
    }

    /// How much is used, and will be with what waits; who wants to know is told.
    pub(crate) fn fill(&self) -> u64 {
        let used = self.used.saturating_add(self.log.len_to_be());
        if let Some(brim) = &self.settings.brim {
            brim.is_filled(used, self.settings.most_bytes);
        }
        used
    }

    /// Whether what waits may be written.
    pub(crate) fn room(&self) -> Result<(), JournalError> {
        self.check_room(self.fill())
    }

    /// The same, for so many bytes in all.
    pub(crate) fn check_room(&self, used: u64) -> Result<(), JournalError> {
        let most = self.settings.most_bytes;
        if used <= most {
            return Ok(());
        }
        if let Some(brim) = &self.settings.brim {
            brim.has_refused();
        }
        Err(JournalError::Full { used, most })
    }

    /// A change cannot be journalled: memory is as before it.
    pub(crate) fn forget_noted(&mut self) {
        self.log.discard();
        for noted in std::mem::take(&mut self.noted).into_iter().rev() {
            match noted {
                Noted::Name(folder, name) => {
                    self.saved.names.remove(&(folder, name));
                }
                Noted::Attributes(id) => {
                    self.saved.attributes.remove(&id);
                }
                Noted::Blocks(id, range) => {
                    if let Some(ranges) = self.saved.blocks.get_mut(&id) {
                        ranges.remove(range);
                    }
                }
                Noted::NewObject(id) => {
                    if let Some(object) = self.objects.remove(&id)
                        && self.by_identity.get(&object.identity) == Some(&id)
                    {
                        self.by_identity.remove(&object.identity);
                    }
                }
                Noted::Written(id, before) => {
                    if let Some(object) = self.objects.get_mut(&id) {
                        object.written_in = before;
                    }
                }
                Noted::Kept(id) => {
                    self.give_up(id);
                }
                Noted::Needed(id, before) => {
                    if let Some(object) = self.objects.get_mut(&id) {
                        object.needed_by = before;
                    }
                }
            }
        }
    }

    /// An object's slot.
    pub(crate) fn left(&mut self, id: ObjectId) -> Result<Left, JournalError> {
        if let Some(left) = self.objects.get(&id).and_then(|object| object.left) {
            return Ok(left);
        }
        let left = self.table.get(id)?.unwrap_or_default();
        if let Some(object) = self.objects.get_mut(&id) {
            object.left = Some(left);
        }
        Ok(left)
    }

    pub(crate) fn set_left(&mut self, id: ObjectId, left: Left) -> Result<(), JournalError> {
        if let Some(object) = self.objects.get_mut(&id) {
            object.left = Some(left);
        }
        self.table.set(id, &left)
    }

    /// Slot 0 as it is now.
    pub(crate) fn write_head(&self, clean: bool) -> Result<(), JournalError> {
        self.table.set_head(&LeftHead {
            clean,
            boot: self.boot.id,
            segment: self.log.number,
            durable: self.log.durable,
        })
    }

    /// What was kept for a change that cannot be made is kept no more.
    fn give_up(&mut self, id: ObjectId) {
        let kept = self
            .objects
            .get_mut(&id)
            .and_then(|object| object.kept.take());
        let reserve = kept.and_then(|kept| self.reserves.get(kept.reserve as usize));
        if let Some(reserve) = reserve {
            // What stays is removed when the journal is opened.
            let _ = reserve.remove(id);
        }
        self.count_kept();
    }

    /// Removes from the side folders what no kept epoch needs.
    pub(crate) fn release(&mut self) -> Result<(), JournalError> {
        let oldest = self.manifest.epochs.first().map_or(0, |entry| entry.number);
        for object in self.objects.values_mut() {
            if object.kept.is_some() && object.needed_by < oldest {
                object.kept = None;
            }
        }
        for number in 0..self.reserves.len() {
            for id in self.reserves[number].objects()? {
                if self.object(id).is_none_or(|object| object.kept.is_none()) {
                    self.release_one(number, id)?;
                }
            }
            let kept = |id| {
                self.objects
                    .get(&id)
                    .is_some_and(|object| object.kept.is_some())
            };
            self.reserves[number].clean(kept)?;
        }
        self.count_kept();
        Ok(())
    }

    /// Removes a name that we have given; what looks otherwise by that alone has not been changed by somebody else.
    fn release_one(&mut self, number: usize, id: ObjectId) -> Result<(), JournalError> {
        let reserve = &self.reserves[number];
        let failed = |errno| JournalError::io("remove", &reserve.path, errno);
        let (handle, seen) = match reserve.handle(id).map_err(failed)? {
            Some(found) => found,
            None => return Ok(()),
        };
        if seen.links < 2 || self.known(&seen) != Some(id) {
            return Ok(());
        }
        let left = self.left(id)?;
        let as_left = left.print == Some(seen.print);
        if as_left {
            self.set_left(
                id,
                Left {
                    in_flight: true,
                    ..left
                },
            )?;
        }
        fault::at("trash")?;
        let reserve = &self.reserves[number];
        let removed = reserve.remove(id).and_then(|()| look(&handle));
        let seen = removed.map_err(|errno| JournalError::io("remove", &reserve.path, errno))?;
        if as_left {
            let conflict = left.conflict;
            self.set_left(
                id,
                Left {
                    conflict,
                    ..Left::of(&seen)
                },
            )?;
        }
        Ok(())
    }

    /// Counts again what is used but for the last segment.
    pub(crate) fn count_kept(&mut self) {
        let segments = self.manifest.segments_from(0);
        let logs: u64 = segments.iter().filter_map(|entry| entry.len).sum();
        let mut kept = 0_u64;
        for (id, object) in &self.objects {
            let Some(place) = object.kept else { continue };
            let reserve = self.reserves.get(place.reserve as usize);
            if let Some(Ok(Some(seen))) = reserve.map(|reserve| reserve.look_at(*id)) {
                kept = kept.saturating_add(seen.used);
            }
        }
        self.used = logs.saturating_add(kept);
    }

    /// The absolute name of an object, as far as is known.
    pub(crate) fn path(&self, id: ObjectId) -> PathBuf {
        path_of(id, |id| self.objects.get(&id)?.place.clone())
    }

    /// Fails if a change could not be taken back.
    pub(crate) fn usable(&self) -> Result<(), JournalError> {
        if self.dead {
            return Err(JournalError::Dead);
        }
        match self.manifest.undoing {
            Some(undoing) => Err(JournalError::Undoing {
                to: crate::Epoch(undoing.to),
            }),
            None => Ok(()),
        }
    }
}

impl Object {
    pub(crate) fn record(&self, id: ObjectId) -> ObjectRecord {
        ObjectRecord {
            id,
            identity: self.identity,
            kind: self.kind,
            place: self.place.clone(),
            made_in: self.made_in,
            kept: self.kept,
            gone: self.gone,
            remade: self.remade,
        }
    }
}

/// The absolute name that a chain of places gives.
pub(crate) fn path_of(
    id: ObjectId,
    place: impl Fn(ObjectId) -> Option<(ObjectId, Vec<u8>)>,
) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut parts = vec![];
    let mut at = id;
    // No path has more parts; a damaged one may be a ring.
    while at != ROOT && parts.len() < 4096 {
        let Some((folder, name)) = place(at) else {
            parts.push(format!("(object {})", at.0).into_bytes());
            break;
        };
        parts.push(name);
        at = folder;
    }
    let mut path = PathBuf::from("/");
    path.extend(parts.into_iter().rev().map(std::ffi::OsString::from_vec));
    path
}

pub(crate) fn insert(
    objects: &mut HashMap<ObjectId, Object>,
    by_identity: &mut HashMap<Identity, ObjectId>,
    id: ObjectId,
    object: Object,
) {
    if !object.gone {
        // Another one with this inode must have gone before.
        let other = by_identity.insert(object.identity, id);
        if let Some(other) = other.filter(|other| *other != id)
            && let Some(other) = objects.get_mut(&other)
        {
            other.gone = true;
        }
    }
    if let Some(before) = objects.insert(id, object)
        && by_identity.get(&before.identity) == Some(&id)
        && objects
            .get(&id)
            .is_none_or(|now| now.gone || now.identity != before.identity)
    {
        by_identity.remove(&before.identity);
    }
}

impl crate::format::record::BlocksRecord {
    /// The whole blocks that it stands for.
    pub(crate) fn range(&self) -> Range<u64> {
        let end = self.offset.saturating_add(self.len);
        let end = end.checked_next_multiple_of(crate::format::record::BLOCK);
        self.offset..end.unwrap_or(u64::MAX)
    }
}

impl State {
    /// Makes the segment that is written to, and the one that is to take its place, durable.
    pub(crate) fn sync_with(&self, next: &Segment) -> Result<(), JournalError> {
        if self.settings.durability != Durability::PowerLoss {
            return Ok(());
        }
        let synced = self.log.file.sync_data();
        let synced = synced.and_then(|()| next.file.sync_all());
        synced.map_err(|error| JournalError::io("sync", &self.dir, error))
    }

    /// Lets a segment take the place of the one that was written to.
    pub(crate) fn new_segment(&self, number: u64) -> Result<Segment, JournalError> {
        fault::at("segment")?;
        let key = self.manifest.key(number);
        let of = (self.manifest.id, number);
        Segment::create(&self.dir, of, key, ObjectId(self.next_object))
    }
}
