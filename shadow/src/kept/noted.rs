//! Changes that are noted before they are made: those which, made twice, are otherwise than made once.
//!
//! A write at an offset, a truncation, a change of mode, owner or times may be made again.

use super::fault;
use super::intent::{Id, Intent, NamedPlace, New, id, look};
use super::log::current;
use super::record::{Known, Record};
use crate::locks::FileId;
use crate::saved::SavedAnswer;
use crate::session::{OpenFile, Session};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, FileType, OFlags, RenameFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::{Reply, Written};

/// What is known when a change has been made.
pub(crate) enum Outcome {
    /// Its answer.
    Answer(Reply<'static>),
    /// That it was, and the answer comes when it is known.
    Made,
}

/// A folder and a name in it.
type Named<'a> = (&'a OwnedFd, &'a [u8]);

/// Changes of the same name, and appends to the same file, follow each other, whichever session makes them.
static ORDER: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

fn place_in_order(what: impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish() as usize % ORDER.len()
}

fn of_name((folder, name): Named<'_>) -> Result<usize, Errno> {
    let folder = id(&rustix::fs::fstat(folder)?);
    Ok(place_in_order((folder, super::intent::bare(name))))
}

fn in_order(mut places: Vec<usize>) -> Vec<MutexGuard<'static, ()>> {
    places.sort_unstable();
    places.dedup();
    let locks = places.into_iter().map(|place| &ORDER[place]);
    locks
        .map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

impl Session {
    /// Something has happened.
    pub(crate) fn note(&self, record: impl FnOnce() -> Option<Record>) {
        if let Some(log) = &self.log
            && let Some(record) = record()
        {
            log.note(&record);
        }
    }

    /// Makes a change that `intent` tells of, none if it need not be told. What follows each other is held in order meanwhile.
    fn noted<T>(
        &self,
        order: impl FnOnce() -> Result<Vec<usize>, Errno>,
        intent: impl FnOnce() -> Result<Option<Intent>, Errno>,
        act: impl FnOnce() -> Result<T, Errno>,
        outcome: impl FnOnce(&T) -> Outcome,
    ) -> Result<T, Errno> {
        let (Some(log), Some(request)) = (&self.log, current()) else {
            return act();
        };
        // What cannot be looked at cannot be changed either: the call's own error.
        let Ok(order) = order() else { return act() };
        let _order = in_order(order);
        let Ok(Some(intent)) = intent() else {
            return act();
        };
        log.note(&Record::Begun(request, intent));
        fault::at("begun");
        let result = act();
        fault::at("done");
        log.note(&match result.as_ref().map(outcome) {
            Err(_) => Record::GaveUp(request),
            Ok(Outcome::Made) => Record::Made(request),
            Ok(Outcome::Answer(reply)) => {
                match SavedAnswer::new(request.lane, request.number, &reply) {
                    Some(answer) => Record::Done(answer),
                    None => Record::Made(request),
                }
            }
        });
        fault::at("noted");
        result
    }

    fn noted_make<T>(
        &self,
        at: Named<'_>,
        new: New,
        act: impl FnOnce() -> Result<T, Errno>,
        outcome: impl FnOnce(&T) -> Outcome,
    ) -> Result<T, Errno> {
        let intent = || match look(at.0, at.1) {
            Err(Errno::NOENT) => Ok(Some(Intent::Make(NamedPlace::new(at.0, at.1)?, new))),
            // It stays what it is.
            _ => Ok(None),
        };
        self.noted(|| Ok(vec![of_name(at)?]), intent, act, outcome)
    }

    fn noted_new(
        &self,
        at: Named<'_>,
        new: New,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.noted_make(at, new, act, |()| Outcome::Answer(Reply::Done))
    }

    /// mkdirat(2).
    pub(crate) fn noted_folder(
        &self,
        at: Named<'_>,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.noted_new(at, New::Folder, act)
    }

    /// mknodat(2).
    pub(crate) fn noted_node(
        &self,
        at: Named<'_>,
        kind: FileType,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.noted_new(at, New::Node(kind.as_raw_mode()), act)
    }

    /// symlinkat(2).
    pub(crate) fn noted_link(
        &self,
        at: Named<'_>,
        target: &[u8],
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.noted_new(at, New::Link(target.to_vec()), act)
    }

    /// linkat(2).
    pub(crate) fn noted_name(
        &self,
        from: Named<'_>,
        to: Named<'_>,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        match look(from.0, from.1) {
            Ok(there) => self.noted_new(to, New::Name(id(&there)), act),
            Err(_) => act(),
        }
    }

