//! What this process has read of remote files: bytes ahead of a program that reads on, and attributes. Believed until the job changes the
//! file ([`crate::versions`]), and for a second at most, since others may change it too.
//!
//! ```text
//! open  -> attributes and first bytes come with the answer
//! read  -> from the buffer | where it ends: so much at first, then twice as much each time ([`crate::habits`]) | elsewhere: just that
//! what this machine sees, too, is read here ([`super::direct`])
//! fstat -> the attributes
//! ```
//! A child of vfork and whoever finds a buffer in use do without.

use super::direct::{self, Way};
use super::lanes::{Put, ask};
use super::process;
use super::sys::{self, Errno, Undisturbed};
use crate::table::Description;
use crate::versions::{Changes, Version};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use wire::{Attribute, Attributes, Change, Entries, Open, Place, Read, Reply, Request, What};

/// Files that are remembered at once.
const SLOTS: usize = 16;
/// Bytes of each, of which only those that are used cost anything.
const ROOM: usize = 1 << 20;
/// Reads of so many bytes go where they are wanted, without a copy.
const LARGE: usize = 128 << 10;
/// First bytes that come with the answer to an open.
pub(super) const FIRST: u32 = 16 << 10;
/// How long what others may change is believed.
const BELIEVED_MS: u64 = 1000;

struct Slot {
    busy: AtomicU32,
    /// The description's random name; 0: nobody's.
    key: AtomicU64,
    used: AtomicU64,
    kept: UnsafeCell<Kept>,
}

// SAFETY: `kept` is used by whoever has set `busy`.
unsafe impl Sync for Slot {}

struct Kept {
    memory: *mut u8,
    /// Of the bytes: where they begin, how many they are, whether the file ends there.
    offset: u64,
    len: usize,
    is_end: bool,
    read: Moment,
    /// Where the program has read up to, and how much was read ahead last.
    next: u64,
    ahead: usize,
    /// The processor's own clock when it was last looked whether this is young; far away from any time otherwise.
    looked: u64,
    attributes: Option<(Attributes, Moment)>,
    /// How it may be read here.
    way: Way,
}

/// When something was learnt.
#[derive(Clone, Copy, Default)]
struct Moment {
    version: Version,
    ms: u64,
}

const NOTHING: Kept = Kept {
    memory: core::ptr::null_mut(),
    offset: 0,
    len: 0,
    is_end: false,
    read: Moment {
        version: Version::NONE,
        ms: 0,
    },
    next: 0,
    ahead: 0,
    looked: 0,
    attributes: None,
    way: Way::UNKNOWN,
};

static CACHE: [Slot; SLOTS] = [const {
    Slot {
        busy: AtomicU32::new(0),
        key: AtomicU64::new(0),
        used: AtomicU64::new(0),
        kept: UnsafeCell::new(NOTHING),
    }
}; SLOTS];
static TICK: AtomicU64 = AtomicU64::new(0);

/// We are a fork's child: what another thread of our parent was changing is of no use.
pub(super) fn forget() {
    for slot in &CACHE {
        if slot.busy.swap(0, Ordering::Acquire) != 0 {
            slot.key.store(0, Ordering::Relaxed);
        }
    }
}

impl Moment {
    fn now(description: &Description) -> Option<Self> {
        let file = description.file.load(Ordering::Relaxed);
        Some(Moment {
            version: process::table()?.versions.now(file),
            ms: sys::milliseconds(),
        })
    }

    fn is_sure(&self, now: &Moment) -> bool {
        now.ms.wrapping_sub(self.ms) < SURELY_BELIEVED_MS
    }

    fn is_young(&self, now: &Moment) -> bool {
        now.ms.wrapping_sub(self.ms) < BELIEVED_MS
    }
}

fn key(description: &Description) -> u64 {
    description.name[0].load(Ordering::Relaxed)
}

