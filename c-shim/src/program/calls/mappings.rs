//! Shared mappings of remote files: made, and what munmap, mremap and msync mean for them.
//!
//! Which addresses they lie at is noted for this process. Where there is no room for a note, nothing is let go before the process
//! ends.

use super::names::attributes_of;
use super::{File, Served};
use crate::program::sys::{self, Errno, Undisturbed, call};
use crate::program::{ends, process, resident};
use crate::residents::{WINDOW, window};
use crate::table::Reserved;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MAP_FIXED: u64 = 0x10;
const PROT_WRITE: u64 = 2;
const PAGE: u64 = 4096;
/// Notes of a process.
const NOTES: usize = 256;

/// Where something is mapped.
struct Note {
    begin: AtomicU64,
    end: AtomicU64,
    /// The resident and 1; 0: nothing.
    resident: AtomicU32,
    /// Where in the file it begins.
    offset: AtomicU64,
}

static ALL: [Note; NOTES] = [const {
    Note {
        begin: AtomicU64::new(0),
        end: AtomicU64::new(0),
        resident: AtomicU32::new(0),
        offset: AtomicU64::new(0),
    }
}; NOTES];
/// Notes that are in use, and those that there was no room for.
static COUNT: AtomicU32 = AtomicU32::new(0);
static LOST: AtomicU32 = AtomicU32::new(0);
static BUSY: AtomicU32 = AtomicU32::new(0);

/// What one note says, or a part of it.
#[derive(Clone, Copy)]
struct Piece {
    begin: u64,
    end: u64,
    resident: usize,
    offset: u64,
}

/// We are a fork's child.
pub(in crate::program) fn forget() {
    BUSY.store(0, Ordering::Relaxed);
}

/// The notes, for us alone.
struct Notes {
    _undisturbed: Undisturbed,
}

impl Notes {
    fn begin() -> Self {
        let undisturbed = Undisturbed::begin();
        while BUSY.swap(1, Ordering::Acquire) != 0 {
            sys::give_way();
        }
        Notes {
            _undisturbed: undisturbed,
        }
    }

    fn all(&self) -> impl Iterator<Item = (&'static Note, Piece)> + use<> {
        ALL.iter().filter_map(|note| {
            let resident = note.resident.load(Ordering::Relaxed).checked_sub(1)?;
            let piece = Piece {
                begin: note.begin.load(Ordering::Relaxed),
                end: note.end.load(Ordering::Relaxed),
                resident: resident as usize,
                offset: note.offset.load(Ordering::Relaxed),
            };
            Some((note, piece))
        })
    }

    fn add(&self, piece: Piece) {
        let free = |note: &&Note| note.resident.load(Ordering::Relaxed) == 0;
        let Some(note) = ALL.iter().find(free) else {
            LOST.store(1, Ordering::Relaxed);
            return;
        };
        note.begin.store(piece.begin, Ordering::Relaxed);
        note.end.store(piece.end, Ordering::Relaxed);
        note.offset.store(piece.offset, Ordering::Relaxed);
        note.resident
            .store(piece.resident as u32 + 1, Ordering::Relaxed);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes these addresses out; what was there.
    fn cut(&self, range: &Range<u64>) -> Pieces {
        let mut cut = Pieces::default();
        for (note, piece) in self.all() {
            let Some(part) = piece.within(range) else {
                continue;
            };
            note.resident.store(0, Ordering::Relaxed);
            COUNT.fetch_sub(1, Ordering::Relaxed);
            let before = piece.begin..part.begin;
            let behind = part.end..piece.end;
            for rest in [before, behind] {
                if let Some(rest) = piece.within(&rest) {
                    self.add(rest);
                }
            }
            cut.push(part);
        }
        cut
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        BUSY.store(0, Ordering::Release);
    }
}

impl Piece {
    fn within(&self, range: &Range<u64>) -> Option<Piece> {
        let (begin, end) = (self.begin.max(range.start), self.end.min(range.end));
        (begin < end).then(|| Piece {
            begin,
            end,
            offset: self.offset + (begin - self.begin),
            ..*self
        })
    }
}

/// A few pieces; which residents there are more of is told by `more`.
#[derive(Default)]
struct Pieces {
    some: [Option<Piece>; 16],
    more: bool,
}

impl Pieces {
    fn push(&mut self, piece: Piece) {
        match self.some.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(piece),
            None => self.more = true,
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.some.iter().flatten()
    }

    /// Writes back what lies there.
    fn write_back(&self, is_durable: bool) -> Result<(), Errno> {
        let mut result = Ok(());
        for piece in self.iter() {
            let Some(mine) = resident::held_by_us(piece.resident) else {
                continue;
            };
            let written = mine.write_back(piece.offset, piece.end - piece.begin);
            let durable = if is_durable {
                mine.make_durable()
            } else {
                Ok(())
            };
            result = result.and(written).and(durable);
        }
        if self.more || LOST.load(Ordering::Relaxed) != 0 {
            resident::write_back_all();
        }
        result
    }
}

fn is_idle() -> bool {
    COUNT.load(Ordering::Relaxed) == 0 && LOST.load(Ordering::Relaxed) == 0
}

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    if !matches!(
        number,
        sys::MUNMAP | sys::MREMAP | sys::MSYNC | sys::EXIT_GROUP
    ) || is_idle()
        || !process::is_own()
    {
        return None;
    }
    let [address, len, third, fourth, fifth, _] = *args;
    match number {
        sys::MUNMAP => {
            let range = pages(address, len);
            found(&range)?;
            // SAFETY: it is what the program asked for.
            Some(unsafe { call(number, *args) }.inspect(|_| unmapped(&range)))
        }
        sys::MREMAP => moved(args, [address, len, third, fourth, fifth]),
        sys::MSYNC => {
            const MS_SYNC: u64 = 4;
            let pieces = found(&pages(address, len))?;
            // SAFETY: it is what the program asked for; the kernel says what is wrong with it.
            let asked = unsafe { call(number, *args) };
            Some(asked.and_then(|done| pieces.write_back(third & MS_SYNC != 0).map(|()| done)))
        }
        _ => {
            resident::write_back_all();
            None
        }
    }
}

