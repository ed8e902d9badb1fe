//! Contents of files: the old bytes are saved in blocks, once in an epoch. Holes are saved as holes.

use crate::format::record::{BLOCK, BlocksRecord, ObjectId, PIECE, Record};
use crate::inode::{Kind, Seen};
use crate::reserve::own_descriptor;
use crate::state::{Noted, State};
use crate::{Change, Journal, JournalError, fault};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ops::Range;

/// Bytes that may wait in memory before they are written.
const MOST_PENDING: u64 = 4 << 20;

impl Journal {
    /// `len` bytes are about to be written from `offset` on. pwrite(2).
    ///
    /// # Errors
    /// [`JournalError`]: the change must not be made.
    pub fn before_write<'a>(
        &'a self,
        fd: BorrowedFd<'a>,
        offset: u64,
        len: u64,
    ) -> Result<Change<'a>, JournalError> {
        self.before_contents(fd, |_| offset..offset.saturating_add(len))
    }

    /// Bytes are about to be written behind the end. write(2) with `O_APPEND`.
    ///
    /// # Errors
    /// [`JournalError`]: the change must not be made.
    pub fn before_append<'a>(&'a self, fd: BorrowedFd<'a>) -> Result<Change<'a>, JournalError> {
        self.before_contents(fd, |size| size..size)
    }

    /// The file is about to have `size` bytes. ftruncate(2); for `O_TRUNC` open without it, call this, then ftruncate.
    ///
    /// # Errors
    /// [`JournalError`]: the change must not be made.
    pub fn before_truncate<'a>(
        &'a self,
        fd: BorrowedFd<'a>,
        size: u64,
    ) -> Result<Change<'a>, JournalError> {
        self.before_contents(fd, |old| size..old.max(size))
    }

    /// Space is about to be made, punched out or moved. fallocate(2).
    ///
    /// # Errors
    /// [`JournalError`]: the change must not be made.
    pub fn before_allocate<'a>(
        &'a self,
        fd: BorrowedFd<'a>,
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    ) -> Result<Change<'a>, JournalError> {
        let shifts = FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE;
        let kept = FallocateFlags::KEEP_SIZE | FallocateFlags::UNSHARE_RANGE;
        self.before_contents(fd, |size| {
            if mode.intersects(shifts) {
                offset..size.max(offset)
            } else if kept.contains(mode) {
                size..size
            } else {
                offset..offset.saturating_add(len)
            }
        })
    }

    fn before_contents<'a>(
        &'a self,
        fd: BorrowedFd<'a>,
        changed: impl FnOnce(u64) -> Range<u64>,
    ) -> Result<Change<'a>, JournalError> {
        let mut change = self.begin_change();
        let mut state = self.lock_state();
        state.usable()?;
        let saved = change.begin_file(&mut state, fd).and_then(|(id, seen)| {
            let changed = changed(seen.print.size);
            state.save_contents(fd, (id, &seen), changed)
        });
        state.or_forget(saved)?;
        change.ready(state)
    }
}

impl State {
    fn save_contents(
        &mut self,
        fd: BorrowedFd<'_>,
        (id, seen): (ObjectId, &Seen),
        changed: Range<u64>,
    ) -> Result<(), JournalError> {
        if self.is_new(id) || seen.kind != Kind::File {
            return Ok(());
        }
        let begin = changed.start / BLOCK * BLOCK;
        let end = changed
            .end
            .checked_next_multiple_of(BLOCK)
            .unwrap_or(u64::MAX);
        let at_mark = self.saved.attributes.get(&id).copied().unwrap_or(u64::MAX);
        // What lies behind the end at the mark is cut off by an undo.
        let size = seen.print.size.min(at_mark);
        if changed.start >= size {
            return Ok(());
        }
        let ranges = self.saved.blocks.entry(id).or_default();
        let missing = ranges.missing(begin..end.min(size.next_multiple_of(BLOCK)));
        if missing.is_empty() {
            return Ok(());
        }
        let source =
            readable(fd).map_err(|errno| JournalError::io("read", self.path(id), errno))?;
        for range in missing {
            self.save_range(id, &source, range.start..range.end.min(size))?;
        }
        Ok(())
    }

    fn save_range(
        &mut self,
        id: ObjectId,
        source: &OwnedFd,
        range: Range<u64>,
    ) -> Result<(), JournalError> {
        let mut at = range.start;
        while at < range.end {
            let (record, data) = read_piece(source, id, at..range.end)
                .map_err(|errno| JournalError::io("read", self.path(id), errno))?;
            at = record.offset + record.len;
            let saved = record.range();
            self.saving = true;
            self.log.push(&Record::Blocks(record), &data)?;
            self.saved
                .blocks
                .entry(id)
                .or_default()
                .insert(saved.clone());
            self.noted.push(Noted::Blocks(id, saved));
            if self.log.len_to_be() - self.log.end > MOST_PENDING {
                fault::at("blocks")?;
                self.write_some_records()?;
            }
        }
        Ok(())
    }
}

/// The first piece of a range: holes, then at most [`PIECE`] bytes of data.
fn read_piece(
    source: &OwnedFd,
    object: ObjectId,
    range: Range<u64>,
) -> Result<(BlocksRecord, Vec<u8>), Errno> {
    let first = next(source, SeekFrom::Data(range.start), range.end)?;
    let most = (first / BLOCK * BLOCK).saturating_add(PIECE);
    let end = if first < range.end {
        most.min(range.end)
    } else {
        range.end
    };
    let mut runs = vec![];
    let mut data = vec![];
    let mut at = first;
    while at < end {
        let hole = next(source, SeekFrom::Hole(at), end)?;
        let begin = data.len();
        data.resize(begin + (hole - at) as usize, 0);
        read_exact(source, &mut data[begin..], at)?;
        runs.push((at, hole - at));
        at = next(source, SeekFrom::Data(hole), end)?;
    }
    let record = BlocksRecord {
        object,
        offset: range.start,
        len: end - range.start,
        runs,
    };
    Ok((record, data))
}

/// Where the next data or hole begins, `end` if that is first. lseek(2).
pub(crate) fn next(source: &OwnedFd, from: SeekFrom, end: u64) -> Result<u64, Errno> {
    let (SeekFrom::Data(begin) | SeekFrom::Hole(begin)) = from else {
        return Err(Errno::INVAL);
    };
    if begin >= end {
        return Ok(end);
    }
    match rustix::fs::seek(source, from) {
        Ok(at) => Ok(at.clamp(begin, end)),
        Err(Errno::NXIO) => Ok(end),
        Err(errno) => Err(errno),
    }
}

fn read_exact(source: &OwnedFd, mut buffer: &mut [u8], mut at: u64) -> Result<(), Errno> {
    while !buffer.is_empty() {
        match rustix::io::pread(source, &mut *buffer, at) {
            // Somebody else has cut it; the rest is zeros.
            Ok(0) => return Ok(()),
            Ok(read) => {
                buffer = &mut buffer[read..];
                at += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The same file, for reading, with an offset of its own.
fn readable(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOATIME;
    match rustix::fs::open(own_descriptor(fd), flags, Mode::empty()) {
        // Only the owner may leave the time of access alone.
        Err(Errno::PERM) => {
            rustix::fs::open(own_descriptor(fd), flags - OFlags::NOATIME, Mode::empty())
        }
        opened => opened,
    }
}
