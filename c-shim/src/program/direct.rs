//! Files that this machine sees, too (a shared file system): read here, not at the shadow (docs/adr/0022-files-seen-twice.md).
//!
//! ```text
//! bytes are to be fetched --what the shadow calls it, as its folder is called here--> open(2) --the same file?--> pread(2), close(2)
//!                            `--unchanged by the job since its attributes were told       `--else, or anything fails--> the shadow is asked
//! ```
//! # What callers may rely on
//! It is looked at anew whenever bytes are fetched, and no descriptor stays. A checkpoint knows one that is open by its flags ([`crate::habits::READS_HERE`]), and a
//! job that goes on elsewhere finds out there.
//!
//! # What it does not do
//! It never writes: what a job changes goes through the shadow, whose journal can undo it.

use super::lanes::{Put, ask};
use super::stream::{self, out_of_the_way};
use super::sys::{self, Errno, call};
use crate::link::MOUNTS_AT;
use crate::rules::{Name, RULES_LEN, Rules};
use crate::table::{Description, Reserved};
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};
use wire::{Attributes, NameOf, Request};

/// Bytes of a name that is kept, with its end.
const ROOM: usize = 512;
/// Threads that read so at once.
const READERS: usize = 16;
/// `struct stat`'s words: where what is.
const INODE: usize = 1;
const MODE: usize = 3;
const SIZE: usize = 6;
const MODIFIED: usize = 11;
const CHANGED: usize = 13;

/// How a file may be read here.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// On which machine that was found out ([`crate::link::Link::generation`]); 0: nobody has asked.
    asked_on: u64,
    /// By this name, which ends with a zero; empty: it may not, or nobody has asked.
    name: [u8; ROOM],
    /// Pieces that have come from the shadow since its attributes were asked for.
    missed: u32,
}

impl Way {
    /// Nobody has looked.
    pub(super) const UNKNOWN: Way = Way {
        asked_on: 0,
        name: [0; ROOM],
        missed: 0,
    };

    /// Whether it may be tried, on this machine.
    pub(super) fn is_open(&self, machine: Machine) -> bool {
        self.asked_on != machine.0 || self.name[0] != 0
    }

    /// Whether it is worth a question for its attributes, when a piece of so many bytes is to be had.
    pub(super) fn is_worth(&mut self, len: usize) -> bool {
        const LARGE: usize = 64 << 10;
        const OFTEN: u32 = 4;
        self.missed += 1;
        let is_worth = len >= LARGE || self.missed >= OFTEN;
        if is_worth {
            self.missed = 0;
        }
        is_worth
    }
}

/// Where the job runs.
#[derive(Clone, Copy)]
pub(super) struct Machine(u64);

/// Descriptors of the threads that are reading; -1: nobody's.
static OPEN: [AtomicI32; READERS] = [const { AtomicI32::new(-1) }; READERS];

/// Whether a descriptor is one of ours.
pub(super) fn is_ours(fd: i32) -> bool {
    OPEN.iter().any(|one| one.load(Ordering::Relaxed) == fd)
}

/// We are a fork's child: what other threads of our parent were reading is nobody's.
pub(super) fn forget() {
    for one in &OPEN {
        let fd = one.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            sys::close(fd);
        }
    }
}

/// Where the job runs, if its files may be read there at all.
pub(super) fn machine() -> Option<Machine> {
    let link = stream::link().filter(|link| link.reads_here != 0)?;
    Some(Machine(link.generation))
}

/// Reads here, if it is the file with these attributes; how much, which is less than `len` at the end of the file only. `to` is memory for as much.
pub(super) fn read(
    way: &mut Way,
    machine: Machine,
    (description, attributes): (&Description, &Attributes),
    (to, len): (*mut u8, usize),
    offset: u64,
) -> Option<usize> {
    if way.asked_on != machine.0 {
        way.name = name_here(description).unwrap_or([0; ROOM]);
        way.asked_on = machine.0;
    }
    let name = CStr::from_bytes_until_nul(&way.name).ok()?;
    if name.is_empty() {
        return None;
    }
    let done = Reader::open(name, attributes).and_then(|reader| reader.read(to, len, offset));
    if done == Err(Why::Another) {
        way.name[0] = 0;
    }
    done.ok()
}

/// Why nothing was read here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// It is another file, or there is none, or it may not be read.
    Another,
    /// It may be possible the next time.
    NotNow,
}

impl From<Errno> for Why {
    fn from(error: Errno) -> Self {
        match error.0 {
            sys::EINTR | sys::EMFILE | sys::ENFILE => Why::NotNow,
            _ => Why::Another,
        }
    }
}

