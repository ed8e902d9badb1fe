//! Reading everything back from the segments.

use crate::boot::Boot;
use crate::format::left::{Left, LeftHead, LeftTable};
use crate::format::manifest::Manifest;
use crate::format::record::{Holder, ObjectId, ObjectRecord, ROOT, Record};
use crate::format::segment::{self, Extent, Segment};
use crate::inode::{Identity, Kind, look_at};
use crate::reserve::Reserve;
use crate::state::{Object, Saved, State, insert};
use crate::{JournalError, Settings};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

impl State {
    /// Reads everything back.
    pub(crate) fn load(
        dir: &Path,
        settings: &Settings,
        mut manifest: Manifest,
        table: LeftTable,
        head: Option<LeftHead>,
    ) -> Result<Self, JournalError> {
        let boot = settings.boot.clone().map_or_else(Boot::now, Ok)?;
        let reserves = open_reserves(dir, &mut manifest)?;
        let entries: Vec<(u64, segment_entry::Entry)> = segment_entry::all(&manifest);
        let last = entries.last().map_or(0, |(_, entry)| entry.number);
        let key = manifest.key(last);
        let mut loading = Loading::new(&manifest, &reserves);
        let (mut end, mut used) = (segment::BEGIN, 0);
        for (epoch, entry) in &entries {
            let durable = head.filter(|head| head.segment == entry.number);
            let extent = Extent {
                sealed: entry.len,
                durable: durable.map_or(0, |head| head.durable),
            };
            let of = (manifest.id, entry.number);
            let key = manifest.key(entry.number);
            let (next, good) = segment::scan(dir, of, &key, extent, |read| {
                loading.take(*epoch, entry.number, read.record, read.data)
            })?;
            loading.next_object = loading.next_object.max(next.0);
            end = good;
            used += entry.len.unwrap_or(0);
        }
        let Loading {
            objects,
            by_identity,
            saved,
            answers,
            next_object,
            operation,
            ..
        } = loading;
        let slots = table.slots()?;
        let log = Segment::resume(dir, last, key, end)?;
        let crashed = head.is_none_or(|head| !head.clean);
        let other_boot = head.is_none_or(|head| head.boot != boot.id);
        let mut state = State {
            dir: dir.to_owned(),
            settings: settings.clone(),
            power_lost: (crashed && other_boot).then_some(boot.began),
            boot,
            manifest,
            log,
            reserves,
            table,
            objects,
            by_identity,
            next_object: next_object.max(slots),
            saved,
            answers,
            operation,
            used,
            crashed,
            dead: false,
            noted: vec![],
            unsynced_reserves: HashSet::new(),
            saving: false,
            important_end: 0,
        };
        state.count_kept();
        Ok(state)
    }
}

fn open_reserves(dir: &Path, manifest: &mut Manifest) -> Result<Vec<Reserve>, JournalError> {
    use std::os::unix::ffi::OsStrExt;
    let mut reserves = vec![];
    for entry in &mut manifest.reserves {
        let path = dir.join(std::ffi::OsStr::from_bytes(&entry.path));
        let reserve = Reserve::open(&path)?;
        if !entry.devices.contains(&reserve.device) {
            entry.devices.push(reserve.device);
        }
        reserves.push(reserve);
    }
    Ok(reserves)
}

/// The number that a device has now.
pub(crate) fn device_now(manifest: &Manifest, reserves: &[Reserve], device: u64) -> u64 {
    if reserves.iter().any(|reserve| reserve.device == device) {
        return device;
    }
    let entries = manifest.reserves.iter().zip(reserves);
    let mut had = entries.filter(|(entry, _)| entry.devices.contains(&device));
    had.next().map_or(device, |(_, reserve)| reserve.device)
}

mod segment_entry {
    use crate::format::manifest::{Manifest, SegmentEntry};

    pub(super) type Entry = SegmentEntry;

    /// Every segment with its epoch.
    pub(super) fn all(manifest: &Manifest) -> Vec<(u64, Entry)> {
        let epochs = manifest.epochs.iter();
        epochs
            .flat_map(|epoch| {
                let number = epoch.number;
                epoch
                    .segments
                    .iter()
                    .map(move |entry| (number, entry.clone()))
            })
            .collect()
    }
}

