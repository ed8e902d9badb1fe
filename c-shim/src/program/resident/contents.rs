//! Contents of a resident: filled, written back, merged with what others have changed.

use super::super::cache::Changing;
use super::super::lanes::{Put, ask, tell};
use super::super::sys::{self, Errno, SysResult, call};
use super::{Mine, NOTHING, number};
use crate::residents::{WINDOW, copy, difference, merge, window};
use crate::table::{Description, Reserved};
use crate::versions::Changes;
use core::sync::atomic::{AtomicU64, Ordering};
use wire::{Attribute, Attributes, MOST_DATA, Open, Place, Read, Reply, Request, Sync, Write};

const PAGE: u64 = 4096;
/// Bytes that are compared at once.
const PIECE: usize = 256 << 10;
/// Files up to this size are fetched whole to see what others have changed; of larger ones the times are looked at first.
const SMALL: u64 = MOST_DATA as u64 / 2;
/// How long it is believed that others have changed nothing.
const BELIEVED_MS: u64 = 1000;

pub(super) fn punch(offset: u64, len: u64) {
    const PUNCH_HOLE_KEEP_SIZE: u64 = 3;
    let store = Reserved::Store.number() as u64;
    // SAFETY: fallocate(2) takes numbers.
    let _ = unsafe { call(sys::FALLOCATE, [store, PUNCH_HOLE_KEEP_SIZE, offset, len]) };
}

fn put(offset: u64, bytes: &[u8]) -> SysResult<()> {
    match sys::pwrite(Reserved::Store.number(), bytes, offset) {
        Ok(len) if len == bytes.len() => Ok(()),
        Ok(_) => Err(Errno(sys::EIO)),
        Err(error) => Err(error),
    }
}

fn get(offset: u64, to: &mut [u8]) -> SysResult<()> {
    match sys::pread(Reserved::Store.number(), to, offset) {
        Ok(len) if len == to.len() => Ok(()),
        Ok(_) => Err(Errno(sys::EIO)),
        Err(error) => Err(error),
    }
}

/// Memory for two pieces, for a while.
struct Pieces {
    place: *mut u8,
    len: usize,
}

impl Pieces {
    fn new(size: u64) -> SysResult<Self> {
        let len = PIECE.min(size.next_multiple_of(PAGE).max(PAGE) as usize);
        // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS
        let place = sys::map(2 * len as u64, 3, 0x22, -1)?;
        Ok(Pieces { place, len })
    }

    /// Both of them, as long as they may be at most.
    fn both(&mut self, len: usize) -> [&mut [u8]; 2] {
        let len = len.min(self.len);
        // SAFETY: so much is mapped, for nobody else.
        let first = unsafe { core::slice::from_raw_parts_mut(self.place, len) };
        let behind = self.place.wrapping_add(self.len);
        // SAFETY: the same, behind the first.
        let second = unsafe { core::slice::from_raw_parts_mut(behind, len) };
        [first, second]
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let args = [self.place as u64, 2 * self.len as u64];
        // SAFETY: it was mapped for us.
        let _ = unsafe { call(sys::MUNMAP, args) };
    }
}

impl Mine {
    /// Which it is.
    pub(in crate::program) fn index(&self) -> usize {
        self.index
    }

    /// Bytes.
    pub(in crate::program) fn size(&self) -> u64 {
        self.slot.size.load(Ordering::Relaxed)
    }

    fn is_copied(&self) -> bool {
        self.slot.copied.load(Ordering::Relaxed) != 0
    }

    fn handle(&self) -> u64 {
        self.slot.handle.load(Ordering::Relaxed)
    }

    fn changed_by_us(&self) {
        self.slot.changed.store(0, Ordering::Relaxed);
    }

    /// Fills it if nobody has, and makes a copy if it is to be changed by a mapping.
    pub(super) fn prepare(
        &self,
        description: &Description,
        attributes: &Attributes,
        writes: bool,
    ) -> Result<(), Errno> {
        let handle = description.handle.load(Ordering::Relaxed);
        if attributes.size > WINDOW {
            return Err(Errno(sys::ENOMEM));
        }
        if self.slot.filled.load(Ordering::Acquire) == 0 {
            let seen = sys::milliseconds();
            self.fill(handle, attributes.size)?;
            self.slot.seen_ms.store(seen, Ordering::Relaxed);
            self.slot
                .changed
                .store(last_change(attributes), Ordering::Relaxed);
            self.slot.filled.store(1, Ordering::Release);
        } else {
            // As with an open: what others have changed is seen.
            self.refresh(handle)?;
        }
        if !writes || self.is_copied() {
            return Ok(());
        }
        if self.handle() == 0 {
            const O_RDWR: u32 = 2;
            let request = Request::Open(Open {
                place: Place {
                    at: handle,
                    name: b"",
                },
                flags: O_RDWR,
                mode: 0,
                first: 0,
            });
            let again = ask(&request, NOTHING, Put::Lane, |answer| match answer.reply {
                Reply::Opened(opened) => Ok(opened.handle),
                _ => Err(Errno(sys::EIO)),
            })?;
            self.slot.handle.store(again, Ordering::Relaxed);
        }
        let mut pieces = Pieces::new(self.size())?;
        let mut at = 0;
        while at < self.size() {
            let [piece, _] = pieces.both((self.size() - at).min(PIECE as u64) as usize);
            get(window(self.index) + at, piece)?;
            if piece.iter().any(|byte| *byte != 0) {
                put(copy(self.index) + at, piece)?;
            }
            at += piece.len() as u64;
        }
        self.slot.copied.store(1, Ordering::Relaxed);
        Ok(())
    }

