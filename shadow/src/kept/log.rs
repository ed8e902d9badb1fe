//! A session's log: appended to by whoever answers a request, begun anew when it has become long.
// It is no file of a job's.
#![allow(clippy::disallowed_methods)]

use super::fault;
use super::record::{BEGINNING, Known, MAGIC, Record, RequestId, VERSION};
use crate::locks::SavedLocks;
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A log of so many bytes is begun anew, if that makes it much shorter.
const LONG: u64 = 1 << 20;
/// So often it is tried to begin one that could not be written.
const AGAIN: Duration = Duration::from_secs(1);

/// See the module. Dropped, its folder is removed if the session is over.
#[derive(Debug)]
pub(crate) struct Log {
    dir: PathBuf,
    /// None: it could not be written, and the session ends with this process, unless it can be begun anew.
    file: RwLock<Option<File>>,
    /// When that is tried.
    again: Mutex<Option<Instant>>,
    len: AtomicU64,
    /// When it was begun.
    first_len: AtomicU64,
    over: AtomicBool,
    locks: Mutex<SavedLocks>,
    /// There may be locks.
    has_locks: AtomicBool,
    /// Appends that may have been made before, by lane.
    pub(super) doubtful: Mutex<HashMap<u64, Doubtful>>,
}

/// An append of which it is not known how much was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubtful {
    pub(super) number: u64,
    pub(super) handle: u64,
    /// Bytes of the file before it.
    pub(super) before: u64,
    /// And when the shadow came again.
    pub(super) now: u64,
}

impl Log {
    /// Begins a log in a folder, which is made if it is not there.
    pub(super) fn begin(dir: PathBuf, known: Known) -> io::Result<Self> {
        let log = Self::empty(dir, &known);
        let file = log.write_whole(known)?;
        *log.file.write().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(log)
    }

    /// The same of a session that is new: it is served, whatever becomes of its log.
    pub(super) fn begin_if_possible(dir: PathBuf, known: Known) -> Self {
        let log = Self::empty(dir, &known);
        let written = log.write_whole(known);
        let mut file = log.file.write().unwrap_or_else(PoisonError::into_inner);
        match written {
            Ok(new) => *file = Some(new),
            Err(error) => log.complain(&error),
        }
        drop(file);
        log
    }

    fn empty(dir: PathBuf, known: &Known) -> Self {
        Log {
            dir,
            file: RwLock::default(),
            again: Mutex::default(),
            len: AtomicU64::new(0),
            first_len: AtomicU64::new(0),
            over: AtomicBool::new(false),
            locks: Mutex::new(known.locks.clone()),
            has_locks: AtomicBool::new(known.locks != SavedLocks::default()),
            doubtful: Mutex::default(),
        }
    }

    fn write_whole(&self, known: Known) -> io::Result<File> {
        match fs::DirBuilder::new().mode(0o700).create(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let new = self.dir.join("log.new");
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(true).mode(0o600);
        let mut file = options.open(&new)?;
        let mut bytes = Vec::with_capacity(BEGINNING);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(Record::Whole(known).to_bytes());
        file.write_all(&bytes)?;
        drop(file);
        let file = OpenOptions::new().append(true).open(&new)?;
        fault::at("whole-written");
        fs::rename(&new, self.dir.join("log"))?;
        fault::at("whole-renamed");
        self.len.store(bytes.len() as u64, Ordering::Relaxed);
        self.first_len.store(bytes.len() as u64, Ordering::Relaxed);
        Ok(file)
    }

    /// Something has happened.
    pub(crate) fn note(&self, record: &Record) {
        let bytes = record.to_bytes();
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = &*file else { return };
        // One call: what others note goes before or behind.
        let written = loop {
            match rustix::io::write(log, &bytes) {
                Err(rustix::io::Errno::INTR) => {}
                written => break written,
            }
        };
        drop(file);
        match written {
            Ok(len) if len == bytes.len() => {
                self.len.fetch_add(len as u64, Ordering::Relaxed);
            }
            Ok(_) => self.give_up(&io::ErrorKind::StorageFull.into()),
            Err(errno) => self.give_up(&errno.into()),
        }
    }

    /// A log that lacks something is worse than none.
    fn give_up(&self, error: &io::Error) {
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        if file.take().is_some() {
            self.complain(error);
        }
    }

    /// There is no log.
    fn complain(&self, error: &io::Error) {
        let shown = self.dir.display();
        tracing::error!(%error, "{shown} cannot be written: this session will end with the shadow, as long as that is so");
        for name in ["log", "log.new"] {
            let _ = fs::remove_file(self.dir.join(name));
        }
        self.try_again_in(Some(AGAIN));
    }

    fn try_again_in(&self, time: Option<Duration>) {
        let when = time.map(|time| Instant::now() + time);
        *self.again.lock().unwrap_or_else(PoisonError::into_inner) = when;
    }

    /// Whether it is time to begin it anew.
    pub(crate) fn is_long(&self) -> bool {
        let again = *self.again.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(when) = again {
            return Instant::now() >= when;
        }
        let len = self.len.load(Ordering::Relaxed);
        len > LONG && len > 4 * self.first_len.load(Ordering::Relaxed)
    }

    /// Begins it anew; `known` is called when nothing is noted meanwhile.
    pub(crate) fn begin_anew(&self, known: impl FnOnce() -> Option<Known>) {
        // In the order of `note_locks`.
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        let Some(mut known) = known() else { return };
        known.locks.clone_into(&mut locks);
        // What is in doubt stays so until it is asked for again.
        known.begun.extend(self.still_doubtful());
        let written = self.write_whole(known);
        if file.is_none() {
            // Of a failure it has been told.
            self.try_again_in(written.is_err().then_some(AGAIN));
        }
        match written {
            Ok(new) => {
                if file.replace(new).is_none() {
                    let shown = self.dir.display();
                    tracing::info!("{shown} is written again: this session outlives the shadow");
                }
            }
            Err(error) => {
                drop((file, locks));
                self.give_up(&error);
            }
        }
    }

    /// Of these it is not known how much was made.
    pub(super) fn doubt(&self, all: Vec<(u64, Doubtful)>) {
        let mut doubtful = self.doubtful.lock().unwrap_or_else(PoisonError::into_inner);
        doubtful.extend(all);
    }

    fn still_doubtful(&self) -> Vec<super::record::Begun> {
        let doubtful = self.doubtful.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = doubtful.iter().map(|(lane, one)| super::record::Begun {
            request: RequestId {
                lane: *lane,
                number: one.number,
            },
            intent: super::intent::Intent::Append {
                handle: one.handle,
                before: one.before,
            },
            made: false,
        });
        begun.collect()
    }

    /// Somebody has locks, or had; `saved` tells which.
    pub(crate) fn note_locks(&self, saved: impl FnOnce() -> Option<SavedLocks>) {
        self.has_locks.store(true, Ordering::Relaxed);
        // Who comes last notes what is last.
        let mut last = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(now) = saved() else { return };
        if now != *last {
            self.note(&Record::Locks(now.clone()));
            *last = now;
        }
    }

    pub(crate) fn has_locks(&self) -> bool {
        self.has_locks.load(Ordering::Relaxed)
    }

    /// Nobody comes back for the session.
    pub(crate) fn is_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if *self.over.get_mut() {
            fault::at("ending");
            forget(&self.dir);
            fault::at("ended");
        }
    }
}

