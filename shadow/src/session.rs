//! Sessions: what a job has open, under limits.

use crate::changes::Changes;
use crate::compressed::{AllCompressed, Compressed};
use crate::copies::{CopyOf, Enders};
use crate::foresight::Foresight;
use crate::images::Images;
use crate::kept::{self, Known, Log, Probe, Record, fault_point};
use crate::lanes::{Lane, Lanes};
use crate::living::Alive;
use crate::locks::{FileId, Locks, SavedLocks};
use crate::names::Allowed;
use crate::saved::SavedFile;
use crate::serve::{Domains, LocalDevices, Told};
use crate::undo::Journals;
use journal::Epoch;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};
use wire::{Attributes, Reply, Request, Token};

/// How long a session is kept of which nobody has said.
const LEASE: Duration = Duration::from_secs(40 * 60);

/// What a job may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files open at once.
    pub open_files: usize,
    /// Streams at once, each of which may keep one message's worth of memory.
    pub streams: usize,
    /// Sessions at once.
    pub sessions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            open_files: 4096,
            streams: 512,
            sessions: 256,
        }
    }
}

/// Something that a job has open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) fd: OwnedFd,
    /// It lies where things may be changed.
    pub(crate) writable: bool,
    /// Held where the descriptor's own offset is used: listings and appends.
    pub(crate) offset: Mutex<()>,
    pub(crate) id: FileId,
    /// It has had a lock of flock(2), perhaps.
    pub(crate) flocked: AtomicBool,
    /// Which, if it has one now ([`crate::locks`]).
    pub(crate) whole: AtomicU8,
    /// What its end is called, if that is told; 0: nothing.
    pub(crate) watch: AtomicI32,
    /// Nobody of the job has it open, though it has not been closed yet.
    pub(crate) ended: AtomicBool,
    /// It was opened in advance, and nothing has been asked about it yet.
    pub(crate) offered: AtomicBool,
    /// The name that it was given when it was open; what was made without one is not told by the kernel of it.
    pub(crate) linked: Mutex<Option<Vec<u8>>>,
    /// It is stored compressed, and `fd` is what is in it.
    pub(crate) compressed: Option<Arc<Compressed>>,
}

impl OpenFile {
    pub(crate) fn new(fd: OwnedFd, writable: bool, id: FileId) -> Self {
        OpenFile {
            fd,
            writable,
            offset: Mutex::new(()),
            id,
            flocked: AtomicBool::new(false),
            whole: AtomicU8::new(0),
            watch: AtomicI32::new(0),
            ended: AtomicBool::new(false),
            offered: AtomicBool::new(false),
            linked: Mutex::new(None),
            compressed: None,
        }
    }
}

/// One job's connection with its files, made of any number of streams.
#[derive(Debug)]
pub struct Session {
    id: u64,
    pub(crate) allowed: Arc<Allowed>,
    pub(crate) domains: Arc<Domains>,
    pub(crate) images: Option<Arc<dyn Images>>,
    /// What its programs ask about as they begin.
    pub(crate) foresight: Arc<Foresight>,
    limits: Limits,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<OpenFile>>>,
    pub(crate) locks: Locks,
    pub(crate) changes: Changes,
    /// Of files that nobody else knows.
    pub(crate) unjournalled: Changes,
    pub(crate) compressed: AllCompressed,
    /// Where its journal will be, if it has none yet.
    pub(crate) journals: Option<Journals>,
    /// Held while that begins.
    pub(crate) beginning: Mutex<()>,
    /// Which copy of which job it serves.
    pub(crate) copy: OnceLock<CopyOf>,
    /// How its streams are ended.
    pub(crate) enders: Enders,
    /// Marks of checkpoints of which nobody has said that there is an image.
    pub(crate) unsettled: Mutex<HashSet<Epoch>>,
    pub(crate) lanes: Lanes,
    /// Folders whose names were told.
    pub(crate) told: Told,
    pub(crate) local: LocalDevices,
    /// Held for reading while a request is answered, for writing while nothing may change.
    gate: RwLock<()>,
    pub(crate) streams: Mutex<usize>,
    /// Since when it has none; none: it has some, or has had none yet.
    pub(crate) alone: Mutex<Option<Instant>>,
    /// It was taken over from a shadow that was killed: processes of the job may be there without a stream.
    adopted: AtomicBool,
    /// Nobody of the job is there, whatever streams of a line that broke say of it later.
    over: AtomicBool,
    lease_ms: AtomicU64,
    is_here: AtomicBool,
    pub(crate) began_ms: u64,
    /// To be had again before anything else is done.
    awaited_locks: Mutex<Option<SavedLocks>>,
    /// Files that a shadow before us had open and that cannot be opened any more, and why: the job may still
    /// close them.
    gone: Mutex<HashMap<u64, (SavedFile, String)>>,
    /// Why it is served no longer.
    lost: OnceLock<String>,
    /// What survives this process; dropped behind the journal.
    pub(crate) log: Option<Log>,
    /// Dropped last of all.
    pub(crate) alive: Option<Alive>,
}

