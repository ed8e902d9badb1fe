//! Contents from the image: read, checked and put in place in one pass, by several threads.
//!
//! ```text
//! for each image file of the chain:
//!   cursor (extent, chunk) --take up to 2 MiB--> thread: pread into place, hash while in cache
//! ```
//! # What callers may rely on
//! Every byte that a job is given was hashed after it was read; the first chunk that does not
//! match ends the restart. Chunks that are not needed here (files found on this machine) are
//! checked all the same, with the memory of the first process: no part of a damaged image goes on.

use crate::abi::*;
use crate::context::{Context, Own};
use crate::image::{check_length, read_header};
use crate::inodes;
use crate::progress::Progress;
use crate::report::{Failure, Line, Outcome, Raw, Short, failure};
use crate::sys::{self, Errno};
use crate::threads::{clone_helper, first_free_id};
use crate::vdso::OldVdso;
use crate::zstd;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loader::hole::{BUFFER_LEN, FILL_STACK_LEN, FILL_THREADS};
use loader::layout::{CHUNK, Chunk, Encoding, Extent, PAGE, SectionKind, Space};
use loader::page_sizes::{PageSize, PageSizes};

/// Work is given out in pieces of this size, so that a huge page is filled by one thread.
const UNIT: u64 = 2 << 20;
/// Ids tried for a helper thread.
const ID_TRIES: u32 = 100;
/// Less than this is not worth a second thread.
const WORTH_A_THREAD: u64 = 4 << 20;

/// Opens the folder of the image, if there are earlier images to be looked for in it.
pub fn open_folder(context: &mut Context) {
    if context.extents.base_count() == 0 {
        return;
    }
    let path = context.image.path();
    let mut folder = [0u8; 4097];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => folder[0] = b'/',
        Some(at) => folder[..at].copy_from_slice(&path[..at]),
        None => folder[0] = b'.',
    }
    let folder = CStr::from_bytes_until_nul(&folder).unwrap_or(c".");
    if let Ok(fd) = sys::open(folder, O_PATH | O_DIRECTORY) {
        context.place(Own::Folder, fd);
    }
}

/// An open image of the chain; closed with the value.
pub struct ChainFile {
    fd: i32,
    own: bool,
    number: u32,
    pages: core::ops::Range<u64>,
}

impl Drop for ChainFile {
    fn drop(&mut self) {
        if self.own {
            sys::close(self.fd);
        }
    }
}

/// Opens image `number` of the chain: 0 is the image itself.
fn open_image(context: &Context, number: u32) -> Outcome<ChainFile> {
    let pages = |header: &loader::layout::Header| {
        let section = header.section(SectionKind::Pages);
        section.offset..section.offset + section.len
    };
    if number == 0 {
        return Ok(ChainFile {
            fd: context.fd(Own::Image),
            own: false,
            number,
            pages: pages(&context.image.header),
        });
    }
    let base = context
        .extents
        .base(u64::from(number) - 1)
        .ok_or_else(|| failure!(Image, "section .wf.extents: no base {number}"))?;
    let mut name = [0u8; 225];
    name[..224].copy_from_slice(&base.name);
    let name = CStr::from_bytes_until_nul(&name).unwrap_or(c"");
    let shown = Raw(name.to_bytes());
    if name.is_empty() || name.to_bytes().contains(&b'/') {
        return Err(failure!(
            Image,
            "section .wf.extents: base {number}: {shown} is no file name"
        ));
    }
    // Opening a FIFO must not wait for somebody at its other end.
    let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    let fd = sys::open_at(context.fd(Own::Folder), name, flags, 0).map_err(|error| {
        failure!(
            Image,
            "base image {shown} cannot be opened beside the image ({error})"
        )
    })?;
    // Out of the way of the job's descriptors.
    let place = context.own_number(Own::Base) as i32;
    let fd = if !context.is_run() && fd != place && sys::dup_to(fd, place).is_ok() {
        sys::close(fd);
        place
    } else {
        fd
    };
    let mut file = ChainFile {
        fd,
        own: true,
        number,
        pages: 0..0,
    };
    let header = read_header(fd)
        .and_then(|header| check_length(fd, &header).map(|()| header))
        .map_err(|failure| prefixed(name.to_bytes(), &failure))?;
    if header.id != base.id {
        return Err(failure!(
            Image,
            "base image {shown}: found id {}, expected {}",
            Short(&header.id),
            Short(&base.id)
        ));
    }
    file.pages = pages(&header);
    Ok(file)
}

