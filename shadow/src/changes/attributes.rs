//! Modes, owners, times, extended attributes of what is open, or open as `O_PATH`.
#![allow(clippy::disallowed_methods)]

use super::{About, Changes, own_descriptor};
use journal::Change;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

impl Changes {
    fn before_attributes<'a>(
        &'a self,
        what: &'static str,
        fd: &'a OwnedFd,
    ) -> Result<Option<Change<'a>>, Errno> {
        self.before(what, About::Open(fd.as_fd()), |journal| {
            journal.before_attributes(fd.as_fd())
        })
    }

    /// chmod(2).
    pub(crate) fn set_mode(&self, fd: &OwnedFd, mode: Mode) -> Result<(), Errno> {
        let _change = self.before_attributes("change the mode", fd)?;
        rustix::fs::chmod(own_descriptor(fd), mode)
    }

    /// chown(2); none leaves one as it is.
    pub(crate) fn set_owner(
        &self,
        fd: &OwnedFd,
        uid: Option<Uid>,
        gid: Option<Gid>,
    ) -> Result<(), Errno> {
        let _change = self.before_attributes("change the owner", fd)?;
        rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)
    }

    /// utimensat(2).
    pub(crate) fn set_times(&self, fd: &OwnedFd, times: &Timestamps) -> Result<(), Errno> {
        let _change = self.before_attributes("change the times", fd)?;
        rustix::fs::utimensat(CWD, own_descriptor(fd), times, AtFlags::empty())
    }

    /// setxattr(2).
    pub(crate) fn set_xattr(
        &self,
        fd: &OwnedFd,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let _change = self.before_attributes("set an extended attribute", fd)?;
        rustix::fs::setxattr(own_descriptor(fd), name, value, flags)
    }

    /// removexattr(2).
    pub(crate) fn remove_xattr(&self, fd: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let _change = self.before_attributes("remove an extended attribute", fd)?;
        rustix::fs::removexattr(own_descriptor(fd), name)
    }
}
