//! Attributes: owner, extended attributes, mode, times; folders last, the deepest first.

use super::Work;
use super::locate::Found;
use crate::change::xattrs;
use crate::format::record::{AttributesRecord, ObjectId, ROOT};
use crate::inode::{Kind, look};
use crate::reserve::own_descriptor;
use crate::{JournalError, fault};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::cmp::Reverse;

impl Work<'_> {
    /// Objects whose names alone were changed look otherwise, too: all are noted as they are now.
    pub(super) fn put_attributes_back(&mut self) -> Result<(), JournalError> {
        let mut all: Vec<ObjectId> = self.past.touched.iter().copied().collect();
        all.retain(|id| *id == ROOT || self.past.is_old(*id));
        let mut folders = vec![];
        for id in all {
            // What had no name at the mark is not there.
            let Some(found) = self.find(id)? else {
                continue;
            };
            if found.seen.kind == Kind::Folder {
                let name = rustix::fs::readlink(own_descriptor(&found.handle), vec![])
                    .map_err(|errno| JournalError::io("find", self.state.path(id), errno))?;
                let depth = name.as_bytes().iter().filter(|byte| **byte == b'/').count();
                folders.push((depth, id));
            } else {
                self.put_attributes_of(id, &found)?;
            }
        }
        // Some take away the permissions that are needed to come to those beneath.
        folders.sort_by_key(|(depth, id)| (Reverse(*depth), *id));
        for (_, id) in folders {
            if let Some(found) = self.find(id)? {
                self.put_attributes_of(id, &found)?;
            }
        }
        Ok(())
    }

    fn put_attributes_of(&mut self, id: ObjectId, found: &Found) -> Result<(), JournalError> {
        if let Some(record) = self.past.attributes.get(&id) {
            fault::at("attributes")?;
            put(found, record).map_err(|errno| {
                JournalError::io("put back the attributes of", self.state.path(id), errno)
            })?;
        }
        self.note_as_left(id, found)
    }
}

fn put(found: &Found, record: &AttributesRecord) -> Result<(), Errno> {
    let name = own_descriptor(&found.handle);
    let now = look(&found.handle)?.print;
    if (now.uid, now.gid) != (record.uid, record.gid) {
        let uid = (now.uid != record.uid).then(|| Uid::from_raw(record.uid));
        let gid = (now.gid != record.gid).then(|| Gid::from_raw(record.gid));
        rustix::fs::chownat(&found.handle, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    put_xattrs(&name, &record.xattrs)?;
    if found.seen.kind != Kind::Link {
        let now = look(&found.handle)?.print;
        if now.mode != record.mode {
            rustix::fs::chmod(&name, Mode::from_raw_mode(record.mode & 0o7777))?;
        }
    }
    let time = |stamp: crate::Stamp| Timespec {
        tv_sec: stamp.seconds,
        tv_nsec: stamp.nanoseconds.into(),
    };
    let times = Timestamps {
        last_access: time(record.accessed),
        last_modification: time(record.modified),
    };
    rustix::fs::utimensat(CWD, &name, &times, AtFlags::empty())
}

fn put_xattrs(name: &str, wanted: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Errno> {
    let now = xattrs(name)?;
    for (key, value) in wanted {
        if !now.contains(&(key.clone(), value.clone())) {
            rustix::fs::setxattr(name, &key[..], value, XattrFlags::empty())?;
        }
    }
    for (key, _) in &now {
        if !wanted.iter().any(|(wanted, _)| wanted == key) {
            rustix::fs::removexattr(name, &key[..])?;
        }
    }
    Ok(())
}
