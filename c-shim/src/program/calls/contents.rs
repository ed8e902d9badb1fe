//! Bytes: read and write in all their forms, lseek, sync, allocation, entries of directories.

use super::records::{self, Room};
use super::{File, Served, flagged, memory, names};
use crate::program::behind::{self, Bytes};
use crate::program::cache::{self, Changing};
use crate::program::known;
use crate::program::lanes::{self, Answer, Put, ask, tell};
use crate::program::resident;
use crate::program::sys::{self, Errno};
use crate::versions::Changes;
use core::sync::atomic::Ordering;
use wire::{
    Allocate, Copy, Entries, List, MOST_DATA, Read, Reply, Request, Seek, Sync, Write, WriteAs,
    Written,
};

/// Most bytes of one read or write (MAX_RW_COUNT).
const MOST_AT_ONCE: usize = 0x7fff_f000;
const MOST_PARTS: u64 = 1024;
const NOTHING: (*const u8, usize) = (core::ptr::null(), 0);

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [first, second, third, fourth, ..] = *args;
    if number == sys::COPY_FILE_RANGE {
        return copy(args);
    }
    if matches!(number, sys::PREADV2 | sys::PWRITEV2) && args[5] as u32 != 0 {
        return flagged::serve(number, args);
    }
    let position = Some(fourth);
    let result = match number {
        sys::READ => File::of(first)?.read(&[part(second, third)], None),
        sys::PREAD64 => File::of(first)?.read(&[part(second, third)], position),
        sys::READV => with_parts(args, |file, parts| file.read(parts, None))?,
        sys::PREADV => with_parts(args, |file, parts| file.read(parts, position))?,
        sys::PREADV2 => with_parts(args, |file, parts| file.read(parts, current_or(fourth)))?,
        sys::WRITE => File::of(first)?.write_by(first, &[part(second, third)], None),
        sys::PWRITE64 => File::of(first)?.write_by(first, &[part(second, third)], position),
        sys::WRITEV => with_parts(args, |file, parts| file.write_by(first, parts, None))?,
        sys::PWRITEV => with_parts(args, |file, parts| file.write_by(first, parts, position))?,
        sys::PWRITEV2 => with_parts(args, |file, parts| {
            file.write_by(first, parts, current_or(fourth))
        })?,
        sys::LSEEK => File::of(first)?.seek(second as i64, third),
        sys::GETDENTS64 => File::of(first)?.list(second, third),
        sys::FSYNC | sys::FDATASYNC => {
            let file = File::of(first)?;
            let handle = file.handle();
            let data_only = number == sys::FDATASYNC;
            resident::write_back(file.description)
                .and_then(|()| tell(&Request::Sync(Sync { handle, data_only })))
                .and_then(|()| behind::error(file.description))
                .map(|()| 0)
        }
        sys::FALLOCATE => {
            let file = File::of(first)?;
            if let Err(error) = file.allow_allocation(second, third, fourth) {
                return Some(Err(error));
            }
            let handle = file.handle();
            let request = Request::Allocate(Allocate {
                handle,
                mode: second as u32,
                offset: third,
                len: fourth,
            });
            resident::write_back(file.description)
                .and_then(|()| tell(&request))
                .map(|()| {
                    resident::changed_there(file.description);
                    0
                })
        }
        _ => return None,
    };
    Some(result)
}

/// Memory of the program (`struct iovec`).
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Part {
    base: *mut u8,
    pub(super) len: usize,
}

pub(super) fn part(base: u64, len: u64) -> Part {
    Part {
        base: base as *mut u8,
        len: len as usize,
    }
}

/// Copies the first bytes of parts.
fn copy_parts(parts: &[Part], to: *mut u8, len: usize) {
    let mut done = 0;
    for part in parts {
        let count = part.len.min(len - done);
        // SAFETY: the program says that so much is there; whoever calls has the room.
        unsafe {
            core::ptr::copy_nonoverlapping(part.base.cast_const(), to.wrapping_add(done), count)
        };
        done += count;
    }
}

/// Does something with a remote file and the parts that the second and third argument give.
pub(super) fn with_parts(
    args: &[u64; 6],
    act: impl FnOnce(&File, &[Part]) -> Result<u64, Errno>,
) -> Option<Result<u64, Errno>> {
    let [fd, base, count, ..] = *args;
    let file = File::of(fd)?;
    if count > MOST_PARTS {
        return Some(Err(Errno(sys::EINVAL)));
    }
    if count == 0 {
        return Some(act(&file, &[]));
    }
    // SAFETY: the program says that there are so many.
    let parts = unsafe { core::slice::from_raw_parts(base as *const Part, count as usize) };
    Some(act(&file, parts))
}

