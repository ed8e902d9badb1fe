//! preadv2(2) and pwritev2(2) with flags.

use super::contents::{Part, current_or, with_parts};
use super::{File, Served};
use crate::program::behind;
use crate::program::lanes::tell;
use crate::program::resident;
use crate::program::sys::{self, Errno};
use core::sync::atomic::Ordering;
use wire::{Request, Sync};

const DSYNC: u32 = 2;
const SYNC: u32 = 4;
const NOWAIT: u32 = 8;
const APPEND: u32 = 0x10;
const NOAPPEND: u32 = 0x20;
const BOTH: u32 = APPEND | NOAPPEND;
/// Those that a file may heed, and those that only say what is good: `RWF_HIPRI`, `RWF_DONTCACHE`, `RWF_NOSIGNAL`.
const KNOWN: u32 = DSYNC | SYNC | NOWAIT | APPEND | NOAPPEND | HIPRI | 0x80 | 0x100;
const HIPRI: u32 = 1;

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [fd, _, _, offset, _, flags] = *args;
    let (at, flags) = (current_or(offset), flags as u32);
    File::of(fd)?;
    if at.is_some_and(|at| at > i64::MAX as u64) {
        return Some(Err(Errno(sys::EINVAL)));
    }
    let is_known = |parts: &[Part]| {
        // What moves nothing has no flags.
        if parts.iter().all(|part| part.len == 0) {
            return Ok(());
        }
        match (flags & !KNOWN, flags & (APPEND | NOAPPEND)) {
            (1.., _) => Err(Errno(sys::EOPNOTSUPP)),
            (0, BOTH) => Err(Errno(sys::EINVAL)),
            (0, _) => Ok(()),
        }
    };
    with_parts(args, |file, parts| {
        if number == sys::PREADV2 {
            file.may_read()?;
            let moves = parts.iter().any(|part| part.len > 0);
            if file.is_directory() && moves && flags & !HIPRI != 0 {
                return Err(Errno(sys::EOPNOTSUPP));
            }
            return is_known(parts).and_then(|()| file.read(parts, at));
        }
        file.may_write()?;
        if parts.iter().all(|part| part.len == 0) {
            return file.write_by(fd, parts, at);
        }
        is_known(parts)?;
        if flags & NOWAIT != 0 {
            // As a file system that may have to wait for its disk.
            return Err(Errno(sys::EOPNOTSUPP));
        }
        file.write_flagged(fd, parts, at, flags)
    })
}

impl File {
    fn may_read(&self) -> Result<(), Errno> {
        if self.is_path() || self.flags() & sys::O_ACCMODE == sys::O_WRONLY {
            return Err(Errno(sys::EBADF));
        }
        Ok(())
    }

    fn may_write(&self) -> Result<(), Errno> {
        if self.is_path() || self.flags() & sys::O_ACCMODE == 0 {
            return Err(Errno(sys::EBADF));
        }
        Ok(())
    }

    fn write_flagged(
        &self,
        fd: u64,
        parts: &[Part],
        at: Option<u64>,
        flags: u32,
    ) -> Result<u64, Errno> {
        let appends = self.flags() & sys::O_APPEND != 0;
        let done = match (flags & APPEND != 0, flags & NOAPPEND != 0) {
            (true, false) if !appends => self.write_placed(parts, at, true)?,
            (false, true) if appends => self.write_placed(parts, at, false)?,
            _ => self.write_by(fd, parts, at)?,
        };
        if flags & (DSYNC | SYNC) != 0 {
            let (handle, data_only) = (self.handle(), flags & SYNC == 0);
            resident::write_back(self.description)?;
            tell(&Request::Sync(Sync { handle, data_only }))?;
            behind::error(self.description)?;
        }
        Ok(done)
    }

    /// At the end or where it is said, otherwise than the file was opened.
    fn write_placed(&self, parts: &[Part], at: Option<u64>, append: bool) -> Result<u64, Errno> {
        const MOST_AT_ONCE: usize = 0x7fff_f000;
        let len = parts.iter().map(|part| part.len).sum::<usize>();
        let len = self.allow(at, len.min(MOST_AT_ONCE), append)?;
        behind::close(self.description)?;
        let own = &self.description.offset;
        let begin = at.unwrap_or_else(|| self.offset());
        let (done, end) = self.write_as(parts, begin, len, Some(append))?;
        if at.is_none() {
            own.store(end, Ordering::Relaxed);
        }
        Ok(done)
    }
}
