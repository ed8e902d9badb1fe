//! Attributes: mode, owner, times, size, extended attributes.

use super::{Change, Handle};
use crate::format::record::{AttributesRecord, ObjectId, Record};
use crate::inode::{Seen, look};
use crate::reserve::own_descriptor;
use crate::state::{Noted, State};
use crate::{Journal, JournalError};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

/// Most bytes of an extended attribute's value, and of a list of names (XATTR_SIZE_MAX, XATTR_LIST_MAX).
const LARGEST_XATTR: usize = 64 << 10;

impl Journal {
    /// Mode, owner, times or extended attributes of what is open, or open as `O_PATH`, are about to be changed.
    ///
    /// # Errors
    /// [`JournalError`]: the change must not be made.
    pub fn before_attributes<'a>(&'a self, fd: BorrowedFd<'a>) -> Result<Change<'a>, JournalError> {
        let mut change = self.begin_change();
        let mut state = self.lock_state();
        state.usable()?;
        let saved = change.begin_file(&mut state, fd);
        state.or_forget(saved)?;
        change.ready(state)
    }
}

impl<'a> Change<'a> {
    /// Saves the attributes of what is going to be changed.
    pub(super) fn begin_file(
        &mut self,
        state: &mut State,
        fd: BorrowedFd<'a>,
    ) -> Result<(ObjectId, Seen), JournalError> {
        let seen = look(fd).map_err(|errno| JournalError::io("look at", "a file", errno))?;
        let id = state.file(fd, &seen)?;
        self.take_off(state, id, (Handle::Borrowed(fd), &seen))?;
        state.save_attributes(id, fd, &seen)?;
        Ok((id, seen))
    }
}

impl State {
    /// What was noted counts only if all of it could be.
    pub(super) fn or_forget<T>(
        &mut self,
        result: Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        if result.is_err() {
            self.forget_noted();
            self.saving = false;
        }
        result
    }

    /// Saves how something looks, before its first change of the epoch.
    pub(super) fn save_attributes(
        &mut self,
        id: ObjectId,
        fd: impl AsFd,
        seen: &Seen,
    ) -> Result<(), JournalError> {
        if self.is_new(id) {
            return self.refer(id);
        }
        if self.saved.attributes.contains_key(&id) {
            return Ok(());
        }
        self.refer(id)?;
        let xattrs = xattrs(&own_descriptor(fd))
            .map_err(|errno| JournalError::io("read the attributes of", self.path(id), errno))?;
        let record = AttributesRecord {
            object: id,
            mode: seen.print.mode,
            uid: seen.print.uid,
            gid: seen.print.gid,
            accessed: seen.accessed,
            modified: seen.print.modified,
            size: seen.print.size,
            xattrs,
        };
        self.log.push(&Record::Attributes(record), &[])?;
        self.saving = true;
        self.saved.attributes.insert(id, seen.print.size);
        self.noted.push(Noted::Attributes(id));
        Ok(())
    }
}

/// A name without its NUL, and a value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// All extended attributes that can be read, with their values, in order. listxattr(2), getxattr(2).
pub(crate) fn xattrs(path: &str) -> Result<Vec<Xattr>, Errno> {
    // Most files have none.
    let len = match rustix::fs::listxattr_query(path) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(vec![]),
        len => len?,
    };
    let mut list = vec![0; len.max(LARGEST_XATTR)];
    let len = rustix::fs::listxattr(path, &mut list[..])?;
    let mut value = vec![0; LARGEST_XATTR];
    let mut all = vec![];
    for name in list[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        match rustix::fs::getxattr(path, name, &mut value[..]) {
            Ok(len) => all.push((name.to_vec(), value[..len].to_vec())),
            // Gone meanwhile, or for others only: then the job cannot change it either.
            Err(Errno::NODATA | Errno::ACCESS | Errno::PERM | Errno::NOTSUP) => {}
            Err(errno) => return Err(errno),
        }
    }
    all.sort();
    Ok(all)
}
