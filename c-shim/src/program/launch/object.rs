//! A remote program or library in memory: mapped as the kernel would, its `syscall` instructions led to us.

use super::elf::{Elf, Segment};
use crate::program::sys::{self, Errno, MMAP, MUNMAP, SysResult, call};
use crate::program::{calls, heap, patch};
use crate::rewrite::{Number, find};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

const PAGE: u64 = 4096;
const PROT_READ: u64 = 1;
const PRIVATE: u64 = 2;
const FIXED: u64 = 0x10;
const ANONYMOUS: u64 = 0x20;
const NORESERVE: u64 = 0x4000;
const FIXED_NOREPLACE: u64 = 0x10_0000;

/// A file of the kernel's with the contents of a remote one, to be looked at.
pub(in crate::program) struct Copy {
    fd: i32,
    bytes: &'static [u8],
}

/// Why a program cannot be started; for a message.
pub(super) type Why = &'static str;

impl Copy {
    /// Takes the descriptor.
    pub(in crate::program) fn new(fd: i32, len: u64) -> SysResult<Self> {
        let mapped = match len {
            0 => Ok(core::ptr::NonNull::dangling().as_ptr()),
            len => sys::map(len, PROT_READ, PRIVATE, fd),
        };
        match mapped {
            Ok(place) => {
                // SAFETY: the mapping is so long, and lives as long as this; its slices do not outlive it.
                let bytes = unsafe { core::slice::from_raw_parts(place, len as usize) };
                Ok(Copy { fd, bytes })
            }
            Err(error) => {
                sys::close(fd);
                Err(error)
            }
        }
    }

    pub(super) fn elf(&self) -> Option<Elf<'_>> {
        Elf::read(self.bytes)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            unmap(self.bytes.as_ptr() as u64, self.bytes.len() as u64);
        }
        sys::close(self.fd);
    }
}

fn unmap(at: u64, len: u64) {
    if len > 0 {
        // SAFETY: what is unmapped was mapped by us, and is used no more.
        let _ = unsafe { call(MUNMAP, [at, len]) };
    }
}

/// Maps what is to be mapped at a place of our own.
fn place(at: u64, len: u64, protection: u64, flags: u64, file: (i32, u64)) -> SysResult<u64> {
    let args = [at, len, protection, flags | PRIVATE, file.0 as u64, file.1];
    // SAFETY: with MAP_FIXED only what `reserve` has reserved is replaced.
    unsafe { call(MMAP, args) }
}

const NO_FILE: (i32, u64) = (-1, 0);

/// Reserves the pages of an object; what is to be added to its addresses.
fn reserve(elf: &Elf<'_>) -> SysResult<u64> {
    let span = elf.span();
    let len = span.end - span.start;
    let flags = ANONYMOUS | NORESERVE;
    if elf.is_fixed() {
        let mapped = place(span.start, len, 0, flags | FIXED_NOREPLACE, NO_FILE)?;
        if mapped == span.start {
            return Ok(0);
        }
        unmap(mapped, len);
        return Err(Errno(sys::EEXIST));
    }
    let align = elf.align();
    let slack = if align > PAGE { align } else { 0 };
    let mapped = place(0, len + slack, 0, flags, NO_FILE)?;
    let base = (mapped - span.start % align).next_multiple_of(align);
    let start = base + span.start % align;
    unmap(mapped, start - mapped);
    unmap(start + len, mapped + slack - start);
    Ok(start - span.start)
}

/// Maps a program or its interpreter; what is to be added to its addresses.
pub(super) fn map(copy: &Copy, elf: &Elf<'_>) -> SysResult<u64> {
    let base = reserve(elf)?;
    for load in elf.loads() {
        map_segment(copy, &load, base)?;
    }
    Ok(base)
}

