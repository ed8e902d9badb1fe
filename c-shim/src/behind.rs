//! Bytes that programs have written and the shadow has not yet (docs/adr/0015-written-behind.md): one buffer for a file, in the mapping
//! that all processes of the job share, so that nothing is lost with the process that wrote.
//!
//! ```text
//! clean --write--> dirty --written behind its end, or within--> dirty --sent by whoever needs the file--> clean
//!                    `--the request's lane and number are noted, then it is sent; who dies there leaves the note, and whoever
//!                       comes next sends the same request again, which is done once
//! ```
//! # What callers may rely on
//! A buffer is changed by who holds it. Wherever its holder is killed, what `write` has returned for is there, and is sent once.
//!
//! # What it does not do
//! It knows no system calls: who is alive, and how one waits, is told by [`Owner`]; how one asks the shadow, by [`Line`].

use crate::table::{DESCRIPTIONS, Table};
use crate::versions::Changes;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Buffers of a job.
pub const BUFFERS: usize = 128;
/// Bytes of each; only those that are used take memory.
pub const ROOM: usize = 256 << 10;
/// Before it is looked whether a holder lives, it is tried so often.
const SPINS: u32 = 100;
/// Of the shim's file, the byte that an owner has locked is here and as far behind as its id says; below are other locks.
pub const IDS: i64 = 1 << 40;
const WORDS: usize = BUFFERS / 64;

/// One of them.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Buffer {
    /// Who holds it ([`Owner::id`]); 0: nobody.
    holder: AtomicU32,
    /// Not zero: somebody waits for it.
    awaited: AtomicU32,
    /// Bytes; 0: it is clean, and nothing else of it means anything.
    len: AtomicU64,
    /// How many of them the shadow has.
    done: AtomicU64,
    /// Where in the file they begin, if they are not appended.
    offset: AtomicU64,
    file: AtomicU64,
    handle: AtomicU64,
    description: AtomicU32,
    appends: AtomicU32,
    /// The first half of the description's name.
    name: AtomicU64,
    /// The lane of a request that was about to be sent, or 0; its number, and what `done` was then.
    lane: AtomicU64,
    number: AtomicU64,
    from: AtomicU64,
}

/// All of them.
#[repr(C, align(4096))]
pub struct Behind {
    /// A bit for each that may be dirty.
    dirty: [AtomicU64; WORDS],
    owners: AtomicU32,
    /// Not zero while the keeper sleeps until something is dirty.
    pub idle: AtomicU32,
    /// Not 0: an image has all that is here, and the job goes on from that. Nothing is to be sent any more. 1: it is about to be killed, unless whoever
    /// was to do that has died; 2: it is killed.
    pub left: AtomicU32,
    buffers: [Buffer; BUFFERS],
    bytes: UnsafeCell<[[u8; ROOM]; BUFFERS]>,
}

impl core::fmt::Debug for Behind {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Behind").finish_non_exhaustive()
    }
}

// SAFETY: the bytes of a buffer are used by who holds it.
#[allow(unsafe_code)]
unsafe impl Sync for Behind {}

/// Who can hold buffers.
pub trait Owner {
    /// Nobody else has had it before, nor will.
    fn id(&self) -> u32;
    /// Whether somebody else with this id lives.
    fn is_alive(&self, id: u32) -> bool;
    /// Waits for some milliseconds, or until [`Owner::wake`]; not at all if the word is another.
    fn wait(&self, word: &AtomicU32, value: u32);
    /// Wakes all who wait.
    fn wake(&self, word: &AtomicU32);
}

/// Bytes for the shadow.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// At the shadow.
    pub handle: u64,
    /// Not looked at where it is appended.
    pub offset: u64,
    /// Them.
    pub data: &'a [u8],
}

/// What the shadow has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// Where it begins.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Why it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It says so: `errno`.
    Refused(i32),
    /// It cannot be reached: nobody knows what became of it.
    Unreached,
}

