//! The comparison before an undo: is everything as the job left it?

use crate::epochs::no_epoch;
use crate::format::record::{Holder, ObjectId};
use crate::inode::{Fingerprint, Kind, Seen, look_at};
use crate::past::{NamePast, Past};
use crate::reserve::open_at;
use crate::state::{State, path_of};
use crate::undo::locate::Locator;
use crate::{Epoch, Journal, JournalError};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::PoisonError;

/// What somebody else has done.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Foreign {
    /// Contents or attributes are not what the job left.
    Changed,
    /// What the job left there is gone.
    Removed,
    /// Something is there where the job left nothing.
    Made,
    /// Something else is there.
    Replaced,
}

/// A file that somebody else has changed since the job did.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Difference {
    /// Its name, as far as is known.
    pub path: PathBuf,
    /// What was done to it.
    pub how: Foreign,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.how {
            Foreign::Changed => "changed",
            Foreign::Removed => "removed",
            Foreign::Made => "made",
            Foreign::Replaced => "replaced",
        };
        write!(f, "{} ({how})", self.path.display())
    }
}

impl Journal {
    /// What an undo to this epoch would destroy of somebody else's. Nothing is changed.
    ///
    /// A folder that the job has left without permissions is not looked into.
    ///
    /// # Errors
    /// [`JournalError::NoEpoch`], [`JournalError::Undoing`], [`JournalError::Damaged`], [`JournalError::Io`]
    pub fn check(&self, epoch: Epoch) -> Result<Vec<Difference>, JournalError> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock_state();
        state.usable()?;
        if !state.manifest.has_epoch(epoch.0) {
            return Err(no_epoch(&state, epoch));
        }
        let past = Past::read(&state, epoch.0)?;
        differences(&mut state, &past)
    }
}

/// All differences, in order.
pub(crate) fn differences(state: &mut State, past: &Past) -> Result<Vec<Difference>, JournalError> {
    let mut check = Check {
        past,
        locator: Locator::new(false),
        found: BTreeSet::new(),
    };
    for (key, name) in &past.names {
        check.name(state, key, name)?;
    }
    for id in &past.touched {
        check.object(state, *id)?;
    }
    Ok(check.found.into_iter().collect())
}

struct Check<'a> {
    past: &'a Past,
    locator: Locator,
    found: BTreeSet<Difference>,
}

impl Check<'_> {
    fn add(&mut self, (folder, name): (ObjectId, &[u8]), how: Foreign) {
        let path = self.path(folder).join(OsStr::from_bytes(name));
        self.found.insert(Difference { path, how });
    }

    fn path(&self, id: ObjectId) -> PathBuf {
        path_of(id, |id| self.past.objects.get(&id)?.places.last().cloned())
    }

    fn name(
        &mut self,
        state: &State,
        (folder, name): &(ObjectId, Vec<u8>),
        past: &NamePast,
    ) -> Result<(), JournalError> {
        let Some(found) = unless_forbidden(self.locator.find(state, self.past, *folder))? else {
            // Its own name tells.
            return Ok(());
        };
        let now = match look_at(&found.handle, name) {
            Ok(now) => now,
            Err(Errno::ACCESS) => return Ok(()),
            Err(errno) => return Err(JournalError::io("look at", self.path(*folder), errno)),
        };
        if self.past.fits(past.left, now.as_ref()) {
            return Ok(());
        }
        let how = match (past.left, now) {
            (_, None) => Foreign::Removed,
            (Holder::Nothing, Some(_)) => Foreign::Made,
            (_, Some(_)) => Foreign::Replaced,
        };
        self.add((*folder, name), how);
        Ok(())
    }

    fn object(&mut self, state: &mut State, id: ObjectId) -> Result<(), JournalError> {
        let left = state.left(id)?;
        let Some(found) = unless_forbidden(self.locator.find(state, self.past, id))? else {
            return self.not_found(state, id);
        };
        let seen = &found.seen;
        if found.reserve.is_some() && !self.past.is(id, seen) {
            // A copy, which nobody but the journal has written.
            return Ok(());
        }
        let same = left
            .print
            .is_none_or(|print| looks_same(seen.kind, &print, &seen.print));
        if left.conflict >= self.past.to || !same {
            let (path, how) = (self.path(id), Foreign::Changed);
            self.found.insert(Difference { path, how });
        }
        let new = self.past.objects.get(&id).is_some_and(|known| known.new);
        if new && seen.kind == Kind::Folder {
            self.contents(id, &found.handle)?;
        }
        Ok(())
    }

    /// What has lost no name through the job must be where it was.
    fn not_found(&mut self, state: &State, id: ObjectId) -> Result<(), JournalError> {
        let Some(known) = self.past.objects.get(&id) else {
            return Ok(());
        };
        let [(folder, name)] = &known.places[..] else {
            return Ok(());
        };
        let (folder, name) = (*folder, name.clone());
        if self.past.names.contains_key(&(folder, name.clone())) {
            return Ok(());
        }
        // In a folder that cannot be looked into nothing is known.
        let there = match self.locator.find(state, self.past, folder) {
            Ok(Some(there)) => look_at(&there.handle, &name),
            _ => return Ok(()),
        };
        match there {
            Ok(there) => {
                let how = if there.is_some() {
                    Foreign::Replaced
                } else {
                    Foreign::Removed
                };
                self.add((folder, &name), how);
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// A folder that an undo would remove must hold nothing that the job has not put there.
    fn contents(&mut self, folder: ObjectId, handle: &OwnedFd) -> Result<(), JournalError> {
        let names = names_in(handle);
        let names = names.map_err(|errno| JournalError::io("read", self.path(folder), errno))?;
        for (name, _, _) in names {
            if !self.past.names.contains_key(&(folder, name.clone())) {
                self.add((folder, &name), Foreign::Made);
            }
        }
        Ok(())
    }
}

/// A name in a folder, and what has it, open as `O_PATH`.
type Named = (Vec<u8>, Seen, OwnedFd);

/// All names in a folder; none if it may not be read.
pub(crate) fn names_in(folder: &OwnedFd) -> Result<Vec<Named>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = match rustix::fs::openat(folder, c".", flags, Mode::empty()) {
        Ok(open) => open,
        Err(Errno::ACCESS) => return Ok(vec![]),
        Err(errno) => return Err(errno),
    };
    let mut names = vec![];
    for entry in rustix::fs::Dir::read_from(&open)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"."
            && name != b".."
            && let Some((handle, seen)) = open_at(&open, name)?
        {
            names.push((name.to_vec(), seen, handle));
        }
    }
    Ok(names)
}

/// Names in a folder change its times; they are compared one by one.
fn looks_same(kind: Kind, left: &Fingerprint, now: &Fingerprint) -> bool {
    if kind == Kind::Folder {
        return (left.mode, left.uid, left.gid) == (now.mode, now.uid, now.gid);
    }
    left == now
}

/// What lies behind a folder without permissions is not known.
pub(crate) fn unless_forbidden<T>(
    found: Result<Option<T>, JournalError>,
) -> Result<Option<T>, JournalError> {
    match found {
        Err(error) if error.errno() == Errno::ACCESS => Ok(None),
        found => found,
    }
}
