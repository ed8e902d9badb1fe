//! Files that are mapped shared: for the job their contents lie in the store ([`crate::residents`]), and what is written through a
//! mapping comes back to the shadow from there.
//!
//! ```text
//! first mapping -> filled -> live --msync, munmap, unlock, exit, last mapping gone--> what differs from the copy is written
//!                              |--a lock is had, a second has gone by--> what others have changed is merged
//!                              `--read and write by descriptor--> here; written to the shadow too, at once
//! ```
//! Whoever changes a resident's size or contents has it to himself: by a mutex among the threads of a process, and among processes
//! by a record lock, which the kernel takes back from whoever is killed. Of a mapping that is the process's own nobody knows when
//! it is left (exec, kill): so each process maps, for each file, a page of a memory file whose end the kernel tells (`ends.rs`).
//!
//! # What callers may rely on
//! Nothing that was written through a mapping is lost as long as any process of the job goes on to open or close something.

mod alone;
mod contents;

pub(super) use alone::{begin, forget};

use super::behind;
use super::cache::count;
use super::ends;
use super::lanes;
use super::process;
use super::sys::{self, Errno, call};
use crate::residents::{FREE, RESIDENTS, Resident, WINDOW, copy, window};
use crate::table::Description;
use crate::versions::Changes;
use alone::{Alone, REGISTRY};
use contents::punch;
use core::sync::atomic::{AtomicU64, Ordering};
use wire::Attributes;

const NOTHING: (*const u8, usize) = (core::ptr::null(), 0);
const PAGE: u64 = 4096;
/// By file: the page that this process holds it by, or 0.
static HELD: [AtomicU64; RESIDENTS] = [const { AtomicU64::new(0) }; RESIDENTS];

/// Tells most files from each other ([`crate::versions`]).
pub(super) fn number(device: u64, inode: u64) -> u64 {
    device.rotate_left(40) ^ inode
}

/// A resident that is ours alone.
pub(super) struct Mine {
    index: usize,
    slot: &'static Resident,
    _alone: Alone,
}

fn identity(description: &Description) -> (u64, u64) {
    let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
    (word(&description.device), word(&description.inode))
}

/// The file that is open, if it is resident.
pub(super) fn of(description: &Description) -> Option<Mine> {
    let (device, inode) = identity(description);
    find(device, inode)
}

/// Whether it is, or is about to be.
pub(super) fn is_resident(description: &Description) -> bool {
    let (device, inode) = identity(description);
    process::table().is_some_and(|table| table.residents.find(device, inode).is_some())
}

/// A file, if it is resident.
pub(super) fn find(device: u64, inode: u64) -> Option<Mine> {
    let table = process::table()?;
    let index = table.residents.find(device, inode)?;
    let slot = table.residents.get(index)?;
    let alone = Alone::begin(index);
    // It may have ended meanwhile, and never been filled.
    let is_there = slot.is(device, inode) && slot.filled.load(Ordering::Acquire) != 0;
    is_there.then_some(Mine {
        index,
        slot,
        _alone: alone,
    })
}

/// As [`find`], of all that this process holds.
fn held() -> impl Iterator<Item = Mine> {
    (0..RESIDENTS).filter_map(held_by_us)
}

/// Makes a file resident, and this process hold it. `writes`: by a mapping.
///
/// # Errors
/// ENOMEM: there are too many, or it is too large; what the shadow says.
pub(super) fn make(
    description: &Description,
    attributes: &Attributes,
    writes: bool,
) -> Result<Mine, Errno> {
    let table = process::table().ok_or(Errno(sys::EIO))?;
    let (device, inode) = identity(description);
    loop {
        let registry = Alone::begin(REGISTRY);
        let index = table.residents.find_or_take(device, inode);
        let index = index.ok_or(Errno(sys::ENOMEM))?;
        let slot = table.residents.get(index).ok_or(Errno(sys::ENOMEM))?;
        // Held before the list is anybody's: till then nobody ends it.
        let held = hold(index);
        drop(registry);
        held?;
        // From now on nobody writes behind.
        behind::send_file(description);
        let mine = Mine {
            index,
            slot,
            _alone: Alone::begin(index),
        };
        // Another thread may have let it go.
        if slot.is(device, inode) && (!process::is_own() || is_held(index)) {
            return mine.prepare(description, attributes, writes).map(|()| mine);
        }
    }
}

fn is_held(index: usize) -> bool {
    HELD[index].load(Ordering::Relaxed) != 0
}