/// A way to the shadow.
pub trait Line {
    /// Asks, and says before by which lane and number.
    ///
    /// # Errors
    /// [`Trouble`].
    fn write(&mut self, piece: &Piece<'_>, sends: &dyn Fn(u64, u64)) -> Result<Landed, Trouble>;
    /// The same request as somebody else's, who may have sent it.
    ///
    /// # Errors
    /// [`Trouble`].
    fn again(&mut self, lane: u64, number: u64, piece: &Piece<'_>) -> Result<Landed, Trouble>;
}

/// Where something is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Tells most files from each other.
    pub file: u64,
    /// At the shadow.
    pub handle: u64,
    /// Its index.
    pub description: usize,
    /// The first half of its name.
    pub name: u64,
    /// None: at the end.
    pub offset: Option<u64>,
    /// Bytes that its buffer may hold, at most [`ROOM`].
    pub most: usize,
}

/// What [`Held::put`] has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The bytes are there; whether they are the first.
    Done {
        /// It was clean.
        first: bool,
    },
    /// What is there must be sent before.
    Full,
}

/// The buffer that a file's bytes are in.
#[must_use]
pub fn place(file: u64) -> usize {
    // Neighbours on a disk have neighbouring numbers.
    (file.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as usize % BUFFERS
}

impl Behind {
    /// Whether a buffer may be dirty.
    #[must_use]
    pub fn is_dirty(&self, index: usize) -> bool {
        self.dirty[index / 64].load(Ordering::Acquire) & 1 << (index % 64) != 0
    }

    /// Whether any may be.
    #[must_use]
    pub fn is_any_dirty(&self) -> bool {
        self.dirty
            .iter()
            .any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Those that may be dirty.
    pub fn all_dirty(&self) -> impl Iterator<Item = usize> + '_ {
        (0..BUFFERS).filter(|index| self.is_dirty(*index))
    }

    /// An id for an owner.
    pub fn new_id(&self) -> u32 {
        loop {
            let id = self.owners.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if id != 0 {
                return id;
            }
        }
    }

    /// As [`Held::put`] behind what is there, without waiting: if nobody has the buffer, it is dirty, and there is room. `claim` has the last
    /// word before `copy`.
    pub fn try_put(
        &self,
        id: u32,
        target: &Target,
        len: usize,
        claim: impl FnOnce() -> bool,
        copy: impl FnOnce(*mut u8),
    ) -> bool {
        let index = place(target.file);
        let buffer = &self.buffers[index];
        let taken = buffer
            .holder
            .compare_exchange(0, id, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return false;
        }
        let there = buffer.len.load(Ordering::Relaxed);
        let at = match there {
            0 => None,
            _ => self.room(index, target, len).filter(|_| claim()),
        };
        if let Some(at) = at {
            copy(self.bytes(index).wrapping_add(at));
            let end = (at + len) as u64;
            buffer.len.store(there.max(end), Ordering::Release);
        }
        // Who is not woken looks again soon.
        buffer.holder.store(0, Ordering::Release);
        at.is_some()
    }

    fn bytes(&self, index: usize) -> *mut u8 {
        let first = self.bytes.get().cast::<[u8; ROOM]>();
        first.wrapping_add(index).cast()
    }

    /// Where bytes would go that are put into a buffer, if there is room for them as things are.
    fn room(&self, index: usize, target: &Target, len: usize) -> Option<usize> {
        let buffer = &self.buffers[index];
        let there = buffer.len.load(Ordering::Relaxed) as usize;
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let most = target.most.min(ROOM);
        if there == 0 {
            return (len <= most).then_some(0);
        }
        // What somebody was about to send may be there already, so nothing is changed of it.
        if word(&buffer.lane) != 0
            || word(&buffer.done) != 0
            || word(&buffer.file) != target.file
            || word(&buffer.name) != target.name
            || buffer.description.load(Ordering::Relaxed) as usize != target.description
            || (buffer.appends.load(Ordering::Relaxed) != 0) != target.offset.is_none()
        {
            return None;
        }
        let at = match target.offset {
            None => there,
            Some(offset) => usize::try_from(offset.checked_sub(word(&buffer.offset))?).ok()?,
        };
        (at <= there && at + len <= most).then_some(at)
    }

    /// Takes a buffer, waiting for whoever has it, unless that one is dead.
    pub fn hold<'a, O: Owner>(&'a self, index: usize, owner: &'a O) -> Held<'a, O> {
        let buffer = &self.buffers[index];
        let id = owner.id();
        let mut spins = 0;
        let take = |from| {
            let holder = &buffer.holder;
            holder.compare_exchange(from, id, Ordering::Acquire, Ordering::Relaxed)
        };
        while let Err(other) = take(0) {
            spins += 1;
            if spins < SPINS {
                core::hint::spin_loop();
                continue;
            }
            buffer.awaited.store(1, Ordering::SeqCst);
            owner.wait(&buffer.holder, other);
            let is_dead = || other != id && !owner.is_alive(other);
            if buffer.holder.load(Ordering::Relaxed) == other && is_dead() && take(other).is_ok() {
                break;
            }
        }
        Held {
            behind: self,
            index,
            owner,
        }
    }
}

/// A buffer that is ours.
#[derive(Debug)]
pub struct Held<'a, O: Owner> {
    behind: &'a Behind,
    index: usize,
    owner: &'a O,
}

