//! Sessions: what a job has open, under limits.

use crate::changes::Changes;
use crate::lanes::{Lane, Lanes};
use crate::locks::{FileId, Locks};
use crate::names::{AllowError, Allowed};
use crate::undo::{JobId, Journals};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use wire::{Reply, Request, Token};

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
        }
    }
}

/// One job's connection with its files, made of any number of streams.
#[derive(Debug)]
pub struct Session {
    id: u64,
    pub(crate) allowed: Arc<Allowed>,
    limits: Limits,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<OpenFile>>>,
    pub(crate) locks: Locks,
    pub(crate) changes: Changes,
    /// Where its journal will be, if it has none yet.
    pub(crate) journals: Option<Journals>,
    /// Held while that begins.
    pub(crate) beginning: Mutex<()>,
    pub(crate) job: OnceLock<JobId>,
    pub(crate) lanes: Lanes,
    /// Held for reading while a request is answered, for writing while nothing may change.
    gate: RwLock<()>,
    streams: Mutex<usize>,
}

impl Session {
    /// A session that belongs to no [`Sessions`].
    #[must_use]
    pub fn new(id: u64, allowed: Arc<Allowed>, limits: Limits) -> Self {
        Session {
            id,
            allowed,
            limits,
            next: AtomicU64::new(1),
            open: Mutex::default(),
            locks: Locks::default(),
            changes: Changes::default(),
            journals: None,
            beginning: Mutex::default(),
            job: OnceLock::new(),
            lanes: Lanes::default(),
            gate: RwLock::default(),
            streams: Mutex::default(),
        }
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
        let Some(lane) = lane.filter(|_| request.is_once()) else {
            return self.answer(request, data, out);
        };
        let mut last = lane.hold();
        if let Some((_, reply)) = last.filter(|(done, _)| *done == number) {
            // First bytes that come with an open can be asked for.
            out.clear();
            return reply;
        }
        let reply = self.answer(request, data, out);
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
        open.get(&handle).cloned().ok_or(Errno::BADF)
    }

    pub(crate) fn remove(&self, handle: u64) -> Result<(), Errno> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open.remove(&handle).ok_or(Errno::BADF)?;
        drop(open);
        self.locks.end_description(handle, &file);
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
        }
    }
}

/// Why a stream is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotServed {
    pub(crate) reason: &'static str,
    /// A little later it may be.
    pub(crate) passing: bool,
}

impl NotServed {
    fn for_good(reason: &'static str) -> Self {
        NotServed {
            reason,
            passing: false,
        }
    }

    fn now(reason: &'static str) -> Self {
        NotServed {
            reason,
            passing: true,
        }
    }
}

/// A stream's part in its session; the session ends with the last.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) session: Arc<Session>,
    /// Which of the session's streams it is, if that matters.
    pub(crate) lane: Option<Arc<Lane>>,
    sessions: Arc<Sessions>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        let all = &self.sessions.all;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = &self.session.streams;
        let mut streams = streams.lock().unwrap_or_else(PoisonError::into_inner);
        *streams -= 1;
        if *streams == 0 {
            all.remove(&self.session.id);
        }
    }
}

/// All sessions of one shadow that serve one job.
#[derive(Debug)]
pub struct Sessions {
    allowed: Arc<Allowed>,
    token: Token,
    limits: Limits,
    journals: Option<Journals>,
    next: AtomicU64,
    all: Mutex<HashMap<u64, Arc<Session>>>,
}

impl Sessions {
    /// For whoever has the token.
    #[must_use]
    pub fn new(allowed: Allowed, token: Token, limits: Limits) -> Self {
        Sessions {
            allowed: Arc::new(allowed),
            token,
            limits,
            journals: None,
            next: AtomicU64::new(1),
            all: Mutex::default(),
        }
    }

    /// As [`Sessions::new`]; each session's changes of files are journalled.
    ///
    /// # Errors
    /// [`AllowError`], if the folder of the journals is not there.
    pub fn journalled(
        mut allowed: Allowed,
        token: Token,
        limits: Limits,
        journals: Journals,
    ) -> Result<Self, AllowError> {
        allowed.hide(journals.dir())?;
        let journals = Some(journals.with_roots(allowed.writable_roots()));
        Ok(Sessions {
            journals,
            ..Self::new(allowed, token, limits)
        })
    }

    /// Joins a session, or begins one (0); or why not.
    pub(crate) fn join(
        self: &Arc<Self>,
        token: &Token,
        id: u64,
        lane: u64,
    ) -> Result<Membership, NotServed> {
        if !same(token, &self.token) {
            return Err(NotServed::for_good("the token is not this job's"));
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let session = if id != 0 {
            all.get(&id)
                .cloned()
                .ok_or(NotServed::for_good("there is no such session"))?
        } else {
            if all.len() >= self.limits.sessions {
                return Err(NotServed::now("too many sessions"));
            }
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let mut session = Session::new(id, self.allowed.clone(), self.limits);
            session.journals.clone_from(&self.journals);
            all.entry(id).or_insert(Arc::new(session)).clone()
        };
        let mut streams = session
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *streams >= self.limits.streams {
            return Err(NotServed::now("too many streams"));
        }
        *streams += 1;
        drop(streams);
        Ok(Membership {
            lane: session.lanes.get(lane),
            session,
            sessions: self.clone(),
        })
    }
}

/// Compares without telling by its time where they differ.
fn same(one: &Token, other: &Token) -> bool {
    let different = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(different) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(limits: Limits) -> Arc<Sessions> {
        Arc::new(Sessions::new(Allowed::none(), [1; 32], limits))
    }

    #[test]
    fn a_session_lives_as_long_as_its_streams() {
        let sessions = sessions(Limits::default());
        let first = sessions.join(&[1; 32], 0, 0).expect("begins");
        let id = first.session.id();
        let second = sessions.join(&[1; 32], id, 0).expect("joins");
        drop(first);
        drop(sessions.join(&[1; 32], id, 0).expect("is there yet"));
        drop(second);
        let gone = sessions.join(&[1; 32], id, 0).expect_err("has ended");
        assert_eq!(gone, NotServed::for_good("there is no such session"));
    }

    #[test]
    fn strangers_and_too_many_are_refused() {
        let limits = Limits {
            streams: 2,
            sessions: 1,
            ..Limits::default()
        };
        let sessions = sessions(limits);
        assert!(sessions.join(&[2; 32], 0, 0).is_err());
        let one = sessions.join(&[1; 32], 0, 0).expect("begins");
        assert!(sessions.join(&[1; 32], 0, 0).is_err(), "a second session");
        let _two = sessions.join(&[1; 32], one.session.id(), 0).expect("joins");
        assert!(
            sessions.join(&[1; 32], one.session.id(), 0).is_err(),
            "a third stream"
        );
    }
}
