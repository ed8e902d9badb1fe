//! Locks of files (fcntl_locking(2), flock(2)), as they are asked for and told.

use bincode::{BorrowDecode, Encode};

/// Bytes of a file, both ends included; `last` is [`Span::END`] where a lock has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, BorrowDecode)]
pub struct Span {
    /// First byte.
    pub first: u64,
    /// Last byte.
    pub last: u64,
}

impl Span {
    /// The last byte of what has no end (`OFFSET_MAX`).
    pub const END: u64 = i64::MAX as u64;
    /// All bytes.
    pub const ALL: Span = Span {
        first: 0,
        last: Span::END,
    };
}

/// What a lock lets others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, BorrowDecode)]
pub enum LockMode {
    /// Lock for reading (`F_RDLCK`, `LOCK_SH`).
    Shared,
    /// Lock for writing (`F_WRLCK`, `LOCK_EX`).
    Exclusive,
}

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, BorrowDecode)]
pub enum LockOwner {
    /// A process's (`F_SETLK`), by the number that [`Attend`] was answered with.
    Process(u64),
    /// The open file description's (`F_OFD_SETLK`).
    Description,
    /// The open file description's, of the whole file and of another kind (flock(2)).
    Whole,
}

/// A process of the job that will have locks: they go when this stream ends. Again on the same stream: it has executed
/// a program. The answer is [`crate::Reply::Number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Attend {
    /// The one it had before its job was moved; 0: it has none yet.
    pub number: u64,
    /// As the job sees it; 0 is none.
    pub pid: u32,
}

/// fcntl(2) with `F_SETLK` and the like, flock(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Lock {
    /// What was opened.
    pub handle: u64,
    /// Whose it is to be.
    pub owner: LockOwner,
    /// None: what there is goes.
    pub mode: Option<LockMode>,
    /// Which bytes; not looked at for [`LockOwner::Whole`].
    pub span: Span,
    /// The answer comes when it can be had, or with `EINTR` after an [`Interrupt`].
    pub wait: bool,
    /// What the end of the open file description is called by what was sent with [`WatchEnds`]; 0: nothing.
    pub watch: i32,
}

/// fcntl(2) with `F_GETLK`, `F_OFD_GETLK`; the answer is [`crate::Reply::Held`], or [`crate::Reply::Done`] if nothing is in the
/// way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct TestLock {
    /// What was opened.
    pub handle: u64,
    /// Whose it would be: not [`LockOwner::Whole`].
    pub owner: LockOwner,
    /// What it would be.
    pub mode: LockMode,
    /// Which bytes.
    pub span: Span,
}

/// fcntl(2) with `F_OFD_GETLK` and `F_UNLCK`: a lock that the open file description has itself; the answer is
/// [`crate::Reply::Held`], or [`crate::Reply::Done`] if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct TestOwn {
    /// What was opened.
    pub handle: u64,
    /// Which bytes.
    pub span: Span,
}

/// A process closes a descriptor of a file: its locks of that file go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Release {
    /// Number of the process.
    pub process: u64,
    /// Something open of that file.
    pub handle: u64,
    /// Not now, but if it executes a program before it asks for anything else of this kind.
    pub at_exec: bool,
}

/// A waiting [`Lock`] of this stream is not wanted any longer. Has no answer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Interrupt {}

/// With it, as a descriptor on a unix socket (`SCM_RIGHTS`), comes an inotify instance that tells of the ends of open file
/// descriptions: what such a one has locked is free then. To be answered by ENOTSUP where it cannot come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct WatchEnds {}

/// A lock that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Held {
    /// What it is.
    pub mode: LockMode,
    /// Which bytes.
    pub span: Span,
    /// The process that has it; -1: an open file description.
    pub pid: i32,
}
