//! Writing behind ([`crate::behind`]): what a program writes goes into the buffer of its file, and to the shadow when somebody needs it
//! there.
//!
//! ```text
//! write --> buffer --full, close, fsync, a read or any question about the file or a name, exit, exec, within a second--> shadow
//! ```
//! Whoever has a buffer is known by a record lock of the kernel's, which goes with him: so a buffer whose holder was killed is found
//! to be nobody's.
//!
//! # What it does not do
//! What is open with O_SYNC, O_DSYNC or O_DIRECT, written to descriptor 2, or mapped shared, is not delayed.

use super::calls;
use super::fault;
use super::lanes::{Put, ask_again, ask_noting};
use super::process;
use super::record_lock::{self, F_SETLK, F_UNLCK, F_WRLCK};
use super::resident;
use super::sys::{self, Errno, Undisturbed, call};
use crate::behind::{Held, IDS, Landed, Line, Owner, Piece, ROOM, Target, Trouble, place};
use crate::table::{Description, Table};
use core::sync::atomic::{AtomicU32, Ordering};
use wire::{Reply, Request, Write};

/// Writes of so many bytes go to the shadow without a copy.
pub(super) const LARGE: usize = ROOM / 2;
/// How long a buffer is waited for before it is looked whether its holder lives.
const LOOK_AFTER_NS: u64 = 10_000_000;
const DELAYS_NOT: u32 = 0o4_010_000 | sys::O_DIRECT;
const REGULAR: u32 = 0o100_000;
const TYPE: u32 = 0o170_000;

/// Who we are to others.
struct Me {
    id: u32,
    /// For this once: a child of vfork.
    borrows: bool,
}

impl Me {
    /// None if no lock is to be had.
    fn new(table: &Table) -> Option<Self> {
        let borrows = !process::is_own();
        let known = process::own().filter(|_| !borrows);
        if let Some(id @ 1..) = known.map(|own| own.writer.load(Ordering::Relaxed)) {
            return Some(Me { id, borrows });
        }
        let id = table.behind.new_id();
        sign(id, F_WRLCK).ok()?;
        let Some(own) = known else {
            return Some(Me { id, borrows });
        };
        let word = &own.writer;
        match word.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Some(Me { id, borrows }),
            Err(first) => {
                let _ = sign(id, F_UNLCK);
                Some(Me { id: first, borrows })
            }
        }
    }
}

impl Drop for Me {
    fn drop(&mut self) {
        if self.borrows {
            let _ = sign(self.id, F_UNLCK);
        }
    }
}

/// Says that we live, or not any more.
fn sign(id: u32, kind: i16) -> sys::SysResult<u64> {
    record_lock::set_own(F_SETLK, kind, IDS + i64::from(id), 1)
}

fn futex(word: &AtomicU32, operation: u64, value: u64, timeout: u64) {
    const FUTEX: u64 = 202;
    // SAFETY: the kernel looks at the word, and reads the time if there is one.
    let _ = unsafe { call(FUTEX, [word.as_ptr() as u64, operation, value, timeout]) };
}

impl Owner for Me {
    fn id(&self) -> u32 {
        self.id
    }

    fn is_alive(&self, id: u32) -> bool {
        // What cannot be asked is taken for alive.
        record_lock::is_anothers(IDS + i64::from(id))
    }

    fn wait(&self, word: &AtomicU32, value: u32) {
        let time = [0, LOOK_AFTER_NS];
        futex(word, 0, value.into(), &raw const time as u64);
    }

    fn wake(&self, word: &AtomicU32) {
        futex(word, 1, i32::MAX as u64, 0);
    }
}

/// The way that this process has.
struct Lanes;

fn parts<'a>(piece: &Piece<'a>) -> (Request<'a>, (*const u8, usize)) {
    let request = Request::Write(Write {
        handle: piece.handle,
        offset: piece.offset,
    });
    (request, (piece.data.as_ptr(), piece.data.len()))
}

fn landed(answer: super::lanes::Answer<'_>) -> Result<Landed, Errno> {
    fault::at("landed");
    match answer.reply {
        Reply::Written(written) => Ok(Landed {
            offset: written.offset,
            len: written.len,
        }),
        _ => Err(Errno(sys::EIO)),
    }
}