fn pages(address: u64, len: u64) -> Range<u64> {
    let len = len.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    address..address.saturating_add(len)
}

/// What is mapped there of ours.
fn found(range: &Range<u64>) -> Option<Pieces> {
    let mut pieces = Pieces::default();
    let notes = Notes::begin();
    for (_, piece) in notes.all() {
        if let Some(part) = piece.within(range) {
            pieces.push(part);
        }
    }
    let lost = LOST.load(Ordering::Relaxed) != 0;
    (lost || pieces.some[0].is_some()).then_some(pieces)
}

/// Nothing of ours is there any more.
fn unmapped(range: &Range<u64>) {
    let pieces = Notes::begin().cut(range);
    // Nobody is told of an error, as by the kernel.
    let _ = pieces.write_back(false);
    for piece in pieces.iter() {
        settle(piece.resident);
    }
    ends::close_ended();
}

/// Lets a file go of which nothing is mapped.
fn settle(index: usize) {
    resident::let_go(index, || {
        let notes = Notes::begin();
        LOST.load(Ordering::Relaxed) == 0 && !notes.all().any(|(_, piece)| piece.resident == index)
    });
}

/// Before something is mapped over what is there.
pub(super) fn replaced(flags: u64, address: u64, len: u64) {
    if flags & MAP_FIXED != 0 && !is_idle() && process::is_own() {
        let range = pages(address, len);
        if found(&range).is_some() {
            unmapped(&range);
        }
    }
}

fn moved(args: &[u64; 6], [address, old_len, new_len, flags, new]: [u64; 5]) -> Served {
    const FIXED: u64 = 2;
    const DONT_UNMAP: u64 = 4;
    // With no length it is mapped once more.
    let old = pages(address, old_len.max(1));
    let pieces = found(&old)?;
    let piece = pieces.iter().next().copied();
    if piece.is_some_and(|piece| piece.offset.saturating_add(new_len) > WINDOW) {
        return Some(Err(Errno(sys::ENOMEM)));
    }
    if flags & FIXED != 0 {
        replaced(MAP_FIXED, new, new_len);
    }
    // SAFETY: it is what the program asked for.
    let moved = unsafe { call(sys::MREMAP, *args) };
    if let (Ok(place), Some(piece)) = (moved, piece) {
        let notes = Notes::begin();
        if flags & DONT_UNMAP == 0 && old_len != 0 {
            notes.cut(&old);
        }
        let now = pages(place, new_len);
        notes.add(Piece {
            begin: now.start,
            end: now.end,
            ..piece
        });
    }
    Some(moved)
}

/// mmap(2) of a remote file, shared.
pub(super) fn map(file: &File, args: &[u64; 6]) -> Result<u64, Errno> {
    let [address, len, protection, flags, _, offset] = *args;
    let mode = file.flags() & sys::O_ACCMODE;
    let writes = mode == O_RDWR;
    if file.flags() & sys::O_PATH != 0 {
        return Err(Errno(sys::EBADF));
    }
    if mode == sys::O_WRONLY || protection & PROT_WRITE != 0 && !writes {
        return Err(Errno(sys::EACCES));
    }
    if file.is_directory() {
        return Err(Errno(sys::ENODEV));
    }
    if len == 0 || offset % PAGE != 0 {
        return Err(Errno(sys::EINVAL));
    }
    if offset.saturating_add(len) > WINDOW {
        return Err(Errno(sys::ENOMEM));
    }
    replaced(flags, address, len);
    let attributes = attributes_of(file)?;
    let mine = resident::make(file.description, &attributes, writes)?;
    let index = mine.index();
    let mapped = store(writes).and_then(|store| {
        let at = window(index) + offset;
        let args = [address, len, protection, flags, store.0 as u64, at];
        // SAFETY: it is what the program asked for, with another file of the same contents.
        unsafe { call(sys::MMAP, args) }
    });
    match mapped {
        Ok(place) if process::is_own() => Notes::begin().add(Piece {
            begin: place,
            end: pages(place, len).end,
            resident: index,
            offset,
        }),
        // Our parent has it mapped.
        Ok(_) => LOST.store(1, Ordering::Relaxed),
        Err(_) => {}
    }
    drop(mine);
    if mapped.is_err() {
        settle(index);
        ends::close_ended();
    }
    mapped
}

const O_RDWR: u32 = 2;

/// The store's descriptor, or one that can be closed, by which nothing is ever written (mprotect(2) says so).
struct Store(i32);

fn store(writes: bool) -> Result<Store, Errno> {
    let number = Reserved::Store.number();
    if writes {
        return Ok(Store(number));
    }
    sys::open(sys::DescriptorName::of(number).get(), sys::O_CLOEXEC).map(Store)
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.0 != Reserved::Store.number() {
            sys::close(self.0);
        }
    }
}