fn prefixed(name: &[u8], failure: &Failure) -> Failure {
    let mut line = Line::new();
    line.push(b"base image ");
    line.push(name);
    line.push(b": ");
    line.push(failure.line.bytes());
    Failure {
        exit: failure.exit,
        line,
        is_said: failure.is_said,
    }
}

/// Reads one chunk and checks it. `scratch` is for chunks that are not stored as they are.
fn read_from(
    context: &Context,
    file: &ChainFile,
    extent: &Extent,
    index: u64,
    to: &mut [u8],
    scratch: &mut [u8],
) -> Outcome<()> {
    let (chunk, label) = locate(context, file, extent, index, to.len())?;
    if extent.encoding == Encoding::Raw as u32 {
        return read_stored(file.fd, &chunk, &label, to);
    }
    let stored = scratch.split_at_mut_checked(chunk.stored_len as usize);
    let (stored, rest) = stored.ok_or_else(|| failure!(Image, "{label}: too long"))?;
    read_stored(file.fd, &chunk, &label, stored)?;
    zstd::decode(stored, to, rest).map_err(|what| failure!(Image, "{label}: {what}"))
}

/// Checks a chunk as it is stored, without unpacking it.
fn check_stored(
    context: &Context,
    file: &ChainFile,
    extent: &Extent,
    index: u64,
    scratch: &mut [u8],
) -> Outcome<()> {
    let len = CHUNK.min(extent.len - index * CHUNK) as usize;
    let (chunk, label) = locate(context, file, extent, index, len)?;
    let stored = scratch.get_mut(..chunk.stored_len as usize);
    let stored = stored.ok_or_else(|| failure!(Image, "{label}: too long"))?;
    read_stored(file.fd, &chunk, &label, stored)
}

/// Chunk `index` of an extent, which must be `len` bytes long in memory.
fn locate(
    context: &Context,
    file: &ChainFile,
    extent: &Extent,
    index: u64,
    len: usize,
) -> Outcome<(Chunk, ChunkName)> {
    let number = extent.first_chunk + index;
    let pages = SectionKind::Pages.name();
    let chunk = context
        .extents
        .chunk(number)
        .filter(|chunk| chunk.raw_len as usize == len)
        .ok_or_else(|| failure!(Image, "section .wf.extents: no chunk {number}"))?;
    let end = chunk.offset.saturating_add(u64::from(chunk.stored_len));
    let image = file.number;
    if chunk.offset < file.pages.start || end > file.pages.end {
        return Err(failure!(
            Image,
            "section {pages}: chunk {number} lies outside image {image}"
        ));
    }
    Ok((chunk, ChunkName { number, image }))
}

/// A chunk, for messages.
struct ChunkName {
    number: u64,
    image: u32,
}

impl fmt::Display for ChunkName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = SectionKind::Pages.name();
        write!(to, "section {pages}: chunk {}", self.number)?;
        match self.image {
            0 => Ok(()),
            base => write!(to, " (in base image {base})"),
        }
    }
}

/// Reads the bytes of a chunk as they are in the file, and checks them.
fn read_stored(fd: i32, chunk: &Chunk, label: &ChunkName, to: &mut [u8]) -> Outcome<()> {
    let expected = to.len();
    let found = sys::pread_full(fd, to, chunk.offset)
        .map_err(|error| failure!(Image, "{label}: cannot be read ({error})"))?;
    if found != expected {
        return Err(failure!(
            Image,
            "{label}: found {found} bytes, expected {expected}"
        ));
    }
    let hash = blake3::hash(to);
    if *hash.as_bytes() != chunk.hash {
        return Err(failure!(
            Image,
            "{label}: damaged, blake3 found {}, expected {}",
            Short(hash.as_bytes()),
            Short(&chunk.hash)
        ));
    }
    Ok(())
}