impl Line for Lanes {
    fn write(&mut self, piece: &Piece<'_>, sends: &dyn Fn(u64, u64)) -> Result<Landed, Trouble> {
        let (request, data) = parts(piece);
        let notes = |lane, number| {
            sends(lane, number);
            fault::at("noted");
        };
        let asked = ask_noting(&request, data, Put::Lane, &notes, landed);
        asked.map_err(|Errno(errno)| Trouble::Refused(errno))
    }

    fn again(&mut self, lane: u64, number: u64, piece: &Piece<'_>) -> Result<Landed, Trouble> {
        let (request, data) = parts(piece);
        let asked = ask_again((lane, number), &request, data, landed);
        asked.map_err(|Errno(errno)| Trouble::Refused(errno))
    }
}

fn send(held: &mut Held<'_, Me>, table: &Table) {
    fault::at("held");
    // The error is noted.
    let _ = held.send(table, &mut Lanes);
    fault::at("sent");
}

/// Sends what one buffer has, if `wanted`.
fn send_if(table: &Table, index: usize, wanted: impl FnOnce(&Held<'_, Me>) -> bool) {
    if !table.behind.is_dirty(index) {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let Some(me) = Me::new(table) else {
        return;
    };
    let mut held = table.behind.hold(index, &me);
    if wanted(&held) {
        send(&mut held, table);
    }
}

/// Sends all that the job has written.
pub(super) fn send_all() {
    if let Some(table) = process::table()
        && table.behind.is_any_dirty()
    {
        for index in table.behind.all_dirty() {
            send_if(table, index, |_| true);
        }
    }
}

/// Before the shadow is asked for something: it is to know all that was written. Of reads and writes those who ask know of which file.
pub(super) fn before(request: &Request<'_>) {
    if !matches!(
        request,
        Request::Read(_)
            | Request::Write(_)
            | Request::WriteAs(_)
            | Request::Close(_)
            | Request::NameOf(_)
    ) {
        send_all();
    }
}

/// Sends what was written to a file, by whatever descriptor.
pub(super) fn send_file(description: &Description) {
    if let Some(table) = process::table() {
        let file = description.file.load(Ordering::Relaxed);
        send_if(table, place(file), |held| held.is_of_file(file));
    }
}

/// A description is about to have no handle any more.
pub(super) fn send_last(table: &Table, index: usize) {
    let file = table.descriptions[index].file.load(Ordering::Relaxed);
    send_if(table, place(file), |held| held.is_of(index));
}

/// The error of what was written by this description and could not be sent, once.
pub(super) fn error(description: &Description) -> Result<(), Errno> {
    let error = &description.error;
    // Most have none, and the word is shared.
    match error.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => match error.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(Errno(errno)),
        },
    }
}

/// A descriptor is closed: what was written is at the shadow, or this says why not.
///
/// # Errors
/// See [`error`].
pub(super) fn close(description: &Description) -> Result<(), Errno> {
    send_file(description);
    error(description)
}

/// Where bytes go, and how they are copied there.
pub(super) struct Bytes<F: FnOnce(*mut u8)> {
    pub(super) len: usize,
    pub(super) copy: F,
}

/// Bytes of a file that may be kept back.
fn most(table: &Table) -> usize {
    table.header.habits.behind as usize
}

/// Whether what is written to this may be delayed.
fn may_delay(description: &Description) -> bool {
    description.mode.load(Ordering::Relaxed) & TYPE == REGULAR
        && description.flags.load(Ordering::Relaxed) & DELAYS_NOT == 0
}

/// Writes behind, at the description's own offset or at another. None: it is to be written at once, and all that was written before
/// is at the shadow.
pub(super) fn write(
    index: usize,
    description: &Description,
    at: Option<u64>,
    bytes: Bytes<impl FnOnce(*mut u8)>,
) -> Option<Result<(), Errno>> {
    let table = process::table()?;
    let file = description.file.load(Ordering::Relaxed);
    let appends = description.flags.load(Ordering::Relaxed) & sys::O_APPEND != 0;
    let end = at.unwrap_or_else(|| description.offset.load(Ordering::Relaxed)) as i64;
    let delays = may_delay(description)
        && bytes.len < LARGE
        && bytes.len <= most(table)
        && !(appends && at.is_some())
        && end.checked_add(ROOM as i64).is_some();
    if !delays && !table.behind.is_dirty(place(file)) {
        return None;
    }
    let _undisturbed = Undisturbed::begin();
    let me = Me::new(table)?;
    let mut held = table.behind.hold(place(file), &me);
    // Whoever maps it says so first, and then sends what is here.
    if !delays || resident::is_resident(description) {
        if held.is_of_file(file) {
            send(&mut held, table);
        }
        drop(held);
        return match error(description) {
            Ok(()) => None,
            Err(error) => Some(Err(error)),
        };
    }
    Some(
        put(table, &mut held, index, description, at, bytes).map(|first| {
            drop(held);
            if first {
                wake_keeper(table);
            }
        }),
    )
}