impl<O: Owner> Drop for Held<'_, O> {
    fn drop(&mut self) {
        let buffer = self.buffer();
        buffer.holder.store(0, Ordering::SeqCst);
        if buffer.awaited.load(Ordering::SeqCst) != 0 {
            buffer.awaited.store(0, Ordering::Relaxed);
            self.owner.wake(&buffer.holder);
        }
    }
}

impl<O: Owner> Held<'_, O> {
    fn buffer(&self) -> &Buffer {
        &self.behind.buffers[self.index]
    }

    fn bytes(&self) -> *mut u8 {
        self.behind.bytes(self.index)
    }

    /// Whether it has something of this description's.
    #[must_use]
    pub fn is_of(&self, description: usize) -> bool {
        let buffer = self.buffer();
        buffer.len.load(Ordering::Relaxed) != 0
            && buffer.description.load(Ordering::Relaxed) as usize == description
    }

    /// Whether it has something of this file's.
    #[must_use]
    pub fn is_of_file(&self, file: u64) -> bool {
        let buffer = self.buffer();
        buffer.len.load(Ordering::Relaxed) != 0 && buffer.file.load(Ordering::Relaxed) == file
    }

    /// Whether there is room for bytes there, as things are.
    #[must_use]
    pub fn fits(&self, target: &Target, len: usize) -> bool {
        self.behind.room(self.index, target, len).is_some()
    }

    /// Puts bytes in, which `copy` writes where it is told.
    pub fn put(&mut self, target: &Target, len: usize, copy: impl FnOnce(*mut u8)) -> Put {
        let Some(at) = self.behind.room(self.index, target, len) else {
            return Put::Full;
        };
        let buffer = self.buffer();
        let there = buffer.len.load(Ordering::Relaxed);
        if there == 0 {
            for (place, value) in [
                (&buffer.done, 0),
                (&buffer.lane, 0),
                (&buffer.offset, target.offset.unwrap_or(0)),
                (&buffer.file, target.file),
                (&buffer.handle, target.handle),
                (&buffer.name, target.name),
            ] {
                place.store(value, Ordering::Relaxed);
            }
            let appends = u32::from(target.offset.is_none());
            buffer.appends.store(appends, Ordering::Relaxed);
            buffer
                .description
                .store(target.description as u32, Ordering::Relaxed);
            // Before there is anything: who is killed here leaves a bit too many.
            let (word, bit) = (self.index / 64, 1 << (self.index % 64));
            self.behind.dirty[word].fetch_or(bit, Ordering::SeqCst);
        }
        copy(self.bytes().wrapping_add(at));
        let end = (at + len) as u64;
        buffer.len.store(there.max(end), Ordering::Release);
        Put::Done { first: there == 0 }
    }

    /// Sends all that is there. What the shadow refuses is dropped, and the error noted for whoever asks for it next
    /// ([`crate::table::Description::error`]).
    ///
    /// # Errors
    /// The last one.
    pub fn send(&mut self, table: &Table, line: &mut impl Line) -> Result<(), Trouble> {
        let buffer = self.buffer();
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let mut result = Ok(());
        let changes = Changes::File(word(&buffer.file));
        let is_clean = word(&buffer.len) == 0;
        if !is_clean {
            table.versions.count(changes);
        }
        loop {
            let (len, done) = (word(&buffer.len).min(ROOM as u64), word(&buffer.done));
            if done >= len {
                buffer.len.store(0, Ordering::Release);
                break;
            }
            let piece = Piece {
                handle: word(&buffer.handle),
                offset: word(&buffer.offset).wrapping_add(done),
                data: self.data(done as usize, len as usize),
            };
            let lane = word(&buffer.lane);
            let sent = if lane != 0 && word(&buffer.from) == done {
                line.again(lane, word(&buffer.number), &piece)
            } else {
                line.write(&piece, &|lane, number| {
                    // Half a note is none.
                    buffer.lane.store(0, Ordering::Release);
                    buffer.number.store(number, Ordering::Release);
                    buffer.from.store(done, Ordering::Release);
                    buffer.lane.store(lane, Ordering::Release);
                })
            };
            let refused = match sent {
                Ok(Landed { len: 0, .. }) => EIO,
                Ok(landed) => {
                    self.landed(table, &landed);
                    let next = done.saturating_add(landed.len);
                    let (place, value) = if next >= len {
                        (&buffer.len, 0)
                    } else {
                        (&buffer.done, next)
                    };
                    place.store(value, Ordering::Release);
                    buffer.lane.store(0, Ordering::Release);
                    continue;
                }
                Err(Trouble::Refused(errno)) => errno,
                Err(Trouble::Unreached) => return Err(Trouble::Unreached),
            };
            if let Some(description) = self.description(table) {
                description.error.store(refused, Ordering::Relaxed);
            }
            buffer.len.store(0, Ordering::Release);
            buffer.lane.store(0, Ordering::Release);
            result = Err(Trouble::Refused(refused));
        }
        let (word, bit) = (self.index / 64, 1 << (self.index % 64));
        if !is_clean {
            table.versions.count(changes);
        }
        self.behind.dirty[word].fetch_and(!bit, Ordering::SeqCst);
        result
    }

    fn data(&self, from: usize, to: usize) -> &[u8] {
        let begin = self.bytes().wrapping_add(from).cast_const();
        // SAFETY: it lies within this buffer, which is ours as long as we are.
        #[allow(unsafe_code)]
        unsafe {
            core::slice::from_raw_parts(begin, to - from)
        }
    }

    /// The description whose bytes they are, if it is there yet.
    fn description<'t>(&self, table: &'t Table) -> Option<&'t crate::table::Description> {
        let buffer = self.buffer();
        let index = buffer.description.load(Ordering::Relaxed) as usize;
        let found = table.descriptions.get(index % DESCRIPTIONS)?;
        let name = found.name[0].load(Ordering::Relaxed);
        (name == buffer.name.load(Ordering::Relaxed)).then_some(found)
    }

    /// An append says where the file ends now.
    fn landed(&self, table: &Table, landed: &Landed) {
        if self.buffer().appends.load(Ordering::Relaxed) != 0
            && let Some(description) = self.description(table)
        {
            let end = landed.offset.wrapping_add(landed.len);
            description.offset.store(end, Ordering::Relaxed);
        }
    }
}

const EIO: i32 = 5;

#[cfg(test)]
#[path = "behind/tests.rs"]
mod tests;