impl Session {
    /// A session that belongs to no [`Sessions`].
    #[must_use]
    pub fn new(id: u64, allowed: Arc<Allowed>, limits: Limits) -> Self {
        Session {
            id,
            allowed,
            domains: Arc::default(),
            images: None,
            foresight: Arc::default(),
            limits,
            next: AtomicU64::new(1),
            open: Mutex::default(),
            locks: Locks::default(),
            changes: Changes::default(),
            unjournalled: Changes::default(),
            compressed: AllCompressed::default(),
            journals: None,
            beginning: Mutex::default(),
            copy: OnceLock::new(),
            enders: Enders::default(),
            unsettled: Mutex::default(),
            lanes: Lanes::default(),
            told: Told::default(),
            local: LocalDevices::default(),
            gate: RwLock::default(),
            streams: Mutex::default(),
            alone: Mutex::default(),
            adopted: AtomicBool::new(false),
            over: AtomicBool::new(false),
            lease_ms: AtomicU64::new(0),
            is_here: AtomicBool::new(false),
            began_ms: kept::now_ms(),
            awaited_locks: Mutex::default(),
            gone: Mutex::default(),
            lost: OnceLock::new(),
            log: None,
            alive: None,
        }
    }

    /// What a shadow before us knew of it.
    pub(crate) fn go_on_from(&mut self, known: &Known) {
        self.adopted = AtomicBool::new(true);
        self.lease_ms = AtomicU64::new(known.lease_ms);
        self.is_here = AtomicBool::new(known.is_here);
        self.began_ms = known.began_ms;
        self.alone = Mutex::new(Some(Instant::now()));
    }

    /// Processes of the job may be there without a stream.
    pub(crate) fn go_on_alone(&self) {
        self.adopted.store(true, Ordering::Relaxed);
    }

