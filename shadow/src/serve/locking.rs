//! Locks: what a request means for [`crate::locks`].

use crate::locks::Asked;
use crate::session::{OpenFile, Session};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use wire::{Lock, LockOwner, Release, Reply, TestLock, TestOwn};

impl Session {
    /// fcntl(2), flock(2), without waiting.
    pub(super) fn lock(&self, lock: &Lock) -> Result<Reply<'static>, Errno> {
        let file = self.lockable(lock.handle)?;
        let asked = asked(lock, &file);
        let mut done = self.locks.set(&asked, lock.mode);
        // Nobody who has ended is in the way.
        if done == Err(Errno::AGAIN)
            && let Some(ends) = self.locks.ends.get()
        {
            ends.heed(self);
            done = self.locks.set(&asked, lock.mode);
        }
        self.note_locks();
        done.map(|()| Reply::Done)
    }

    /// The same, waiting, until the peer says something or goes.
    pub(crate) fn wait_for_lock(&self, lock: &Lock, peer: BorrowedFd<'_>) -> Reply<'static> {
        let waited = self.lockable(lock.handle).and_then(|file| {
            let asked = asked(lock, &file);
            match lock.mode {
                Some(mode) => {
                    let is_open = || self.get(lock.handle).is_ok();
                    self.locks.wait(&asked, mode, peer, is_open)
                }
                None => self.locks.set(&asked, None),
            }
        });
        self.note_locks();
        match waited {
            Ok(()) => Reply::Done,
            Err(errno) => super::failed(errno),
        }
    }

    /// fcntl(2) with `F_GETLK`.
    pub(super) fn test_lock(&self, test: &TestLock) -> Result<Reply<'static>, Errno> {
        let file = self.lockable(test.handle)?;
        let asked = Asked {
            handle: test.handle,
            file: &file,
            owner: test.owner,
            span: test.span,
            watch: 0,
        };
        let mut found = self.locks.test(&asked, test.mode)?;
        if found.is_some()
            && let Some(ends) = self.locks.ends.get()
        {
            ends.heed(self);
            found = self.locks.test(&asked, test.mode)?;
        }
        Ok(found.map_or(Reply::Done, Reply::Held))
    }

    /// fcntl(2) with `F_OFD_GETLK` and `F_UNLCK`.
    pub(super) fn test_own(&self, test: &TestOwn) -> Result<Reply<'static>, Errno> {
        let file = self.lockable(test.handle)?;
        let asked = Asked {
            handle: test.handle,
            file: &file,
            owner: LockOwner::Description,
            span: test.span,
            watch: 0,
        };
        let found = self.locks.own(&asked)?;
        Ok(found.map_or(Reply::Done, Reply::Held))
    }

    /// A process closes a descriptor.
    pub(super) fn release(&self, release: &Release) -> Result<Reply<'static>, Errno> {
        let file = match release.handle {
            0 => None,
            handle => Some(self.get(handle)?.id),
        };
        self.locks.release(release.process, file, release.at_exec)?;
        self.note_locks();
        Ok(Reply::Done)
    }

    /// What is only a name has no locks, and is not opened for them.
    fn lockable(&self, handle: u64) -> Result<Arc<OpenFile>, Errno> {
        let file = self.get(handle)?;
        if rustix::fs::fcntl_getfl(&file.fd)?.contains(OFlags::PATH) {
            return Err(Errno::BADF);
        }
        Ok(file)
    }
}

fn asked<'a>(lock: &Lock, file: &'a Arc<OpenFile>) -> Asked<'a> {
    Asked {
        handle: lock.handle,
        file,
        owner: lock.owner,
        span: lock.span,
        watch: lock.watch,
    }
}
