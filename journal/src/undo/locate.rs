//! Where an object is now: kept in a side folder, or in one of the places where it has been. The inode tells.

use crate::JournalError;
use crate::format::record::{ObjectId, ROOT};
use crate::inode::{Seen, look};
use crate::past::Past;
use crate::reserve::{open_at, own_descriptor};
use crate::state::State;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;

/// Folders that are held open at most.
const MOST_OPEN: usize = 256;

/// Something that was found, open as `O_PATH`.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) handle: Arc<OwnedFd>,
    pub(crate) seen: Seen,
    /// The number of the side folder that it lies in.
    pub(crate) reserve: Option<u32>,
    /// The place where it was found.
    pub(crate) place: Option<(ObjectId, Vec<u8>)>,
}

/// Finds objects.
#[derive(Debug)]
pub(crate) struct Locator {
    /// Folders whose attributes will be put back get the permissions that are needed until then.
    permit: bool,
    open: HashMap<ObjectId, Arc<OwnedFd>>,
    visiting: Vec<ObjectId>,
}

impl Locator {
    pub(crate) fn new(permit: bool) -> Self {
        Locator {
            permit,
            open: HashMap::new(),
            visiting: vec![],
        }
    }

    /// An object; none if it is nowhere.
    pub(crate) fn find(
        &mut self,
        state: &State,
        past: &Past,
        id: ObjectId,
    ) -> Result<Option<Found>, JournalError> {
        if id == ROOT {
            let root = open_at(CWD, b"/").map_err(|errno| JournalError::io("open", "/", errno))?;
            return Ok(root.map(|root| found(root, None, None)));
        }
        if self.visiting.contains(&id) {
            return Ok(None);
        }
        self.visiting.push(id);
        let found = self.search(state, past, id);
        self.visiting.pop();
        // What is new is removed, and what has a record gets its mode back.
        let new = past.objects.get(&id).is_some_and(|known| known.new);
        if self.permit
            && let Ok(Some(found)) = &found
            && (new || past.attributes.contains_key(&id))
        {
            permit(found).map_err(|errno| JournalError::io("permit", state.path(id), errno))?;
        }
        found
    }

    fn search(
        &mut self,
        state: &State,
        past: &Past,
        id: ObjectId,
    ) -> Result<Option<Found>, JournalError> {
        let Some(known) = past.objects.get(&id) else {
            return Ok(None);
        };
        for (number, reserve) in state.reserves.iter().enumerate() {
            let there = reserve.handle(id);
            let there = there.map_err(|errno| JournalError::io("look at", &reserve.path, errno))?;
            if let Some(there) = there {
                return Ok(Some(found(there, Some(number as u32), None)));
            }
        }
        let mut forbidden = None;
        for (folder, name) in known.places.iter().rev() {
            let Some(parent) = self.folder(state, past, *folder)? else {
                continue;
            };
            match open_at(&parent, name) {
                Ok(Some(there)) if past.is(id, &there.1) => {
                    let place = Some((*folder, name.clone()));
                    return Ok(Some(found(there, None, place)));
                }
                Ok(_) | Err(Errno::NOTDIR) => {}
                Err(errno) => forbidden = Some(errno),
            }
        }
        match forbidden {
            Some(errno) => Err(JournalError::io("look for", state.path(id), errno)),
            None => Ok(None),
        }
    }

    /// A folder's handle.
    pub(crate) fn folder(
        &mut self,
        state: &State,
        past: &Past,
        id: ObjectId,
    ) -> Result<Option<Arc<OwnedFd>>, JournalError> {
        if let Some(handle) = self.open.get(&id) {
            return Ok(Some(handle.clone()));
        }
        let found = self.find(state, past, id)?;
        if let Some(found) = &found {
            if self.open.len() >= MOST_OPEN {
                self.open.clear();
            }
            self.open.insert(id, found.handle.clone());
        }
        Ok(found.map(|found| found.handle))
    }
}

pub(super) fn found(
    (handle, seen): (OwnedFd, Seen),
    reserve: Option<u32>,
    place: Option<(ObjectId, Vec<u8>)>,
) -> Found {
    Found {
        handle: Arc::new(handle),
        seen,
        reserve,
        place,
    }
}

/// Lets the owner read, write and search, as far as is lacking and possible.
pub(super) fn permit(found: &Found) -> Result<(), Errno> {
    use crate::inode::Kind;
    let wanted = match found.seen.kind {
        Kind::Folder => 0o700,
        Kind::File => 0o600,
        Kind::Link | Kind::Special => return Ok(()),
    };
    let mode = look(&found.handle)?.print.mode;
    if mode & wanted == wanted {
        return Ok(());
    }
    let mode = Mode::from_raw_mode((mode | wanted) & 0o7777);
    match rustix::fs::chmod(own_descriptor(&found.handle), mode) {
        // Another's; perhaps it is not needed.
        Err(Errno::PERM) => Ok(()),
        permitted => permitted,
    }
}
