//! Opening.

use super::refuse;
use crate::compressed;
use crate::locks::FileId;
use crate::names::{Last, NAMELESS, Spot, own_descriptor, reopen};
use crate::session::{OpenFile, Session};
use rustix::fd::OwnedFd;
use rustix::fs::{
    Access as Permission, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, SeekFrom,
};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::sync::PoisonError;
use wire::{Attributes, MOST_DATA, Open, OpenWithin, Opened, Reply, Request};

/// What is to be opened is a FIFO, which the job has where it runs ([`wire::FIFO`]).
const FIFO: Errno = Errno::from_raw_os_error(wire::FIFO as i32);

impl Session {
    /// openat(2).
    pub(super) fn open(&self, open: &Open<'_>, out: &mut Vec<u8>) -> Result<Reply<'static>, Errno> {
        self.open_by(open, None, out)
    }

    /// openat2(2).
    pub(super) fn open_within(
        &self,
        within: &OpenWithin<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let known = ResolveFlags::NO_XDEV
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::BENEATH
            | ResolveFlags::IN_ROOT;
        let resolve = ResolveFlags::from_bits_retain(within.resolve.into());
        if !known.contains(resolve) {
            return Err(Errno::INVAL);
        }
        self.open_by(&within.open, Some(resolve), out)
    }

    fn open_by(
        &self,
        open: &Open<'_>,
        resolve: Option<ResolveFlags>,
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let asked = OFlags::from_bits_retain(open.flags & !Open::EXECUTE);
        let asked = asked.difference(OFlags::CLOEXEC);
        let flags = match compressed::is_asked(open.flags) {
            true => compressed::stored_flags(asked),
            false => asked,
        };
        let mode = Mode::from_raw_mode(open.mode & 0o7777);
        let must_be_new = flags.contains(OFlags::CREATE | OFlags::EXCL);
        let last = Last::from_follow(!flags.contains(OFlags::NOFOLLOW) && !must_be_new);
        if open.place.name.is_empty() && open.place.at != 0 {
            return self.open_again(open, asked, out);
        }
        let act = |spot: &Spot<'_>| {
            let fd = if spot.writable() {
                self.make_or_open(spot, (unblocked(flags), unblocked(asked)), mode)?
            } else {
                open_read_only(spot, flags, open.place.name)?
            };
            Ok((fd, spot.writable()))
        };
        let found = match resolve {
            None => self.allowed.at(&self.text(&open.place)?, last, act),
            Some(resolve) => {
                let folder = match open.place.name {
                    [b'/', ..] => vec![],
                    _ => self.folder_name(open.place.at)?,
                };
                let name = (open.place.name, resolve);
                self.allowed.at_within(&folder, name, last, act)
            }
        };
        let (fd, writable) = found.map_err(|errno| self.or_fifo(open, last, errno))?;
        self.opened(open, asked, (fd, writable), out)
    }

    /// `noted`: what the job has asked for.
    fn make_or_open(
        &self,
        spot: &Spot<'_>,
        (flags, noted): (OFlags, OFlags),
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        let act = || self.changes.open(spot, flags, mode);
        if !flags.contains(OFlags::CREATE) || self.log.is_none() {
            return act();
        }
        match spot.parent() {
            Ok((folder, name)) => self.noted_open((&folder, name), noted, act),
            Err(_) => act(),
        }
    }

    /// What is open already, by `/proc/self/fd` there: a description of its own, with other flags.
    fn open_again(
        &self,
        open: &Open<'_>,
        flags: OFlags,
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let file = self.get(open.place.at)?;
        let changes = OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC;
        if !file.writable && flags.intersects(changes) {
            return Err(refuse("open for writing", b"what is open"));
        }
        let flags = flags.difference(OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW);
        if file.compressed.is_some() && !flags.contains(OFlags::PATH) {
            let stored = reopen(file.stored(), compressed::stored_flags(flags))?;
            let again = self.decompressed(stored, flags, (file.writable, file.id))?;
            return self.give(open, again, out);
        }
        let fd = reopen(file.stored(), unblocked(flags));
        let fd = fd.map_err(|errno| self.or_fifo(open, Last::Followed, errno))?;
        self.changes.empty_if_asked(&fd, flags)?;
        self.opened(open, flags, (fd, file.writable), out)
    }