/// Does something with what is kept of a file; none if that cannot be had.
fn with<T>(description: &Description, act: impl FnOnce(&mut Kept) -> T) -> Option<T> {
    if !process::is_own() {
        return None;
    }
    let key = key(description);
    let find = || {
        CACHE
            .iter()
            .find(|slot| slot.key.load(Ordering::Relaxed) == key)
    };
    let oldest = || {
        CACHE
            .iter()
            .min_by_key(|slot| slot.used.load(Ordering::Relaxed))
    };
    let slot = find().or_else(oldest)?;
    let at = CACHE.iter().position(|one| core::ptr::eq(one, slot));
    LAST.store(at.unwrap_or(0) as u32, Ordering::Relaxed);
    let _undisturbed = Undisturbed::begin();
    if slot.busy.swap(1, Ordering::Acquire) != 0 {
        return None;
    }
    // SAFETY: it is ours until `busy` is zero again.
    let kept = unsafe { &mut *slot.kept.get() };
    if slot.key.load(Ordering::Relaxed) != key {
        let memory = kept.memory;
        *kept = Kept { memory, ..NOTHING };
        slot.key.store(key, Ordering::Relaxed);
    }
    let tick = TICK.fetch_add(1, Ordering::Relaxed) + 1;
    slot.used.store(tick, Ordering::Relaxed);
    let result = act(kept);
    slot.busy.store(0, Ordering::Release);
    Some(result)
}

impl Kept {
    fn room(&mut self) -> Result<*mut u8, Errno> {
        if self.memory.is_null() {
            // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS|NORESERVE
            self.memory = sys::map(ROOM as u64, 3, 0x4022, -1)?;
        }
        Ok(self.memory)
    }

    /// Copies what is there of the bytes from `offset` on; how many, and whether the file ends there.
    fn give(&self, to: *mut u8, len: usize, offset: u64) -> Option<(usize, bool)> {
        let within = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        let rest = self.len.checked_sub(within)?;
        if rest == 0 && !self.is_end {
            return None;
        }
        let count = rest.min(len);
        if count > 0 {
            let from = self.memory.wrapping_add(within);
            // SAFETY: so many bytes are in our memory, and the program has so much room.
            unsafe { core::ptr::copy_nonoverlapping(from, to, count) };
        }
        Some((count, self.is_end && count < len))
    }

    fn read(
        &mut self,
        description: &Description,
        to: *mut u8,
        len: usize,
        offset: u64,
    ) -> Result<(usize, bool), Errno> {
        let now = Moment::now(description).ok_or(Errno(sys::EIO))?;
        let believed = self.read.is_young(&now) && self.read.version.has_contents_of(&now.version);
        if believed && let Some((count, is_end)) = self.give(to, len, offset) {
            self.next = offset + count as u64;
            if self.read.is_sure(&now) {
                self.looked = ticks();
            }
            return Ok((count, is_end));
        }
        self.looked = 0;
        self.ahead = if offset == self.next {
            process::habits().map_or(0, |habits| habits.next_ahead(self.ahead).min(ROOM))
        } else {
            0
        };
        let unkept = len >= LARGE || self.ahead <= len;
        let (place, wanted) = if unkept {
            (to, len)
        } else {
            (self.room()?, self.ahead)
        };
        (self.len, self.is_end) = (0, false);
        let got = match self.read_here(description, &now, place, wanted, offset) {
            Some(got) => got,
            None => read_there(description, place, wanted, offset)?,
        };
        self.read = now;
        self.is_end = got < wanted;
        if unkept {
            self.offset = offset + got as u64;
            self.next = self.offset;
            return Ok((got, self.is_end));
        }
        (self.offset, self.len) = (offset, got);
        let (count, is_end) = self.give(to, len, offset).unwrap_or((0, true));
        self.next = offset + count as u64;
        Ok((count, is_end))
    }
}

impl Kept {
    /// As [`read_there`], on this machine, if it has the file as the shadow has told of it, within the last second and since the job has changed it.
    fn read_here(
        &mut self,
        description: &Description,
        now: &Moment,
        to: *mut u8,
        len: usize,
        offset: u64,
    ) -> Option<usize> {
        let machine = direct::machine().filter(|machine| self.way.is_open(*machine))?;
        let is_believed = |(_, then): &(Attributes, Moment)| {
            then.is_young(now) && then.version.has_contents_of(&now.version)
        };
        if !self.attributes.as_ref().is_some_and(is_believed) {
            if !self.way.is_worth(len) {
                return None;
            }
            self.attributes = Some((attributes_there(description)?, *now));
        }
        let (attributes, _) = self.attributes.as_ref()?;
        let file = (description, attributes);
        direct::read(&mut self.way, machine, file, (to, len), offset)
    }
}

