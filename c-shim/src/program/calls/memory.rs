//! Remote files in memory: a file of the kernel's own, filled whole, stands for one.
//!
//! The last one is kept until its descriptor is closed or the remote file changes: a dynamic linker maps each library
//! piece by piece.

use super::names::attributes;
use super::{File, Served};
use crate::program::lanes::{Put, ask};
use crate::program::launch::{self, Copy};
use crate::program::process;
use crate::program::sys::{self, Errno, call};
use crate::table::RESERVED;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use wire::{Attributes, MOST_DATA, Read, Request};

const MAP_SHARED: u64 = 1;
const MAP_TYPE: u64 = 15;
const MAP_ANONYMOUS: u64 = 0x20;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [address, len, protection, flags, fd, offset] = *args;
    if number != sys::MMAP || flags & MAP_ANONYMOUS != 0 {
        return None;
    }
    let file = File::of(fd)?;
    let shared = matches!(flags & MAP_TYPE, MAP_SHARED | 3);
    if shared && protection & PROT_WRITE != 0 {
        return Some(Err(Errno(sys::ENODEV)));
    }
    if file.flags() & sys::O_PATH != 0 || file.flags() & sys::O_ACCMODE == sys::O_WRONLY {
        return Some(Err(Errno(sys::EACCES)));
    }
    let map = |copy: i32| {
        let args = [address, len, protection, flags, copy as u64, offset];
        // SAFETY: it is what the program asked for, with another file of the same contents.
        unsafe { call(sys::MMAP, args) }
    };
    if shared {
        // What is shared for reading can never be written to by mprotect(2).
        let copied = copy_of(&file, &attributes_of(&file)).and_then(|(copy, _)| read_only(copy));
        return Some(copied.and_then(|copy| {
            let mapped = map(copy);
            sys::close(copy);
            mapped
        }));
    }
    Some(with_kept(&file, |copy, len| {
        let mapped = map(copy)?;
        if protection & PROT_EXEC != 0 {
            let again = sys::fcntl(copy, sys::F_DUPFD_CLOEXEC, 0)?;
            launch::mapped(&Copy::new(again as i32, len)?, mapped, offset)?;
        }
        Ok(mapped)
    }))
}

/// A file of the kernel's with all that a remote descriptor leads to, and its length.
pub(in crate::program) fn contents_of(fd: i32) -> Result<(i32, u64), Errno> {
    let file = File::of(fd as u64).ok_or(Errno(sys::EBADF))?;
    copy_of(&file, &attributes_of(&file))
}

fn read_only(copy: i32) -> Result<i32, Errno> {
    let again = sys::open(sys::DescriptorName::of(copy).get(), sys::O_CLOEXEC);
    sys::close(copy);
    again
}

fn attributes_of(file: &File) -> Result<Attributes, Errno> {
    attributes(file.place(), true)
}

fn copy_of(file: &File, found: &Result<Attributes, Errno>) -> Result<(i32, u64), Errno> {
    let size = found.as_ref().map_err(|error| *error)?.size;
    let copy = sys::memfd(c"wf-mapped", 1)?;
    let filled = sys::ftruncate(copy, size).and_then(|_| fill(file, copy, size));
    if filled.is_err() {
        sys::close(copy);
    }
    filled.map(|()| (copy, size))
}

fn fill(file: &File, copy: i32, size: u64) -> Result<(), Errno> {
    if size == 0 {
        return Ok(());
    }
    // SAFETY: without MAP_FIXED nothing that is there is touched; PROT_READ|WRITE, MAP_SHARED.
    let place = unsafe { call(sys::MMAP, [0, size, 3, MAP_SHARED, copy as u64, 0]) }?;
    let mut at = 0;
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

/// [`KEPT`]'s descriptor when there is none, and while somebody looks at it.
const NONE: i32 = -1;
const BUSY: i32 = -2;

/// The last copy, its description, and what the file was like.
struct Kept {
    fd: AtomicI32,
    index: AtomicU64,
    stamp: [AtomicU64; 5],
}

static KEPT: Kept = Kept {
    fd: AtomicI32::new(NONE),
    index: AtomicU64::new(0),
    stamp: [const { AtomicU64::new(0) }; 5],
};

fn stamp(found: &Attributes) -> [u64; 5] {
    let (modified, changed) = (found.modified, found.changed);
    let fractions = u64::from(modified.nanoseconds) << 32 | u64::from(changed.nanoseconds);
    [
        found.inode,
        found.size,
        modified.seconds as u64,
        changed.seconds as u64,
        fractions,
    ]
}

impl Kept {
    /// Takes it away from all others; none if somebody has.
    fn take(&self) -> Option<i32> {
        let fd = self.fd.swap(BUSY, Ordering::Acquire);
        (fd != BUSY).then_some(fd)
    }

    fn put_back(&self, fd: i32) {
        self.fd.store(fd, Ordering::Release);
    }
}

/// Does something with a copy of the file, which is kept.
fn with_kept<T>(file: &File, act: impl FnOnce(i32, u64) -> Result<T, Errno>) -> Result<T, Errno> {
    let found = attributes_of(file);
    let kept = if process::is_own() { KEPT.take() } else { None };
    let Some(kept) = kept else {
        let (copy, len) = copy_of(file, &found)?;
        let result = act(copy, len);
        sys::close(copy);
        return result;
    };
    let same = |found: &Attributes| {
        let stamps = KEPT.stamp.iter().zip(stamp(found));
        kept != NONE
            && KEPT.index.load(Ordering::Relaxed) == file.index as u64
            && stamps
                .into_iter()
                .all(|(kept, now)| kept.load(Ordering::Relaxed) == now)
    };
    if let Ok(found) = &found
        && same(found)
    {
        let result = act(kept, found.size);
        KEPT.put_back(kept);
        return result;
    }
    if kept != NONE {
        sys::close(kept);
    }
    let copied = copy_of(file, &found).and_then(|(copy, len)| {
        let behind = RESERVED[RESERVED.len() - 1] as u64 + 1;
        let moved = sys::fcntl(copy, sys::F_DUPFD_CLOEXEC, behind);
        sys::close(copy);
        moved.map(|copy| (copy as i32, len))
    });
    match (copied, found) {
        (Ok((copy, len)), Ok(found)) => {
            KEPT.index.store(file.index as u64, Ordering::Relaxed);
            for (place, word) in KEPT.stamp.iter().zip(stamp(&found)) {
                place.store(word, Ordering::Relaxed);
            }
            let result = act(copy, len);
            KEPT.put_back(copy);
            result
        }
        (copied, _) => {
            KEPT.put_back(NONE);
            copied.and_then(|(copy, len)| {
                let result = act(copy, len);
                sys::close(copy);
                result
            })
        }
    }
}

/// A descriptor of this description is closed: its copy is needed no more.
pub(super) fn forget(index: usize) {
    if KEPT.fd.load(Ordering::Relaxed) == NONE
        || KEPT.index.load(Ordering::Relaxed) != index as u64
        || !process::is_own()
    {
        return;
    }
    if let Some(kept) = KEPT.take() {
        if kept != NONE {
            sys::close(kept);
        }
        KEPT.put_back(NONE);
    }
}

/// Whether a descriptor is that of the copy.
pub(super) fn is_kept(fd: i32) -> bool {
    KEPT.fd.load(Ordering::Relaxed) == fd
}