    /// linkat(2) of what is open.
    pub(crate) fn noted_name_of(
        &self,
        what: &OwnedFd,
        to: Named<'_>,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let there = rustix::fs::fstat(what)?;
        self.noted_new(to, New::Name(id(&there)), act)
    }

    /// open(2) with `O_CREAT`.
    pub(crate) fn noted_open(
        &self,
        at: Named<'_>,
        flags: OFlags,
        act: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<OwnedFd, Errno> {
        let creating = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::NOFOLLOW;
        let flags = flags.difference(creating).bits();
        self.noted_make(at, New::File(flags), act, |_| Outcome::Made)
    }

    /// unlinkat(2).
    pub(crate) fn noted_remove(
        &self,
        at: Named<'_>,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let intent = || {
            let there = look(at.0, at.1)?;
            let place = NamedPlace::new(at.0, at.1)?;
            Ok(Some(Intent::Remove(place, id(&there))))
        };
        let order = || Ok(vec![of_name(at)?]);
        self.noted(order, intent, act, |()| Outcome::Answer(Reply::Done))
    }

    /// renameat2(2). What is open is known by its new name afterwards.
    pub(crate) fn noted_rename(
        &self,
        from: Named<'_>,
        to: Named<'_>,
        flags: RenameFlags,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let order = || Ok(vec![of_name(from)?, of_name(to)?]);
        // What is at both places, when nobody else of the job changes it any more.
        let looked = Cell::new(None);
        let intent = || {
            let moved = look(from.0, from.1)?;
            let replaced = match look(to.0, to.1) {
                Ok(stat) => Some(stat),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(errno),
            };
            looked.set(Some((moved, replaced)));
            Ok(Some(Intent::Rename {
                from: NamedPlace::new(from.0, from.1)?,
                moved: id(&moved),
                to: NamedPlace::new(to.0, to.1)?,
                replaced: replaced.as_ref().map(id),
                exchange: flags.contains(RenameFlags::EXCHANGE),
            }))
        };
        let act = || {
            act()?;
            fault::at("renamed");
            let Some((moved, replaced)) = looked.get() else {
                self.note_names(None);
                return Ok(());
            };
            let exchanged = replaced.filter(|_| flags.contains(RenameFlags::EXCHANGE));
            for stat in [moved].into_iter().chain(exchanged) {
                let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                self.note_names(Some(id(&stat)).filter(|_| !is_folder));
            }
            Ok(())
        };
        self.noted(order, intent, act, |()| Outcome::Answer(Reply::Done))
    }

    /// What is open has other names, if it is this, or whatever it is.
    fn note_names(&self, moved: Option<Id>) {
        let Some(log) = &self.log else { return };
        for (handle, file) in self.all_open() {
            let is_it = moved.is_none_or(|moved| (file.id.device, file.id.inode) == moved);
            if is_it && let Ok(name) = crate::serve::name_now(&file) {
                log.note(&Record::Named(handle, name));
            }
        }
    }

    /// write(2) at the end; how much of it was made before, and where that begins, is told to `act`.
    pub(crate) fn noted_append(
        &self,
        handle: u64,
        file: &OpenFile,
        data: &[u8],
        act: impl FnOnce(Option<(u64, u64)>) -> Result<Written, Errno>,
    ) -> Result<Written, Errno> {
        let before = || Ok(u64::try_from(rustix::fs::fstat(&file.fd)?.st_size).unwrap_or(0));
        let already = self.appended_before(handle, file, data);
        let intent = || {
            let before = match already {
                Some((at, _)) => at,
                None => before()?,
            };
            Ok(Some(Intent::Append { handle, before }))
        };
        self.noted(
            || Ok(vec![of_file(file.id)]),
            intent,
            || act(already),
            |written| Outcome::Answer(Reply::Written(*written)),
        )
    }

    /// Where an append that may have been made before began, and how many of its bytes lie there.
    fn appended_before(&self, handle: u64, file: &OpenFile, data: &[u8]) -> Option<(u64, u64)> {
        let (log, request) = (self.log.as_ref()?, current()?);
        let mut doubtful = log.doubtful.lock().unwrap_or_else(PoisonError::into_inner);
        let one = doubtful.remove(&request.lane)?;
        drop(doubtful);
        if one.number != request.number || one.handle != handle {
            return None;
        }
        let most = one.now.saturating_sub(one.before).min(data.len() as u64);
        let readable = crate::names::reopen(&file.fd, OFlags::RDONLY).ok()?;
        let mut there = vec![];
        let len = usize::try_from(most).ok()?;
        crate::serve::contents::read_into(&readable, one.before, len, &mut there).ok()?;
        let is_ours = there.len() == len && data.starts_with(&there);
        (is_ours && len > 0).then_some((one.before, most))
    }