/// Reads one chunk of an extent, wherever in the chain it is.
pub fn read_chunk(
    context: &Context,
    extent: &Extent,
    index: u64,
    to: &mut [u8],
    scratch: &mut [u8],
) -> Outcome<()> {
    let file = open_image(context, extent.image)?;
    read_from(context, &file, extent, index, to, scratch)
}

/// Checks every chunk of the image and of those it is based on.
pub fn verify_all(context: &Context) -> Outcome<()> {
    // SAFETY: this process has one thread, and nobody else uses the buffers.
    let buffers = unsafe { context.bytes(context.layout.buffers) };
    let (chunk, scratch) = buffers.split_at_mut(CHUNK as usize);
    for image in 0..=context.extents.base_count() as u32 {
        let file = open_image(context, image)?;
        for extent in context
            .extents
            .extents()
            .filter(|extent| extent.image == image)
        {
            for index in 0..extent.chunk_count() {
                let len = CHUNK.min(extent.len - index * CHUNK) as usize;
                read_from(context, &file, &extent, index, &mut chunk[..len], scratch)?;
            }
        }
    }
    Ok(())
}

/// What is to be done with an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Its bytes go to where they belong.
    Fill,
    /// They are not needed here, and only checked.
    Check,
}

/// What is to be done with which extents.
struct Tasks<'a> {
    context: &'a Context,
    /// [`Space::number`] of the process.
    space: u64,
    /// Memory that is not filled.
    skip: core::ops::Range<u64>,
    /// It is the process that checks what nobody needs.
    checks: bool,
}

impl Tasks<'_> {
    fn of(&self, extent: &Extent) -> Option<Task> {
        if extent.space == self.space {
            let skipped = self.skip.start < extent.at + extent.len && extent.at < self.skip.end;
            return Some(if skipped { Task::Check } else { Task::Fill });
        }
        let unread = match Space::from_number(extent.space) {
            Some(Space::Inode(inode)) => !inodes::is_filled(self.context, u64::from(inode)),
            _ => false,
        };
        (self.checks && unread).then_some(Task::Check)
    }
}

/// What the filling threads share.
struct Work<'a> {
    context: &'a Context,
    file: &'a ChainFile,
    tasks: &'a Tasks<'a>,
    /// The extent behind the last.
    end: u64,
    /// Extent index (upper half) and chunk in it (lower half).
    cursor: AtomicU64,
    sizes: PageSizes,
    /// Bytes that are in place.
    done: AtomicU64,
    failed: AtomicU32,
    failure: UnsafeCell<Option<Failure>>,
}

/// A filling thread's word: cleared by the kernel when the thread is gone.
struct Helper<'a> {
    work: &'a Work<'a>,
    number: u64,
    alive: AtomicU32,
}

