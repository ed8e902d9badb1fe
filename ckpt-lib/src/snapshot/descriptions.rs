//! Open file descriptions and what stands behind them.

use super::unread::Unread;
use super::{InodeId, KernelPath, SocketSettings};
use serde::{Deserialize, Serialize};

/// Index into `SnapshotV1::descriptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DescriptionId(pub u32);
/// Index into `SnapshotV1::pipes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PipeId(pub u32);
/// Index into `SnapshotV1::sockets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SocketId(pub u32);

/// An open file description (open(2)): made once, shared by dup, fork and SCM_RIGHTS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Access mode and status flags as `F_GETFL` gives them (O_CLOEXEC is not among them).
    pub flags: u32,
    /// Position.
    pub offset: u64,
    /// Who gets SIGIO, if anybody.
    pub owner: Option<FileOwner>,
    /// What stands behind it.
    pub kind: DescriptionKind,
    /// Locks that belong to the description (flock, OFD).
    pub locks: Vec<DescriptionLock>,
}

/// `F_SETOWN_EX` and `F_SETSIG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOwner {
    /// `F_OWNER_TID`, `F_OWNER_PID` or `F_OWNER_PGRP`.
    pub kind: i32,
    /// The id, as the job sees it.
    pub id: i32,
    /// The signal, 0 for SIGIO.
    pub signal: i32,
}

/// A lock held by a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DescriptionLock {
    /// flock(2).
    Flock {
        /// LOCK_EX instead of LOCK_SH.
        exclusive: bool,
    },
    /// `F_OFD_SETLK`.
    Ofd(LockRange),
}

/// A byte range under a record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRange {
    /// F_WRLCK instead of F_RDLCK.
    pub exclusive: bool,
    /// First byte.
    pub start: u64,
    /// Length; 0 to the end of the file, however far.
    pub len: u64,
}

/// What a descriptor refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DescriptionKind {
    /// A file, directory, device or memfd.
    Inode(InodeId),
    /// One end of a pipe or FIFO within the job (both ends: a FIFO opened O_RDWR).
    Pipe(PipeId),
    /// One end of a socket pair within the job.
    Socket(SocketId),
    /// eventfd(2).
    EventFd {
        /// Its counter.
        count: u64,
        /// EFD_SEMAPHORE.
        semaphore: bool,
    },
    /// signalfd(2).
    SignalFd {
        /// Accepted signals.
        mask: u64,
    },
    /// timerfd_create(2).
    TimerFd {
        /// Its clock.
        clock: i32,
        /// Expirations not yet read.
        ticks: u64,
        /// Flags of the last timerfd_settime.
        settime_flags: u32,
        /// Time to the next expiration, 0 if disarmed.
        value_ns: u64,
        /// Period.
        interval_ns: u64,
    },
    /// epoll_create(2).
    Epoll {
        /// Its set.
        entries: Vec<EpollEntry>,
    },
    /// inotify_init(2).
    Inotify {
        /// Its watches.
        watches: Vec<InotifyWatch>,
    },
    /// pidfd_open(2) of a process of the job.
    PidFd {
        /// That process.
        pid: u32,
    },
    /// It led out of the job: a terminal, pipe or socket of whoever started it. The restarter's
    /// descriptor takes its place.
    External(External),
    /// A session at a shadow, which has the job's files; the restarter's takes its place.
    Session {
        /// What the shadow needs to go on, which only a shadow understands.
        state: Vec<u8>,
    },
}

/// A descriptor that led out of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct External {
    /// Number of the restarter's descriptor that takes its place (0, 1, 2 or `--inherit-fd`).
    pub inherit: u32,
    /// What it was, as `/proc/PID/fd` names it ("pipe:[123]", "/dev/pts/0").
    pub was: KernelPath,
    /// Bytes that lay unread in it (an input pipe); served before the restarter's.
    pub unread: Unread,
    /// `struct termios2` and window size of a terminal.
    pub terminal: Option<Terminal>,
}

/// State of a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// `struct termios2` as TCGETS2 gives it, 44 bytes.
    pub termios2: Vec<u8>,
    /// Rows, columns, x and y pixels.
    pub window: [u16; 4],
    /// It was the job's controlling terminal.
    pub controlling: bool,
    /// The job was in its foreground.
    pub foreground: bool,
}

/// A member of an epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpollEntry {
    /// Descriptor number it was added under.
    pub fd: i32,
    /// Its description.
    pub target: DescriptionId,
    /// EPOLLIN, EPOLLET ...
    pub events: u32,
    /// User data.
    pub data: u64,
}

impl EpollEntry {
    /// Whether it is not watched any more until the program says so: of an EPOLLONESHOT member that has fired the kernel keeps no
    /// event, not even EPOLLERR and EPOLLHUP, which each other one has (`ep_send_events`, fs/eventpoll.c).
    #[must_use]
    pub fn has_fired(&self) -> bool {
        const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
        const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        self.events & (ONE_SHOT | ALWAYS) == ONE_SHOT
    }
}

/// An inotify watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InotifyWatch {
    /// Its number.
    pub wd: i32,
    /// Its mask.
    pub mask: u32,
    /// The path that leads to it.
    pub path: KernelPath,
}

/// A pipe with its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeRecord {
    /// The FIFO's inode, if it has a name.
    pub fifo: Option<InodeId>,
    /// `F_GETPIPE_SZ`.
    pub capacity: u32,
    /// Contents; one part per packet if in packet mode, else one part.
    pub contents: Vec<Unread>,
    /// Packets (O_DIRECT).
    pub packets: bool,
}

/// One end of a socket pair, or a unix socket that is not connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketRecord {
    /// SOCK_STREAM, SOCK_DGRAM or SOCK_SEQPACKET.
    pub kind: i32,
    /// The other end; none if it has been closed; itself if it is not connected.
    pub peer: Option<SocketId>,
    /// Messages that lie unread in this end, oldest first.
    pub inbox: Vec<SocketMessage>,
    /// SHUT_RD (1) and SHUT_WR (2).
    pub shutdown: u32,
    /// SO_SNDBUF, SO_RCVBUF as the kernel reports them.
    pub buffers: [u32; 2],
    /// SO_PASSCRED.
    pub pass_credentials: bool,
    /// What came later.
    #[serde(skip)]
    pub settings: SocketSettings,
}

impl SocketRecord {
    /// A stream whose other end is closed, with nothing in it.
    #[must_use]
    pub fn closed_stream() -> Self {
        SocketRecord {
            kind: libc::SOCK_STREAM,
            peer: None,
            inbox: vec![],
            shutdown: 0,
            buffers: [0, 0],
            pass_credentials: false,
            settings: SocketSettings::default(),
        }
    }
}

/// A message in a socket: bytes, and descriptors in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketMessage {
    /// Its bytes.
    pub bytes: Unread,
    /// Descriptors sent with it.
    pub descriptions: Vec<DescriptionId>,
}
