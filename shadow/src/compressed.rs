//! Files that are stored compressed (gzip), and read and written as if they were not: Condor's `compress_files`.
//!
//! ```text
//! open ---------> all of what is stored is decompressed into a file without a name      damaged: EIO, and a line in the log
//! read, write --> there
//! fsync, close, mark, the session's end --> if it differs: compressed, and written over what is stored, as any change is
//! ```
//! # What callers may rely on
//! All who have the file open in a session have the same contents. A mark is made of what is stored when all is stored, so a job that goes
//! back to it finds there what it had written, and an undo needs to know nothing of this.
//!
//! # What it does not do
//! What is not stored yet goes with the shadow: a session that has such a file open for writing does not go on after a shadow that was
//! killed ([`crate::kept`]). Other machines, other sessions and other names see what is stored. A file that is not gzip is read as it is.

use crate::locks::FileId;
use crate::session::{OpenFile, Session};
use flate2::Compression;
use flate2::read::{GzEncoder, MultiGzDecoder};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use wire::{Attributes, Open};

/// What gzip files begin with (RFC 1952).
const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// It is told as lying on a device of its own: the same inode is another file to whoever opens what is stored.
const DEVICE: u64 = 1 << 31;
/// Bytes that are written at once.
const PIECE: usize = 256 << 10;

/// Such a file.
#[derive(Debug)]
pub(crate) struct Compressed {
    /// As it is stored.
    stored: OwnedFd,
    /// The same for writing, if anybody writes.
    writer: OnceLock<OwnedFd>,
    plain: OwnedFd,
    /// What is stored is not `plain`.
    differs: AtomicBool,
    storing: Mutex<()>,
}

/// All of them that a session has open.
#[derive(Debug, Default)]
pub(crate) struct AllCompressed(Mutex<HashMap<FileId, Weak<Compressed>>>);

/// What `open` asks for, if it is this.
pub(crate) fn is_asked(flags: u32) -> bool {
    flags & Open::COMPRESSED != 0
}

