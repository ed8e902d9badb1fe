//! Memory that has no pages yet gets them together with what is in them (userfaultfd(2)).
//!
//! ```text
//! pread, hash --> a buffer that stays in the cache --UFFDIO_COPY--> pages are allocated, filled, mapped
//! pread, hash --> a huge page elsewhere            --UFFDIO_MOVE--> it is mapped where it belongs
//! ```
//! A page that is written to for the first time is cleared by the kernel before, and then written a second time: what is copied so is
//! written once, and costs no fault. To get a huge page where it belongs, its mapping would have to be advised (which could not be taken back)
//! or be collapsed (`MADV_COLLAPSE`, which waits for the other processors, and those are filling memory): so it is got in a mapping of
//! our own, and moved (Linux 6.8). Where neither can be done (no userfaultfd, mappings of files) memory is written as ever.
//!
//! # What callers may rely on
//! What was registered is so until the value is dropped, or until a copy failed. Meanwhile nobody touches a page of it that is not there:
//! that would wait for ever in the program, and is EFAULT in the kernel.

use crate::abi::*;
use crate::raw_call;
use crate::report::{Outcome, failure};
use crate::sys::{self, Errno, SysResult};
use core::ops::Range;
use loader::hole::HUGE_PAGE;
use loader::layout::PAGE;

/// Less memory in one piece is not worth being registered.
pub const LEAST: u64 = 1 << 20;

/// So often in vain is asked again (EAGAIN: something else is just being done to that memory).
const TRIES: u32 = 1000;

const UFFD_USER_MODE_ONLY: u64 = 1;
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;
const UFFDIO_COPY: u64 = 0xc028_aa03;
const UFFDIO_MOVE: u64 = 0xc028_aa05;
const FEATURE_MOVE: u64 = 1 << 16;
const REGISTER_MISSING: u64 = 1;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Unregister {
    start: u64,
    len: u64,
}

/// `struct uffdio_copy`, and `struct uffdio_move`, which looks the same.
#[repr(C)]
struct Transfer {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    /// How far it came, or an error.
    done: i64,
}

impl Transfer {
    fn new(to: u64, from: u64, len: u64) -> Self {
        Transfer {
            to,
            from,
            len,
            mode: 0,
            done: 0,
        }
    }

    /// Carries it out: how far it came, and why no further.
    fn make(mut self, fd: i32, request: u64) -> (u64, SysResult<()>) {
        let result = ioctl(fd, request, &mut self);
        let done = u64::try_from(self.done).map_or(0, |done| done.min(self.len));
        (done, result)
    }
}

/// Who gives pages; nobody, where it cannot be done.
pub struct FreshPages {
    fd: Option<i32>,
    can_move: bool,
}

/// A mapping of our own for one huge page.
pub struct Room {
    mapped: u64,
    page: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: mapped by `Room::new`, and used only through it.
        let _ = unsafe { sys::unmap(self.mapped, 2 * HUGE_PAGE) };
    }
}

impl Room {
    fn new() -> SysResult<Self> {
        let (prot, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        // SAFETY: at a place of the kernel's choice, where nothing is.
        let mapped = unsafe { sys::map(0, 2 * HUGE_PAGE, prot, flags) }?;
        let room = Room {
            mapped,
            page: mapped.next_multiple_of(HUGE_PAGE),
        };
        sys::advise_on_pages(room.page, HUGE_PAGE, MADV_HUGEPAGE).map(|_| room)
    }

    /// What is to be moved.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped readable and writable by `new`, and borrowed as long as the slice is.
        unsafe { core::slice::from_raw_parts_mut(self.page as *mut u8, HUGE_PAGE as usize) }
    }
}

impl Drop for FreshPages {
    fn drop(&mut self) {
        // With its descriptor go all registrations.
        self.fd.map(sys::close);
    }
}

impl FreshPages {
    pub const NONE: FreshPages = FreshPages {
        fd: None,
        can_move: false,
    };

    /// Registers memory, as far as it can be.
    pub fn of(ranges: impl Iterator<Item = Range<u64>>) -> Self {
        let mut pages = FreshPages::NONE;
        for range in ranges {
            if pages.fd.is_none() {
                pages = open().unwrap_or(FreshPages::NONE);
            }
            let Some(fd) = pages.fd else {
                break;
            };
            keep_in_one(range.start);
            // A part may be registered and the rest not.
            if register(fd, &range).is_err() && !is_given_up(fd, &range) {
                return FreshPages::NONE;
            }
        }
        pages
    }

    pub fn are_given(&self) -> bool {
        self.fd.is_some()
    }

    /// Where huge pages are filled before they are moved; one for each thread.
    pub fn room(&self) -> Option<Room> {
        self.can_move.then(Room::new)?.ok()
    }

    /// Moves the pages of a room to `at` in `range`, as [`FreshPages::put`] does with bytes.
    pub fn put_huge(&self, at: u64, room: &mut Room, range: &Range<u64>) -> Outcome<()> {
        let (mut moved, mut tries) = (0, 0..TRIES);
        while let Some(fd) = self.fd.filter(|_| moved < HUGE_PAGE) {
            let rest = Transfer::new(at + moved, room.page + moved, HUGE_PAGE - moved);
            let (done, result) = rest.make(fd, UFFDIO_MOVE);
            moved += done;
            let is_worth_it = result.is_ok() || result == Err(Errno(EAGAIN));
            if done == 0 && (!is_worth_it || tries.next().is_none()) {
                break;
            }
        }
        self.put(at + moved, &room.bytes()[moved as usize..], range)
    }

