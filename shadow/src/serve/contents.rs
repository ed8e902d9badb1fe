//! Bytes of open files.

use super::refuse;
use crate::kept::Record;
use crate::session::{OpenFile, Session};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use std::sync::PoisonError;
use wire::{
    Allocate, Copy, FlagsOf, MOST_DATA, Read, Reply, Seek, SetAppend, Sync, SyncAll, Write,
    WriteAs, Written,
};

impl Session {
    /// pread(2).
    pub(super) fn read(&self, read: &Read, out: &mut Vec<u8>) -> Result<Reply<'static>, Errno> {
        let file = self.get(read.handle)?;
        let len = (read.len as usize).min(MOST_DATA);
        read_into(&file.fd, read.offset, len, out)?;
        Ok(Reply::Done)
    }

    /// pwritev2(2).
    pub(super) fn write_as(&self, write: &WriteAs, data: &[u8]) -> Result<Reply<'static>, Errno> {
        let file = self.get(write.handle)?;
        if write.append {
            let _lock = file.offset.lock().unwrap_or_else(PoisonError::into_inner);
            let written = self.append_now(write.handle, &file, data)?;
            return Ok(Reply::Written(written));
        }
        let changes = self.changes_of(&file);
        let len = changes.write_there(&file.fd, write.offset, data)?;
        self.changed(&file)?;
        Ok(Reply::Written(Written {
            len,
            offset: write.offset,
            size: size(&file.fd)?,
        }))
    }

    /// pwrite(2), or write(2) at the end.
    pub(super) fn write(&self, write: &Write, data: &[u8]) -> Result<Reply<'static>, Errno> {
        let file = self.get(write.handle)?;
        let flags = rustix::fs::fcntl_getfl(&file.fd)?;
        if flags.contains(OFlags::APPEND)
            && let Some(written) = self.append(write.handle, &file, data)?
        {
            return Ok(Reply::Written(written));
        }
        let changes = self.changes_of(&file);
        let len = changes.write_at(&file.fd, write.offset, data)?;
        self.changed(&file)?;
        Ok(Reply::Written(Written {
            len,
            offset: write.offset,
            size: size(&file.fd)?,
        }))
    }

    /// Where the bytes have come to lie is told by the descriptor's own offset. None if it is not open for appending any more.
    fn append(&self, handle: u64, file: &OpenFile, data: &[u8]) -> Result<Option<Written>, Errno> {
        let _lock = file.offset.lock().unwrap_or_else(PoisonError::into_inner);
        if !rustix::fs::fcntl_getfl(&file.fd)?.contains(OFlags::APPEND) {
            return Ok(None);
        }
        self.append_now(handle, file, data).map(Some)
    }

    /// At the end, however it was opened. Nobody may use the descriptor's own offset meanwhile.
    fn append_now(&self, handle: u64, file: &OpenFile, data: &[u8]) -> Result<Written, Errno> {
        self.noted_append(handle, file, data, |before| {
            // What a shadow that was killed has written of it is there.
            let (offset, done) = before.unwrap_or_default();
            let rest =
                usize::try_from(done).map_or(&[][..], |done| data.get(done..).unwrap_or_default());
            let len = self.changes_of(file).append(&file.fd, rest)?;
            self.changed(file)?;
            let offset = if before.is_some() {
                offset
            } else {
                rustix::fs::tell(&file.fd)?.saturating_sub(len)
            };
            let (len, size) = (done + len, size(&file.fd)?);
            Ok(Written { len, offset, size })
        })
    }

    /// fcntl(2) with `F_SETFL`.
    pub(super) fn set_append(&self, set: &SetAppend) -> Result<Reply<'static>, Errno> {
        let file = self.get(set.handle)?;
        let _lock = file.offset.lock().unwrap_or_else(PoisonError::into_inner);
        let mut flags = rustix::fs::fcntl_getfl(&file.fd)?;
        flags.set(OFlags::APPEND, set.append);
        rustix::fs::fcntl_setfl(&file.fd, flags)?;
        self.note(|| Some(Record::Flags(set.handle, flags.bits())));
        Ok(Reply::Done)
    }

    /// fsync(2), fdatasync(2).
    pub(super) fn sync(&self, sync: &Sync) -> Result<Reply<'static>, Errno> {
        let file = self.get(sync.handle)?;
        self.store(&file)?;
        if sync.data_only {
            rustix::fs::fdatasync(file.stored())?;
        } else {
            rustix::fs::fsync(file.stored())?;
        }
        Ok(Reply::Done)
    }

    /// syncfs(2).
    pub(super) fn sync_all(&self, sync: &SyncAll) -> Result<Reply<'static>, Errno> {
        self.store_all().map_err(|(errno, _)| errno)?;
        rustix::fs::syncfs(self.get(sync.handle)?.stored())?;
        Ok(Reply::Done)
    }

    /// ioctl(2) with `FS_IOC_GETFLAGS`.
    pub(super) fn flags_of(&self, of: &FlagsOf) -> Result<Reply<'static>, Errno> {
        let flags = rustix::fs::ioctl_getflags(self.get(of.handle)?.stored())?;
        Ok(Reply::Number(flags.bits().into()))
    }

    /// fallocate(2).
    pub(super) fn allocate(&self, allocate: &Allocate) -> Result<Reply<'static>, Errno> {
        let file = self.get(allocate.handle)?;
        let mode = FallocateFlags::from_bits_retain(allocate.mode);
        let what = (mode, allocate.len);
        self.noted_allocate(allocate.handle, &file, what, || {
            let (offset, len) = (allocate.offset, allocate.len);
            let changes = self.changes_of(&file);
            changes.allocate(&file.fd, mode, offset, len)
        })?;
        self.changed(&file)?;
        Ok(Reply::Done)
    }

    /// lseek(2) for data or a hole.
    pub(super) fn seek(&self, seek: &Seek) -> Result<Reply<'static>, Errno> {
        let file = self.get(seek.handle)?;
        let _lock = file.offset.lock().unwrap_or_else(PoisonError::into_inner);
        let to = if seek.hole {
            SeekFrom::Hole(seek.offset)
        } else {
            SeekFrom::Data(seek.offset)
        };
        Ok(Reply::Number(rustix::fs::seek(&file.fd, to)?))
    }

    /// copy_file_range(2).
    pub(super) fn copy(&self, copy: &Copy) -> Result<Reply<'static>, Errno> {
        let (from, to) = (self.get(copy.from)?, self.get(copy.to)?);
        if !to.writable {
            return Err(refuse("copy", b"an open file"));
        }
        let (source, target) = ((&from.fd, copy.from_offset), (&to.fd, copy.to_offset));
        let len = self.changes_of(&to).copy(source, target, copy.len)?;
        self.changed(&to)?;
        Ok(Reply::Written(Written {
            len,
            offset: copy.to_offset,
            size: size(&to.fd)?,
        }))
    }
}

/// Appends up to `len` bytes from `offset` on to `out`, fewer at the end of the file.
pub(crate) fn read_into(
    fd: &OwnedFd,
    offset: u64,
    len: usize,
    out: &mut Vec<u8>,
) -> Result<(), Errno> {
    let begin = out.len();
    out.resize(begin + len, 0);
    let mut done = 0;
    while done < len {
        match rustix::io::pread(fd, &mut out[begin + done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            // What was read is given first; the error comes again.
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    out.truncate(begin + done);
    Ok(())
}

fn size(fd: &OwnedFd) -> Result<u64, Errno> {
    Ok(u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0))
}
