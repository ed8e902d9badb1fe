//! Keeping what is about to lose a name: by a second name in a side folder, else by a copy.

use super::contents::next;
use crate::format::record::{Kept, ObjectId};
use crate::inode::{Kind, Seen, look_at};
use crate::reserve::{Reserve, entry_name};
use crate::state::{Noted, State};
use crate::{JournalError, fault};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

impl State {
    /// Sees to it that an object that was there at the mark is not lost with this name.
    pub(super) fn keep(
        &mut self,
        id: ObjectId,
        (folder, name): (BorrowedFd<'_>, &[u8]),
        (handle, seen): (&OwnedFd, &Seen),
    ) -> Result<(), JournalError> {
        if seen.kind == Kind::Folder {
            // It is empty: made anew it is the same.
            return self.save_attributes(id, handle, seen);
        }
        if self.is_new(id) || self.object(id).is_some_and(|object| object.kept.is_some()) {
            return Ok(());
        }
        let number = self.reserve_for(folder, seen)?;
        let used = self.used.saturating_add(seen.used);
        self.check_room(used.saturating_add(self.log.len_to_be()))?;
        fault::at("keep")?;
        let reserve = &self.reserves[number as usize];
        let linked = if self.settings.no_links {
            Err(Errno::PERM)
        } else {
            reserve.link(folder, name, id)
        };
        // Somebody else has removed it meanwhile, or put something else there.
        let moved_on = |state: &State| JournalError::io("look at", state.path(id), Errno::NOENT);
        let copied = match linked {
            Ok(()) => {
                if !is_there(reserve.fd.as_fd(), entry_name(id).as_bytes(), seen) {
                    // What stays is removed when the journal is opened.
                    let _ = reserve.remove(id);
                    return Err(moved_on(self));
                }
                false
            }
            // The name can be seen for a moment longer than the file can be linked: vfs_unlink() in fs/namei.c.
            Err(Errno::NOENT) if !reserve.is_gone() => return Err(moved_on(self)),
            // Not this file (protected_hardlinks, proc(5)), not one more, or none on this file system.
            Err(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS) => {
                copy(reserve, id, (folder, name), (handle, seen))
                    .map_err(|errno| JournalError::io("keep a copy of", self.path(id), errno))?;
                self.save_attributes(id, handle, seen)?;
                true
            }
            Err(errno) => return Err(JournalError::io("keep", self.path(id), errno)),
        };
        self.used = used;
        self.unsynced_reserves.insert(number);
        if let Some(object) = self.objects.get_mut(&id) {
            object.kept = Some(Kept {
                reserve: number,
                copied,
            });
        }
        self.noted.push(Noted::Kept(id));
        self.saving = true;
        self.refer_anew(id)
    }
}

fn is_there(folder: BorrowedFd<'_>, name: &[u8], seen: &Seen) -> bool {
    let there = look_at(folder, name);
    matches!(there, Ok(Some(there)) if there.identity == seen.identity)
}

fn copy(
    reserve: &Reserve,
    id: ObjectId,
    (folder, name): (BorrowedFd<'_>, &[u8]),
    (handle, seen): (&OwnedFd, &Seen),
) -> Result<(), Errno> {
    let own = entry_name(id);
    match rustix::fs::unlinkat(&reserve.fd, &own, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    match seen.kind {
        Kind::File => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let source = rustix::fs::openat(folder, name, flags, Mode::empty())?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR;
            let target = rustix::fs::openat(&reserve.fd, &own, flags, mode)?;
            copy_bytes(&source, &target, seen.print.size)?;
            rustix::fs::fsync(&target)
        }
        Kind::Link => {
            let text = rustix::fs::readlinkat(handle, c"", vec![])?;
            rustix::fs::symlinkat(&text, &reserve.fd, &own)
        }
        Kind::Special => {
            let kind = FileType::from_raw_mode(seen.print.mode);
            if !matches!(kind, FileType::Fifo | FileType::Socket) {
                return Err(Errno::PERM);
            }
            rustix::fs::mknodat(&reserve.fd, &own, kind, Mode::RUSR | Mode::WUSR, 0)
        }
        Kind::Folder => Err(Errno::ISDIR),
    }
}

/// Copies what is no hole.
fn copy_bytes(source: &OwnedFd, target: impl AsFd, size: u64) -> Result<(), Errno> {
    rustix::fs::ftruncate(&target, size)?;
    let mut buffer = vec![0; 256 << 10];
    let mut at = next(source, SeekFrom::Data(0), size)?;
    while at < size {
        let hole = next(source, SeekFrom::Hole(at), size)?;
        while at < hole {
            let len = buffer.len().min((hole - at) as usize);
            let read = rustix::io::pread(source, &mut buffer[..len], at)?;
            if read == 0 {
                return Ok(());
            }
            let mut done = 0;
            while done < read {
                done += rustix::io::pwrite(&target, &buffer[done..read], at + done as u64)?;
            }
            at += read as u64;
        }
        at = next(source, SeekFrom::Data(hole), size)?;
    }
    Ok(())
}