    /// Puts bytes where they belong: at `at` in `range`, memory that was registered as one, if it could be.
    ///
    /// # Errors
    /// It can neither be given pages nor be written.
    pub fn put(&self, at: u64, bytes: &[u8], range: &Range<u64>) -> Outcome<()> {
        let left = self.fd.map_or(bytes, |fd| give(fd, at, bytes));
        if left.is_empty() {
            return Ok(());
        }
        let is_free = self.fd.is_none_or(|fd| is_given_up(fd, range));
        if !is_free {
            return Err(failure!(
                Failed,
                "memory at {at:#x} cannot be filled (userfaultfd)"
            ));
        }
        let at = at + (bytes.len() - left.len()) as u64;
        // Where there can be no page, that is an errno and not a signal.
        let populated = sys::advise(at, left.len() as u64, MADV_POPULATE_WRITE);
        populated
            .map_err(|error| failure!(Failed, "memory at {at:#x} cannot be filled: {error}"))?;
        write(at, left);
        Ok(())
    }
}

/// Gives pages with these bytes; what could not be.
fn give(fd: i32, mut at: u64, mut bytes: &[u8]) -> &[u8] {
    let page = PAGE as usize;
    let (mut most, mut tries) = (bytes.len(), 0..TRIES);
    while !bytes.is_empty() {
        let len = bytes.len().min(most);
        let piece = Transfer::new(at, bytes.as_ptr() as u64, len as u64);
        let (done, result) = piece.make(fd, UFFDIO_COPY);
        let mut done = done as usize;
        match result {
            Ok(()) => most = bytes.len(),
            Err(Errno(EAGAIN)) if done != 0 || tries.next().is_some() => {}
            // A page that is there already.
            Err(Errno(EEXIST)) if done == 0 && bytes.len() >= page => {
                write(at, &bytes[..page]);
                done = page;
            }
            // It may reach from one mapping into the next.
            Err(Errno(ENOENT)) if done == 0 && len > page => {
                most = (len / 2).next_multiple_of(page);
            }
            Err(_) if done == 0 => break,
            Err(_) => {}
        }
        at += done as u64;
        bytes = &bytes[done..];
    }
    bytes
}

/// Writes to pages that are there.
fn write(at: u64, bytes: &[u8]) {
    // SAFETY: the planner mapped this range writable; it is ours to fill.
    let to = unsafe { core::slice::from_raw_parts_mut(at as *mut u8, bytes.len()) };
    to.copy_from_slice(bytes);
}

/// Makes the mapping that this page is in one whose parts are one again when they are no longer registered: they are if they have got
/// their first page together (mm/rmap.c, `find_mergeable_anon_vma`). The page goes.
fn keep_in_one(page: u64) {
    if sys::advise(page, PAGE, MADV_POPULATE_WRITE).is_ok() {
        let _ = sys::empty(page, PAGE);
    }
}

fn open() -> SysResult<FreshPages> {
    let flags = O_CLOEXEC | UFFD_USER_MODE_ONLY;
    // SAFETY: no addresses are handed over.
    let fd = unsafe { raw_call::call(SYS_USERFAULTFD, [flags]) }? as i32;
    let mut pages = FreshPages {
        fd: Some(fd),
        can_move: true,
    };
    let agree = |features| {
        let mut api = Api {
            api: UFFD_API,
            features,
            ioctls: 0,
        };
        ioctl(fd, UFFDIO_API, &mut api)
    };
    if agree(FEATURE_MOVE).is_err() {
        agree(0)?;
        pages.can_move = false;
    }
    Ok(pages)
}

fn register(fd: i32, range: &Range<u64>) -> SysResult<()> {
    let mut register = Register {
        start: range.start,
        len: range.end - range.start,
        mode: REGISTER_MISSING,
        ioctls: 0,
    };
    ioctl(fd, UFFDIO_REGISTER, &mut register)
}

/// Gives up what was registered; whether nothing of it is registered any more.
fn is_given_up(fd: i32, range: &Range<u64>) -> bool {
    let mut unregister = Unregister {
        start: range.start,
        len: range.end - range.start,
    };
    // Memory of a kind that cannot be registered: EINVAL, for all of the range or none (mm/userfaultfd.c).
    matches!(
        ioctl(fd, UFFDIO_UNREGISTER, &mut unregister),
        Ok(()) | Err(Errno(EINVAL))
    )
}

fn ioctl<T>(fd: i32, request: u64, argument: &mut T) -> SysResult<()> {
    let argument = core::ptr::from_mut(argument) as u64;
    // SAFETY: the structure is the one that the request is about, and ours. UFFDIO_COPY reads a slice that outlives the call, UFFDIO_MOVE
    // takes the pages of a `Room`; both write only where the planner mapped memory to be filled.
    unsafe { raw_call::call(SYS_IOCTL, [fd as u64, request, argument]) }.map(drop)
}
