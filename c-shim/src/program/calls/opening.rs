//! Opening, and what comes with the answer.

use super::places::{checked, place};
use super::{File, Served, names};
use crate::libraries;
use crate::program::cache::{self, Learning};
use crate::program::count;
use crate::program::ends;
use crate::program::foreseen;
use crate::program::known;
use crate::program::lanes::{self, Put, ask, tell};
use crate::program::nodes;
use crate::program::offered;
use crate::program::process::{self, UMASK};
use crate::program::resident;
use crate::program::sys::{self, AT_FDCWD, Errno};
use crate::remembered::{Known, Means};
use crate::table::Table;
use core::sync::atomic::Ordering;
use wire::{Access, Close, MOST_DATA, Open, OpenWithin, Opened, Place, Reply, Request};

const NOTHING: (*const u8, usize) = (core::ptr::null(), 0);

pub(super) fn without_umask(mode: u32) -> u32 {
    mode & !UMASK.load(Ordering::Relaxed)
}

pub(super) fn open(folder: u64, name: u64, flags: u32, mode: u32) -> Served {
    let place = place(folder, name, 0)?;
    // No flag of the program's.
    let flags = flags & !(Open::EXECUTE | Open::COMPRESSED);
    Some(open_place(place, flags, mode).map(|fd| fd as u64))
}

fn open_place(place: Place<'_>, flags: u32, mode: u32) -> Result<i32, Errno> {
    open_first(place, flags, mode, &mut [])
}

/// What is stored compressed, as if it were not.
pub(super) fn open_compressed(place: Place<'_>, flags: u32, mode: u32) -> Result<i32, Errno> {
    open_place(place, flags & !Open::EXECUTE | Open::COMPRESSED, mode)
}

/// openat2(2) with flags for the name.
pub(super) fn open_within(
    place: Place<'_>,
    flags: u32,
    mode: u32,
    resolve: u32,
) -> Result<i32, Errno> {
    open_by(place, (flags, mode), &mut [], Some(resolve))
}

/// Opens, and reads as many first bytes of a regular file as there are and fit.
pub(super) fn open_first(
    place: Place<'_>,
    flags: u32,
    mode: u32,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    open_by(place, (flags, mode), bytes, None)
}

/// As [`open_first`], with what openat2(2) asks of the way.
fn open_by(
    place: Place<'_>,
    (flags, mode): (u32, u32),
    bytes: &mut [u8],
    resolve: Option<u32>,
) -> Result<i32, Errno> {
    let place = checked(place)?;
    // A name that leads elsewhere than it otherwise would tells nothing of what has it.
    // What is known of a compressed file is what is stored.
    let is_plain = resolve.is_none() && flags & Open::COMPRESSED == 0;
    let flags = if flags & sys::O_PATH != 0 {
        flags & (sys::O_PATH | sys::O_DIRECTORY | sys::O_NOFOLLOW | sys::O_CLOEXEC)
    } else {
        flags
    };
    let table = process::table().ok_or(Errno(sys::EIO))?;
    ends::close_ended();
    let follow = flags & sys::O_NOFOLLOW == 0;
    if is_plain && flags & sys::O_CREAT == 0 && known::is_absent(&place, follow) {
        return Err(Errno(sys::ENOENT));
    }
    let kept = flags & !(sys::O_CREAT | sys::O_EXCL | sys::O_NOCTTY | sys::O_TRUNC | Open::EXECUTE);
    let taken = |opened: &Opened, contents: &[u8], learning, asked| {
        if opened.attributes.mode & 0o170_000 == 0o040_000 {
            known::learn_folder(&place, opened.handle, contents, Some(asked));
        }
        let made = make(table, opened, kept, place.name, Some(learning), contents);
        if made.is_err() {
            table.taken.remove(opened.handle);
            lanes::close(opened.handle);
        }
        made
    };
    if is_plain && bytes.is_empty() {
        let made = foreseen::take(&place, flags, taken);
        let offered = || {
            let made = offered::take(&place, flags, taken)?;
            // The next process of this program may be told of it sooner.
            foreseen::missed(foreseen::manner_of(flags), place.name);
            Some(made)
        };
        if let Some(made) = made.or_else(offered) {
            return made;
        }
    }
    let only_reads = flags & (sys::O_ACCMODE | sys::O_PATH | sys::O_CREAT | sys::O_TRUNC) == 0;
    if is_plain && only_reads && follow && bytes.is_empty() {
        foreseen::missed(foreseen::manner_of(flags), place.name);
    }
    let asked = known::ask().filter(|_| is_plain);
    let learning = Learning::begin();
    let room = learning.as_ref().and_then(|_| {
        let wanted = flags & sys::O_ACCMODE == 0
            && libraries::is_library(place.name)
            && libraries::is_new(&table.libraries, place.name);
        wanted.then(Room::new).flatten()
    });
    let open = Open {
        place,
        // The shadow's memory is not aligned for O_DIRECT.
        flags: flags & !(sys::O_CLOEXEC | sys::O_NOCTTY | sys::O_DIRECT),
        mode: without_umask(mode),
        first: match (&learning, &room) {
            (Some(_), Some(_)) => MOST_DATA as u32,
            (Some(_), None) => cache::FIRST,
            (None, _) => bytes.len() as u32,
        },
    };
    let request = match resolve {
        None => Request::Open(open),
        Some(resolve) => Request::OpenWithin(OpenWithin { open, resolve }),
    };
    let into = room.as_ref().map_or(Put::Lane, Room::put);
    let opened = ask(&request, NOTHING, into, |answer| match answer.reply {
        Reply::Opened(opened) => {
            let learnt = Known::Present(opened.attributes);
            known::learn(&place, known::means(follow, &learnt), &learnt, asked);
            let itself = Place {
                at: opened.handle,
                name: b"",
            };
            known::learn(&itself, Means::Both, &learnt, asked);
            if opened.attributes.mode & 0o170_000 == 0o040_000 {
                known::learn_folder(&place, opened.handle, answer.data, asked);
            }
            let len = answer.data.len().min(bytes.len());
            bytes[..len].copy_from_slice(&answer.data[..len]);
            let made = make(table, &opened, kept, place.name, learning, answer.data);
            let made = made.map(|fd| (fd, opened.attributes));
            Ok(made.map_err(|error| (error, opened.handle)))
        }
        _ => Err(Errno(sys::EIO)),
    });
    if flags & sys::O_CREAT == 0
        && let Err(Errno(sys::ENOENT)) = opened
    {
        let learnt = Known::Absent;
        known::learn(&place, known::means(follow, &learnt), &learnt, asked);
    }
    if opened.as_ref().err() == Some(&Errno(sys::FIFO)) {
        return open_fifo(place, follow, flags);
    }
    let opened = opened?;
    let (fd, attributes) = opened.map_err(|(error, handle)| {
        let _ = tell(&Request::Close(Close { handle }));
        error
    })?;
    if is_plain && bytes.is_empty() {
        offered::opened(&place, flags, &attributes);
    }
    if flags & sys::O_TRUNC != 0
        && let Some(file) = File::of(fd as u64)
    {
        resident::emptied(file.description);
    }
    Ok(fd)
}

