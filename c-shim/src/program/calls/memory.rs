//! Remote files in memory: a file of the kernel's own, filled whole, stands for one.
//!
//! Programs and libraries are filled into the job's store, once for all its processes. A dynamic linker is known by
//! MAP_DENYWRITE, which the kernel does not heed.

use super::names::attributes_of;
use super::{File, Served, mappings};
use crate::program::cache;
use crate::program::lanes::{self, Put, ask};
use crate::program::launch::{self, Copy as Contents};
use crate::program::process;
use crate::program::resident;
use crate::program::sys::{self, Errno, call};
use crate::store::{Asked, Stamp};
use crate::table::{Description, Reserved};
use core::sync::atomic::Ordering;
use wire::{Attributes, MOST_DATA, Read, Request};

const MAP_SHARED: u64 = 1;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_TYPE: u64 = 15;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_DENYWRITE: u64 = 0x800;
const PROT_READ: u64 = 1;
const PROT_EXEC: u64 = 4;
/// Bytes.
const SMALL: u64 = 256 << 10;
/// Bytes.
const LARGE: u64 = 256 << 20;

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [address, len, protection, flags, fd, offset] = *args;
    if number != sys::MMAP {
        return None;
    }
    if flags & MAP_ANONYMOUS != 0 {
        mappings::replaced(flags, address, len);
        return None;
    }
    let Some(file) = File::of(fd) else {
        mappings::replaced(flags, address, len);
        return None;
    };
    if matches!(flags & MAP_TYPE, MAP_SHARED | MAP_SHARED_VALIDATE) {
        return Some(mappings::map(&file, args));
    }
    if file.flags() & sys::O_PATH != 0 {
        return Some(Err(Errno(sys::EBADF)));
    }
    if file.flags() & sys::O_ACCMODE == sys::O_WRONLY {
        return Some(Err(Errno(sys::EACCES)));
    }
    if file.is_directory() {
        return Some(Err(Errno(sys::ENODEV)));
    }
    mappings::replaced(flags, address, len);
    // What is small and only read is in most cases what many programs read as they begin.
    let wanted = match (flags & MAP_DENYWRITE != 0, protection) {
        (true, _) => Wanted::Always,
        (false, PROT_READ) => Wanted::Small,
        _ => Wanted::Never,
    };
    Some(copy(&file, wanted).and_then(|copy| {
        let args = [
            address,
            len,
            protection,
            flags,
            copy.fd() as u64,
            copy.at(offset),
        ];
        // SAFETY: it is what the program asked for, with another file of the same contents.
        let mapped = unsafe { call(sys::MMAP, args) }?;
        if protection & PROT_EXEC != 0 {
            launch::mapped(&copy, mapped, offset)?;
        }
        Ok(mapped)
    }))
}

/// All that a remote descriptor of a program or library leads to.
pub(in crate::program) fn contents_of(fd: i32) -> Result<Contents, Errno> {
    let file = File::of(fd as u64).ok_or(Errno(sys::EBADF))?;
    copy(&file, Wanted::Always)
}

/// Puts all of a file into the store, if there is room, so that it is read from there.
pub(super) fn fetch(file: &File) {
    let room = process::table().is_some_and(|table| table.store.has_plenty());
    let fits = || attributes_of(file).is_ok_and(|found| found.size <= LARGE);
    if room && fits() && copy(file, Wanted::Fetched).is_ok() {
        file.description.fetched.store(1, Ordering::Relaxed);
    }
}

/// Puts libraries, which are open at the shadow by these handles, into the store if they are not there, as many as come in one round trip.
pub(in crate::program) fn fetch_ahead(files: &[(u64, Attributes)]) {
    let Some(table) = process::table() else {
        return;
    };
    const NOTHING: Option<(usize, u64, u64)> = None;
    let mut fetched = [NOTHING; lanes::PARTS];
    let mut parts = [None; lanes::PARTS];
    let mut count = 0;
    let before = table.versions.now(0);
    for ((handle, attributes), place) in files.iter().zip(&mut fetched) {
        let size = attributes.size;
        let needed = size.div_ceil(MOST_DATA as u64) as usize;
        if size == 0 || needed > lanes::PARTS - count {
            continue;
        }
        let Asked::Fetch(index, offset) = table.store.ask(&stamp(attributes)) else {
            continue;
        };
        let store = Reserved::Store.number() as u64;
        // SAFETY: without MAP_FIXED nothing that is there is touched; PROT_READ|WRITE, MAP_SHARED.
        let Ok(room) = (unsafe { call(sys::MMAP, [0, size, 3, MAP_SHARED, store, offset]) }) else {
            continue;
        };
        *place = Some((index, room, size));
        for begin in (0..size).step_by(MOST_DATA) {
            parts[count] = Some(lanes::Part {
                read: Read {
                    handle: *handle,
                    offset: begin,
                    len: (size - begin).min(MOST_DATA as u64) as u32,
                },
                place: (room + begin) as *mut u8,
            });
            count += 1;
        }
    }
    if count == 0 {
        return;
    }
    let (mut whole, _) = lanes::read_parts(parts.into_iter().flatten());
    let unchanged = table.versions.now(0).is(&before);
    for (index, room, size) in fetched.into_iter().flatten() {
        // SAFETY: it was mapped above.
        let _ = unsafe { call(sys::MUNMAP, [room, size]) };
        let needed = size.div_ceil(MOST_DATA as u64) as usize;
        if whole >= needed && unchanged {
            table.store.ready(index);
        }
        whole = whole.saturating_sub(needed);
    }
}

