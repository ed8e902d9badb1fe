//! What the process that has put memory in its place is told, and how P0 asks it for a P1 ([`crate::ahead`]).
//!
//! ```text
//! message: kind (1), number of descriptors (1), the numbers they are to have (4 each, little-endian), words, each with a NUL
//! whoever keeps the seat --IMAGE (image)--> D     P0 --INIT (all of its own, control)--> D --pid (4)--> P0
//! ```

use crate::abi::*;
use crate::context::{Context, Own};
use crate::options::{Options, Prepared};
use crate::raw_call::call;
use crate::report::{Outcome, failure};
use crate::sys::{self, Errno, SysResult};
use core::ffi::CStr;
use loader::knock::{INIT, MOST_BYTES};

/// Most descriptors in a message.
const MOST_FDS: usize = 80;
/// How long P0 waits for its P1: as long as a restart takes that reads all of a large image.
const WITHIN_S: i64 = 60;
const SYS_RECVMSG: u64 = 47;
const MSG_CMSG_CLOEXEC: u64 = 0x4000_0000;
const MSG_NOSIGNAL: u64 = 0x4000;
const SOL_SOCKET: u32 = 1;
const SCM_RIGHTS: u32 = 1;

/// A control message of descriptors.
#[repr(C, align(8))]
struct Rights {
    len: u64,
    level: u32,
    kind: u32,
    fds: [i32; MOST_FDS],
}

impl Rights {
    const EMPTY: Rights = Rights {
        len: 0,
        level: SOL_SOCKET,
        kind: SCM_RIGHTS,
        fds: [-1; MOST_FDS],
    };
}

/// Sends or receives; how many bytes.
fn pass(nr: u64, door: i32, bytes: &mut [u8], rights: &mut Rights, len: u64) -> SysResult<usize> {
    let part = IoVec {
        base: bytes.as_mut_ptr() as u64,
        len: bytes.len() as u64,
    };
    let header = MessageHeader::new(&part, core::ptr::from_mut(rights) as u64, len);
    let flags = match nr {
        SYS_RECVMSG => MSG_CMSG_CLOEXEC,
        _ => MSG_NOSIGNAL,
    };
    loop {
        // SAFETY: the kernel reads or writes within the header's buffers, which live until the call returns.
        match unsafe { call(nr, [door as u64, &raw const header as u64, flags]) } {
            Err(Errno(EINTR)) => {}
            other => return other.map(|len| len as usize),
        }
    }
}

/// What D is told.
pub struct Told {
    pub options: Options,
    /// The name it is started by.
    pub argv0: &'static CStr,
    /// Where P1 and P0 speak, if P1 is asked for.
    pub control: Option<i32>,
    /// The door has another number now.
    pub door: i32,
}

/// Waits for the newest message, and gives its descriptors their numbers; all others of ours are closed.
/// None: there is nobody any more who could want something, or nothing can be made of it.
pub fn hear(door: i32, room: &'static mut [u8]) -> Option<Told> {
    let mut rights;
    let mut len;
    loop {
        rights = Rights::EMPTY;
        len = pass(
            SYS_RECVMSG,
            door,
            room,
            &mut rights,
            size_of::<Rights>() as u64,
        )
        .ok()?;
        let mut fds = [PollFd {
            fd: door,
            events: POLLIN,
            revents: 0,
        }];
        let _ = sys::poll(&mut fds, Some(Timespec::default()));
        if fds[0].revents & POLLIN == 0 || room.first() == Some(&INIT) {
            break;
        }
        for fd in rights.fds.iter().filter(|fd| **fd >= 0) {
            sys::close(*fd);
        }
    }
    let room: &'static [u8] = room;
    let message = room.get(..len)?;
    let (&[kind, count], rest) = message.split_first_chunk::<2>()?;
    let count = usize::from(count);
    let (numbers, words) = rest.split_at_checked(count * 4)?;
    let came = rights.fds.get(..count)?;
    if rights.len != 16 + 4 * count as u64 || count == 0 {
        return None;
    }
    let mut numbers_of = [0i32; MOST_FDS];
    for (to, from) in numbers_of.iter_mut().zip(numbers.as_chunks::<4>().0) {
        *to = i32::from_le_bytes(*from);
    }
    let numbers = numbers_of.get(..count)?;
    let (door, last) = give_numbers(door, came, numbers, kind == INIT)?;
    let control = (kind == INIT).then_some(last);
    let mut words = words;
    let mut next = || {
        let len = words.iter().position(|byte| *byte == 0)? + 1;
        let (word, rest) = words.split_at(len);
        words = rest;
        CStr::from_bytes_with_nul(word).ok()
    };
    let argv0 = next()?;
    let options = Options::read(core::iter::from_fn(next)).ok()?;
    Some(Told {
        options,
        argv0,
        control,
        door,
    })
}

