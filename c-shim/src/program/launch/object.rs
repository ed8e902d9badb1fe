//! A remote program or library in memory: mapped as the kernel would, its `syscall` instructions led to us.

use crate::elf::{Elf, Segment};
use crate::program::sys::{self, Errno, MMAP, MUNMAP, SysResult, call};
use crate::program::{calls, dispatch, heap, patch, process};
use crate::rewrite::{Found, Missed, Number, Site, find, may_call};
use crate::store::KeptSite;
use crate::table::Reserved;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

const PAGE: u64 = 4096;
const PROT_READ: u64 = 1;
const PRIVATE: u64 = 2;
const FIXED: u64 = 0x10;
const ANONYMOUS: u64 = 0x20;
const NORESERVE: u64 = 0x4000;
const FIXED_NOREPLACE: u64 = 0x10_0000;

/// The contents of a remote file, in one of the kernel's.
pub(in crate::program) struct Copy {
    fd: i32,
    /// Where they begin there.
    begin: u64,
    len: u64,
    /// In the store.
    index: Option<usize>,
}

/// Why a program cannot be started; for a message.
pub(super) type Why = &'static str;

impl Copy {
    /// A file of its own, which it closes.
    pub(in crate::program) fn own(fd: i32, len: u64) -> Self {
        let (begin, index) = (0, None);
        Copy {
            fd,
            begin,
            len,
            index,
        }
    }

    /// An object of the store.
    pub(in crate::program) fn stored(index: usize, begin: u64, len: u64) -> Self {
        let (fd, index) = (Reserved::Store.number(), Some(index));
        Copy {
            fd,
            begin,
            len,
            index,
        }
    }

    pub(in crate::program) fn fd(&self) -> i32 {
        self.fd
    }

    /// Where an offset of the remote file is in the kernel's.
    pub(in crate::program) fn at(&self, offset: u64) -> u64 {
        self.begin.wrapping_add(offset)
    }

    /// To look at it.
    pub(super) fn view(&self) -> SysResult<View> {
        let mapped = match self.len {
            0 => core::ptr::NonNull::dangling().as_ptr(),
            len => place(0, len, PROT_READ, 0, (self.fd, self.begin))? as *const u8,
        };
        // SAFETY: the mapping is so long, and lives as long as the view; no slice outlives it.
        let bytes = unsafe { core::slice::from_raw_parts(mapped, self.len as usize) };
        Ok(View(bytes))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if self.index.is_none() {
            sys::close(self.fd);
        }
    }
}