/// As [`write`], if that needs nothing but memory: behind what is there, by somebody who can hold buffers. Nobody may be disturbed
/// ([`super::fast`]).
pub(super) fn write_fast(
    id: u32,
    index: usize,
    description: &Description,
    from: u64,
    len: usize,
) -> bool {
    let Some(table) = process::table() else {
        return false;
    };
    let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
    let flags = word(&description.flags);
    if len == 0
        || calls::are_limits_set()
        || len >= LARGE
        || len > most(table)
        || flags & (DELAYS_NOT | sys::O_PATH) != 0
        || flags & sys::O_ACCMODE == 0
        || description.error.load(Ordering::Relaxed) != 0
        || word(&table.residents.live) != 0
    {
        return false;
    }
    let own = &description.offset;
    let begin = own.load(Ordering::Relaxed);
    let appends = flags & sys::O_APPEND != 0;
    let target = Target {
        file: description.file.load(Ordering::Relaxed),
        handle: description.handle.load(Ordering::Relaxed),
        description: index,
        name: description.name[0].load(Ordering::Relaxed),
        offset: (!appends).then_some(begin),
        most: most(table),
    };
    // The place is ours before the bytes are there.
    let claim = || {
        let end = begin.wrapping_add(len as u64);
        let order = Ordering::Relaxed;
        appends || own.compare_exchange(begin, end, order, order).is_ok()
    };
    let copy = |to: *mut u8| {
        // SAFETY: the program says that so much is there; in the buffer there is room for it.
        unsafe { super::fast::copy(from as *const u8, to, len) };
    };
    table.behind.try_put(id, &target, len, claim, copy)
}

fn put(
    table: &Table,
    held: &mut Held<'_, Me>,
    index: usize,
    description: &Description,
    at: Option<u64>,
    bytes: Bytes<impl FnOnce(*mut u8)>,
) -> Result<bool, Errno> {
    use crate::behind::Put::{Done, Full};
    let own = &description.offset;
    let appends = description.flags.load(Ordering::Relaxed) & sys::O_APPEND != 0;
    let mut target = Target {
        file: description.file.load(Ordering::Relaxed),
        handle: description.handle.load(Ordering::Relaxed),
        description: index,
        name: description.name[0].load(Ordering::Relaxed),
        offset: at.or_else(|| (!appends).then(|| own.load(Ordering::Relaxed))),
        most: most(table),
    };
    if !held.fits(&target, bytes.len) {
        send(held, table);
    }
    error(description)?;
    if at.is_none() && !appends {
        // The place is ours before the bytes are there: two writers never write over each other.
        let begin = own.fetch_add(bytes.len as u64, Ordering::Relaxed);
        if target.offset != Some(begin) {
            // Somebody has read or sought meanwhile.
            target.offset = Some(begin);
            if !held.fits(&target, bytes.len) {
                send(held, table);
            }
        }
    }
    match held.put(&target, bytes.len, bytes.copy) {
        Done { first } => {
            fault::at("put");
            if first {
                // What was learnt before is not believed any more.
                let changes = crate::versions::Changes::File(target.file);
                table.versions.count(changes);
            }
            Ok(first)
        }
        Full => Err(Errno(sys::EIO)),
    }
}

/// It sends what nobody else has sent for a while.
fn wake_keeper(table: &Table) {
    let idle = &table.behind.idle;
    if idle.load(Ordering::SeqCst) != 0 && idle.swap(0, Ordering::SeqCst) != 0 {
        futex(idle, 1, i32::MAX as u64, 0);
    }
}