fn map_segment(copy: &Copy, load: &Segment, base: u64) -> SysResult<()> {
    let (page, offset) = load.page();
    let in_file = (load.address + load.in_file).next_multiple_of(PAGE);
    let in_memory = (load.address + load.in_memory).next_multiple_of(PAGE);
    let protection = load.protection();
    if load.in_file > 0 {
        let file = (copy.fd, offset);
        place(base + page, in_file - page, protection, FIXED, file)?;
    }
    let mapped = if load.in_file > 0 { in_file } else { page };
    if in_memory > mapped {
        let flags = FIXED | ANONYMOUS;
        place(
            base + mapped,
            in_memory - mapped,
            protection,
            flags,
            NO_FILE,
        )?;
    }
    let behind = load.address + load.in_file;
    // To the end of the page, as the kernel does: a dynamic linker allocates there.
    if load.is_writable() && load.in_file > 0 && load.in_memory > load.in_file {
        let (at, len) = (base + behind, in_file - behind);
        // SAFETY: the rest of the file's last page was mapped above, and is writable.
        unsafe { core::ptr::write_bytes(at as *mut u8, 0, len as usize) };
    }
    Ok(())
}

/// One rewriting at a time: what it has allocated is given back as a whole.
static BUSY: AtomicU32 = AtomicU32::new(0);

/// Leads the `syscall` instructions of an object that is mapped at `base` to us.
pub(super) fn rewrite(copy: &Copy, elf: &Elf<'_>, base: u64) -> Result<(), Why> {
    let text = elf.text().ok_or("it has no code")?;
    let functions = elf
        .functions()
        .ok_or("it is static and has no table of its functions")?;
    let image = image(copy, elf).map_err(|_| "there is no memory for looking at it")?;
    while BUSY.swap(1, Ordering::Acquire) != 0 {
        core::hint::spin_loop();
    }
    heap::begin();
    let result = lead(&image, functions, base, &text);
    // SAFETY: nothing that was allocated is used any more.
    unsafe { heap::end() };
    BUSY.store(0, Ordering::Release);
    unmap(image.start, image.end - image.start);
    result
}

fn lead(image: &Range<u64>, functions: u64, base: u64, text: &Segment) -> Result<(), Why> {
    let len = (image.end - image.start) as usize;
    // SAFETY: functions and their table lie in segments that are mapped; the gaps between are not looked at.
    let bytes = unsafe { core::slice::from_raw_parts(image.start as *const u8, len) };
    let wanted = |number| match number {
        Number::Known(number) => calls::is_wanted(number),
        Number::Computed => true,
    };
    let found = find(bytes, functions, wanted).map_err(|_| "its table of functions is unknown")?;
    // What cannot be led here would see this machine's files.
    if !found.refused.is_empty() {
        return Err("some of its system calls cannot be led to the shadow");
    }
    let text = base + text.address..base + text.address + text.in_memory;
    // SAFETY: these are its sites, and no other thread executes there: it has just been mapped.
    let applied = unsafe { patch::apply(base, &text, &found.sites) };
    applied.map_err(|_| "its code cannot be changed")
}

/// The object as it would be mapped at address 0, to be looked at.
fn image(copy: &Copy, elf: &Elf<'_>) -> SysResult<Range<u64>> {
    let end = elf.span().end;
    let start = place(0, end, 0, ANONYMOUS | NORESERVE, NO_FILE)?;
    for load in elf.loads().filter(|load| load.in_file > 0) {
        let (page, offset) = load.page();
        let len = (load.address + load.in_file).next_multiple_of(PAGE) - page;
        place(start + page, len, PROT_READ, FIXED, (copy.fd, offset))?;
    }
    Ok(start..start + end)
}

/// Objects that make system calls.
fn is_libc(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 7] = [
        b"libc.so",
        b"libc-",
        b"libpthread",
        b"ld-linux",
        b"ld-2",
        b"ld-musl",
        b"libc.musl",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The program has mapped executable pages of a remote file: of a C library, perhaps, which is then rewritten.
pub(in crate::program) fn mapped(copy: &Copy, at: u64, offset: u64) -> Result<(), Errno> {
    let Some(elf) = copy.elf() else {
        return Ok(());
    };
    if !elf.name().is_some_and(is_libc) {
        return Ok(());
    }
    let text = elf.text().filter(|text| text.page().1 == offset);
    let Some(text) = text else {
        return Ok(());
    };
    let base = at.wrapping_sub(text.page().0);
    rewrite(copy, &elf, base).map_err(|why| {
        super::complain(elf.name().unwrap_or_default(), why);
        Errno(sys::ENOEXEC)
    })
}