    /// setxattr(2) with flags, removexattr(2).
    pub(crate) fn noted_xattr(
        &self,
        fd: &OwnedFd,
        name: &[u8],
        there: bool,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let intent = || {
            let text = crate::names::own_descriptor(std::os::fd::AsRawFd::as_raw_fd(fd));
            let found = rustix::fs::getxattr(&text, name, &mut [0u8; 0][..]);
            if found.is_ok() != there {
                return Ok(None);
            }
            Ok(Some(Intent::Xattr {
                id: id(&rustix::fs::fstat(fd)?),
                file: rustix::fs::readlink(text, vec![])?.into_bytes(),
                name: name.to_vec(),
                there,
            }))
        };
        let order = || {
            let file = id(&rustix::fs::fstat(fd)?);
            Ok(vec![place_in_order((file, name))])
        };
        self.noted(order, intent, act, |()| Outcome::Answer(Reply::Done))
    }

    /// fallocate(2); only what moves bytes is otherwise when it is made twice.
    pub(crate) fn noted_allocate(
        &self,
        handle: u64,
        file: &OpenFile,
        (mode, len): (FallocateFlags, u64),
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let intent = || {
            let before = u64::try_from(rustix::fs::fstat(&file.fd)?.st_size).unwrap_or(0);
            let after = if mode.contains(FallocateFlags::COLLAPSE_RANGE) {
                before.checked_sub(len)
            } else if mode.contains(FallocateFlags::INSERT_RANGE) {
                before.checked_add(len)
            } else {
                None
            };
            Ok(after.map(|after| Intent::Shift {
                handle,
                before,
                after,
            }))
        };
        let order = || Ok(vec![of_file(file.id)]);
        self.noted(order, intent, act, |()| Outcome::Answer(Reply::Done))
    }

    /// Something is open, and the job is about to be told.
    pub(crate) fn note_opened(&self, lane: u64, number: u64, reply: &Reply<'static>) {
        let (Some(log), Reply::Opened(opened)) = (&self.log, reply) else {
            return;
        };
        fault::at("opened");
        if let Ok(file) = self.get(opened.handle)
            && let Ok(saved) = crate::saved::note(opened.handle, &file, &opened.attributes)
        {
            let answer = (lane != 0).then(|| SavedAnswer::new(lane, number, reply));
            log.note(&Record::Opened(saved, answer.flatten()));
        }
        fault::at("opened-noted");
    }

    /// Locks of the job are otherwise than they were, perhaps.
    pub(crate) fn note_locks(&self) {
        if let Some(log) = &self.log {
            fault::at("locked");
            log.note_locks(|| self.locks.saved(&self.all_open()));
            fault::at("locks-noted");
        }
    }

    /// The same when something is closed: who never had locks has lost none.
    pub(crate) fn note_locks_of_closed(&self) {
        if self.log.as_ref().is_some_and(super::Log::has_locks) {
            self.note_locks();
        }
    }

    /// All that is to be known to go on. Nothing may be changed meanwhile.
    pub(crate) fn known(&self) -> Option<Known> {
        let open = self.all_open();
        let mut files = Vec::with_capacity(open.len());
        for (handle, file) in &open {
            let attributes = self.look_at(file).ok()?;
            files.push(crate::saved::note(*handle, file, &attributes).ok()?);
        }
        files.extend(self.all_gone().into_iter().map(|(file, _)| file));
        Some(Known {
            next_handle: self.next_handle(),
            copy: self
                .copy_of()
                .map(|copy| (copy.job.0, copy.incarnation, copy.starter)),
            has_journal: self.job().is_some(),
            journal_stays: self.job().is_some() && !self.changes.is_done(),
            lease_ms: self.lease_ms(),
            began_ms: self.began_ms,
            is_here: self.is_here(),
            locks: self.locks.saved(&open)?,
            files,
            answers: self.lanes.answers(),
            begun: vec![],
        })
    }

    /// Begins the log anew if it has become long.
    pub(crate) fn shorten_log(&self) {
        if let Some(log) = self.log.as_ref().filter(|log| log.is_long()) {
            let _still = self.stand_still();
            // Somebody else may have done it meanwhile.
            if log.is_long() {
                log.begin_anew(|| self.known());
            }
        }
    }
}

fn of_file(file: FileId) -> usize {
    place_in_order((file.device, file.inode))
}