    /// Who had a stream for the whole job has ended it: nobody of the job is there.
    pub(crate) fn is_over_with_its_streams(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether somebody may come back when it has no stream.
    pub(crate) fn goes_on_alone(&self) -> bool {
        self.adopted.load(Ordering::Relaxed) && !self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn lease_ms(&self) -> u64 {
        self.lease_ms.load(Ordering::Relaxed)
    }

    /// Whether its processes can be seen.
    pub(crate) fn is_here(&self) -> bool {
        self.is_here.load(Ordering::Relaxed)
    }

    pub(crate) fn set_here(&self, is_here: bool) {
        self.is_here.store(is_here, Ordering::Relaxed);
    }

    pub(crate) fn set_lease(&self, lease: &wire::Lease) -> Result<Reply<'static>, Errno> {
        self.lease_ms.store(lease.ms, Ordering::Relaxed);
        self.note(|| Some(Record::Lease(lease.ms, self.is_here())));
        Ok(Reply::Done)
    }

    /// These locks are to be had before the session is served.
    pub(crate) fn await_locks(&self, locks: SavedLocks) {
        let mut awaited = self
            .awaited_locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *awaited = Some(locks);
        drop(awaited);
        // What can be had is had at once.
        self.has_its_locks();
    }

    /// Whether all locks of a session that goes on could be had again; the log says if not.
    pub(crate) fn has_its_locks(&self) -> bool {
        let mut awaited = self
            .awaited_locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(locks) = &*awaited else { return true };
        match self.locks.take_again_at_once(locks, &self.all_open()) {
            Ok(()) => {
                *awaited = None;
                true
            }
            Err(why) => {
                tracing::warn!(session = self.id, why, "a session waits");
                false
            }
        }
    }

    /// Whether it has lost its last stream, and nobody has come back yet.
    pub(crate) fn is_alone(&self) -> bool {
        let alone = self.alone.lock();
        alone.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether nobody will come back to it, who has been away for so long.
    pub(crate) fn is_forsaken(&self, token: &Token, probe: Option<&Probe>) -> bool {
        let alone = *self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(since) = alone else { return false };
        if let Some(probe) = probe.filter(|_| self.is_here()) {
            let presence = probe(token, self.id, self.began_ms);
            if presence.is_all || !presence.pids.is_empty() {
                return presence.is_over();
            }
        }
        let lease = match self.lease_ms() {
            0 => LEASE,
            ms => Duration::from_millis(ms),
        };
        since.elapsed() >= lease
    }

    /// As [`Session::answer`]; a request that has been answered on this lane already is not done again.
    pub(crate) fn answer_once(
        &self,
        lane: Option<&Lane>,
        number: u64,
        request: (&Request<'_>, &[u8]),
        out: &mut Vec<u8>,
    ) -> Reply<'static> {
        let (request, data) = request;
        let _moves = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if let Err(errno) = self.begin_journal() {
            out.clear();
            return crate::serve::failed(errno);
        }
        let serving = kept::serving(lane.map_or(0, |lane| lane.number), number);
        let Some(lane) = lane.filter(|_| request.is_once()) else {
            let reply = self.answer(request, data, out);
            self.note_opened(0, number, &reply);
            return reply;
        };
        let mut last = lane.hold();
        if let Some((_, reply)) = last.filter(|(done, _)| *done == number) {
            out.clear();
            self.data_again(request, &reply, out);
            return reply;
        }
        let reply = self.answer(request, data, out);
        drop(serving);
        self.note_opened(lane.number, number, &reply);
        *last = Some((number, reply));
        reply
    }

    /// Waits until no request is being answered, and keeps it so.
    pub(crate) fn stand_still(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn next_handle(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Of a session that goes on.
    pub(crate) fn begin_handles_at(&self, next: u64) {
        self.next.fetch_max(next, Ordering::Relaxed);
    }

    /// What is open, in order.
    pub(crate) fn all_open(&self) -> Vec<(u64, Arc<OpenFile>)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = open
            .iter()
            .map(|(handle, file)| (*handle, file.clone()))
            .collect();
        drop(open);
        all.sort_by_key(|(handle, _)| *handle);
        all
    }

    /// Of a session that goes on.
    pub(crate) fn insert_as(&self, handle: u64, file: OpenFile) {
        self.begin_handles_at(handle.saturating_add(1));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(handle, Arc::new(file));
    }

    /// Of a session that goes on: a file that is not to be had. It ends the session when it is used.
    pub(crate) fn insert_gone(&self, file: SavedFile, why: String) {
        self.begin_handles_at(file.handle.saturating_add(1));
        self.gone().insert(file.handle, (file, why));
    }

    fn gone(&self) -> MutexGuard<'_, HashMap<u64, (SavedFile, String)>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files that the job still has open and that cannot be opened any more, and why.
    pub(crate) fn all_gone(&self) -> Vec<(SavedFile, String)> {
        self.gone().values().cloned().collect()
    }

    /// Why it is not to be served any longer.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// It is not served any longer.
    pub(crate) fn lose(&self, why: String) {
        let _ = self.lost.set(why);
    }

    /// Its number, never 0.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn insert(&self, file: OpenFile) -> Result<u64, Errno> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= self.limits.open_files {
            return Err(Errno::NFILE);
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        open.insert(handle, Arc::new(file));
        Ok(handle)
    }

    pub(crate) fn get(&self, handle: u64) -> Result<Arc<OpenFile>, Errno> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = open.get(&handle).cloned() else {
            drop(open);
            if let Some((_, why)) = self.gone().get(&handle) {
                let why = self.lost.get_or_init(|| why.clone());
                tracing::error!(id = self.id, why, "a session cannot go on");
            }
            return Err(Errno::BADF);
        };
        file.offered.store(false, Ordering::Relaxed);
        Ok(file)
    }

    /// It is open, but nobody of the job has it yet.
    pub(crate) fn note_offered(&self, handle: u64, attributes: &Attributes) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open.get(&handle).cloned();
        drop(open);
        if let Some(file) = file {
            file.offered.store(true, Ordering::Relaxed);
            let saved = || crate::saved::note(handle, &file, attributes).ok();
            self.note(|| Some(Record::Opened(saved()?, None)));
        }
    }

    pub(crate) fn remove(&self, handle: u64) -> Result<(), Errno> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open.remove(&handle).ok_or(Errno::BADF)?;
        drop(open);
        // Who waits has asked for it before; the log says if it cannot be.
        let _ = self.store(&file);
        self.locks.end_description(handle, &file);
        Ok(())
    }

    /// As the job asks for it.
    pub(crate) fn close(&self, handle: u64) -> Result<(), Errno> {
        fault_point("closing");
        if self.gone().remove(&handle).is_none() {
            self.remove(handle)?;
        }
        // A lock that is known is one on a file that is.
        self.note_locks_of_closed();
        self.note(|| Some(Record::Closed(handle)));
        fault_point("closed");
        Ok(())
    }

    /// Nobody has a description open any more; whoever finds that out in the job closes it later.
    pub(crate) fn description_ended(&self, watch: i32) {
        let Some(handle) = self.locks.ended(watch) else {
            return;
        };
        if let Ok(file) = self.get(handle) {
            // Before its locks go: it gets no new ones.
            file.ended.store(true, Ordering::SeqCst);
            self.locks.end_description(handle, &file);
            self.note_locks_of_closed();
        }
    }
}