/// Maps what tells of our end.
fn hold(index: usize) -> Result<(), Errno> {
    let table = process::table().ok_or(Errno(sys::EIO))?;
    if process::is_own() && is_held(index) {
        return Ok(());
    }
    let sign = sys::memfd(c"wf-held", 1)?;
    let watch = ends::watch_end(sign);
    let mapped = watch.and_then(|watch| {
        if !table.residents.hold(watch, index) {
            return Err(Errno(sys::ENOMEM));
        }
        // A checkpoint reads it. PROT_READ, MAP_SHARED
        sys::ftruncate(sign, PAGE)?;
        sys::map(PAGE, 1, 1, sign)
    });
    sys::close(sign);
    let place = mapped? as u64;
    if process::is_own() {
        HELD[index].store(place, Ordering::Relaxed);
    }
    Ok(())
}

/// After a restart: what told of the end of this process's mappings tells nothing any more.
pub(super) fn renew() {
    let Some(table) = process::table() else {
        return;
    };
    table.residents.forget_holds();
    for (index, held) in HELD.iter().enumerate() {
        let place = held.swap(0, Ordering::Relaxed);
        if place != 0 {
            // SAFETY: it was mapped for nothing else.
            let _ = unsafe { call(sys::MUNMAP, [place, PAGE]) };
            let _ = hold(index);
        }
    }
}

/// This process has nothing of it mapped any more, if `unused` says so while nobody can map it.
pub(super) fn let_go(index: usize, unused: impl FnOnce() -> bool) {
    let _alone = Alone::begin(index);
    if !unused() {
        return;
    }
    let place = HELD[index].swap(0, Ordering::Relaxed);
    if place != 0 {
        // SAFETY: it was mapped for nothing else.
        let _ = unsafe { call(sys::MUNMAP, [place, PAGE]) };
    }
}

/// Nobody of the job has it mapped any more.
pub(super) fn end(index: usize) {
    let Some(table) = process::table() else {
        return;
    };
    let _registry = Alone::begin(REGISTRY);
    let Some(slot) = table.residents.get(index) else {
        return;
    };
    let is_unused =
        || slot.state.load(Ordering::Acquire) != FREE && slot.holders.load(Ordering::Acquire) == 0;
    if !is_unused() {
        return;
    }
    let mine = Mine {
        index,
        slot,
        _alone: Alone::begin(index),
    };
    if slot.filled.load(Ordering::Acquire) != 0 {
        // Nobody is there to be told of an error.
        let _ = mine.write_back(0, WINDOW);
    }
    let handle = slot.handle.swap(0, Ordering::Relaxed);
    if handle != 0 {
        lanes::close(handle);
    }
    punch(window(index), WINDOW);
    punch(copy(index), WINDOW);
    table.residents.give_back(index);
}

/// Ends what a process that was killed has left half ended.
pub(super) fn end_unused() {
    let Some(table) = process::table() else {
        return;
    };
    for index in 0..RESIDENTS {
        let Some(slot) = table.residents.get(index) else {
            return;
        };
        if slot.state.load(Ordering::Acquire) != FREE && slot.holders.load(Ordering::Acquire) == 0 {
            end(index);
        }
    }
}

/// Writes back all that this process has mapped: before it ends, and before it is stopped to be copied.
pub(super) fn write_back_all() {
    if process::is_own() {
        for mine in held() {
            let _ = mine.write_back(0, WINDOW);
        }
    }
}

/// A file has another size now, whoever of the job has made it so.
pub(super) fn resized(device: u64, inode: u64, size: u64) {
    if let Some(mine) = find(device, inode) {
        mine.resized(size);
    }
}

/// A file was opened with O_TRUNC.
pub(super) fn emptied(description: &Description) {
    let (device, inode) = identity(description);
    resized(device, inode, 0);
}

/// One that this process holds.
pub(super) fn held_by_us(index: usize) -> Option<Mine> {
    let slot = process::table()?.residents.get(index)?;
    let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let is_held = is_held(index);
    is_held.then(|| find(word(&slot.device), word(&slot.inode)))?
}

/// Before the shadow is asked for something that needs to see all that was written.
pub(super) fn write_back(description: &Description) -> Result<(), Errno> {
    behind::send_file(description);
    match of(description) {
        Some(mine) => mine.write_back(0, WINDOW),
        None => Ok(()),
    }
}

/// A lock has been had: what others have written while they had it is to be seen.
pub(super) fn refresh(description: &Description) {
    if let Some(mine) = of(description) {
        // What cannot be read is not seen.
        let _ = mine.refresh(description.handle.load(Ordering::Relaxed));
    }
}

/// The shadow has changed contents in a way that is not known here.
pub(super) fn changed_there(description: &Description) {
    if let Some(mine) = of(description) {
        let _ = mine.merge_changed(description.handle.load(Ordering::Relaxed));
        count(Changes::File(description.file.load(Ordering::Relaxed)));
    }
}