/// What an open file is called on this machine, if it is there.
fn name_here(description: &Description) -> Option<[u8; ROOM]> {
    let handle = description.handle.load(Ordering::Relaxed);
    let request = Request::NameOf(NameOf { handle });
    let nothing = (core::ptr::null(), 0);
    ask(&request, nothing, Put::Lane, |answer| {
        Ok(translated(answer.data))
    })
    .ok()?
}

/// What a name of the shadow's is on this machine, with a zero at its end.
fn translated(name: &[u8]) -> Option<[u8; ROOM]> {
    let room = Mounts::read()?;
    let mounts = room.rules();
    let asked = Name {
        given: name,
        whole: None,
        start: b"/",
    };
    let mut room = [0; ROOM];
    let mut len = 0;
    let (to, rest) = mounts.meaning(&asked).renamed.unwrap_or((b"", name));
    let slash: &[u8] = if rest.is_empty() || rest.first() == Some(&b'/') || to.ends_with(b"/") {
        b""
    } else {
        b"/"
    };
    for part in [to, slash, rest] {
        room.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    (len < ROOM && room[0] == b'/').then_some(room)
}

/// What the shadow's folders are called here, in memory that is taken from the kernel: the stack of a signal handler may be small.
struct Mounts(*mut u8);

impl Mounts {
    fn read() -> Option<Self> {
        // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS
        let mounts = Mounts(sys::map(RULES_LEN as u64, 3, 0x22, -1).ok()?);
        // SAFETY: it was mapped, is so long, and nobody else has it.
        let bytes = unsafe { core::slice::from_raw_parts_mut(mounts.0, RULES_LEN) };
        let read = sys::pread(Reserved::Link.number(), bytes, MOUNTS_AT).ok()?;
        (read == RULES_LEN).then_some(mounts)
    }

    fn rules(&self) -> &Rules {
        // SAFETY: as in `read`.
        Rules::of(unsafe { &*self.0.cast() })
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `read`, and nothing of it is used any more.
        let _ = unsafe { call(sys::MUNMAP, [self.0 as u64, RULES_LEN as u64]) };
    }
}

/// A file of this machine while it is read.
struct Reader {
    fd: i32,
    place: &'static AtomicI32,
}

/// Whether `struct stat` is of the file with these attributes. Its device has another number here.
fn is_of(status: &[u64; 18], attributes: &Attributes) -> bool {
    const TYPE: u64 = 0o170_000;
    const REGULAR: u64 = 0o100_000;
    let is_at = |at: usize, stamp: &wire::Stamp| {
        (status[at].cast_signed(), status[at + 1]) == (stamp.seconds, stamp.nanoseconds.into())
    };
    status[MODE] & TYPE == REGULAR
        && (status[INODE], status[SIZE]) == (attributes.inode, attributes.size)
        && is_at(MODIFIED, &attributes.modified)
        && is_at(CHANGED, &attributes.changed)
}

impl Reader {
    fn open(name: &CStr, attributes: &Attributes) -> Result<Self, Why> {
        // To open something else, a FIFO say, could have effects.
        if !is_of(&sys::status_of(name)?, attributes) {
            return Err(Why::Another);
        }
        let low = sys::open(name, sys::OPENED_TO_READ_HERE)?;
        let fd = out_of_the_way(low)?;
        let place = OPEN.iter().find(|one| {
            let order = Ordering::Relaxed;
            one.compare_exchange(-1, fd, order, order).is_ok()
        });
        let Some(place) = place else {
            sys::close(fd);
            return Err(Why::NotNow);
        };
        let reader = Reader { fd, place };
        match is_of(&sys::status(fd)?, attributes) {
            true => Ok(reader),
            false => Err(Why::Another),
        }
    }

    fn read(&self, to: *mut u8, len: usize, offset: u64) -> Result<usize, Why> {
        let mut done = 0;
        while done < len {
            let place = to.wrapping_add(done) as u64;
            let args = [
                self.fd as u64,
                place,
                (len - done) as u64,
                offset + done as u64,
            ];
            // SAFETY: there is so much memory, or the kernel says EFAULT.
            match unsafe { call(sys::PREAD64, args) } {
                Ok(0) => break,
                Ok(read) => done += read as usize,
                // In the program's memory, or there is no such descriptor any more: a checkpoint was in between.
                Err(_) => return Err(Why::NotNow),
            }
        }
        Ok(done)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // In this order: among the job's own it would be the job's to close.
        sys::close(self.fd);
        self.place.store(-1, Ordering::Relaxed);
    }
}