/// Lets these descriptors be the only ones, with these numbers, but for the last if that is `ours`; those of the door and of
/// the last now, where they are in nobody's way.
fn give_numbers(door: i32, came: &[i32], numbers: &[i32], ours: bool) -> Option<(i32, i32)> {
    /// The slots of a restart are far below, as a rule.
    const FAR: u64 = 4000;
    let is_kept = |fd: i32| fd == door || came.contains(&fd);
    let highest = came.iter().chain(numbers).max().copied()?.max(door);
    let mut from = 0;
    for fd in 0..=highest {
        if is_kept(fd) {
            if fd > from {
                sys::close_range(from as u64, fd as u64 - 1);
            }
            from = fd + 1;
        }
    }
    sys::close_range(from as u64, u64::from(u32::MAX));
    let (soft, _) = sys::limit(RLIMIT_NOFILE).ok()?;
    let far = FAR.min(soft.saturating_sub(2 * MOST_FDS as u64));
    let least = far.max(highest as u64 + 1);
    let up = |fd: i32| sys::fcntl(fd, F_DUPFD_CLOEXEC, least).ok();
    let moved_door = up(door)? as i32;
    let mut moved = [-1; MOST_FDS];
    for (to, fd) in moved.iter_mut().zip(came) {
        *to = up(*fd)? as i32;
    }
    sys::close_range(0, highest as u64);
    let moved = moved.get(..came.len())?;
    let last = *moved.last()?;
    for (fd, number) in moved.iter().zip(numbers) {
        if ours && *fd == last {
            continue;
        }
        if *number < 0 {
            return None;
        }
        sys::dup_to(*fd, *number).ok()?;
        let _ = sys::fcntl(*number, F_SETFD, 0);
        sys::close(*fd);
    }
    Some((moved_door, last))
}

/// Tells P0 who its P1 is.
pub fn answer(door: i32, pid: i32) {
    let _ = sys::write(door, &pid.to_le_bytes());
}

/// P0 asks for a P1 that has memory of the job in its place, and speaks through `control`; its pid. None: there is none, and nobody
/// is left who could make one.
pub fn ask(context: &mut Context, control: i32) -> Option<i32> {
    let prepared = context.options.prepared?;
    let pid = send(context, prepared.door, control)
        .ok()
        .and_then(|()| hear_pid(prepared.door));
    if pid.is_none() {
        end(context);
    }
    pid
}

/// Ends the process that has memory of the job in its place, if there is one.
pub fn end(context: &mut Context) {
    if let Some(prepared) = context.options.prepared.take() {
        let _ = sys::kill(prepared.pid, SIGKILL);
        part(prepared);
    }
}

/// It has done what it was there for.
pub fn has_done(context: &mut Context) {
    if let Some(prepared) = context.options.prepared.take() {
        part(prepared);
    }
}

fn part(prepared: Prepared) {
    let _ = sys::wait(prepared.pid, WALL);
    sys::close(prepared.door);
}

fn hear_pid(door: i32) -> Option<i32> {
    let mut fds = [PollFd {
        fd: door,
        events: POLLIN,
        revents: 0,
    }];
    let within = Timespec {
        seconds: WITHIN_S,
        nanoseconds: 0,
    };
    let _ = sys::poll(&mut fds, Some(within));
    let mut pid = [0; 4];
    let is_there = fds[0].revents & POLLIN != 0;
    let len = is_there.then(|| sys::read(door, &mut pid).ok())??;
    (len == 4).then_some(i32::from_le_bytes(pid))
}

/// Sends all that P1 is to have of ours.
fn send(context: &Context, door: i32, control: i32) -> Outcome<()> {
    let failed = || failure!(Host, "more than fits into a message");
    let options = &context.options;
    let mut rights = Rights::EMPTY;
    let mut numbers = [0i32; MOST_FDS];
    let mut count = 0;
    let mut add = |fd: i32, number: i32| -> Outcome<()> {
        if sys::fcntl(fd, F_GETFD, 0).is_err() {
            return Ok(());
        }
        let places = rights.fds.get_mut(count).zip(numbers.get_mut(count));
        let (own, wanted) = places.ok_or_else(failed)?;
        (*own, *wanted) = (fd, number);
        count += 1;
        Ok(())
    };
    for fd in 0..3 {
        add(fd, fd)?;
    }
    for fd in options.inherited().iter().filter(|fd| **fd > 2) {
        add(*fd, *fd)?;
    }
    let told = [
        (Own::Image, options.image_fd),
        (Own::Keeper, options.keeper_fd),
        (Own::Starter, options.starter_fd),
    ];
    for (own, number) in told {
        if let Some(number) = number {
            add(context.fd(own), number)?;
        }
    }
    // P1 has it where it is in nobody's way.
    add(control, -1)?;
    rights.len = 16 + 4 * count as u64;
    let mut message = [0; MOST_BYTES];
    let mut len = 0;
    let mut put = |bytes: &[u8]| -> Outcome<()> {
        let place = message.get_mut(len..len + bytes.len());
        place.ok_or_else(failed)?.copy_from_slice(bytes);
        len += bytes.len();
        Ok(())
    };
    put(&[INIT, count as u8])?;
    for number in &numbers[..count] {
        put(&number.to_le_bytes())?;
    }
    for word in context.words.all() {
        put(word.to_bytes_with_nul())?;
    }
    let space = (rights.len as usize).next_multiple_of(8) as u64;
    let sent = pass(SYS_SENDMSG, door, &mut message[..len], &mut rights, space);
    match sent {
        Ok(sent) if sent == len => Ok(()),
        _ => Err(failed()),
    }
}
