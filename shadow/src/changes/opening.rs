//! Opening that makes or empties a file.
//!
//! ```text
//! O_CREAT: open what is there ──none──> announce, make with O_EXCL ──made meanwhile by somebody else──> open what is there ...
//! O_TRUNC: open without it ──> a regular file? announce, ftruncate
//! ```
//! So what is announced is what is made, and nothing is cut whose bytes are not kept.
#![allow(clippy::disallowed_methods)]

use super::{Changes, TRIES};
use crate::names::{NAMELESS, Spot, open_beneath};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

impl Changes {
    /// openat2(2) where things may be changed.
    pub(crate) fn open(
        &self,
        spot: &Spot<'_>,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        let changing = OFlags::CREATE | OFlags::TRUNC | NAMELESS;
        if flags.contains(OFlags::PATH) || !flags.intersects(changing) || self.journal().is_none() {
            return spot.open_with(flags, mode);
        }
        if flags.contains(NAMELESS) {
            // No name is changed; the one that it may get is announced then.
            return spot.open_with(flags, mode);
        }
        if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
            return Err(Errno::INVAL);
        }
        if !flags.contains(OFlags::CREATE) {
            return self.open_there(spot, flags);
        }
        for _ in 0..TRIES {
            if !flags.contains(OFlags::EXCL) && !spot.ends_in_slash() {
                match self.open_there(spot, flags) {
                    Err(Errno::NOENT) => {}
                    opened => return opened,
                }
            }
            match self.open_new(spot, flags, mode) {
                Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => {}
                opened => return opened,
            }
        }
        Err(Errno::AGAIN)
    }

    fn open_there(&self, spot: &Spot<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let fd = spot.open(flags)?;
        self.empty_if_asked(&fd, flags)?;
        Ok(fd)
    }

    /// What is open was opened without `O_CREAT` and `O_TRUNC`: what they would have done.
    pub(crate) fn empty_if_asked(&self, fd: &OwnedFd, flags: OFlags) -> Result<(), Errno> {
        if flags.contains(OFlags::PATH) || !flags.intersects(OFlags::CREATE | OFlags::TRUNC) {
            return Ok(());
        }
        match FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) {
            FileType::Directory => Err(Errno::ISDIR),
            FileType::RegularFile if flags.contains(OFlags::TRUNC) => self.empty(fd),
            _ => Ok(()),
        }
    }

    fn open_new(&self, spot: &Spot<'_>, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let (folder, name) = match spot.parent() {
            // A root is there.
            Err(Errno::BUSY) => return Err(Errno::EXIST),
            parent => parent?,
        };
        let flags = flags.difference(OFlags::TRUNC);
        if name.ends_with(b"/") {
            // Never makes anything, and says why not.
            return match spot.open_with(flags.difference(OFlags::EXCL), mode) {
                Ok(_) => Err(Errno::ISDIR),
                Err(errno) => Err(errno),
            };
        }
        self.make("create", (&folder, name), || {
            open_beneath(&folder, name, flags | OFlags::EXCL, mode)
        })
    }
}
