//! What stands for a job's record locks on a file towards everybody else: one open file description of the shadow's,
//! with the locks of the kernel that belong to it (`F_OFD_SETLK`).

use super::pieces::{Piece, Pieces};
use crate::session::OpenFile;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use wire::{Held, LockMode, Span};

/// See the module.
#[derive(Debug)]
pub(super) struct Stand {
    fd: Fd,
    access: OFlags,
}

#[derive(Debug)]
enum Fd {
    Own(OwnedFd),
    /// One that could not be opened again.
    Shared(Arc<OpenFile>),
}

impl AsFd for Stand {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Fd::Own(fd) => fd.as_fd(),
            Fd::Shared(file) => file.fd.as_fd(),
        }
    }
}

impl Stand {
    /// For a file that somebody has open: for both modes, if it can be opened so.
    pub(super) fn new(file: &Arc<OpenFile>) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
        if file.writable
            && let Ok(fd) = crate::names::reopen(&file.fd, flags)
        {
            return Ok(Stand {
                fd: Fd::Own(fd),
                access: OFlags::RDWR,
            });
        }
        Ok(Stand {
            access: rustix::fs::fcntl_getfl(&file.fd)? & OFlags::RWMODE,
            fd: Fd::Shared(file.clone()),
        })
    }

    /// Whether it can have a lock of this mode: for writing only what is open for that.
    pub(super) fn can(&self, mode: LockMode) -> bool {
        let unfit = match mode {
            LockMode::Shared => OFlags::WRONLY,
            LockMode::Exclusive => OFlags::RDONLY,
        };
        self.access != unfit
    }

    /// From one state to another. On failure it is as before.
    ///
    /// # Errors
    /// EAGAIN: somebody else is in the way.
    pub(super) fn change(&self, before: &Pieces, after: &Pieces) -> Result<(), Errno> {
        let more: Vec<Piece> = after.iter().filter(|one| !covers(before, *one)).collect();
        for (done, piece) in more.iter().enumerate() {
            if let Err(errno) = self.set(piece.span, Some(piece.mode)) {
                for undone in &more[..done] {
                    self.put_back(undone.span, before);
                }
                return Err(errno);
            }
        }
        for piece in before.iter() {
            if !covers(after, piece) {
                self.put_back(piece.span, after);
            }
        }
        Ok(())
    }

    /// Gives bytes less than they have: nobody can be in the way.
    fn put_back(&self, span: Span, to: &Pieces) {
        let mut from = span.first;
        let set = |span, mode| {
            if let Err(error) = self.set(span, mode) {
                tracing::warn!(%error, "a lock cannot be given back");
            }
        };
        for piece in to.overlapping(span) {
            let first = piece.span.first.max(span.first);
            let last = piece.span.last.min(span.last);
            if from < first {
                let last = first - 1;
                set(Span { first: from, last }, None);
            }
            set(Span { first, last }, Some(piece.mode));
            from = last + 1;
        }
        if from <= span.last {
            let last = span.last;
            set(Span { first: from, last }, None);
        }
    }

    fn set(&self, span: Span, mode: Option<LockMode>) -> Result<(), Errno> {
        let record = record(span, mode);
        match fcntl(self.as_fd(), FcntlArg::F_OFD_SETLK(&record)) {
            Ok(_) => Ok(()),
            Err(nix::Error::EACCES) => Err(Errno::AGAIN),
            Err(error) => Err(Errno::from_raw_os_error(error as i32)),
        }
    }
}

/// The whole piece is locked so already, or more.
fn covers(by: &Pieces, piece: Piece) -> bool {
    let mut from = piece.span.first;
    for one in by.overlapping(piece.span) {
        if one.span.first > from || one.mode < piece.mode {
            return false;
        }
        from = one.span.last + 1;
    }
    from > piece.span.last
}

/// What somebody outside the job has in the way of this, as the kernel says.
pub(super) fn in_the_way(
    fd: BorrowedFd<'_>,
    span: Span,
    mode: LockMode,
) -> Result<Option<Held>, Errno> {
    let mut found = record(span, Some(mode));
    fcntl(fd, FcntlArg::F_OFD_GETLK(&mut found))
        .map_err(|error| Errno::from_raw_os_error(error as i32))?;
    let mode = match i32::from(found.l_type) {
        libc::F_RDLCK => LockMode::Shared,
        libc::F_WRLCK => LockMode::Exclusive,
        _ => return Ok(None),
    };
    let first = u64::try_from(found.l_start).unwrap_or(0);
    let last = match u64::try_from(found.l_len) {
        Ok(len @ 1..) => first.saturating_add(len - 1),
        _ => Span::END,
    };
    Ok(Some(Held {
        mode,
        span: Span { first, last },
        pid: found.l_pid,
    }))
}

fn record(span: Span, mode: Option<LockMode>) -> libc::flock {
    let kind = match mode {
        Some(LockMode::Shared) => libc::F_RDLCK,
        Some(LockMode::Exclusive) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    };
    let len = match span.last {
        Span::END => 0,
        last => last + 1 - span.first,
    };
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: i64::try_from(span.first).unwrap_or(i64::MAX),
        l_len: i64::try_from(len).unwrap_or(0),
        l_pid: 0,
    }
}