/// Reads what [`fetch`] has put there; how much, and whether the file ends there. None: it is not there, or the job has changed it since.
pub(super) fn read_fetched(
    description: &Description,
    to: *mut u8,
    len: usize,
    offset: u64,
) -> Option<(usize, bool)> {
    if description.fetched.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let table = process::table()?;
    let number = description.file.load(Ordering::Relaxed);
    let count = || table.versions.now(number).contents_count();
    let index = description.object.load(Ordering::Acquire).checked_sub(1)?;
    if description.object_at.load(Ordering::Relaxed) != count() {
        return None;
    }
    let (begin, size) = table.store.place(index as usize)?;
    let wanted = (size.saturating_sub(offset)).min(len as u64) as usize;
    if wanted == 0 {
        return Some((0, true));
    }
    let args = [
        Reserved::Store.number() as u64,
        to as u64,
        wanted as u64,
        begin + offset,
    ];
    // SAFETY: the program says that it has so much room.
    let got = unsafe { call(sys::PREAD64, args) }.ok()? as usize;
    (got == wanted).then_some((got, got < len))
}

/// Whether a file is to be in the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Always,
    /// If it takes little, and there is plenty.
    Small,
    /// If there is plenty.
    Fetched,
    Never,
}

/// The file's contents, from the store if that is wanted and has room.
fn copy(file: &File, wanted: Wanted) -> Result<Contents, Errno> {
    let table = process::table().ok_or(Errno(sys::EIO))?;
    let description = file.description;
    resident::write_back(description)?;
    let number = description.file.load(Ordering::Relaxed);
    let count = || table.versions.now(number).contents_count();
    let begun = count();
    if let index @ 1.. = description.object.load(Ordering::Acquire)
        && wanted != Wanted::Never
        && description.object_at.load(Ordering::Relaxed) == begun
    {
        return stored(index as usize - 1);
    }
    let found = attributes_of(file)?;
    let is_wanted = match wanted {
        Wanted::Always => true,
        Wanted::Small => found.size <= SMALL && table.store.has_plenty(),
        Wanted::Fetched => found.size <= LARGE && table.store.has_plenty(),
        Wanted::Never => false,
    };
    let mut stamp = stamp(&found);
    if matches!(wanted, Wanted::Small | Wanted::Fetched) {
        // Data are rewritten faster than times tell, and numbers of inodes are used again: what the job has changed since is another.
        stamp[0] ^= begun.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    let asked = if is_wanted {
        table.store.ask(&stamp)
    } else {
        Asked::No
    };
    let index = match asked {
        Asked::Ready(index) => index,
        Asked::Fetch(index, offset) => {
            fill(file, Reserved::Store.number(), offset, &found)?;
            if count() != begun {
                // Nobody is to find what the job has changed meanwhile under these attributes.
                let copy = copy_of(file, &attributes_of(file)?)?;
                return Ok(Contents::own(copy, sys::length(copy)?));
            }
            table.store.ready(index);
            index
        }
        Asked::No => {
            let copy = copy_of(file, &found)?;
            return Ok(Contents::own(copy, found.size));
        }
    };
    description.object_at.store(begun, Ordering::Relaxed);
    description
        .object
        .store(index as u32 + 1, Ordering::Release);
    stored(index)
}

fn stored(index: usize) -> Result<Contents, Errno> {
    let table = process::table().ok_or(Errno(sys::EIO))?;
    let (offset, len) = table.store.place(index).ok_or(Errno(sys::EIO))?;
    Ok(Contents::stored(index, offset, len))
}

fn stamp(found: &Attributes) -> Stamp {
    let (modified, changed) = (found.modified, found.changed);
    let fractions = u64::from(modified.nanoseconds) << 32 | u64::from(changed.nanoseconds);
    [
        found.device,
        found.inode,
        found.size,
        modified.seconds as u64,
        changed.seconds as u64,
        fractions,
    ]
}

fn copy_of(file: &File, found: &Attributes) -> Result<i32, Errno> {
    let copy = sys::memfd(c"wf-mapped", 1)?;
    let filled = sys::ftruncate(copy, found.size).and_then(|_| fill(file, copy, 0, found));
    if filled.is_err() {
        sys::close(copy);
    }
    filled.map(|()| copy)
}

/// Puts all of a remote file into one of the kernel's.
fn fill(file: &File, copy: i32, begin: u64, found: &Attributes) -> Result<(), Errno> {
    let size = found.size;
    if size == 0 {
        return Ok(());
    }
    // SAFETY: without MAP_FIXED nothing that is there is touched; PROT_READ|WRITE, MAP_SHARED.
    let place = unsafe { call(sys::MMAP, [0, size, 3, MAP_SHARED, copy as u64, begin]) }?;
    let room = place as *mut u8;
    let same = |first: &Attributes| stamp(first) == stamp(found);
    let mut at = cache::first(file.description, same, room, size as usize) as u64;
    while size - at > MOST_DATA as u64 {
        let (place, len) = (room.wrapping_add(at as usize), (size - at) as usize);
        match lanes::read_through(file.handle(), at, place, len) {
            0 => break,
            got => at += got as u64,
        }
    }
    let result = loop {
        if at >= size {
            break Ok(());
        }
        let len = (size - at).min(MOST_DATA as u64);
        let request = Request::Read(Read {
            handle: file.handle(),
            offset: at,
            len: len as u32,
        });
        let into = Put::Program((place + at) as *mut u8, len as usize);
        match ask(&request, (core::ptr::null(), 0), into, |answer| {
            Ok(answer.data.len())
        }) {
            Ok(0) => break Ok(()),
            Ok(got) => at += got as u64,
            Err(error) => break Err(error),
        }
    };
    // SAFETY: it was mapped above.
    let _ = unsafe { call(sys::MUNMAP, [place, size]) };
    result
}
