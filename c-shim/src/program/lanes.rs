//! Streams to the shadow, one request at a time on each.
//!
//! ```text
//! free --call--> taken --answer--> free        no lane free: a new one; all taken: wait
//!                  `--the stream breaks--> a new stream, the same request again --> ...
//! ```
//! Signals wait while a lane is taken, so that no handler leaves one half-way by a jump; a call on a remote file is
//! as little interrupted as one on a disk. A request keeps its number when it is sent again, and a lane its own: the shadow
//! does not do it twice. Nothing tells whether a stream broke because the network did, or because the job goes on elsewhere.

use super::cache::{self, Changing};
use super::count::Waiting;
use super::fault;
use super::patience::Patience;
use super::stream::{self, Broken, Received, receive, send};
use super::sys::{self, Errno};
use super::{behind, direct, known, presence, process, waiting};
use crate::table::{RESERVED, Reserved};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use wire::{Close, CloseAll, MOST_DATA, Read, Reply, Request};

const MOST_LANES: usize = 16;
/// Bytes of an answer that come without being copied to where they belong at once.
const SCRATCH: usize = 32 << 10;

/// A stream.
struct Lane {
    taken: AtomicU32,
    /// -1: not open.
    fd: AtomicI32,
    /// By which the shadow knows it; 0: it has not been asked yet.
    number: AtomicU64,
    /// The number of a [`CloseAll`] whose answer has not been read; 0: none.
    owed: AtomicU64,
    /// What it closes, up to a 0.
    closes: Closes,
    scratch: &'static Scratch,
}

/// Handles that one message closes.
const MOST_CLOSED: usize = 64;
type Closes = [AtomicU64; MOST_CLOSED];

const fn no_closes() -> Closes {
    [const { AtomicU64::new(0) }; MOST_CLOSED]
}

/// Where an answer comes first; used by whoever has taken the lane.
struct Scratch(UnsafeCell<[u8; SCRATCH]>);

// SAFETY: used by whoever has set `taken`.
unsafe impl Sync for Scratch {}

static SCRATCHES: [Scratch; MOST_LANES] =
    [const { Scratch(UnsafeCell::new([0; SCRATCH])) }; MOST_LANES];