/// `preadv2` and `pwritev2`: -1 is the descriptor's own offset.
pub(super) fn current_or(offset: u64) -> Option<u64> {
    (offset != u64::MAX).then_some(offset)
}

impl File {
    pub(super) fn is_path(&self) -> bool {
        self.flags() & sys::O_PATH != 0
    }

    pub(super) fn read(&self, parts: &[Part], at: Option<u64>) -> Result<u64, Errno> {
        if self.is_path() || self.flags() & sys::O_ACCMODE == sys::O_WRONLY {
            return Err(Errno(sys::EBADF));
        }
        if self.is_directory() {
            return Err(Errno(21));
        }
        if at.is_some_and(|at| at > i64::MAX as u64) {
            return Err(Errno(sys::EINVAL));
        }
        loop {
            let begin = at.unwrap_or_else(|| self.offset());
            let done = self.read_at(parts, begin)?;
            if at.is_some() {
                return Ok(done);
            }
            // Somebody else has read meanwhile: those bytes are theirs.
            let moved = self.description.offset.compare_exchange(
                begin,
                begin + done,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if moved.is_ok() {
                return Ok(done);
            }
        }
    }

    /// Reads at most 1 MiB; how much, and whether the file ends there.
    fn fetch(&self, to: *mut u8, len: usize, offset: u64) -> Result<(usize, bool), Errno> {
        behind::send_file(self.description);
        if let Some(mine) = resident::of(self.description) {
            // What cannot be asked for has not changed.
            let _ = mine.refresh_if_old(self.handle());
            return mine.read(to, len, offset);
        }
        if let Some(read) = memory::read_fetched(self.description, to, len, offset) {
            return Ok(read);
        }
        cache::read(self.description, to, len, offset).unwrap_or_else(|| {
            let request = Request::Read(Read {
                handle: self.handle(),
                offset,
                len: len as u32,
            });
            let got = ask(&request, NOTHING, Put::Program(to, len), |answer| {
                Ok(answer.data.len())
            })?;
            Ok((got, got < len))
        })
    }

    fn read_at(&self, parts: &[Part], begin: u64) -> Result<u64, Errno> {
        let mut done = 0;
        for part in parts {
            let mut at = 0;
            while at < part.len && done < MOST_AT_ONCE {
                let len = (part.len - at).min(MOST_DATA).min(MOST_AT_ONCE - done);
                let to = part.base.wrapping_add(at);
                match self.fetch(to, len, begin + done as u64) {
                    Ok((got, is_end)) => {
                        at += got;
                        done += got;
                        if is_end {
                            return Ok(done as u64);
                        }
                    }
                    Err(_) if done > 0 => return Ok(done as u64),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(done as u64)
    }

    pub(super) fn write(&self, parts: &[Part], at: Option<u64>) -> Result<u64, Errno> {
        self.write_by(u64::MAX, parts, at)
    }

    /// By which descriptor: errors are to be seen at once, whatever becomes of who tells them.
    pub(super) fn write_by(&self, fd: u64, parts: &[Part], at: Option<u64>) -> Result<u64, Errno> {
        const STANDARD_ERROR: u64 = 2;
        if self.is_path() || self.flags() & sys::O_ACCMODE == 0 {
            return Err(Errno(sys::EBADF));
        }
        if at.is_some_and(|at| at > i64::MAX as u64) {
            return Err(Errno(sys::EINVAL));
        }
        let len = parts.iter().map(|part| part.len).sum::<usize>();
        let len = len.min(MOST_AT_ONCE);
        if len == 0 {
            return Ok(0);
        }
        let len = self.allow(at, len, self.flags() & sys::O_APPEND != 0)?;
        if fd == STANDARD_ERROR {
            behind::close(self.description)?;
        } else {
            let copy = |to: *mut u8| copy_parts(parts, to, len);
            let bytes = Bytes { len, copy };
            if let Some(done) = behind::write(self.index, self.description, at, bytes) {
                return done.map(|()| len as u64);
            }
        }
        let appends = self.flags() & sys::O_APPEND != 0;
        let offset = &self.description.offset;
        if let Some(at) = at {
            return self.write_at(parts, at, len).map(|(done, _)| done);
        }
        if appends {
            let (done, end) = self.write_at(parts, 0, len)?;
            offset.store(end, Ordering::Relaxed);
            return Ok(done);
        }
        // The place is ours before the bytes are there: two writers never write over each other.
        let begin = offset.fetch_add(len as u64, Ordering::Relaxed);
        let written = self.write_at(parts, begin, len);
        let done = written.as_ref().map_or(0, |(done, _)| *done);
        if done < len as u64 {
            let _ = offset.compare_exchange(
                begin + len as u64,
                begin + done,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        written.map(|(done, _)| done)
    }

    fn write_at(&self, parts: &[Part], begin: u64, len: usize) -> Result<(u64, u64), Errno> {
        self.write_as(parts, begin, len, None)
    }

    /// How much was written, and where it ends. `append`: whether it is to be at the end, however the file was opened.
    pub(super) fn write_as(
        &self,
        parts: &[Part],
        begin: u64,
        len: usize,
        append: Option<bool>,
    ) -> Result<(u64, u64), Errno> {
        let handle = self.handle();
        let file = self.description.file.load(Ordering::Relaxed);
        let _changing = Changing::begin(Changes::File(file));
        let mut done = 0;
        let mut end = begin;
        for part in parts {
            let mut at = 0;
            while at < part.len && done < len {
                let count = (part.len - at).min(MOST_DATA).min(len - done);
                let offset = begin + done as u64;
                let request = match append {
                    None => Request::Write(Write { handle, offset }),
                    Some(append) => Request::WriteAs(WriteAs {
                        handle,
                        offset,
                        append,
                    }),
                };
                let data = (part.base.wrapping_add(at).cast_const(), count);
                let mine = resident::of(self.description);
                let written = ask(&request, data, Put::Lane, written);
                match written {
                    Ok(written) => {
                        // Somebody may have mapped it meanwhile.
                        if let Some(mine) = mine.or_else(|| resident::of(self.description)) {
                            let len = count.min(written.len as usize);
                            // SAFETY: the program says that so much is there.
                            let bytes = unsafe { core::slice::from_raw_parts(data.0, len) };
                            mine.wrote(written.offset, bytes);
                        }
                        at += written.len as usize;
                        done += written.len as usize;
                        end = written.offset + written.len;
                        if (written.len as usize) < count {
                            return Ok((done as u64, end));
                        }
                    }
                    Err(_) if done > 0 => return Ok((done as u64, end)),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((done as u64, end))
    }

    fn seek(&self, by: i64, whence: u64) -> Result<u64, Errno> {
        let offset = &self.description.offset;
        if self.is_path() {
            return Err(Errno(sys::EBADF));
        }
        // What is appended moves it when it is sent.
        self.offset();
        let from = match whence {
            0 => 0,
            1 => self.offset() as i64,
            2 => self.size()? as i64,
            3 | 4 => {
                resident::write_back(self.description)?;
                let request = Request::Seek(Seek {
                    handle: self.handle(),
                    offset: u64::try_from(by).map_err(|_| Errno(6))?,
                    hole: whence == 4,
                });
                let found = ask(&request, NOTHING, Put::Lane, number)?;
                offset.store(found, Ordering::Relaxed);
                return Ok(found);
            }
            _ => return Err(Errno(sys::EINVAL)),
        };
        let to = from.checked_add(by).ok_or(Errno(sys::EOVERFLOW))?;
        let to = u64::try_from(to).map_err(|_| Errno(sys::EINVAL))?;
        offset.store(to, Ordering::Relaxed);
        Ok(to)
    }

    /// Whether fallocate(2) may make it as long as that asks.
    fn allow_allocation(&self, mode: u64, offset: u64, len: u64) -> Result<(), Errno> {
        /// `FALLOC_FL_KEEP_SIZE`, `PUNCH_HOLE`, `COLLAPSE_RANGE`, `INSERT_RANGE`.
        const OTHERWISE: u64 = 1 | 2 | 8 | 0x20;
        let end = (offset as i64).checked_add(len as i64);
        match end {
            Some(end) if mode & OTHERWISE == 0 && offset as i64 >= 0 && len as i64 > 0 => {
                self.allow_size(end as u64)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn size(&self) -> Result<u64, Errno> {
        names::attributes_of(self).map(|attributes| attributes.size)
    }

    /// getdents64(2).
    fn list(&self, to: u64, room: u64) -> Result<u64, Errno> {
        if !self.is_directory() {
            return Err(Errno(sys::ENOTDIR));
        }
        let mut room = Room::new(to as *mut u8, room as usize);
        let known = cache::entries(self.description, self.offset(), |entries| {
            put_known(&mut room, entries)
        });
        if let Some(put) = known {
            if let Some(next) = put? {
                self.description.offset.store(next, Ordering::Relaxed);
            }
            return Ok(room.used() as u64);
        }
        let (handle, from) = (self.handle(), self.offset());
        let asked = known::ask();
        let request = Request::List(List {
            handle,
            from,
            // What fits there packed fits here, but for a little.
            len: room.len().clamp(4 << 10, 16 << 10) as u32,
            // Who lists a folder often looks at what is in it. Of a large one that would be too much, but for those who do.
            attributes: from == 0 || known::entries_are_looked_at(),
        });
        let packed = ask(&request, NOTHING, Put::Lane, |answer| {
            known::learn_entries(handle, answer.data, asked);
            let mut last = None;
            for entry in Entries::new(answer.data) {
                let entry = entry.map_err(|_| Errno(sys::EIO))?;
                if !records::entry(&mut room, &entry) {
                    break;
                }
                last = Some(entry.next);
            }
            match last {
                None if !answer.data.is_empty() => Err(Errno(sys::EINVAL)),
                last => Ok(last),
            }
        })?;
        if let Some(next) = packed {
            self.description.offset.store(next, Ordering::Relaxed);
        }
        Ok(room.used() as u64)
    }
}

/// Gives entries that came with an open; where the listing goes on behind them, or nothing at its end. None: it is not known how it
/// goes on.
fn put_known(room: &mut Room, entries: Entries<'_>) -> Option<Result<Option<u64>, Errno>> {
    let mut last = None;
    for entry in entries {
        let entry = entry.ok()?;
        // The end.
        if entry.name.is_empty() {
            return Some(Ok(last));
        }
        if !records::entry(room, &entry) {
            return Some(last.map(Some).ok_or(Errno(sys::EINVAL)));
        }
        last = Some(entry.next);
    }
    last.map(|next| Ok(Some(next)))
}

pub(super) fn written(answer: Answer<'_>) -> Result<Written, Errno> {
    match answer.reply {
        Reply::Written(written) => Ok(written),
        _ => Err(Errno(sys::EIO)),
    }
}

pub(super) fn number(answer: Answer<'_>) -> Result<u64, Errno> {
    match answer.reply {
        Reply::Number(number) => Ok(number),
        _ => Err(Errno(sys::EIO)),
    }
}

/// copy_file_range(2).
fn copy(args: &[u64; 6]) -> Served {
    let [from_fd, from_place, to_fd, to_place, len, flags] = *args;
    let (from, to) = match (File::of(from_fd), File::of(to_fd)) {
        (None, None) => return None,
        (Some(from), Some(to)) => (from, to),
        _ => return Some(Err(Errno(sys::EXDEV))),
    };
    if flags != 0 {
        return Some(Err(Errno(sys::EINVAL)));
    }
    let place = |address: u64| {
        // SAFETY: the program gives the place of an offset, or none.
        unsafe { (address as *mut u64).as_mut() }
    };
    let places = (place(from_place), place(to_place));
    let offset = |place: &Option<&mut u64>, file: &File| match place {
        Some(place) => **place,
        None => file.offset(),
    };
    let (from_offset, to_offset) = (offset(&places.0, &from), offset(&places.1, &to));
    let writes = matches!(
        to.flags() & (sys::O_ACCMODE | sys::O_APPEND | sys::O_PATH),
        1 | 2
    );
    let len = if writes {
        match to.allow(Some(to_offset), len as usize, false) {
            Ok(len) => len as u64,
            Err(error) => return Some(Err(error)),
        }
    } else {
        len
    };
    let request = Request::Copy(Copy {
        from: from.handle(),
        from_offset,
        to: to.handle(),
        to_offset,
        len,
    });
    let copied = resident::write_back(from.description)
        .and_then(|()| resident::write_back(to.description))
        .and_then(|()| lanes::ask(&request, NOTHING, Put::Lane, written));
    Some(copied.map(|copied| {
        resident::changed_there(to.description);
        for (place, file) in [(places.0, from), (places.1, to)] {
            match place {
                Some(place) => *place += copied.len,
                None => {
                    let offset = &file.description.offset;
                    offset.fetch_add(copied.len, Ordering::Relaxed);
                }
            }
        }
        copied.len
    }))
}
