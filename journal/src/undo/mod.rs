//! Undoing: all that was changed since a mark becomes what it was.
//!
//! ```text
//! read the records ─ compare ─ "undoing" in the manifest ─ names ─ contents ─ attributes ─ new manifest ─ release
//!                       `─ differences: nothing is done     `───── may be interrupted, and done again ─────┘
//! ```
//! No step depends on what the one before it did last time: each looks at what is there, by inode, and makes it what it is to be.
//! Nothing that was there at the mark is without a name meanwhile.

mod attributes;
mod contents;
pub(crate) mod locate;
mod names;

use crate::check::differences;
use crate::epochs::no_epoch;
use crate::format::left::{Left, LeftHead, LeftTable};
use crate::format::manifest::{SegmentEntry, Undoing};
use crate::format::record::{AnswerRecord, ObjectId, Record};
use crate::format::segment::{self, Extent, Segment};
use crate::inode::look;
use crate::journal::remove_old_segments;
use crate::past::Past;
use crate::state::{Object, State};
use crate::{Difference, Durability, Epoch, Journal, JournalError, fault};
use locate::{Found, Locator};
use rustix::fd::OwnedFd;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

/// What happens if somebody else has changed files.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Files {
    /// Nothing is undone anywhere.
    #[default]
    Fail,
    /// Everything is undone; what somebody else wrote is lost.
    RollBack,
    /// All files stay as they are; the job must bear it.
    Keep,
}

/// What an undo has done.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Undone {
    /// What somebody else had changed.
    pub differences: Vec<Difference>,
    /// All files were left as they are.
    pub kept: bool,
    /// Names that were put back.
    pub names: usize,
    /// Files whose contents were put back.
    pub files: usize,
}

impl Journal {
    /// Everything becomes as it was at the mark of this epoch, which goes on from there; later marks are gone.
    ///
    /// An undo that was interrupted is finished by calling this again, after [`Journal::open`], with the same epoch, or with an earlier one, to
    /// which it goes on then; the comparison is not made again for what was begun.
    ///
    /// # Errors
    /// [`JournalError::Differs`]: nothing was undone. [`JournalError::Io`], [`JournalError::Lost`]: it is interrupted.
    pub fn undo_to(&self, epoch: Epoch, files: Files) -> Result<Undone, JournalError> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock_state();
        if state.dead {
            return Err(JournalError::Dead);
        }
        let mut undone = Undone::default();
        let begun = state.manifest.undoing.map(|undoing| undoing.to);
        if let Some(to) = begun.filter(|to| *to != epoch.0) {
            // Later marks are gone with what was begun.
            if epoch.0 > to || !state.manifest.has_epoch(epoch.0) {
                return Err(JournalError::Undoing { to: Epoch(to) });
            }
            undo(&mut state, Epoch(to), files, &mut undone)?;
        }
        undo(&mut state, epoch, files, &mut undone)?;
        Ok(undone)
    }
}

/// One undo, or the rest of one.
fn undo(
    state: &mut State,
    epoch: Epoch,
    files: Files,
    undone: &mut Undone,
) -> Result<(), JournalError> {
    let begun = state.manifest.undoing;
    if !state.manifest.has_epoch(epoch.0) {
        return Err(no_epoch(state, epoch));
    }
    let past = Past::read(state, epoch.0)?;
    let mut keeps = false;
    if begun.is_none() {
        let differences = differences(state, &past)?;
        if !differences.is_empty() {
            match files {
                Files::Fail => return Err(JournalError::Differs { differences }),
                Files::Keep => keeps = true,
                Files::RollBack => {}
            }
        }
        undone.differences.extend(differences);
    }
    undone.kept |= keeps;
    let log = match begun {
        Some(undoing) => resume_segment(state, undoing.segment)?,
        None if keeps => new_segment(state, epoch.0)?,
        None => begin(state, epoch.0)?,
    };
    let log = if keeps {
        log
    } else {
        let mut work = Work::new(state, past, log);
        work.undo(undone)?;
        work.log
    };
    finish(state, (epoch.0, begun.is_some()), log)
}

/// The segment that will be the only one of the epoch.
fn new_segment(state: &State, to: u64) -> Result<Segment, JournalError> {
    let mut log = state.new_segment(state.manifest.next_segment)?;
    // Segments that will be gone may be the only ones to say so of objects that older epochs speak of.
    let remade = |object: &Object| object.remade && object.made_in < to;
    let objects = state.objects.iter();
    let mut waiting: Vec<ObjectId> = objects
        .filter(|(_, object)| remade(object))
        .map(|(id, _)| *id)
        .collect();
    let mut explained = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if let Some(object) = state.objects.get(&id)
            && object.made_in < to
            && explained.insert(id)
        {
            log.push(&Record::Object(object.record(id)), &[])?;
            waiting.extend(object.place.as_ref().map(|(folder, _)| *folder));
        }
    }
    log.flush()?;
    state.sync_with(&log)?;
    Ok(log)
}

/// From here on there is no way but to the end.
fn begin(state: &mut State, to: u64) -> Result<Segment, JournalError> {
    let log = new_segment(state, to)?;
    let mut manifest = state.manifest.clone();
    manifest.undoing = Some(Undoing {
        to,
        segment: log.number,
    });
    manifest.next_segment += 1;
    state.commit(manifest)?;
    Ok(log)
}

fn resume_segment(state: &State, number: u64) -> Result<Segment, JournalError> {
    let key = state.manifest.key(number);
    let extent = Extent {
        sealed: None,
        durable: 0,
    };
    let of = (state.manifest.id, number);
    let (_, end) = segment::scan(&state.dir, of, &key, extent, |_| Ok(()))?;
    Segment::resume(&state.dir, number, key, end)
}