/// How what is stored is to be opened: all of it is read first, and written anew.
pub(crate) fn stored_flags(flags: OFlags) -> OFlags {
    let own = OFlags::APPEND | OFlags::SYNC | OFlags::DSYNC | OFlags::WRONLY | OFlags::RDWR;
    let access = if writes(flags) {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    plain_flags(flags).difference(own) | access
}

fn plain_flags(flags: OFlags) -> OFlags {
    flags.difference(OFlags::from_bits_retain(Open::COMPRESSED))
}

fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

impl OpenFile {
    /// What the file is in its file system.
    pub(crate) fn stored(&self) -> &OwnedFd {
        match &self.compressed {
            Some(compressed) => &compressed.stored,
            None => &self.fd,
        }
    }
}

impl Session {
    /// A file that is open with [`stored_flags`], as the job sees it.
    ///
    /// # Errors
    /// EIO: what is stored is damaged; the log names it. Others: it cannot be decompressed, for want of room say.
    pub(crate) fn decompressed(
        &self,
        stored: OwnedFd,
        flags: OFlags,
        (writable, id): (bool, FileId),
    ) -> Result<OpenFile, Errno> {
        let all = self.compressed.0.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, one| one.strong_count() > 0);
        let size = rustix::fs::fstat(&stored)?.st_size;
        let begins = flags.contains(OFlags::TRUNC) || flags.contains(OFlags::CREATE) && size == 0;
        let known = all.get(&id).and_then(Weak::upgrade);
        let one = match known {
            Some(one) => {
                if flags.contains(OFlags::TRUNC) {
                    self.unjournalled.resize(&one.plain, 0)?;
                }
                one
            }
            None => {
                let one = Arc::new(Compressed {
                    plain: decompress(&stored)?,
                    stored: stored.try_clone().map_err(|error| errno_of(&error))?,
                    writer: OnceLock::new(),
                    differs: AtomicBool::new(false),
                    storing: Mutex::default(),
                });
                all.insert(id, Arc::downgrade(&one));
                one
            }
        };
        let own = OFlags::RWMODE | OFlags::APPEND | OFlags::SYNC | OFlags::DSYNC | OFlags::NOATIME;
        let fd = crate::names::reopen(&one.plain, plain_flags(flags).intersection(own))?;
        if writes(flags) {
            let _ = one.writer.set(stored);
            if begins {
                one.differs.store(true, Ordering::Relaxed);
            }
        }
        let mut file = OpenFile::new(fd, writable, id);
        file.compressed = Some(one);
        Ok(file)
    }

    /// Attributes of what is open, as the job sees it.
    pub(crate) fn look_at(&self, file: &OpenFile) -> Result<Attributes, Errno> {
        let mut found = self.look(file.stored())?;
        let Some(compressed) = &file.compressed else {
            return Ok(found);
        };
        let plain = self.look(&compressed.plain)?;
        (found.size, found.blocks) = (plain.size, plain.blocks);
        found.device ^= DEVICE;
        if compressed.differs.load(Ordering::Relaxed) {
            (found.modified, found.changed) = (plain.modified, plain.changed);
        }
        // Who sees the same file system is not to take what is stored for it.
        found.changed.nanoseconds ^= 1;
        Ok(found)
    }

    /// By whom bytes of what is open are changed: what is compressed is journalled when it is stored.
    pub(crate) fn changes_of(&self, file: &OpenFile) -> &crate::changes::Changes {
        match &file.compressed {
            Some(_) => &self.unjournalled,
            None => &self.changes,
        }
    }

    /// Bytes of what is open were changed.
    pub(crate) fn changed(&self, file: &OpenFile) -> Result<(), Errno> {
        let Some(compressed) = &file.compressed else {
            return Ok(());
        };
        compressed.differs.store(true, Ordering::Relaxed);
        let flags = rustix::fs::fcntl_getfl(&file.fd)?;
        if flags.intersects(OFlags::DSYNC | OFlags::SYNC) {
            self.store(file)?;
            rustix::fs::fdatasync(file.stored())?;
        }
        Ok(())
    }

    /// What was written to it is stored.
    ///
    /// # Errors
    /// As of a write; the log names the file. What is stored is as it was if there was no room.
    pub(crate) fn store(&self, file: &OpenFile) -> Result<(), Errno> {
        match &file.compressed {
            Some(compressed) => self.store_compressed(compressed),
            None => Ok(()),
        }
    }

    /// The same of all that is open; the first error, and of which file.
    pub(crate) fn store_all(&self) -> Result<(), (Errno, String)> {
        let mut result = Ok(());
        for (_, file) in self.all_open() {
            if let Err(errno) = self.store(&file) {
                result = result.and(Err((errno, name_of(file.stored()))));
            }
        }
        result
    }

    fn store_compressed(&self, one: &Compressed) -> Result<(), Errno> {
        let _storing = one.storing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = one.writer.get() else {
            return Ok(());
        };
        // What is written from now on is stored the next time.
        if !one.differs.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.write_compressed(&one.plain, writer).inspect_err(|errno| {
            one.differs.store(true, Ordering::Relaxed);
            let name = name_of(&one.stored);
            tracing::error!(%errno, name, "what was written to a compressed file cannot be stored");
        })
    }

    fn write_compressed(&self, plain: &OwnedFd, writer: &OwnedFd) -> Result<(), Errno> {
        let failed = |error: io::Error| errno_of(&error);
        let mut bytes = GzEncoder::new(FromStart::of(plain), Compression::default());
        let mut whole = tempfile::tempfile().map_err(failed)?;
        let len = io::copy(&mut bytes, &mut whole).map_err(failed)?;
        // What is there is not written over unless there is room for all, and to keep it.
        self.changes.keep_all(writer)?;
        match self
            .changes
            .allocate(writer, FallocateFlags::KEEP_SIZE, 0, len)
        {
            Err(Errno::OPNOTSUPP) | Ok(()) => {}
            Err(errno) => return Err(errno),
        }
        let whole = OwnedFd::from(whole);
        let mut from = FromStart::of(&whole);
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        loop {
            let len = from.read(&mut piece).map_err(failed)?;
            if len == 0 {
                break;
            }
            let mut left = &piece[..len];
            while !left.is_empty() {
                let done = self.changes.write_at(writer, at, left)?;
                at += done;
                left = left.get(done as usize..).unwrap_or_default();
            }
        }
        self.changes.resize(writer, at)
    }
}

/// A session ends: what its job has not closed is stored, too.
impl Drop for Session {
    fn drop(&mut self) {
        // The log says what cannot be.
        let _ = self.store_all();
    }
}

/// A file without a name that has what is stored there.
fn decompress(stored: &OwnedFd) -> Result<OwnedFd, Errno> {
    let failed = |error: io::Error| {
        if let Some(errno) = Errno::from_io_error(&error) {
            return errno;
        }
        let name = name_of(stored);
        tracing::error!(%error, name, "a compressed file is damaged");
        Errno::IO
    };
    let mut plain = tempfile::tempfile().map_err(failed)?;
    let mut from = FromStart::of(stored);
    let mut begin = [0; MAGIC.len()];
    let is_gzip = matches!(from.read(&mut begin), Ok(2)) && begin == MAGIC;
    let mut from = FromStart::of(stored);
    let copied = match is_gzip {
        true => io::copy(&mut MultiGzDecoder::new(from), &mut plain),
        false => io::copy(&mut from, &mut plain),
    };
    copied.map_err(failed)?;
    plain.flush().map_err(failed)?;
    Ok(plain.into())
}

/// Reads from the first byte on, and leaves the descriptor's own offset.
struct FromStart<'a> {
    fd: &'a OwnedFd,
    at: u64,
}

impl<'a> FromStart<'a> {
    fn of(fd: &'a OwnedFd) -> Self {
        FromStart { fd, at: 0 }
    }
}

impl Read for FromStart<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let len = rustix::io::pread(self.fd, room, self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn name_of(fd: &OwnedFd) -> String {
    let name = rustix::fs::readlink(crate::names::own_descriptor(fd.as_raw_fd()), vec![]);
    name.map_or_else(
        |_| "?".to_owned(),
        |name| {
            Path::new(OsStr::from_bytes(name.as_bytes()))
                .display()
                .to_string()
        },
    )
}