/// What is being read back.
struct Loading<'a> {
    manifest: &'a Manifest,
    reserves: &'a [Reserve],
    objects: HashMap<ObjectId, Object>,
    by_identity: HashMap<Identity, ObjectId>,
    saved: Saved,
    answers: BTreeMap<u64, Vec<u8>>,
    next_object: u64,
    operation: u64,
}

impl<'a> Loading<'a> {
    fn new(manifest: &'a Manifest, reserves: &'a [Reserve]) -> Self {
        let mut loading = Loading {
            manifest,
            reserves,
            objects: HashMap::new(),
            by_identity: HashMap::new(),
            saved: Saved::default(),
            answers: BTreeMap::new(),
            next_object: ROOT.0 + 1,
            operation: 0,
        };
        if let Ok(Some(seen)) = look_at(rustix::fs::CWD, b"/") {
            let root = Object {
                identity: seen.identity,
                kind: Kind::Folder,
                place: None,
                made_in: 0,
                kept: None,
                gone: false,
                remade: false,
                written_in: 0,
                needed_by: 0,
                touched_in: 0,
                left: Some(Left::default()),
                in_flight: 0,
            };
            loading.by_identity.insert(seen.identity, ROOT);
            loading.objects.insert(ROOT, root);
        }
        loading
    }

    fn take(
        &mut self,
        epoch: u64,
        segment: u64,
        record: Record,
        data: &[u8],
    ) -> Result<(), &'static str> {
        let current = epoch == self.manifest.current();
        match record {
            Record::Object(record) => self.take_object(epoch, segment, record)?,
            Record::Bind(bind) => {
                self.operation = self.operation.max(bind.operation);
                let key = (bind.folder, bind.name);
                if let Holder::Object(id) = bind.before {
                    let object = self.known(id)?;
                    object.needed_by = epoch;
                    object.touched_in = epoch;
                    if object.place.as_ref() == Some(&key) {
                        object.place = None;
                    }
                }
                if let Holder::Object(id) = bind.after {
                    let object = self.known(id)?;
                    object.place = Some(key.clone());
                    object.touched_in = epoch;
                }
                self.known(key.0)?;
                if current {
                    self.saved.names.insert(key);
                }
            }
            Record::Attributes(record) => {
                self.known(record.object)?.touched_in = epoch;
                if current {
                    self.saved
                        .attributes
                        .entry(record.object)
                        .or_insert(record.size);
                }
            }
            Record::Blocks(record) => {
                self.known(record.object)?;
                if current {
                    let ranges = self.saved.blocks.entry(record.object).or_default();
                    ranges.insert(record.range());
                }
            }
            Record::Answer(record) => {
                self.answers.insert(record.request, data.to_vec());
            }
            Record::Forgotten(record) => {
                self.answers = self.answers.split_off(&record.below);
            }
        }
        Ok(())
    }

    fn known(&mut self, id: ObjectId) -> Result<&mut Object, &'static str> {
        self.objects
            .get_mut(&id)
            .ok_or("a number that no record explains")
    }

    fn take_object(
        &mut self,
        epoch: u64,
        segment: u64,
        record: ObjectRecord,
    ) -> Result<(), &'static str> {
        if record
            .kept
            .is_some_and(|kept| kept.reserve as usize >= self.reserves.len())
        {
            return Err("a side folder that there is not");
        }
        self.next_object = self.next_object.max(record.id.0.saturating_add(1));
        let before = self.objects.get(&record.id);
        let mut identity = record.identity;
        identity.device = device_now(self.manifest, self.reserves, identity.device);
        let object = Object {
            identity,
            kind: record.kind,
            place: record.place,
            made_in: record.made_in,
            kept: record.kept,
            gone: record.gone,
            remade: record.remade,
            written_in: segment,
            needed_by: before.map_or(0, |before| before.needed_by),
            touched_in: before
                .map_or(0, |before| before.touched_in)
                .max(if record.made_in == epoch { epoch } else { 0 }),
            left: None,
            in_flight: 0,
        };
        insert(&mut self.objects, &mut self.by_identity, record.id, object);
        Ok(())
    }
}