/// The shadow would let us open a FIFO, which is to be had here.
fn open_fifo(place: Place<'_>, follow: bool, flags: u32) -> Result<i32, Errno> {
    const TYPE: u32 = 0o170_000;
    const FIFO: u32 = 0o010_000;
    let attributes = names::attributes(place, follow)?;
    if attributes.mode & TYPE != FIFO {
        // Somebody has put something else there.
        return Err(Errno(sys::EACCES));
    }
    nodes::open_fifo(&attributes, flags)
}

/// Memory for all of a library, as long as its open is answered.
struct Room(*mut u8);

impl Room {
    fn new() -> Option<Self> {
        // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS|NORESERVE
        sys::map(MOST_DATA as u64, 3, 0x4022, -1).ok().map(Room)
    }

    fn put(&self) -> Put {
        Put::Program(self.0, MOST_DATA)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nothing that is in it is used any more.
        let _ = unsafe { sys::call(sys::MUNMAP, [self.0 as u64, MOST_DATA as u64]) };
    }
}

/// A placeholder for what is open at the shadow; what came with that is learnt.
fn make(
    table: &Table,
    opened: &Opened,
    kept: u32,
    name: &[u8],
    learning: Option<Learning>,
    contents: &[u8],
) -> Result<i32, Errno> {
    let (fd, index) = ends::make(table, opened, kept)?;
    let description = &table.descriptions[index];
    count::opened(description, &opened.attributes, name);
    if let Some(learning) = learning {
        learning.learn(description, &opened.attributes, contents);
    }
    Ok(fd)
}

/// Opens a directory by the name that chdir(2) was given; none if it is local.
pub(super) fn open_directory(name: u64) -> Option<Result<i32, Errno>> {
    let place = place(AT_FDCWD as u64, name, 0)?;
    let flags = sys::O_PATH | sys::O_DIRECTORY | sys::O_CLOEXEC;
    let may_enter = Request::Access(Access {
        place,
        mode: 1,
        follow: true,
        effective: true,
    });
    Some(open_place(place, flags, 0).and_then(|fd| {
        tell(&may_enter).map(|()| fd).inspect_err(|_| {
            process::set_remote(fd, None);
            sys::close(fd);
        })
    }))
}

/// Opens by an absolute name.
pub(in crate::program) fn open_named(name: &[u8], flags: u32, mode: u32) -> Result<i32, Errno> {
    open_place(Place { at: 0, name }, flags, mode)
}