/// Reads at the shadow; how much, which is less than `len` at the end of the file only.
fn read_there(
    description: &Description,
    to: *mut u8,
    len: usize,
    offset: u64,
) -> Result<usize, Errno> {
    let request = Request::Read(Read {
        handle: description.handle.load(Ordering::Relaxed),
        offset,
        len: len as u32,
    });
    let nothing = (core::ptr::null(), 0);
    ask(&request, nothing, Put::Program(to, len), |answer| {
        Ok(answer.data.len())
    })
}

fn attributes_there(description: &Description) -> Option<Attributes> {
    let place = Place {
        at: description.handle.load(Ordering::Relaxed),
        name: b"",
    };
    let follow = true;
    let request = Request::Attribute(Attribute { place, follow });
    let nothing = (core::ptr::null(), 0);
    let told = ask(&request, nothing, Put::Lane, |answer| match answer.reply {
        Reply::Attributes(attributes) => Ok(attributes),
        _ => Err(Errno(sys::EIO)),
    });
    told.ok()
}

/// Reads a part of a regular file into the program's memory, at most 1 MiB; how much that was, and whether the file ends
/// there. None: it is to be asked for.
pub(super) fn read(
    description: &Description,
    to: *mut u8,
    len: usize,
    offset: u64,
) -> Option<Result<(usize, bool), Errno>> {
    with(description, |kept| kept.read(description, to, len, offset))
}

/// The place that was looked at last.
static LAST: AtomicU32 = AtomicU32::new(0);
/// Ticks of the processor's own clock for which the other is not looked at: less than a tenth of a second on any that is faster than
/// 1 GHz. On another machine they are others, and nothing is believed.
const TICKS: u64 = 100_000_000;
/// At this age of what was read it is not used without a look any more.
const SURELY_BELIEVED_MS: u64 = BELIEVED_MS - 100;