impl Work<'_> {
    /// The next piece: an extent and a run of its chunks.
    fn take(&self) -> Option<(Extent, Task, core::ops::Range<u64>)> {
        let mut now = self.cursor.load(Ordering::Relaxed);
        loop {
            let (index, chunk) = (now >> 32, now & 0xffff_ffff);
            if index >= self.end || self.failed.load(Ordering::Relaxed) != 0 {
                return None;
            }
            let extent = self.context.extents.extent(index)?;
            let task = self.tasks.of(&extent);
            let task = task.filter(|_| extent.image == self.file.number);
            let at = extent.at + chunk * CHUNK;
            let boundary = (at / UNIT + 1) * UNIT;
            let stop = (boundary.saturating_sub(extent.at))
                .div_ceil(CHUNK)
                .min(extent.chunk_count());
            let next = if task.is_none() || stop >= extent.chunk_count() {
                (index + 1) << 32
            } else {
                index << 32 | stop
            };
            let swapped =
                self.cursor
                    .compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed);
            match (swapped, task) {
                (Ok(_), Some(task)) => return Some((extent, task, chunk..stop)),
                (Ok(_), None) => now = next,
                (Err(other), _) => now = other,
            }
        }
    }

    fn run(&self, scratch: &mut [u8], mut progress: Option<&mut Progress>) {
        while let Some((extent, task, chunks)) = self.take() {
            let len = (chunks.end * CHUNK).min(extent.len) - chunks.start * CHUNK;
            let done = match task {
                Task::Fill => self.piece(&extent, chunks, scratch),
                Task::Check => self.check(&extent, chunks, scratch),
            };
            if let Err(failure) = done
                && self.failed.swap(1, Ordering::AcqRel) == 0
            {
                // SAFETY: only the thread that was first to set `failed` comes here, and it is
                // read when all threads are gone.
                unsafe { *self.failure.get() = Some(failure) };
            }
            let done = self.done.fetch_add(len, Ordering::Relaxed) + len;
            if let Some(progress) = &mut progress {
                progress.at(done);
            }
        }
    }

    /// Gets memory for a piece of the size of a huge page.
    fn get_piece(&self, start: u64) {
        let size = self.sizes.next();
        let before = sys::clock(CLOCK_MONOTONIC);
        let is_there = match size {
            PageSize::Huge => {
                // SAFETY: the planner mapped this range writable; it is ours to fill.
                unsafe { (start as *mut u8).write_volatile(0) };
                sys::advise(start, UNIT, MADV_COLLAPSE).is_ok()
            }
            PageSize::Small => sys::advise(start, UNIT, MADV_POPULATE_WRITE).is_ok(),
        };
        let took = u64::try_from(sys::clock(CLOCK_MONOTONIC) - before);
        self.sizes.took(size, took.ok().filter(|_| is_there));
        if !is_there {
            let _ = sys::advise(start, UNIT, MADV_POPULATE_WRITE);
        }
    }

    fn check(
        &self,
        extent: &Extent,
        chunks: core::ops::Range<u64>,
        scratch: &mut [u8],
    ) -> Outcome<()> {
        for index in chunks {
            check_stored(self.context, self.file, extent, index, scratch)?;
        }
        Ok(())
    }

    fn piece(
        &self,
        extent: &Extent,
        chunks: core::ops::Range<u64>,
        scratch: &mut [u8],
    ) -> Outcome<()> {
        let start = extent.at + chunks.start * CHUNK;
        let end = extent.at + (chunks.end * CHUNK).min(extent.len);
        let whole = start.is_multiple_of(UNIT) && end - start == UNIT;
        if whole {
            self.get_piece(start);
        } else {
            let _ = sys::advise(start, end - start, MADV_POPULATE_WRITE);
        }
        for index in chunks {
            let at = extent.at + index * CHUNK;
            let len = CHUNK.min(extent.len - index * CHUNK) as usize;
            // SAFETY: extents do not overlap, each chunk is taken once, and the planner mapped
            // the range writable before; if it is not mapped the read fails with EFAULT.
            let to = unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) };
            read_from(self.context, self.file, extent, index, to, scratch)?;
        }
        Ok(())
    }
}

extern "C" fn help(helper: *const Helper<'_>) {
    // SAFETY: the one who started this thread waits until it is gone.
    let helper = unsafe { &*helper };
    let buffer = buffer(helper.work.context, helper.number);
    helper.work.run(buffer, None);
}

/// The I/O buffer of filling thread `number`.
fn buffer(context: &Context, number: u64) -> &'static mut [u8] {
    let mut part = context.layout.buffers;
    part.offset += number * BUFFER_LEN;
    part.len = BUFFER_LEN;
    // SAFETY: each filling thread has a number of its own.
    unsafe { context.bytes(part) }
}

