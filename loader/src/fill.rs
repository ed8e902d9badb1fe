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
use crate::ahead::Notes;
use crate::chain::{ChainFile, check_stored, open_image, read_from};
use crate::context::Context;
use crate::inodes;
use crate::progress::Progress;
use crate::report::{Failure, Outcome};
use crate::sys::{self, Errno};
use crate::threads::{clone_helper, first_free_id};
use crate::vdso::OldVdso;
use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loader::hole::{BUFFER_LEN, FILL_STACK_LEN, FILL_THREADS};
use loader::layout::{CHUNK, Extent, PAGE, Space};
use loader::page_sizes::{PageSize, PageSizes};

/// Work is given out in pieces of this size, so that a huge page is filled by one thread.
const UNIT: u64 = 2 << 20;
/// Ids tried for a helper thread.
const ID_TRIES: u32 = 100;
/// Less than this is not worth a second thread.
const WORTH_A_THREAD: u64 = 4 << 20;

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
    which: Which<'a>,
}

/// Which memory is filled.
#[derive(Clone, Copy)]
enum Which<'a> {
    /// What was not put in its place ahead.
    Left,
    /// What is put in its place ahead, and is not as noted already.
    Ahead(&'a Notes),
}

impl Tasks<'_> {
    fn of(&self, extent: &Extent) -> Option<Task> {
        let kept = &self.context.kept;
        if let Which::Ahead(_) = self.which {
            let is_wanted = extent.space == self.space && kept.touches(extent.at, extent.len);
            return is_wanted.then_some(Task::Fill);
        }
        if extent.space == self.space {
            if kept.has(extent.at, extent.len) {
                return None;
            }
            let skipped = self.skip.start < extent.at + extent.len && extent.at < self.skip.end;
            return Some(if skipped { Task::Check } else { Task::Fill });
        }
        let unread = match Space::from_number(extent.space) {
            Some(Space::Inode(inode)) => !inodes::is_filled(self.context, u64::from(inode)),
            _ => false,
        };
        (self.checks && unread).then_some(Task::Check)
    }

    /// Whether a chunk of an extent that is to be filled is.
    fn wants(&self, extent: &Extent, index: u64) -> bool {
        let at = extent.at + index * CHUNK;
        let len = CHUNK.min(extent.len - index * CHUNK);
        let is_ahead = self.context.kept.has(at, len);
        match self.which {
            Which::Left => !is_ahead,
            Which::Ahead(notes) => {
                let chunk = self.context.extents.chunk(extent.first_chunk + index);
                let is_there = |chunk| notes.knows(&self.context.kept, extent, (at, len), &chunk);
                is_ahead && !chunk.is_some_and(is_there)
            }
        }
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
        let is_wanted = |index: &u64| self.tasks.wants(extent, *index);
        let all = chunks.clone().all(|index| is_wanted(&index));
        let whole = start.is_multiple_of(UNIT) && end - start == UNIT;
        if all && whole {
            self.get_piece(start);
        } else if all {
            let _ = sys::advise(start, end - start, MADV_POPULATE_WRITE);
        }
        for index in chunks.filter(is_wanted) {
            let at = extent.at + index * CHUNK;
            let len = CHUNK.min(extent.len - index * CHUNK) as usize;
            if !all {
                let _ = sys::advise(at, len as u64, MADV_POPULATE_WRITE);
            }
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
    let tasks = Tasks {
        context,
        space: Space::Process(process as u32).number(),
        skip: old_vdso.kept(),
        checks: process == 0,
        which: Which::Left,
    };
    carry_out(&tasks)
}

/// Fills the memory of the first process that is put in its place ahead, as far as it is not as noted.
pub fn fill_ahead(context: &Context, notes: &Notes) -> Outcome<()> {
    let tasks = Tasks {
        context,
        space: Space::Process(0).number(),
        skip: 0..0,
        checks: false,
        which: Which::Ahead(notes),
    };
    carry_out(&tasks)
}

fn carry_out(tasks: &Tasks<'_>) -> Outcome<()> {
    let (context, space) = (tasks.context, tasks.space);
    let count = context.extents.extent_count();
    let at = |index: u64| {
        context
            .extents
            .extent(index)
            .map_or(u64::MAX, |extent| extent.space)
    };
    let first = partition(count, |index| at(index) < space);
    let end = partition(count, |index| at(index) <= space);
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
            tasks,
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
        // Who puts memory in its place ahead has no ids to spare for others.
        let is_ahead = matches!(tasks.which, Which::Ahead(_));
        let mut free_id = first_free_id(context).filter(|_| !is_ahead);
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