    /// All of the file; it may grow or shrink meanwhile.
    fn fill(&self, handle: u64, size: u64) -> Result<(), Errno> {
        // Of whoever had the window before, if he was killed.
        punch(window(self.index), WINDOW);
        punch(copy(self.index), WINDOW);
        let mut pieces = Pieces::new(size)?;
        let mut at = 0;
        while at < size {
            let [piece, _] = pieces.both((size - at).min(PIECE as u64) as usize);
            let got = read_there(handle, at, piece)?;
            let piece = &piece[..got];
            if piece.iter().any(|byte| *byte != 0) {
                put(window(self.index) + at, piece)?;
            }
            at += got as u64;
            if got == 0 {
                break;
            }
        }
        self.slot.size.store(at, Ordering::Relaxed);
        Ok(())
    }

    /// Writes to the shadow what mappings have changed in these bytes.
    ///
    /// # Errors
    /// What the shadow says; the rest is written all the same.
    pub(in crate::program) fn write_back(&self, from: u64, len: u64) -> Result<(), Errno> {
        let end = from.saturating_add(len).min(self.size());
        if !self.is_copied() || from >= end {
            return Ok(());
        }
        let (here, there) = (window(self.index), copy(self.index));
        let mut pieces = Pieces::new(end - from)?;
        let mut changing = None;
        let mut result = Ok(());
        let mut at = from;
        while at < end {
            let [piece, known] = pieces.both((end - at).min(PIECE as u64) as usize);
            get(here + at, piece)?;
            get(there + at, known)?;
            let mut within = 0;
            while let Some(range) = difference(piece, known, within) {
                within = range.end;
                changing.get_or_insert_with(|| self.changing());
                let offset = at + range.start as u64;
                let written = self
                    .write_there(offset, &piece[range.clone()])
                    .and_then(|()| put(there + offset, &piece[range]));
                result = result.and(written);
            }
            at += piece.len() as u64;
        }
        result
    }

    fn changing(&self) -> Changing {
        self.changed_by_us();
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let file = number(word(&self.slot.device), word(&self.slot.inode));
        Changing::begin(Changes::File(file))
    }

    fn write_there(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let handle = self.handle();
        let mut done = 0;
        while done < bytes.len() {
            let request = Request::Write(Write {
                handle,
                offset: offset + done as u64,
            });
            let rest = &bytes[done..];
            let data = (rest.as_ptr(), rest.len());
            done += ask(&request, data, Put::Lane, |answer| match answer.reply {
                Reply::Written(written) if written.len > 0 => Ok(written.len as usize),
                _ => Err(Errno(sys::EIO)),
            })?;
        }
        Ok(())
    }

    /// msync(2) that waits.
    pub(in crate::program) fn make_durable(&self) -> Result<(), Errno> {
        if !self.is_copied() {
            return Ok(());
        }
        let request = Request::Sync(Sync {
            handle: self.handle(),
            data_only: false,
        });
        tell(&request)
    }

    /// Sees what others have changed, if that is not known for a moment.
    pub(in crate::program) fn refresh_if_old(&self, handle: u64) -> Result<(), Errno> {
        let seen = self.slot.seen_ms.load(Ordering::Relaxed);
        if sys::milliseconds().wrapping_sub(seen) < BELIEVED_MS {
            return Ok(());
        }
        self.refresh(handle)
    }

