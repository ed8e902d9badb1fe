//! Numbers for what a change is about.

use crate::JournalError;
use crate::format::record::{ObjectId, ROOT};
use crate::inode::{Kind, Seen, look, look_at};
use crate::reserve::name_of;
use crate::state::State;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::CWD;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl State {
    /// An open folder's number; those above it get one, too.
    pub(super) fn folder(&mut self, fd: BorrowedFd<'_>) -> Result<ObjectId, JournalError> {
        let failed = |errno| JournalError::io("look at", "a folder", errno);
        let seen = look(fd).map_err(failed)?;
        if seen.kind != Kind::Folder {
            return Err(failed(Errno::NOTDIR));
        }
        if let Some(id) = self.known(&seen) {
            return Ok(id);
        }
        // A folder without a name takes no new ones.
        let name = name_of(fd)
            .map_err(failed)?
            .ok_or_else(|| failed(Errno::NOENT))?;
        self.walk(&name)
    }

    /// An open file's number.
    pub(super) fn file(&mut self, fd: impl AsFd, seen: &Seen) -> Result<ObjectId, JournalError> {
        let known = self.known(seen);
        let placed =
            |id: &ObjectId| *id == ROOT || self.object(*id).is_some_and(|it| it.place.is_some());
        if let Some(id) = known.filter(placed) {
            return Ok(id);
        }
        let failed = |errno| JournalError::io("find the name of", "an open file", errno);
        let place = match name_of(fd).map_err(failed)? {
            Some(name) if seen.kind == Kind::Folder => return self.walk(&name),
            Some(name) => {
                let at = name.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                let folder = self.walk(&name[..at])?;
                Some((folder, name[at + 1..].to_vec()))
            }
            None => None,
        };
        let Some(id) = known else {
            return Ok(self.register(seen, place, 0));
        };
        // The name that was known of it has been removed; it has another.
        if place.is_some()
            && let Some(object) = self.objects.get_mut(&id)
        {
            object.place = place;
            self.refer_anew(id)?;
        }
        Ok(id)
    }

    /// The number of what has a name in a folder.
    pub(super) fn holder(&mut self, seen: &Seen, place: (ObjectId, &[u8])) -> ObjectId {
        match self.known(seen) {
            Some(id) => id,
            None => self.register(seen, Some((place.0, place.1.to_vec())), 0),
        }
    }

    /// The number of the folder with this absolute name, in which there are no links.
    fn walk(&mut self, name: &[u8]) -> Result<ObjectId, JournalError> {
        let mut at = ROOT;
        let mut path = Vec::with_capacity(name.len());
        for part in name
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
        {
            path.push(b'/');
            path.extend_from_slice(part);
            let failed =
                |errno| JournalError::io("look at", Path::new(OsStr::from_bytes(&path)), errno);
            let seen = look_at(CWD, &path).map_err(failed)?;
            let seen = seen.ok_or_else(|| failed(Errno::NOENT))?;
            at = self.holder(&seen, (at, part));
        }
        Ok(at)
    }

    /// Whether the job has made it since the last mark, so that nothing of it needs to be saved.
    pub(super) fn is_new(&self, id: ObjectId) -> bool {
        let epoch = self.epoch();
        self.object(id)
            .is_some_and(|object| object.made_in >= epoch)
    }
}