/// The epoch begins anew.
fn finish(state: &mut State, (to, begun): (u64, bool), log: Segment) -> Result<(), JournalError> {
    fault::at("applied")?;
    let mut manifest = state.manifest.clone();
    manifest.epochs.retain(|entry| entry.number <= to);
    manifest.next_segment = manifest.next_segment.max(log.number + 1);
    manifest.undoing = None;
    // An older epoch's last segment was sealed when this one began.
    if let Some(entry) = manifest.epochs.last_mut() {
        entry.segments = vec![SegmentEntry {
            number: log.number,
            len: None,
        }];
    }
    answers_of_the_mark(state, to, &mut { log })?;
    state.commit(manifest)?;
    let head = LeftHead {
        clean: true,
        boot: state.boot.id,
        segment: 0,
        durable: 0,
    };
    let table = LeftTable::open(&state.dir)?;
    let mut read_back = State::load(
        &state.dir,
        &state.settings,
        state.manifest.clone(),
        table,
        Some(head),
    )?;
    let interrupted = begun && state.crashed;
    let power_lost = state.power_lost;
    read_back.operation = state.operation;
    read_back.next_object = read_back.next_object.max(state.next_object);
    *state = read_back;
    remove_old_segments(&state.dir, &state.manifest)?;
    state.release()?;
    if interrupted {
        // It was not looked at when the journal was opened.
        state.adopt(power_lost)?;
    }
    state.log.durable = state.log.end;
    state.write_head(false)
}

/// The answers that were remembered at the mark stand at the begin of the epoch's first segment: they are written again.
fn answers_of_the_mark(state: &State, to: u64, log: &mut Segment) -> Result<(), JournalError> {
    let entry = state
        .manifest
        .epochs
        .iter()
        .find(|entry| entry.number == to);
    let Some(first) = entry.and_then(|entry| entry.segments.first()) else {
        return Ok(());
    };
    let durable = 0;
    let sealed = if first.number == state.log.number {
        Some(state.log.end)
    } else {
        first.len
    };
    let extent = Extent { sealed, durable };
    let of = (state.manifest.id, first.number);
    let key = state.manifest.key(first.number);
    let mut failed = None;
    segment::scan(&state.dir, of, &key, extent, |read| {
        if let Record::Answer(AnswerRecord { at_mark: true, .. }) = read.record
            && let Err(error) = log.push(&read.record, read.data)
        {
            failed = Some(error);
        }
        Ok(())
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    log.flush()?;
    if state.settings.durability == Durability::PowerLoss {
        let synced = log.file.sync_data();
        synced.map_err(|error| JournalError::io("sync", &state.dir, error))?;
    }
    Ok(())
}

/// An undo that is going on.
struct Work<'a> {
    state: &'a mut State,
    past: Past,
    log: Segment,
    locator: Locator,
    /// One descriptor of each file system that is changed.
    devices: HashMap<u64, Arc<OwnedFd>>,
}

impl<'a> Work<'a> {
    fn new(state: &'a mut State, past: Past, log: Segment) -> Self {
        Work {
            state,
            past,
            log,
            locator: Locator::new(true),
            devices: HashMap::new(),
        }
    }

    fn undo(&mut self, undone: &mut Undone) -> Result<(), JournalError> {
        undone.names = self.put_names_back()?;
        // Further names of old files go with the folders in the trash: after this nothing changes their look any more.
        for reserve in &self.state.reserves {
            reserve.clean(|_| true)?;
        }
        undone.files = self.put_contents_back()?;
        self.put_attributes_back()?;
        self.make_durable()
    }

    fn find(&mut self, id: ObjectId) -> Result<Option<Found>, JournalError> {
        let found = self.locator.find(self.state, &self.past, id)?;
        if let Some(found) = &found {
            let device = found.seen.identity.device;
            self.devices
                .entry(device)
                .or_insert_with(|| found.handle.clone());
        }
        Ok(found)
    }

    /// What is there now is what the job has left, for the comparison before the next undo.
    fn note_as_left(&mut self, id: ObjectId, found: &Found) -> Result<(), JournalError> {
        let seen = look(&found.handle)
            .map_err(|errno| JournalError::io("look at", self.state.path(id), errno))?;
        let left = self.state.left(id)?;
        let conflict = if left.conflict >= self.past.to {
            0
        } else {
            left.conflict
        };
        self.state.set_left(
            id,
            Left {
                conflict,
                ..Left::of(&seen)
            },
        )
    }

    fn make_durable(&mut self) -> Result<(), JournalError> {
        if self.state.settings.durability == Durability::Kill {
            return Ok(());
        }
        for handle in self.devices.values() {
            let failed = |errno| JournalError::io("sync", &self.state.dir, errno);
            let flags = rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::NONBLOCK
                | rustix::fs::OFlags::CLOEXEC;
            let name = crate::reserve::own_descriptor(handle);
            match rustix::fs::open(name, flags, rustix::fs::Mode::empty()) {
                Ok(open) => rustix::fs::syncfs(open).map_err(failed)?,
                // What cannot be opened cannot tell where it lies.
                Err(_) => rustix::fs::sync(),
            }
        }
        for reserve in &self.state.reserves {
            let synced = rustix::fs::syncfs(&reserve.fd);
            synced.map_err(|errno| JournalError::io("sync", &reserve.path, errno))?;
        }
        Ok(())
    }
}