const fn lane(number: usize) -> Lane {
    Lane {
        taken: AtomicU32::new(0),
        fd: AtomicI32::new(-1),
        number: AtomicU64::new(0),
        owed: AtomicU64::new(0),
        closes: no_closes(),
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
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// For a request.
pub(super) fn next_number() -> u64 {
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// We are a fork's child: the streams are our parent's.
pub(super) fn forget() {
    for lane in &LANES {
        let fd = lane.fd.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            sys::close(fd);
        }
        lane.number.store(0, Ordering::Relaxed);
        lane.owed.store(0, Ordering::Relaxed);
        lane.taken.store(0, Ordering::Relaxed);
    }
    waiting::forget();
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
/// What the shadow answered. While it cannot be reached, this waits ([`super::patience`]).
pub(super) fn ask<T>(
    request: &Request<'_>,
    data: (*const u8, usize),
    into: Put,
    look: impl FnOnce(Answer<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    if !is_spoken(request) {
        return Err(Errno(sys::EOPNOTSUPP));
    }
    behind::before(request);
    let _undisturbed = sys::Undisturbed::begin();
    let _changing = cache::changes(request).map(Changing::begin);
    ask_noting(request, data, into, &|_, _| (), look)
}

/// Whether the shadow, which may be an older one, knows what this asks.
fn is_spoken(request: &Request<'_>) -> bool {
    let spoken = process::table().map_or(0, |table| table.spoken.load(Ordering::Relaxed));
    // Where nothing has been asked yet, nothing is known of it.
    spoken == 0 || request.is_spoken_in(spoken as u16)
}

/// As [`ask`], of what is counted and sent by the caller, who is told the lane and the number of the request before it is sent.
/// Signals wait already.
///
/// # Errors
/// As [`ask`].
pub(super) fn ask_noting<T>(
    request: &Request<'_>,
    data: (*const u8, usize),
    into: Put,
    note: &dyn Fn(u64, u64),
    look: impl FnOnce(Answer<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let _waiting = Waiting::begin(request);
    let number = next_number();
    if !process::is_own() {
        return borrowing(0, |lane| {
            note(number_of(lane), number);
            exchange(lane, number, request, data, into, look)
        });
    }
    let lane = take();
    note(number_of(lane), number);
    let result = exchange(lane, number, request, data, into, look);
    lane.taken.store(0, Ordering::Release);
    result
}

/// Parts of files, asked for all at once.
pub(super) const PARTS: usize = 16;

/// A part of a file, and where it is wanted.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) read: Read,
    pub(super) place: *mut u8,
}

/// Reads a part of a file into the program's memory in one round trip; how many bytes have come. What is missing is to be asked for by
/// [`ask`], which waits for the shadow where this does not, and says what is wrong.
pub(super) fn read_through(handle: u64, offset: u64, place: *mut u8, len: usize) -> usize {
    let mut end = 0;
    let parts = core::iter::from_fn(|| {
        let begin = end;
        end += (len - begin).min(MOST_DATA);
        (end > begin).then(|| Part {
            read: Read {
                handle,
                offset: offset + begin as u64,
                len: (end - begin) as u32,
            },
            place: place.wrapping_add(begin),
        })
    });
    read_parts(parts).1
}

/// Reads parts of files, [`PARTS`] at most, in one round trip; how many have come whole, and how many bytes in all, one behind another.
pub(super) fn read_parts(parts: impl Iterator<Item = Part>) -> (usize, usize) {
    let _undisturbed = sys::Undisturbed::begin();
    if !process::is_own() {
        return (0, 0);
    }
    let lane = take();
    // SAFETY: the lane is taken by us.
    let scratch = unsafe { &mut *lane.scratch.0.get() };
    let (mut whole, mut done) = (0, 0);
    let tried = connected(lane, scratch).and_then(|fd| {
        let mut asked = [None; PARTS];
        let mut waiting = None;
        for (place, part) in asked.iter_mut().zip(parts) {
            let request = Request::Read(part.read);
            waiting.get_or_insert_with(|| Waiting::begin(&request));
            let number = next_number();
            let size = request.message(number, 0, scratch);
            let size = size.map_err(|_| Broken::Stream)?;
            send(fd, &scratch[..size], (core::ptr::null(), 0))?;
            *place = Some((number, part));
        }
        answer_owed(lane, fd)?;
        for (number, part) in asked.into_iter().flatten() {
            let wanted = part.read.len as usize;
            let got = receive(fd, scratch, number, Put::Program(part.place, wanted))?;
            done += got.len;
            // The rest would have a gap, or does not answer this.
            if got.len < wanted || got.reply != Reply::Done {
                return Err(Broken::Stream);
            }
            whole += 1;
        }
        Ok(())
    });
    if tried.is_err() {
        let fd = lane.fd.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            sys::close(fd);
        }
    }
    lane.taken.store(0, Ordering::Release);
    (whole, done)
}

/// The same request as one that was noted by somebody who has ended since.
///
/// # Errors
/// As [`ask`].
pub(super) fn ask_again<T>(
    (lane, number): (u64, u64),
    request: &Request<'_>,
    data: (*const u8, usize),
    look: impl FnOnce(Answer<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    borrowing(lane, |lane| {
        exchange(lane, number, request, data, Put::Lane, look)
    })
}

/// With a lane of one's own, for a while: as a child of vfork does, of whose parent's memory nothing is used but for what it maps itself,
/// so that it may be killed at any moment. `number`: by which the shadow knows it, or 0.
fn borrowing<T>(number: u64, act: impl FnOnce(&Lane) -> Result<T, Errno>) -> Result<T, Errno> {
    // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS
    let room = sys::map(SCRATCH as u64, 3, 0x22, -1)?;
    let lane = Lane {
        taken: AtomicU32::new(1),
        fd: AtomicI32::new(-1),
        number: AtomicU64::new(number),
        owed: AtomicU64::new(0),
        closes: no_closes(),
        // SAFETY: the room is mapped until the lane is used no more.
        scratch: unsafe { &*room.cast::<Scratch>() },
    };
    let result = act(&lane);
    let fd = lane.fd.load(Ordering::Relaxed);
    if fd >= 0 {
        sys::close(fd);
    }
    // SAFETY: it was mapped above.
    let _ = unsafe { sys::call(sys::MUNMAP, [room as u64, SCRATCH as u64]) };
    result
}

/// As [`ask`], for what is answered by a word.
///
/// # Errors
/// As [`ask`].
pub(super) fn tell(request: &Request<'_>) -> Result<(), Errno> {
    ask(request, (core::ptr::null(), 0), Put::Lane, |_| Ok(()))
}

/// Closes at the shadow, without waiting for the answer. While one is awaited, what is to be closed is collected, and told with the next message.
pub(super) fn close(handle: u64) {
    close_all(core::iter::once(handle));
}

/// As [`close`], of many.
pub(super) fn close_all(handles: impl Iterator<Item = u64>) {
    let _undisturbed = sys::Undisturbed::begin();
    let table = process::table().filter(|_| process::is_own());
    let mut is_pending = false;
    for handle in handles {
        if table.is_some_and(|table| table.closing.put(handle)) {
            is_pending = true;
        } else {
            let _ = tell(&Request::Close(Close { handle }));
        }
    }
    if !is_pending {
        return;
    }
    let lane = take();
    let fd = lane.fd.load(Ordering::Relaxed);
    if fd >= 0 && lane.owed.load(Ordering::Relaxed) != 0 && !stream::has_come(fd) {
        lane.taken.store(0, Ordering::Release);
        return;
    }
    // SAFETY: the lane is taken by us.
    let scratch = unsafe { &mut *lane.scratch.0.get() };
    let mut patience = Patience::new();
    loop {
        let tried = connected(lane, scratch).and_then(|fd| {
            answer_owed(lane, fd)?;
            close_pending(lane, fd, scratch)
        });
        match tried {
            Ok(()) => break,
            // Without a descriptor for a stream they are closed with what is sent next.
            Err(broken) => {
                if hang_up(lane, broken, &mut patience).is_err() {
                    break;
                }
            }
        }
    }
    lane.taken.store(0, Ordering::Release);
}

/// The lane's stream; on a new one what was being closed is told once more.
fn connected(lane: &Lane, scratch: &mut [u8; SCRATCH]) -> Result<i32, Broken> {
    let known = lane.fd.load(Ordering::Relaxed);
    if known >= 0 {
        return Ok(known);
    }
    let fd = stream::begin(scratch, number_of(lane))?;
    lane.fd.store(fd, Ordering::Relaxed);
    if lane.owed.load(Ordering::Relaxed) != 0 {
        send_closes(lane, fd, scratch)?;
    }
    Ok(fd)
}

/// Has what is to be closed closed, if no other such message is on its way.
fn close_pending(lane: &Lane, fd: i32, room: &mut [u8]) -> Result<(), Broken> {
    let Some(table) = process::table().filter(|table| !table.closing.is_empty()) else {
        return Ok(());
    };
    if lane.owed.load(Ordering::Relaxed) != 0 || !process::is_own() {
        return Ok(());
    }
    let mut handles = [0; MOST_CLOSED];
    if table.closing.drain(&mut handles) == 0 {
        return Ok(());
    }
    for (place, handle) in lane.closes.iter().zip(handles) {
        place.store(handle, Ordering::Relaxed);
    }
    lane.owed.store(next_number(), Ordering::Relaxed);
    send_closes(lane, fd, room)
}

fn send_closes(lane: &Lane, fd: i32, room: &mut [u8]) -> Result<(), Broken> {
    let mut handles = [0u64; MOST_CLOSED];
    for (handle, place) in handles.iter_mut().zip(&lane.closes) {
        *handle = place.load(Ordering::Relaxed);
    }
    let count = handles.iter().take_while(|handle| **handle != 0).count();
    let request = Request::CloseAll(CloseAll {});
    let number = lane.owed.load(Ordering::Relaxed);
    let len = request.message(number, 8 * count, room);
    let len = len.map_err(|_| Broken::Stream)?;
    Ok(send(
        fd,
        &room[..len],
        (handles.as_ptr().cast(), 8 * count),
    )?)
}

/// Reads what is owed, and nothing behind it.
fn answer_owed(lane: &Lane, fd: i32) -> Result<(), Broken> {
    let owed = lane.owed.load(Ordering::Relaxed);
    if owed != 0 {
        stream::receive_word(fd, owed)?;
        lane.owed.store(0, Ordering::Relaxed);
    }
    Ok(())
}

fn number_of(lane: &Lane) -> u64 {
    let known = lane.number.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut bytes = [0; 8];
    // Without one it is a stream that is not known again.
    let _ = sys::random(&mut bytes);
    let number = u64::from_ne_bytes(bytes);
    lane.number.store(number, Ordering::Relaxed);
    number
}

/// It cannot be told what is on its way on the stream that there was; returns when another may be tried.
fn hang_up(lane: &Lane, broken: Broken, patience: &mut Patience) -> Result<(), Errno> {
    let fd = lane.fd.swap(-1, Ordering::Relaxed);
    if fd >= 0 {
        sys::close(fd);
    }
    patience.after(broken)
}

fn take() -> &'static Lane {
    loop {
        // One that is open is better.
        for open in [true, false] {
            for lane in &LANES {
                if (lane.fd.load(Ordering::Relaxed) >= 0) == open
                    && lane.taken.swap(1, Ordering::Acquire) == 0
                {
                    return lane;
                }
            }
        }
        sys::give_way();
    }
}

fn exchange<T>(
    lane: &Lane,
    number: u64,
    request: &Request<'_>,
    data: (*const u8, usize),
    into: Put,
    look: impl FnOnce(Answer<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: the lane is taken by us.
    let scratch = unsafe { &mut *lane.scratch.0.get() };
    let asked = known::ask_missing(request);
    let mut patience = Patience::new();
    let Received { reply, from, len } = loop {
        let tried = connected(lane, scratch).and_then(|fd| {
            close_pending(lane, fd, scratch)?;
            let Ok(len) = request.message(number, data.1, scratch) else {
                return Ok(None);
            };
            fault::at("asking");
            send(fd, &scratch[..len], data)?;
            fault::at("asked");
            answer_owed(lane, fd)?;
            receive(fd, scratch, number, into).map(Some)
        });
        match tried {
            Ok(Some(received)) => {
                fault::at("answered");
                break received;
            }
            Ok(None) => return Err(Errno(sys::ENAMETOOLONG)),
            Err(broken) => hang_up(lane, broken, &mut patience)?,
        }
    };
    let data = match into {
        Put::Lane => scratch.get(from..from + len).unwrap_or_default(),
        // SAFETY: so many bytes were put there.
        Put::Program(place, _) => unsafe { core::slice::from_raw_parts(place, len) },
    };
    if let Reply::Failed(errno) = reply {
        let error = Errno(errno.into());
        if error == Errno(sys::ENOENT) {
            known::learn_missing(request, data, asked);
        }
        return Err(error);
    }
    look(Answer { reply, data })
}

/// Whether a descriptor is one of ours.
pub(super) fn is_ours(fd: i32) -> bool {
    RESERVED.contains(&fd) && (fd != Reserved::Presence.number() || presence::is_there())
        || LANES
            .iter()
            .any(|lane| lane.fd.load(Ordering::Relaxed) == fd)
        || waiting::is_ours(fd)
        || direct::is_ours(fd)
}