/// Fills the memory of process `process`.
pub fn fill(context: &Context, process: u64, old_vdso: &OldVdso) -> Outcome<()> {
    let space = Space::Process(process as u32).number();
    let count = context.extents.extent_count();
    let at = |index: u64| {
        context
            .extents
            .extent(index)
            .map_or(u64::MAX, |extent| extent.space)
    };
    let first = partition(count, |index| at(index) < space);
    let end = partition(count, |index| at(index) <= space);
    let tasks = Tasks {
        context,
        space,
        skip: old_vdso.kept(),
        checks: process == 0,
    };
    // Files come behind the memory of all processes.
    let end = if tasks.checks { count } else { end };
    let extents = || (first..end).filter_map(|index| context.extents.extent(index));
    let wanted = |extent: &Extent| tasks.of(extent).is_some();
    for image in 0..=context.extents.base_count() as u32 {
        let own = extents().filter(|extent| extent.image == image && wanted(extent));
        let bytes: u64 = own.map(|extent| extent.len).sum();
        if bytes == 0 {
            continue;
        }
        let file = open_image(context, image)?;
        let work = Work {
            context,
            file: &file,
            tasks: &tasks,
            end,
            cursor: AtomicU64::new(first << 32),
            sizes: PageSizes::default(),
            done: AtomicU64::new(0),
            failed: AtomicU32::new(0),
            failure: UnsafeCell::new(None),
        };
        let threads =
            (bytes / WORTH_A_THREAD).clamp(1, u64::from(sys::processors()).min(FILL_THREADS));
        let helpers: [Helper<'_>; FILL_THREADS as usize] = core::array::from_fn(|number| Helper {
            work: &work,
            number: number as u64,
            alive: AtomicU32::new(0),
        });
        let mut free_id = first_free_id(context);
        for helper in &helpers[1..threads as usize] {
            let stack =
                context.address(context.layout.fill_stacks) + helper.number * FILL_STACK_LEN;
            helper.alive.store(1, Ordering::Relaxed);
            let mut start = || {
                let id = free_id;
                free_id = id.map(|id| id.saturating_add(1));
                clone_helper(stack, FILL_STACK_LEN, help, helper, &helper.alive, id)
            };
            // Another process of the job may have a helper thread of this id.
            let started = (0..ID_TRIES)
                .map(|_| start())
                .find(|result| *result != Err(Errno(EEXIST)));
            if !matches!(started, Some(Ok(_))) {
                helper.alive.store(0, Ordering::Relaxed);
            }
        }
        work.run(buffer(context, 0), Some(&mut Progress::begin(bytes)));
        for helper in &helpers[1..] {
            while helper.alive.load(Ordering::Acquire) != 0 {
                sys::futex_wait(&helper.alive, 1);
            }
        }
        if let Some(failure) = work.failure.into_inner() {
            return Err(failure);
        }
    }
    Ok(())
}

/// Goes through all words of a process's private memory that came from the image, but those in
/// `except`, and writes what `change` gives. All of it is still writable.
pub fn change_words(
    context: &Context,
    process: u64,
    except: &Range<u64>,
    change: impl Fn(u64) -> Option<u64>,
) {
    let space = Space::Process(process as u32).number();
    for index in 0..context.extents.extent_count() {
        let Some(extent) = context.extents.extent(index) else {
            continue;
        };
        let pages = (extent.at..extent.at + extent.len).step_by(PAGE as usize);
        let pages = pages.filter(|page| extent.space == space && !except.contains(page));
        for address in pages.flat_map(|page| (page..page + PAGE).step_by(8)) {
            let place = address as *mut u64;
            // SAFETY: filled a moment ago by this process, whole pages, and mapped writable until
            // the protections are set.
            let word = unsafe { place.read() };
            if let Some(new) = change(word) {
                // SAFETY: as above.
                unsafe { place.write(new) };
            }
        }
    }
}

/// The first index for which `below` is false.
fn partition(count: u64, below: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if below(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
