//! What the records since a mark say: how everything was at the mark, and what the job left.
//!
//! For each name, object and block the *first* record since the mark tells how it was; the *last* one of a name tells what it has.

use crate::JournalError;
use crate::format::manifest::SegmentEntry;
use crate::format::record::{
    AttributesRecord, BindRecord, BlocksRecord, Holder, Kept, ObjectId, ObjectRecord, ROOT, Record,
};
use crate::format::segment::{self, Extent, Read};
use crate::inode::{Identity, Kind, Seen};
use crate::loading::device_now;
use crate::ranges::Ranges;
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// An object that the records speak of.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) identity: Identity,
    pub(crate) kind: Kind,
    /// The job has made it since the mark.
    pub(crate) new: bool,
    pub(crate) made_in: u64,
    pub(crate) kept: Option<Kept>,
    pub(crate) gone: bool,
    pub(crate) remade: bool,
    /// All places where it has been.
    pub(crate) places: Vec<(ObjectId, Vec<u8>)>,
}

/// A name that has been changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamePast {
    /// What had it at the mark.
    pub(crate) at_mark: Holder,
    /// What the job left.
    pub(crate) left: Holder,
    /// The last change, and the segment that has its record.
    pub(crate) operation: u64,
    pub(crate) segment: u64,
}

/// Old bytes.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) segment: u64,
    pub(crate) data_position: u64,
    pub(crate) record: BlocksRecord,
    /// The parts for which this piece counts.
    pub(crate) parts: Vec<Range<u64>>,
}

/// Everything since a mark.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) to: u64,
    pub(crate) objects: HashMap<ObjectId, Known>,
    pub(crate) by_identity: HashMap<Identity, ObjectId>,
    pub(crate) names: BTreeMap<(ObjectId, Vec<u8>), NamePast>,
    pub(crate) attributes: BTreeMap<ObjectId, AttributesRecord>,
    pub(crate) pieces: BTreeMap<ObjectId, Vec<Piece>>,
    /// All objects that were changed, or had or got a name that was.
    pub(crate) touched: BTreeSet<ObjectId>,
    pub(crate) last_operation: u64,
    claimed: HashMap<ObjectId, Ranges>,
}

impl Past {
    /// Reads all segments from this epoch on, and the one of an undo that was interrupted.
    pub(crate) fn read(state: &State, to: u64) -> Result<Self, JournalError> {
        let mut past = Past {
            to,
            objects: HashMap::new(),
            by_identity: HashMap::new(),
            names: BTreeMap::new(),
            attributes: BTreeMap::new(),
            pieces: BTreeMap::new(),
            touched: BTreeSet::new(),
            last_operation: 0,
            claimed: HashMap::new(),
        };
        let mut segments = state.manifest.segments_from(to);
        if let Some(last) = segments.last_mut() {
            last.len = Some(state.log.end);
        }
        if let Some(undoing) = state.manifest.undoing {
            segments.push(SegmentEntry {
                number: undoing.segment,
                len: None,
            });
        }
        for entry in segments {
            let of = (state.manifest.id, entry.number);
            let extent = Extent {
                sealed: entry.len,
                durable: 0,
            };
            let key = state.manifest.key(entry.number);
            segment::scan(&state.dir, of, &key, extent, |read| {
                past.take(state, entry.number, read)
            })?;
        }
        Ok(past)
    }

    fn take(&mut self, state: &State, segment: u64, read: Read<'_>) -> Result<(), &'static str> {
        match read.record {
            Record::Object(record) => {
                let mut identity = record.identity;
                let device = identity.device;
                identity.device = device_now(&state.manifest, &state.reserves, device);
                self.object(ObjectRecord { identity, ..record });
            }
            Record::Bind(bind) => self.bind(segment, bind)?,
            Record::Attributes(record) => {
                self.known(record.object)?;
                self.touched.insert(record.object);
                self.attributes.entry(record.object).or_insert(record);
            }
            Record::Blocks(record) => {
                self.known(record.object)?;
                let claimed = self.claimed.entry(record.object).or_default();
                let parts = claimed.missing(record.range());
                claimed.insert(record.range());
                let piece = Piece {
                    segment,
                    data_position: read.data_position,
                    parts,
                    record,
                };
                self.pieces
                    .entry(piece.record.object)
                    .or_default()
                    .push(piece);
            }
            Record::Answer(_) | Record::Forgotten(_) => {}
        }
        Ok(())
    }

    /// What is known of an object from here on.
    pub(crate) fn object(&mut self, record: ObjectRecord) {
        let mut places = vec![];
        if let Some(before) = self.objects.get(&record.id) {
            places.clone_from(&before.places);
            if self.by_identity.get(&before.identity) == Some(&record.id) {
                self.by_identity.remove(&before.identity);
            }
        }
        places.extend(record.place);
        if !record.gone {
            // Another one with this inode must have gone before.
            let other = self.by_identity.insert(record.identity, record.id);
            if let Some(other) = other.filter(|other| *other != record.id)
                && let Some(other) = self.objects.get_mut(&other)
            {
                other.gone = true;
            }
        }
        let known = Known {
            identity: record.identity,
            kind: record.kind,
            new: record.made_in >= self.to,
            made_in: record.made_in,
            kept: record.kept,
            gone: record.gone,
            remade: record.remade,
            places,
        };
        if known.new {
            self.touched.insert(record.id);
        }
        self.objects.insert(record.id, known);
    }

    fn bind(&mut self, segment: u64, bind: BindRecord) -> Result<(), &'static str> {
        self.known(bind.folder)?;
        let key = (bind.folder, bind.name);
        for holder in [bind.before, bind.after] {
            if let Holder::Object(id) = holder {
                self.known(id)?.places.push(key.clone());
                self.touched.insert(id);
            }
        }
        self.last_operation = self.last_operation.max(bind.operation);
        let name = self.names.entry(key).or_insert(NamePast {
            at_mark: bind.before,
            left: bind.after,
            operation: bind.operation,
            segment,
        });
        name.left = bind.after;
        name.operation = bind.operation;
        name.segment = segment;
        Ok(())
    }

    fn known(&mut self, id: ObjectId) -> Result<&mut Known, &'static str> {
        self.objects
            .get_mut(&id)
            .ok_or("a number that no record explains")
    }

    /// Whether this is that object.
    pub(crate) fn is(&self, id: ObjectId, seen: &Seen) -> bool {
        let known = self.objects.get(&id);
        known.is_some_and(|known| {
            !known.gone && known.identity == seen.identity && known.kind == seen.kind
        })
    }

    /// Whether this is what has the name.
    pub(crate) fn fits(&self, holder: Holder, now: Option<&Seen>) -> bool {
        match (holder, now) {
            (Holder::Nothing, None) => true,
            (Holder::Object(id), Some(now)) => self.is(id, now),
            _ => false,
        }
    }

    /// Whether the folder was there at the mark, so that its names are put back.
    pub(crate) fn is_old(&self, folder: ObjectId) -> bool {
        folder == ROOT || self.objects.get(&folder).is_some_and(|known| !known.new)
    }
}
