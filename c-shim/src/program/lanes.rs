//! Streams to the shadow, one request at a time on each.
//!
//! ```text
//! free --call--> taken --answer--> free        no lane free: a new one; all taken: wait
//! ```
//! Signals wait while a lane is taken, so that no handler leaves one half-way by a jump; a call on a remote file is
//! as little interrupted as one on a disk.

use super::process;
use super::sys::{self, CONNECT, Errno, RECVFROM, SENDMSG, SOCKET, call};
use crate::table::{Header, RESERVED};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use wire::{HEAD_LEN, Head, Hello, Reply, Request, Role};

const MOST_LANES: usize = 16;
/// Bytes of an answer that come without being copied to where they belong at once.
const SCRATCH: usize = 32 << 10;
const MSG_NOSIGNAL: u64 = 0x4000;
const SOCK_STREAM_CLOEXEC: u64 = 0o2_000_001;

/// A stream.
struct Lane {
    taken: AtomicU32,
    /// -1: not open.
    fd: AtomicI32,
    scratch: &'static Scratch,
}

/// Where an answer comes first; used by whoever has taken the lane.
struct Scratch(UnsafeCell<[u8; SCRATCH]>);

// SAFETY: used by whoever has set `taken`.
unsafe impl Sync for Scratch {}

/// The last is for children of vfork, which have no lanes.
static SCRATCHES: [Scratch; MOST_LANES + 1] =
    [const { Scratch(UnsafeCell::new([0; SCRATCH])) }; MOST_LANES + 1];

const fn lane(number: usize) -> Lane {
    Lane {
        taken: AtomicU32::new(0),
        fd: AtomicI32::new(-1),
        scratch: &SCRATCHES[number],
    }
}

static LANES: [Lane; MOST_LANES] = [
    lane(0),
    lane(1),
    lane(2),
    lane(3),
    lane(4),
    lane(5),
    lane(6),
    lane(7),
    lane(8),
    lane(9),
    lane(10),
    lane(11),
    lane(12),
    lane(13),
    lane(14),
    lane(15),
];
static BORROWED: Lane = lane(MOST_LANES);
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// We are a fork's child: the streams are our parent's.
pub(super) fn forget() {
    for lane in &LANES {
        let fd = lane.fd.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            sys::close(fd);
        }
        lane.taken.store(0, Ordering::Relaxed);
    }
    BORROWED.taken.store(0, Ordering::Relaxed);
}

/// An answer: the reply, and where its data were put.
pub(super) struct Answer<'a> {
    pub(super) reply: Reply<'static>,
    /// What has come into the buffer that was given, or lies in the lane's own.
    pub(super) data: &'a [u8],
}

/// Where the data of an answer are wanted.
#[derive(Clone, Copy)]
pub(super) enum Put {
    /// In the lane's own buffer, as long as it is looked at.
    Lane,
    /// In the program's memory: address and bytes.
    Program(*mut u8, usize),
}

/// Asks, with data that lie in the program's memory; `look` sees the answer.
///
/// # Errors
/// What the shadow answered; EIO if it cannot be reached.
pub(super) fn ask<T>(
    request: &Request<'_>,
    data: (*const u8, usize),
    into: Put,
    look: impl FnOnce(Answer<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let _undisturbed = sys::Undisturbed::begin();
    let own = process::is_own();
    let lane = take(own);
    let result = exchange(lane, request, data, into, look);
    if !own {
        let fd = lane.fd.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            sys::close(fd);
        }
    }
    lane.taken.store(0, Ordering::Release);
    result
}

/// As [`ask`], for what is answered by a word.
///
/// # Errors
/// As [`ask`].
pub(super) fn tell(request: &Request<'_>) -> Result<(), Errno> {
    ask(request, (core::ptr::null(), 0), Put::Lane, |_| Ok(()))
}

fn take(own: bool) -> &'static Lane {
    let lanes = if own {
        &LANES[..]
    } else {
        core::slice::from_ref(&BORROWED)
    };
    loop {
        // One that is open is better.
        for open in [true, false] {
            for lane in lanes {
                if (lane.fd.load(Ordering::Relaxed) >= 0) == open
                    && lane.taken.swap(1, Ordering::Acquire) == 0
                {
                    return lane;
                }
            }
        }
        // SAFETY: sched_yield(2) takes nothing.
        let _ = unsafe { call(24, []) };
    }
}