fn ticks() -> u64 {
    // SAFETY: it reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// As [`read`], all of it, if that needs nothing but memory, and something was read so before; `moves` has the last word. Nobody may be disturbed ([`super::fast`]).
pub(super) fn read_fast(
    description: &Description,
    to: *mut u8,
    len: usize,
    offset: u64,
    moves: impl FnOnce() -> bool,
) -> bool {
    let slot = &CACHE[LAST.load(Ordering::Relaxed) as usize % SLOTS];
    let file = description.file.load(Ordering::Relaxed);
    let Some(table) = process::table() else {
        return false;
    };
    if slot.key.load(Ordering::Relaxed) != key(description)
        || len == 0
        || table.residents.live.load(Ordering::Relaxed) != 0
        || table.behind.is_dirty(crate::behind::place(file))
        || slot.busy.swap(1, Ordering::Acquire) != 0
    {
        return false;
    }
    // SAFETY: it is ours until `busy` is zero again.
    let kept = unsafe { &mut *slot.kept.get() };
    let end = offset.wrapping_add(len as u64);
    let is_there = slot.key.load(Ordering::Relaxed) == key(description)
        && offset >= kept.offset
        && end <= kept.offset + kept.len as u64
        && end >= offset
        && ticks().wrapping_sub(kept.looked) < TICKS
        && table.versions.has_contents(file, &kept.read.version)
        && moves();
    if is_there {
        let from = kept.memory.wrapping_add((offset - kept.offset) as usize);
        // SAFETY: so many bytes are in our memory, and the program has so much room.
        unsafe { super::fast::copy(from, to, len) };
        kept.next = end;
    }
    slot.busy.store(0, Ordering::Release);
    is_there
}

/// Does something with a folder's entries behind the one where a listing has come to, if they came with the open and are believed.
pub(super) fn entries<T>(
    description: &Description,
    from: u64,
    act: impl FnOnce(Entries<'_>) -> Option<T>,
) -> Option<T> {
    let now = Moment::now(description)?;
    with(description, |kept| {
        let believed =
            kept.read.is_young(&now) && kept.read.version.has_attributes_of(&now.version);
        if !believed || kept.len == 0 || kept.offset != 0 {
            return None;
        }
        // SAFETY: so many bytes are in our memory.
        let bytes = unsafe { core::slice::from_raw_parts(kept.memory.cast_const(), kept.len) };
        let mut entries = Entries::new(bytes);
        if from != 0 {
            entries
                .find(|entry| entry.is_ok_and(|entry| entry.next == from))?
                .ok()?;
        }
        act(entries)
    })?
}

/// Copies first bytes of a file that came with its open, if it has not been changed since: `same` says so of the attributes that came with
/// them. How many.
pub(super) fn first(
    description: &Description,
    same: impl FnOnce(&Attributes) -> bool,
    to: *mut u8,
    most: usize,
) -> usize {
    let Some(now) = Moment::now(description) else {
        return 0;
    };
    let copied = with(description, |kept| {
        let (attributes, then) = kept.attributes?;
        let together = (then.ms, then.version) == (kept.read.ms, kept.read.version);
        let believed = kept.read.is_young(&now) && kept.read.version.has_contents_of(&now.version);
        if !together || !believed || kept.offset != 0 || !same(&attributes) {
            return None;
        }
        kept.give(to, most, 0).map(|(count, _)| count)
    });
    copied.flatten().unwrap_or(0)
}

/// Attributes that are believed.
pub(super) fn attributes(description: &Description) -> Option<Attributes> {
    let now = Moment::now(description)?;
    let kept = with(description, |kept| kept.attributes)??;
    let (attributes, then) = kept;
    (then.is_young(&now) && then.version.has_attributes_of(&now.version)).then_some(attributes)
}

/// Before an open: what is learnt by it may be believed if nothing was changed meanwhile.
pub(super) struct Learning {
    version: Version,
    ms: u64,
}

impl Learning {
    /// None: nothing is to be learnt.
    pub(super) fn begin() -> Option<Self> {
        let table = process::table().filter(|_| process::is_own())?;
        Some(Learning {
            version: table.versions.now(0),
            ms: sys::milliseconds(),
        })
    }

    /// As [`Learning::begin`], of what was told so many milliseconds ago.
    pub(super) fn of(age_ms: u64) -> Option<Self> {
        let mut learning = Self::begin()?;
        learning.ms = learning.ms.wrapping_sub(age_ms);
        Some(learning)
    }

    /// An open was answered with attributes and first bytes.
    pub(super) fn learn(self, description: &Description, attributes: &Attributes, first: &[u8]) {
        let Some(now) = Moment::now(description) else {
            return;
        };
        let table = process::table();
        if !table.is_some_and(|table| table.versions.now(0).is(&self.version)) {
            return;
        }
        let moment = Moment {
            version: now.version,
            ms: self.ms,
        };
        with(description, |kept| {
            kept.attributes = Some((*attributes, moment));
            if let Ok(room) = kept.room()
                && first.len() <= ROOM
            {
                // SAFETY: there is so much room.
                unsafe { core::ptr::copy_nonoverlapping(first.as_ptr(), room, first.len()) };
                kept.read = moment;
                (kept.offset, kept.len) = (0, first.len());
                kept.is_end = first.len() as u64 >= attributes.size;
            }
        });
    }
}

/// What a request changes, if it is one that changes something. Writes are counted by who makes them, by the file.
pub(super) fn changes(request: &Request<'_>) -> Option<Changes> {
    match request {
        Request::Open(Open { flags, .. }) if flags & sys::O_TRUNC != 0 => Some(Changes::Contents),
        Request::Open(Open { flags, .. }) if flags & sys::O_CREAT != 0 => Some(Changes::Attributes),
        Request::OpenWithin(within) => changes(&Request::Open(within.open)),
        Request::Change(Change {
            what: What::Size(_),
            ..
        })
        | Request::Allocate(_)
        | Request::Copy(_) => Some(Changes::Contents),
        Request::Change(_)
        | Request::MakeDirectory(_)
        | Request::MakeNode(_)
        | Request::RemoveName(_)
        | Request::Rename(_)
        | Request::Link(_)
        | Request::SymbolicLink(_)
        | Request::SetXattr(_)
        | Request::RemoveXattr(_) => Some(Changes::Attributes),
        _ => None,
    }
}

/// Counts a change, for all processes of the job.
pub(super) fn count(changes: Changes) {
    if let Some(table) = process::table() {
        table.versions.count(changes);
    }
}

/// A change of a file's contents: counted now, and when this is dropped.
pub(super) struct Changing(Changes);

impl Changing {
    pub(super) fn begin(changes: Changes) -> Self {
        count(changes);
        Changing(changes)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        count(self.0);
    }
}