/// Removes what is kept of a session.
pub(super) fn forget(dir: &Path) {
    for name in ["log", "log.new"] {
        let _ = fs::remove_file(dir.join(name));
    }
    if let Err(error) = fs::remove_dir(dir) {
        tracing::warn!(%error, "{} stays", dir.display());
    }
}

thread_local! {
    static CURRENT: Cell<Option<RequestId>> = const { Cell::new(None) };
}

/// The request that this thread is answering, if it may come again.
pub(crate) fn current() -> Option<RequestId> {
    CURRENT.get()
}

/// This thread answers a request until what is returned is dropped.
pub(crate) fn serving(lane: u64, number: u64) -> Serving {
    CURRENT.set((lane != 0).then_some(RequestId { lane, number }));
    Serving(())
}

/// See [`serving`].
pub(crate) struct Serving(());

impl Drop for Serving {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::record;

    /// As where there is no room.
    #[test]
    fn a_log_that_could_not_be_written_is_begun_again() {
        let place = tempfile::tempdir().expect("a folder");
        let dir = place.path().join("7");
        let in_the_way = dir.join("log.new");
        fs::create_dir_all(&in_the_way).expect("makes it");
        let known = |next_handle| Known {
            next_handle,
            ..Known::default()
        };
        assert!(Log::begin(dir.clone(), known(1)).is_err());
        let log = Log::begin_if_possible(dir.clone(), known(1));
        log.note(&Record::Lease(5, false));
        assert!(!log.is_long() && !dir.join("log").exists());
        log.try_again_in(Some(Duration::ZERO));
        assert!(log.is_long());
        log.begin_anew(|| Some(known(2)));
        assert!(!log.is_long() && !dir.join("log").exists(), "not yet");
        fs::remove_dir(&in_the_way).expect("removes");
        log.try_again_in(Some(Duration::ZERO));
        log.begin_anew(|| Some(known(3)));
        assert!(!log.is_long());
        log.note(&Record::Lease(6, false));
        let read = || record::read(&fs::read(dir.join("log")).expect("is there")).expect("is one");
        assert_eq!((read().next_handle, read().lease_ms), (3, 6));
        // The same of one that was good.
        fs::create_dir(&in_the_way).expect("makes it");
        log.begin_anew(|| Some(known(4)));
        assert!(!dir.join("log").exists());
        fs::remove_dir(&in_the_way).expect("removes");
        log.try_again_in(Some(Duration::ZERO));
        log.begin_anew(|| Some(known(5)));
        assert_eq!(read().next_handle, 5);
        log.is_over();
        drop(log);
        assert!(!dir.exists());
    }

    #[test]
    fn a_log_is_begun_anew_and_goes_when_its_session_is_over() {
        let place = tempfile::tempdir().expect("a folder");
        let dir = place.path().join("7");
        let log = Log::begin(dir.clone(), Known::default()).expect("begins");
        log.note(&Record::Lease(5, false));
        let read = || record::read(&fs::read(dir.join("log")).expect("is there")).expect("is one");
        assert_eq!(read().lease_ms, 5);
        log.begin_anew(|| {
            Some(Known {
                next_handle: 9,
                ..Known::default()
            })
        });
        assert_eq!((read().lease_ms, read().next_handle), (0, 9));
        log.note(&Record::Lease(6, false));
        drop(log);
        assert_eq!((read().lease_ms, read().next_handle), (6, 9));
        let log = Log::begin(dir.clone(), Known::default()).expect("begins");
        log.is_over();
        drop(log);
        assert!(!dir.exists());
    }
}
