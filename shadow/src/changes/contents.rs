//! Bytes of files.
#![allow(clippy::disallowed_methods)]

use super::{About, Changes};
use journal::Change;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, FileType, OFlags};
use rustix::io::{Errno, IoSlice, ReadWriteFlags};

/// The descriptor's own (pwritev2(2)).
const OWN_OFFSET: u64 = u64::MAX;
/// Most bytes that are copied at once: all that they overwrite is kept before.
const MOST_COPIED: u64 = 8 << 20;

impl Changes {
    /// pwrite(2) where it is said, also of what is open with `O_APPEND` (Linux 6.9; else EOPNOTSUPP); how many bytes were written.
    pub(crate) fn write_there(&self, fd: &OwnedFd, offset: u64, data: &[u8]) -> Result<u64, Errno> {
        const NOAPPEND: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x20);
        if !rustix::fs::fcntl_getfl(fd)?.contains(OFlags::APPEND) {
            return self.write_at(fd, offset, data);
        }
        if data.is_empty() {
            return Ok(0);
        }
        let _change = self.before_write(fd, offset, data)?;
        loop {
            let data = [IoSlice::new(data)];
            match rustix::io::pwritev2(fd, &data, offset, NOAPPEND) {
                Err(Errno::INTR) => {}
                written => return Ok(written? as u64),
            }
        }
    }

    /// These bytes are about to be written there.
    fn before_write<'a>(
        &'a self,
        fd: &'a OwnedFd,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<Change<'a>>, Errno> {
        self.must_be_writable(fd, Errno::BADF)?;
        self.before("write", About::Open(fd.as_fd()), |journal| {
            journal.before_write(fd.as_fd(), offset, data.len() as u64)
        })
    }

    /// pwrite(2), until all is written or something fails; how many bytes were.
    pub(crate) fn write_at(&self, fd: &OwnedFd, offset: u64, data: &[u8]) -> Result<u64, Errno> {
        if data.is_empty() {
            return Ok(0);
        }
        let _change = self.before_write(fd, offset, data)?;
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(fd, &data[done..], offset + done as u64) {
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done as u64)
    }

    /// All of a file that is about to be written over is kept: no such change is refused half way, for want of room to keep what is there.
    pub(crate) fn keep_all(&self, fd: &OwnedFd) -> Result<(), Errno> {
        if self.journal().is_none() {
            return Ok(());
        }
        let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
        let mut at = 0;
        while at < size {
            let len = MOST_COPIED.min(size - at);
            self.before("store", About::Open(fd.as_fd()), |journal| {
                journal.before_write(fd.as_fd(), at, len)
            })?;
            at += len;
        }
        self.before("store", About::Open(fd.as_fd()), |journal| {
            journal.before_truncate(fd.as_fd(), 0)
        })?;
        Ok(())
    }

    /// write(2) at the end; how many bytes were written. The descriptor's own offset is behind them.
    pub(crate) fn append(&self, fd: &OwnedFd, data: &[u8]) -> Result<u64, Errno> {
        if data.is_empty() {
            return Ok(0);
        }
        self.must_be_writable(fd, Errno::BADF)?;
        let _change = self.before("append", About::Open(fd.as_fd()), |journal| {
            journal.before_append(fd.as_fd())
        })?;
        loop {
            let data = [IoSlice::new(data)];
            match rustix::io::pwritev2(fd, &data, OWN_OFFSET, ReadWriteFlags::APPEND) {
                Err(Errno::INTR) => {}
                written => return Ok(written? as u64),
            }
        }
    }

    /// ftruncate(2).
    pub(crate) fn resize(&self, fd: &OwnedFd, size: u64) -> Result<(), Errno> {
        self.must_be_writable(fd, Errno::INVAL)?;
        let _change = self.before("truncate", About::Open(fd.as_fd()), |journal| {
            journal.before_truncate(fd.as_fd(), size)
        })?;
        rustix::fs::ftruncate(fd, size)
    }

    /// What `O_TRUNC` does to a regular file that is open, for reading only perhaps.
    pub(super) fn empty(&self, fd: &OwnedFd) -> Result<(), Errno> {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        if flags & OFlags::RWMODE != OFlags::RDONLY {
            return self.resize(fd, 0);
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = crate::names::reopen(fd, flags)?;
        self.resize(&fd, 0)
    }

    /// fallocate(2).
    pub(crate) fn allocate(
        &self,
        fd: &OwnedFd,
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        self.must_be_writable(fd, Errno::BADF)?;
        let known = FallocateFlags::KEEP_SIZE
            | FallocateFlags::PUNCH_HOLE
            | FallocateFlags::COLLAPSE_RANGE
            | FallocateFlags::ZERO_RANGE
            | FallocateFlags::INSERT_RANGE
            | FallocateFlags::UNSHARE_RANGE;
        if self.journal().is_some() && !known.contains(mode) {
            return Err(Self::unsupported("allocate", About::Open(fd.as_fd())));
        }
        let _change = self.before("allocate", About::Open(fd.as_fd()), |journal| {
            journal.before_allocate(fd.as_fd(), mode, offset, len)
        })?;
        rustix::fs::fallocate(fd, mode, offset, len)
    }

    /// copy_file_range(2); how many bytes were copied.
    pub(crate) fn copy(
        &self,
        (from, mut from_offset): (&OwnedFd, u64),
        (to, mut to_offset): (&OwnedFd, u64),
        len: u64,
    ) -> Result<u64, Errno> {
        let mut len = len.min(1 << 30);
        if self.journal().is_some() {
            self.must_be_writable(to, Errno::BADF)?;
            let source = rustix::fs::fstat(from)?;
            if FileType::from_raw_mode(source.st_mode) == FileType::RegularFile {
                let size = u64::try_from(source.st_size).unwrap_or(0);
                len = len.min(size.saturating_sub(from_offset));
            }
            len = len.min(MOST_COPIED);
        }
        let _change = if len > 0 {
            self.before("copy", About::Open(to.as_fd()), |journal| {
                journal.before_write(to.as_fd(), to_offset, len)
            })?
        } else {
            None
        };
        let (source, target) = (Some(&mut from_offset), Some(&mut to_offset));
        // At most 1 GiB.
        let copied = rustix::fs::copy_file_range(from, source, to, target, len as usize)?;
        Ok(copied as u64)
    }

    /// What is open for reading only is not changed, so nothing of it is kept: the call's own error.
    fn must_be_writable(&self, fd: &OwnedFd, error: Errno) -> Result<(), Errno> {
        if self.journal().is_none() {
            return Ok(());
        }
        let flags = rustix::fs::fcntl_getfl(fd)?;
        if flags.contains(OFlags::PATH) {
            return Err(Errno::BADF);
        }
        if flags & OFlags::RWMODE == OFlags::RDONLY {
            return Err(error);
        }
        Ok(())
    }
}