fn exchange<T>(
    lane: &'static Lane,
    request: &Request<'_>,
    data: (*const u8, usize),
    into: Put,
    look: impl FnOnce(Answer<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: the lane is taken by us.
    let scratch = unsafe { &mut *lane.scratch.0.get() };
    let fd = open(lane, scratch)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let len = request
        .message(number, data.1, scratch)
        .map_err(|_| Errno(sys::ENAMETOOLONG))?;
    let sent = send(fd, &scratch[..len], data).and_then(|()| receive(fd, scratch, number, into));
    match sent {
        Ok(Received { reply, from, len }) => {
            if let Reply::Failed(errno) = reply {
                return Err(Errno(errno.into()));
            }
            let data = match into {
                Put::Lane => scratch.get(from..from + len).unwrap_or_default(),
                // SAFETY: so many bytes were put there.
                Put::Program(place, _) => unsafe { core::slice::from_raw_parts(place, len) },
            };
            look(Answer { reply, data })
        }
        Err(error) => {
            // It cannot be told what is on its way there.
            lane.fd.store(-1, Ordering::Relaxed);
            sys::close(fd);
            Err(error)
        }
    }
}

/// The lane's stream, greeted.
fn open(lane: &Lane, scratch: &mut [u8; SCRATCH]) -> Result<i32, Errno> {
    let fd = lane.fd.load(Ordering::Relaxed);
    if fd >= 0 {
        return Ok(fd);
    }
    let header = &process::table().ok_or(Errno(sys::EIO))?.header;
    let fd = connect(header)?;
    let hello = Hello::new(Role::Shim, header.token, header.session, 0);
    let greeting = hello.message(scratch).map_err(|_| Errno(sys::EIO));
    let greeted = greeting.and_then(|len| {
        send(fd, &scratch[..len], (core::ptr::null(), 0))?;
        receive(fd, scratch, 0, Put::Lane)
    });
    match greeted {
        Ok(Received {
            reply: Reply::Welcome(_),
            ..
        }) => {
            lane.fd.store(fd, Ordering::Relaxed);
            Ok(fd)
        }
        _ => {
            sys::close(fd);
            Err(Errno(sys::EIO))
        }
    }
}

fn connect(header: &Header) -> Result<i32, Errno> {
    #[repr(C)]
    struct Address {
        family: u16,
        path: [u8; 108],
    }
    let address = Address {
        family: 1,
        path: header.socket,
    };
    let len = 2 + u64::from(header.socket_len) + 1;
    let failed = |_| Errno(sys::EIO);
    // SAFETY: the kernel reads the address.
    let low = unsafe { call(SOCKET, [1, SOCK_STREAM_CLOEXEC, 0]) }.map_err(failed)? as i32;
    // Out of the job's way.
    let behind = RESERVED[RESERVED.len() - 1] as u64 + 1;
    let fd = match sys::fcntl(low, sys::F_DUPFD_CLOEXEC, behind) {
        Ok(high) => {
            sys::close(low);
            high as i32
        }
        // The job has been given fewer.
        Err(_) => low,
    };
    let args = [fd as u64, &raw const address as u64, len];
    // SAFETY: the kernel reads so many bytes of the address.
    match unsafe { call(CONNECT, args) } {
        Ok(_) => Ok(fd),
        Err(_) => {
            sys::close(fd);
            Err(Errno(sys::EIO))
        }
    }
}

#[repr(C)]
struct IoVec {
    base: u64,
    len: u64,
}

#[repr(C)]
struct MessageHeader {
    name: u64,
    name_len: u64,
    parts: u64,
    part_count: u64,
    control: u64,
    control_len: u64,
    flags: u64,
}

/// Sends a message and the data that go with it.
fn send(fd: i32, message: &[u8], data: (*const u8, usize)) -> Result<(), Errno> {
    let mut done = 0;
    let whole = message.len() + data.1;
    while done < whole {
        let first = done.min(message.len());
        let second = done - first;
        let parts = [
            IoVec {
                base: message.as_ptr() as u64 + first as u64,
                len: (message.len() - first) as u64,
            },
            IoVec {
                base: data.0 as u64 + second as u64,
                len: (data.1 - second) as u64,
            },
        ];
        let header = MessageHeader {
            name: 0,
            name_len: 0,
            parts: &raw const parts as u64,
            part_count: 2,
            control: 0,
            control_len: 0,
            flags: 0,
        };
        let args = [fd as u64, &raw const header as u64, MSG_NOSIGNAL];
        // SAFETY: the kernel reads the message, and what the program has given it to write.
        match unsafe { call(SENDMSG, args) } {
            Ok(sent) => done += sent as usize,
            Err(Errno(sys::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// An answer, and which part of the scratch (or how much of the program's buffer) its data are.
struct Received {
    reply: Reply<'static>,
    from: usize,
    len: usize,
}

fn receive(
    fd: i32,
    scratch: &mut [u8; SCRATCH],
    number: u64,
    into: Put,
) -> Result<Received, Errno> {
    let broken = Errno(sys::EIO);
    let mut filled = 0;
    let mut wanted = HEAD_LEN;
    let mut head = None;
    while filled < wanted {
        filled += some(fd, scratch[filled..].as_mut_ptr(), SCRATCH - filled)?;
        if head.is_none() && filled >= HEAD_LEN {
            let read = Head::read(&scratch[..]).map_err(|_| broken)?;
            wanted += read.body_len as usize;
            head = Some(read);
        }
    }
    let head = head.ok_or(broken)?;
    let body = scratch.get(HEAD_LEN..wanted).ok_or(broken)?;
    let reply = owned(Reply::decode(head.kind, body).map_err(|_| broken)?).ok_or(broken)?;
    let whole = head.data_len as usize;
    let (place, room) = match into {
        Put::Lane => (core::ptr::null_mut(), SCRATCH - wanted),
        Put::Program(place, room) => (place, room),
    };
    let here = filled - wanted;
    if head.number != number || whole > room || here > whole {
        return Err(broken);
    }
    let mut at = here;
    if !place.is_null() {
        // SAFETY: the program has said that so much may be written there.
        unsafe { core::ptr::copy_nonoverlapping(scratch[wanted..].as_ptr(), place, here) };
    }
    while at < whole {
        let to = if place.is_null() {
            scratch[wanted + at..].as_mut_ptr()
        } else {
            place.wrapping_add(at)
        };
        at += some(fd, to, whole - at)?;
    }
    Ok(Received {
        reply,
        from: wanted,
        len: whole,
    })
}

/// Receives at least one byte.
fn some(fd: i32, to: *mut u8, len: usize) -> Result<usize, Errno> {
    loop {
        let args = [fd as u64, to as u64, len as u64, 0, 0, 0];
        // SAFETY: the kernel writes where the caller has room.
        match unsafe { call(RECVFROM, args) } {
            Ok(0) => return Err(Errno(sys::EIO)),
            Ok(len) => return Ok(len as usize),
            Err(Errno(sys::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Without what it borrows.
fn owned(reply: Reply<'_>) -> Option<Reply<'static>> {
    Some(match reply {
        Reply::Welcome(welcome) => Reply::Welcome(welcome),
        Reply::Done => Reply::Done,
        Reply::Failed(errno) => Reply::Failed(errno),
        Reply::Opened(opened) => Reply::Opened(opened),
        Reply::Written(written) => Reply::Written(written),
        Reply::Attributes(attributes) => Reply::Attributes(attributes),
        Reply::Number(number) => Reply::Number(number),
        Reply::FileSystem(system) => Reply::FileSystem(system),
        _ => return None,
    })
}

/// Whether a descriptor is one of ours.
pub(super) fn is_ours(fd: i32) -> bool {
    RESERVED.contains(&fd)
        || LANES
            .iter()
            .any(|lane| lane.fd.load(Ordering::Relaxed) == fd)
}
