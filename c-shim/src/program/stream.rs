//! A stream to the shadow: begun, and messages on it.

use super::lanes::Put;
use super::sys::{self, CONNECT, Errno, RECVFROM, SENDMSG, SOCKET, call};
use super::{presence, process, renewal};
use crate::link::{LINK_LEN, Link};
use crate::table::{RESERVED, Reserved};
use core::sync::atomic::Ordering;
use wire::{HEAD_LEN, Head, Hello, Reply, Role};

const MSG_NOSIGNAL: u64 = 0x4000;
const SOCK_STREAM_CLOEXEC: u64 = 0o2_000_001;
/// Of the shadow's reason, as much is told.
const REASON_LEN: usize = 88;

/// Why there is no stream, or no answer on it.
#[derive(Clone, Copy)]
pub(super) enum Broken {
    /// It is not there, or not any more: it may be made anew.
    Stream,
    /// The shadow does not serve us, and never will.
    Refused(Reason),
    /// It is because of us: a bad pointer, no descriptor left.
    Here(Errno),
}

/// What the shadow says, for people.
#[derive(Clone, Copy)]
pub(super) struct Reason {
    text: [u8; REASON_LEN],
    len: usize,
}

impl Reason {
    pub(super) fn new(text: &[u8]) -> Self {
        let len = text.len().min(REASON_LEN);
        let mut kept = [0; REASON_LEN];
        kept[..len].copy_from_slice(&text[..len]);
        Reason { text: kept, len }
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

impl From<Errno> for Broken {
    fn from(errno: Errno) -> Self {
        const PASSING: [i32; 10] = [
            sys::ENOENT,
            sys::EBADF,
            sys::EAGAIN,
            sys::EPIPE,
            sys::ENOTSOCK,
            sys::ECONNABORTED,
            sys::ECONNRESET,
            sys::ENOTCONN,
            sys::ETIMEDOUT,
            sys::ECONNREFUSED,
        ];
        if PASSING.contains(&errno.0) {
            Broken::Stream
        } else {
            Broken::Here(errno)
        }
    }
}

/// Where the shadow is, now.
pub(super) fn link() -> Option<Link> {
    let mut bytes = [0; LINK_LEN];
    let len = sys::pread(Reserved::Link.number(), &mut bytes, 0).ok()?;
    if len < LINK_LEN {
        return None;
    }
    Link::read(&bytes)
}

/// A new stream of the job's session, greeted; `lane` is how the shadow knows it again.
pub(super) fn begin(room: &mut [u8], lane: u64) -> Result<i32, Broken> {
    let Some(link) = link() else {
        let why = b"descriptor 1010 does not say where the shadow is";
        return Err(Broken::Refused(Reason::new(why)));
    };
    if let Some(table) = process::table() {
        renewal::look(table, &link);
    }
    let fd = connect(&link)?;
    let hello = Hello::new(Role::Shim, link.token, link.session, link.incarnation).of_lane(lane);
    let greeted = (|| {
        let len = hello.message(room).map_err(|_| Broken::Stream)?;
        send(fd, &room[..len], (core::ptr::null(), 0))?;
        match receive(fd, room, 0, Put::Lane)?.reply {
            Reply::Welcome(welcome) => {
                if let Some(table) = process::table() {
                    let spoken = u32::from(welcome.version);
                    table.spoken.store(spoken, Ordering::Relaxed);
                }
                Ok(fd)
            }
            _ => Err(Broken::Stream),
        }
    })();
    if greeted.is_err() {
        sys::close(fd);
    } else {
        // By now what served us before has ended, all of it.
        presence::look();
    }
    match greeted {
        // The job has been moved since we looked where the shadow is.
        Err(Broken::Refused(_)) if self::link().is_some_and(|now| now != link) => {
            Err(Broken::Stream)
        }
        greeted => greeted,
    }
}

/// The same behind all that are the job's.
pub(super) fn out_of_the_way(low: i32) -> Result<i32, Errno> {
    let behind = RESERVED[RESERVED.len() - 1] as u64 + 1;
    let high = sys::fcntl(low, sys::F_DUPFD_CLOEXEC, behind);
    // Among the job's own it would be the job's to close.
    sys::close(low);
    high.map(|high| high as i32)
}

fn connect(link: &Link) -> Result<i32, Errno> {
    #[repr(C)]
    struct Address {
        family: u16,
        path: [u8; 108],
    }
    let address = Address {
        family: 1,
        path: link.socket,
    };
    let len = 2 + u64::from(link.socket_len) + 1;
    // SAFETY: the kernel reads the address.
    let low = unsafe { call(SOCKET, [1, SOCK_STREAM_CLOEXEC, 0]) }? as i32;
    let fd = out_of_the_way(low)?;
    let args = [fd as u64, &raw const address as u64, len];
    // SAFETY: the kernel reads so many bytes of the address.
    match unsafe { call(CONNECT, args) } {
        Ok(_) => Ok(fd),
        Err(errno) => {
            sys::close(fd);
            Err(errno)
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
pub(super) fn send(fd: i32, message: &[u8], data: (*const u8, usize)) -> Result<(), Errno> {
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
pub(super) struct Received {
    pub(super) reply: Reply<'static>,
    pub(super) from: usize,
    pub(super) len: usize,
}

/// The answer to a request; what does not go elsewhere must have room behind its head.
pub(super) fn receive(
    fd: i32,
    scratch: &mut [u8],
    number: u64,
    into: Put,
) -> Result<Received, Broken> {
    let broken = Broken::Stream;
    let mut filled = 0;
    let mut wanted = HEAD_LEN;
    let mut head = None;
    while filled < wanted {
        filled += some(fd, scratch[filled..].as_mut_ptr(), scratch.len() - filled)?;
        if head.is_none() && filled >= HEAD_LEN {
            let read = Head::read(scratch).map_err(|_| broken)?;
            wanted += read.body_len as usize;
            head = Some(read);
        }
    }
    let head = head.ok_or(broken)?;
    let body = scratch.get(HEAD_LEN..wanted).ok_or(broken)?;
    let reply = owned(Reply::decode(head.kind, body).map_err(|_| broken)?)?;
    let whole = head.data_len as usize;
    let (place, room) = match into {
        Put::Lane => (core::ptr::null_mut(), scratch.len().saturating_sub(wanted)),
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

/// The answer to a request that is answered by a word, and nothing behind it.
pub(super) fn receive_word(fd: i32, number: u64) -> Result<(), Broken> {
    const ROOM: usize = 256;
    let mut bytes = [0; ROOM];
    let mut filled = 0;
    let mut wanted = HEAD_LEN;
    while filled < wanted {
        filled += some(fd, bytes[filled..].as_mut_ptr(), wanted - filled)?;
        if filled == HEAD_LEN && wanted == HEAD_LEN {
            let head = Head::read(&bytes).map_err(|_| Broken::Stream)?;
            wanted += head.body_len as usize;
            if head.number != number || head.data_len != 0 || wanted > ROOM {
                return Err(Broken::Stream);
            }
        }
    }
    Ok(())
}

/// Something can be read, or the stream has ended.
pub(super) fn has_come(fd: i32) -> bool {
    const POLLIN: u64 = 1;
    let mut asked = u64::from(fd as u32) | POLLIN << 32;
    let place = &raw mut asked as u64;
    // SAFETY: the kernel reads and writes one `struct pollfd`.
    let ready = unsafe { call(sys::POLL, [place, 1, 0]) };
    ready != Ok(0)
}

/// Receives at least one byte.
fn some(fd: i32, to: *mut u8, len: usize) -> Result<usize, Errno> {
    loop {
        let args = [fd as u64, to as u64, len as u64, 0, 0, 0];
        // SAFETY: the kernel writes where the caller has room.
        match unsafe { call(RECVFROM, args) } {
            Ok(0) => return Err(Errno(sys::ECONNRESET)),
            Ok(len) => return Ok(len as usize),
            Err(Errno(sys::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Without what it borrows.
fn owned(reply: Reply<'_>) -> Result<Reply<'static>, Broken> {
    Ok(match reply {
        Reply::Welcome(welcome) => Reply::Welcome(welcome),
        Reply::Done => Reply::Done,
        Reply::Failed(errno) => Reply::Failed(errno),
        Reply::Opened(opened) => Reply::Opened(opened),
        Reply::Written(written) => Reply::Written(written),
        Reply::Attributes(attributes) => Reply::Attributes(attributes),
        Reply::Number(number) => Reply::Number(number),
        Reply::FileSystem(system) => Reply::FileSystem(system),
        Reply::Held(held) => Reply::Held(held),
        Reply::Refused(refusal) if !refusal.passing => {
            return Err(Broken::Refused(Reason::new(refusal.reason.as_bytes())));
        }
        _ => return Err(Broken::Stream),
    })
}