    /// Nobody reads a FIFO here; who writes to one of the job's has readers there.
    fn or_fifo(&self, open: &Open<'_>, last: Last, errno: Errno) -> Errno {
        if errno != Errno::NXIO || open.flags & Open::EXECUTE != 0 {
            return errno;
        }
        let found = self.find(&open.place, last);
        let stat = found.and_then(|found| rustix::fs::fstat(found.fd()));
        match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Fifo) => FIFO,
            _ => errno,
        }
    }

    fn opened(
        &self,
        open: &Open<'_>,
        flags: OFlags,
        (fd, writable): (OwnedFd, bool),
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let attributes = self.look(&fd)?;
        if open.flags & Open::EXECUTE != 0 {
            let name = own_descriptor(fd.as_raw_fd());
            rustix::fs::accessat(CWD, name, Permission::EXEC_OK, AtFlags::EACCESS)?;
        }
        let kind = FileType::from_raw_mode(attributes.mode);
        if !flags.contains(OFlags::PATH)
            && !matches!(kind, FileType::RegularFile | FileType::Directory)
        {
            if kind == FileType::Fifo && open.flags & Open::EXECUTE == 0 {
                return Err(FIFO);
            }
            // A device is the submit machine's own.
            return Err(refuse("open of a special file", open.place.name));
        }
        let id = FileId {
            device: attributes.device,
            inode: attributes.inode,
        };
        if compressed::is_asked(open.flags) && kind == FileType::RegularFile {
            let file = self.decompressed(fd, flags, (writable, id))?;
            return self.give(open, file, out);
        }
        self.first_data(open, (&fd, &attributes), out);
        let handle = self.insert(OpenFile::new(fd, writable, id))?;
        Ok(Reply::Opened(Opened { handle, attributes }))
    }

    /// The job has a compressed file open.
    fn give(
        &self,
        open: &Open<'_>,
        file: OpenFile,
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let attributes = self.look_at(&file)?;
        self.first_data(open, (&file.fd, &attributes), out);
        let handle = self.insert(file)?;
        Ok(Reply::Opened(Opened { handle, attributes }))
    }
}

impl Session {
    /// What comes with an open: first bytes, or first entries. `what` has been opened.
    fn first_data(
        &self,
        open: &Open<'_>,
        (fd, attributes): (&OwnedFd, &Attributes),
        out: &mut Vec<u8>,
    ) {
        let flags = OFlags::from_bits_retain(open.flags);
        let kind = FileType::from_raw_mode(attributes.mode);
        let readable = !flags.intersects(OFlags::PATH | OFlags::WRONLY);
        let len = (open.first as usize).min(MOST_DATA);
        if kind == FileType::RegularFile && readable && !flags.contains(OFlags::TRUNC) {
            let len = len.min(usize::try_from(attributes.size).unwrap_or(usize::MAX));
            first_bytes(fd, len, out);
        }
        if kind == FileType::Directory && readable && flags.contains(OFlags::DIRECTORY) {
            self.first_entries(fd, len, out);
        }
    }

    /// The data of an answer that is given again: what was opened is as it was, or its first bytes are asked for in vain.
    pub(crate) fn data_again(
        &self,
        request: &Request<'_>,
        reply: &Reply<'static>,
        out: &mut Vec<u8>,
    ) {
        let open = match request {
            Request::Open(open) => open,
            Request::OpenWithin(within) => &within.open,
            _ => return,
        };
        let Reply::Opened(opened) = reply else {
            return;
        };
        if let Ok(file) = self.get(opened.handle) {
            let _lock = file.offset.lock().unwrap_or_else(PoisonError::into_inner);
            let is_folder = FileType::from_raw_mode(opened.attributes.mode) == FileType::Directory;
            if !is_folder || rustix::fs::seek(&file.fd, SeekFrom::Start(0)).is_ok() {
                self.first_data(open, (&file.fd, &opened.attributes), out);
            }
        }
    }
}

/// Reads first bytes; none if that fails. Where we may say so, it does not count as access: the program may not read them.
pub(super) fn first_bytes(fd: &OwnedFd, len: usize, out: &mut Vec<u8>) {
    let flags = rustix::fs::fcntl_getfl(fd);
    let unseen = flags.and_then(|flags| {
        rustix::fs::fcntl_setfl(fd, flags | OFlags::NOATIME)?;
        Ok(flags)
    });
    if super::contents::read_into(fd, 0, len, out).is_err() {
        out.clear();
    }
    if let Ok(flags) = unseen {
        let _ = rustix::fs::fcntl_setfl(fd, flags);
    }
}

/// The kernel waits at FIFOs and devices; they are looked at when they are open.
fn unblocked(flags: OFlags) -> OFlags {
    if flags.contains(OFlags::PATH) {
        flags
    } else {
        flags | OFlags::NONBLOCK | OFlags::NOCTTY
    }
}

/// Where nothing may be changed: as the kernel would answer if the file system allowed it and the permissions did not.
fn open_read_only(spot: &Spot<'_>, flags: OFlags, name: &[u8]) -> Result<OwnedFd, Errno> {
    let changes = OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC | NAMELESS;
    if !flags.contains(OFlags::PATH) && flags.intersects(changes) {
        let looked = spot.open(OFlags::PATH | flags.intersection(OFlags::NOFOLLOW));
        return Err(match looked {
            Ok(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => Errno::EXIST,
            Ok(found) => match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
                FileType::Directory if !flags.intersects(NAMELESS) => Errno::ISDIR,
                _ => refuse("open for writing", name),
            },
            Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => refuse("create", name),
            Err(errno) => errno,
        });
    }
    match spot.open(unblocked(flags)) {
        Ok(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => Err(Errno::EXIST),
        Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => Err(refuse("create", name)),
        result => result,
    }
}