/// A copy that is mapped, to be looked at.
pub(super) struct View(&'static [u8]);

impl View {
    pub(super) fn elf(&self) -> Option<Elf<'_>> {
        Elf::read(self.0)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        unmap(self.0.as_ptr() as u64, self.0.len() as u64);
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
        let file = (copy.fd, copy.at(offset));
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

/// We are a fork's child: whoever was at it is not here.
pub(in crate::program) fn forget() {
    if BUSY.swap(0, Ordering::Relaxed) != 0 {
        // SAFETY: nobody here uses what was allocated.
        unsafe { heap::end() };
    }
}

/// One rewriting at a time: what it has allocated is given back as a whole.
static BUSY: AtomicU32 = AtomicU32::new(0);

/// What is asked of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It makes system calls: all of them must be known.
    Libc,
    /// It makes none, in most cases: what only looks like one is data.
    Other,
}

/// Leads the `syscall` instructions of an object that is mapped at `base` to us, in those of its segments that are `wanted`.
pub(super) fn rewrite(
    copy: &Copy,
    elf: &Elf<'_>,
    base: u64,
    kind: Kind,
    wanted: impl Fn(&Segment) -> bool,
) -> Result<(), Why> {
    let texts = || elf.texts().filter(&wanted);
    if let Some((kept, count)) = copy.index.and_then(kept_sites) {
        return lead_kept(copy, kept, count, base, texts());
    }
    if kind == Kind::Other && !elf.texts().any(|text| may_call(elf.bytes_of(&text))) {
        keep(copy, &[]);
        return Ok(());
    }
    let image = image(copy, elf).map_err(|_| "there is no memory for looking at it")?;
    while BUSY.swap(1, Ordering::Acquire) != 0 {
        core::hint::spin_loop();
    }
    heap::begin();
    let result = look(&image, elf, kind).and_then(|sites| {
        keep(copy, &sites);
        lead(sites.iter().cloned(), base, texts())
    });
    // SAFETY: nothing that was allocated is used any more.
    unsafe { heap::end() };
    BUSY.store(0, Ordering::Release);
    unmap(image.start, image.end - image.start);
    result
}

fn lead_kept(
    copy: &Copy,
    kept: u64,
    count: usize,
    base: u64,
    texts: impl Iterator<Item = Segment>,
) -> Result<(), Why> {
    if count == 0 {
        return Ok(());
    }
    let mapped = place(0, len_of(count), PROT_READ, 0, (copy.fd, kept));
    let mapped = mapped.map_err(|_| "there is no memory for its calls")?;
    // SAFETY: so many sites were put there, and the mapping stays until the next line but one.
    let sites = unsafe { core::slice::from_raw_parts(mapped as *const KeptSite, count) };
    let result = lead(sites.iter().map(Site::from), base, texts);
    unmap(mapped, len_of(count));
    result
}

fn kept_sites(index: usize) -> Option<(u64, usize)> {
    process::table()?.store.sites(index)
}

fn len_of(count: usize) -> u64 {
    (count * size_of::<KeptSite>()) as u64
}

/// Keeps what was found for all processes of the job.
fn keep(copy: &Copy, sites: &[Site]) {
    let (Some(index), Some(table)) = (copy.index, process::table()) else {
        return;
    };
    let len = len_of(sites.len());
    let Some(offset) = table.store.room(len) else {
        return;
    };
    let kept: Vec<KeptSite> = sites.iter().map(KeptSite::from).collect();
    // SAFETY: the words of these sites are all that they consist of.
    let bytes = unsafe { core::slice::from_raw_parts(kept.as_ptr().cast(), len as usize) };
    if sys::pwrite(copy.fd, bytes, offset) == Ok(bytes.len()) {
        table.store.set_sites(index, offset, sites.len());
    }
}

/// Where the calls are that are to be led to us.
fn look(image: &Range<u64>, elf: &Elf<'_>, kind: Kind) -> Result<Vec<Site>, Why> {
    let len = (image.end - image.start) as usize;
    // SAFETY: all of it is mapped, and stays as it is.
    let bytes = unsafe { core::slice::from_raw_parts(image.start as *const u8, len) };
    let wanted = |number| match number {
        Number::Known(number) => calls::is_wanted(number),
        Number::Computed => true,
    };
    let code: Vec<_> = elf.code().collect();
    let table = elf.functions();
    let find = |table| find(bytes, &code, table, wanted);
    // What cannot be led here would see this machine's files.
    let (Found { sites, missed }, is_call): (_, fn(&_) -> bool) = match kind {
        Kind::Libc => {
            let table = table.as_ref().ok_or("it has no table of its functions")?;
            let found = find(Some(table));
            (
                found.map_err(|_| "its table of functions is unknown")?,
                |_| true,
            )
        }
        Kind::Other => {
            let found = find(table.as_ref()).or_else(|_| find(None));
            (found.unwrap_or_default(), Missed::is_certain)
        }
    };
    let mut missed = missed
        .iter()
        .filter(|one| kind == Kind::Libc || wanted(one.number));
    if missed.any(is_call) {
        return Err("some of its system calls cannot be led to the shadow");
    }
    Ok(sites)
}

fn lead(
    sites: impl Iterator<Item = Site> + Clone,
    base: u64,
    texts: impl Iterator<Item = Segment>,
) -> Result<(), Why> {
    for text in texts {
        let range = text.address..text.address + text.in_memory;
        let inside = sites.clone().filter(|site| range.contains(&site.syscall));
        let mapped = base + range.start..base + range.end;
        // SAFETY: these are its sites, and no other thread executes there: it has just been mapped.
        let applied = unsafe { patch::apply(base, &mapped, text.protection(), inside) };
        applied.map_err(|_| "its code cannot be changed")?;
    }
    Ok(())
}

/// The object as it would be mapped at address 0, to be looked at.
fn image(copy: &Copy, elf: &Elf<'_>) -> SysResult<Range<u64>> {
    let end = elf.span().end;
    // Nobody says that functions lie in segments: the gaps are zeros.
    let start = place(0, end, PROT_READ, ANONYMOUS | NORESERVE, NO_FILE)?;
    for load in elf.loads().filter(|load| load.in_file > 0) {
        let (page, offset) = load.page();
        let len = (load.address + load.in_file).next_multiple_of(PAGE) - page;
        let file = (copy.fd, copy.at(offset));
        place(start + page, len, PROT_READ, FIXED, file)?;
    }
    Ok(start..start + end)
}

/// C libraries and dynamic linkers.
fn kind_of(name: Option<&[u8]>) -> Kind {
    const PREFIXES: [&[u8]; 7] = [
        b"libc.so",
        b"libc-",
        b"libpthread",
        b"ld-linux",
        b"ld-2",
        b"ld-musl",
        b"libc.musl",
    ];
    let is_libc = |name: &[u8]| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if name.is_some_and(is_libc) {
        Kind::Libc
    } else {
        Kind::Other
    }
}

/// The program has mapped executable pages of a remote file, whose calls are led to us.
pub(in crate::program) fn mapped(copy: &Copy, at: u64, offset: u64) -> Result<(), Errno> {
    let has_none = |index| kept_sites(index).is_some_and(|(_, count)| count == 0);
    if dispatch::is_on() || copy.index.is_some_and(has_none) {
        return Ok(());
    }
    let view = copy.view()?;
    let Some(elf) = view.elf() else {
        return Ok(());
    };
    let is_mapped = |text: &Segment| text.page().1 == offset;
    let Some(text) = elf.texts().find(is_mapped) else {
        return Ok(());
    };
    let base = at.wrapping_sub(text.page().0);
    let kind = kind_of(elf.name());
    rewrite(copy, &elf, base, kind, is_mapped).or_else(|why| {
        // What is begun from now on is dispatched from its beginning.
        let is_led = sys::has_one_thread() && dispatch::begin(false).is_ok();
        // Other threads would not be dispatched. A library that only makes calls of its own, too, is not refused for that.
        if is_led || kind == Kind::Other {
            return Ok(());
        }
        super::complain(elf.name().unwrap_or_default(), why);
        Err(Errno(sys::ENOEXEC))
    })
}