    /// Sees what others have changed. What mappings of ours have changed stays.
    pub(in crate::program) fn refresh(&self, handle: u64) -> Result<(), Errno> {
        // One that may be only written has no other that reads.
        let handle = match self.handle() {
            0 => handle,
            own => own,
        };
        let now = sys::milliseconds();
        if self.size() > SMALL {
            let place = Place {
                at: handle,
                name: b"",
            };
            let request = Request::Attribute(Attribute {
                place,
                follow: true,
            });
            let found = ask(&request, NOTHING, Put::Lane, |answer| match answer.reply {
                Reply::Attributes(attributes) => Ok(attributes),
                _ => Err(Errno(sys::EIO)),
            })?;
            let before = self
                .slot
                .changed
                .swap(last_change(&found), Ordering::Relaxed);
            let is_known = before == 0 || before == last_change(&found);
            if is_known && found.size == self.size() {
                self.slot.seen_ms.store(now, Ordering::Relaxed);
                return Ok(());
            }
            self.resize(found.size);
        }
        self.merge_all(handle)?;
        self.slot.seen_ms.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// The shadow has changed it for us.
    pub(super) fn merge_changed(&self, handle: u64) -> Result<(), Errno> {
        self.changed_by_us();
        self.merge_all(handle)
    }

    /// Sees all that the shadow has.
    fn merge_all(&self, handle: u64) -> Result<(), Errno> {
        let mut pieces = Pieces::new(PIECE as u64)?;
        let mut at = 0;
        loop {
            let [there, known] = pieces.both(PIECE);
            let got = read_there(handle, at, there)?;
            let end = at + got as u64;
            if got < PIECE || end > self.size() {
                self.resize(end);
            }
            if got == 0 {
                return Ok(());
            }
            let (there, known) = (&there[..got], &mut known[..got]);
            self.merge_piece(at, there, known)?;
            if got < PIECE {
                return Ok(());
            }
            at = end;
        }
    }

    fn merge_piece(&self, at: u64, there: &[u8], known: &mut [u8]) -> Result<(), Errno> {
        let here = window(self.index) + at;
        if !self.is_copied() {
            get(here, known)?;
            let mut within = 0;
            while let Some(range) = difference(there, known, within) {
                within = range.end;
                put(here + range.start as u64, &there[range])?;
            }
            return Ok(());
        }
        let copied = copy(self.index) + at;
        get(copied, known)?;
        let mut within = 0;
        while let Some(range) = difference(there, known, within) {
            within = range.end;
            let from = here + range.start as u64;
            let begin = from / PAGE * PAGE;
            let len = (from + range.len() as u64 - begin).next_multiple_of(PAGE);
            let store = Reserved::Store.number() as u64;
            // PROT_READ|WRITE, MAP_SHARED
            let args = [0, len, 3, 1, store, begin];
            // SAFETY: without MAP_FIXED nothing that is there is touched.
            let place = unsafe { call(sys::MMAP, args) }?;
            let bytes = (place + (from - begin)) as *mut u8;
            // SAFETY: it was mapped just now; the program may change bytes of it meanwhile, as it may on its own machine when
            // another process does: each byte is read and written once.
            let mapped = unsafe { core::slice::from_raw_parts_mut(bytes, range.len()) };
            merge(mapped, &known[range.clone()], &there[range.clone()]);
            // SAFETY: it was mapped above.
            let _ = unsafe { call(sys::MUNMAP, [place, len]) };
            put(copied + range.start as u64, &there[range])?;
        }
        Ok(())
    }

    /// The job has given it another size.
    pub(in crate::program) fn resized(&self, size: u64) {
        self.changed_by_us();
        self.resize(size);
    }

    /// Its size is another now, here as at the shadow. What a program has put behind the end never was.
    fn resize(&self, size: u64) {
        let before = self.slot.size.swap(size.min(WINDOW), Ordering::Relaxed);
        let (from, to) = (before.min(size), before.max(size));
        let to = to.next_multiple_of(PAGE).min(WINDOW);
        if from < to && before != size {
            punch(window(self.index) + from, to - from);
            punch(copy(self.index) + from, to - from);
        }
    }

    /// The shadow has been written to, by a descriptor.
    pub(in crate::program) fn wrote(&self, offset: u64, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > WINDOW {
            return;
        }
        if end > self.size() {
            self.resize(end);
        }
        self.changed_by_us();
        let _ = put(window(self.index) + offset, bytes);
        if self.is_copied() {
            let _ = put(copy(self.index) + offset, bytes);
        }
    }

    /// Reads by a descriptor; how much, and whether the file ends there.
    pub(in crate::program) fn read(
        &self,
        to: *mut u8,
        len: usize,
        offset: u64,
    ) -> Result<(usize, bool), Errno> {
        let rest = self.size().saturating_sub(offset);
        let count = (len as u64).min(rest) as usize;
        let mut done = 0;
        while done < count {
            let from = window(self.index) + offset + done as u64;
            let args = [
                Reserved::Store.number() as u64,
                to as u64 + done as u64,
                (count - done) as u64,
                from,
            ];
            // SAFETY: the program says that there is so much room.
            match unsafe { call(sys::PREAD64, args) } {
                Ok(0) => return Err(Errno(sys::EIO)),
                Ok(got) => done += got as usize,
                Err(error) => return Err(error),
            }
        }
        Ok((count, count < len))
    }
}

/// Never 0.
fn last_change(attributes: &Attributes) -> u64 {
    let word = |stamp: wire::Stamp| {
        let fraction = u64::from(stamp.nanoseconds);
        (stamp.seconds as u64).rotate_left(30) ^ fraction
    };
    word(attributes.modified) ^ word(attributes.changed).rotate_left(17) | 1
}

fn read_there(handle: u64, offset: u64, to: &mut [u8]) -> Result<usize, Errno> {
    let request = Request::Read(Read {
        handle,
        offset,
        len: to.len() as u32,
    });
    let into = Put::Program(to.as_mut_ptr(), to.len());
    ask(&request, NOTHING, into, |answer| Ok(answer.data.len()))
}
