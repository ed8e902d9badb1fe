//! Contents from the image: read, checked and put in place in one pass, by several threads.
//!
//! ```text
//! for each image file of the chain:
//!   cursor (extent, chunk) --take up to 2 MiB--> thread: pread, hash while in cache, put in place (fresh_pages)
//! ```
//! # What callers may rely on
//! Every byte that a job is given was hashed after it was read; the first chunk that does not
//! match ends the restart. Chunks that are not needed here (files found on this machine) are
//! checked all the same, with the memory of the first process: no part of a damaged image goes on.

use crate::abi::*;
use crate::ahead::Notes;
use crate::chain::{ChainFile, check_stored, open_image, read_from};
use crate::context::Context;
use crate::fresh_pages::{self, FreshPages, Room};
use crate::inodes;
use crate::progress::Progress;
use crate::report::{Failure, Outcome};
use crate::sys::{self, Errno};
use crate::threads::{clone_helper, first_free_id};
use crate::vdso::OldVdso;
use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loader::hole::{BUFFER_LEN, FILL_STACK_LEN, FILL_THREADS, HUGE_PAGE};
use loader::layout::{CHUNK, Extent, PAGE, Space};
use loader::page_advice::PageAdvice;
use loader::page_sizes::{PageSize, PageSizes};

/// Work is given out in pieces of this size, so that a huge page is filled by one thread.
const UNIT: u64 = HUGE_PAGE;
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
    skip: Range<u64>,
    /// It is the process that checks what nobody needs.
    checks: bool,
    which: Which<'a>,
    /// What the job has said; `None`: memory is taken as the kernel gives it.
    advice: Option<&'a PageAdvice>,
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

    /// Whether an extent gets its pages together with their contents: nothing of it is there.
    fn comes_fresh(&self, extent: &Extent) -> bool {
        let is_new = !self.context.kept.touches(extent.at, extent.len);
        self.advice.is_some() && is_new && extent.len >= fresh_pages::LEAST
    }

    /// Whether a chunk of an extent that is to be filled is.
    fn wants(&self, extent: &Extent, index: u64) -> bool {
        let at = extent.at + index * CHUNK;
        let len = CHUNK.min(extent.len - index * CHUNK);
        let is_ahead = self.context.kept.has(at, len);
        match self.which {
            Which::Left => !is_ahead,
            Which::Ahead(notes) => {
                let Ok(chunk) = self.context.extents.chunk(extent.first_chunk + index);
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
    fresh: FreshPages,
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
    fn take(&self) -> Option<(Extent, Task, Range<u64>)> {
        let mut now = self.cursor.load(Ordering::Relaxed);
        loop {
            let (index, chunk) = (now >> 32, now & 0xffff_ffff);
            if index >= self.end || self.failed.load(Ordering::Relaxed) != 0 {
                return None;
            }
            let Ok(extent) = self.context.extents.extent(index);
            let extent = extent?;
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
        let mut room = self.fresh.room();
        while let Some((extent, task, chunks)) = self.take() {
            let len = (chunks.end * CHUNK).min(extent.len) - chunks.start * CHUNK;
            let done = match task {
                Task::Fill => self.piece(&extent, chunks, scratch, &mut room),
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

    fn check(&self, extent: &Extent, chunks: Range<u64>, scratch: &mut [u8]) -> Outcome<()> {
        for index in chunks {
            check_stored(self.context, self.file, extent, index, scratch)?;
        }
        Ok(())
    }

    fn piece(
        &self,
        extent: &Extent,
        chunks: Range<u64>,
        scratch: &mut [u8],
        room: &mut Option<Room>,
    ) -> Outcome<()> {
        if !self.fresh.are_given() || !self.tasks.comes_fresh(extent) {
            return self.piece_in_place(extent, chunks, scratch);
        }
        let piece = piece_range(extent, &chunks);
        let could_be_huge = piece.start.is_multiple_of(UNIT)
            && piece.end - piece.start == UNIT
            && self
                .tasks
                .advice
                .is_some_and(|advice| advice.may_be_huge(&piece))
            && chunks.clone().all(|index| self.tasks.wants(extent, index));
        let Some(room) = room.as_mut().filter(|_| could_be_huge) else {
            return self.piece_fresh(extent, chunks, scratch);
        };
        let size = self.sizes.next();
        let before = sys::clock(CLOCK_MONOTONIC);
        match size {
            PageSize::Huge => self.huge_page(extent, chunks, scratch, room)?,
            PageSize::Small => self.piece_fresh(extent, chunks, scratch)?,
        }
        let took = u64::try_from(sys::clock(CLOCK_MONOTONIC) - before);
        self.sizes.took(size, took.ok());
        Ok(())
    }

    /// In a huge page, if there is one.
    fn huge_page(
        &self,
        extent: &Extent,
        chunks: Range<u64>,
        scratch: &mut [u8],
        room: &mut Room,
    ) -> Outcome<()> {
        let start = piece_range(extent, &chunks).start;
        for (index, to) in chunks.zip(room.bytes().chunks_exact_mut(CHUNK as usize)) {
            read_from(self.context, self.file, extent, index, to, scratch)?;
        }
        self.fresh.put_huge(start, room, &range(extent))
    }

    /// In pages that come with their contents.
    fn piece_fresh(&self, extent: &Extent, chunks: Range<u64>, scratch: &mut [u8]) -> Outcome<()> {
        let (staging, scratch) = scratch.split_at_mut(CHUNK as usize);
        for index in chunks.filter(|index| self.tasks.wants(extent, *index)) {
            let chunk = piece_range(extent, &(index..index + 1));
            let staging = &mut staging[..(chunk.end - chunk.start) as usize];
            read_from(self.context, self.file, extent, index, staging, scratch)?;
            self.fresh.put(chunk.start, staging, &range(extent))?;
        }
        Ok(())
    }

    /// In pages that are there, or as the kernel gives them.
    fn piece_in_place(
        &self,
        extent: &Extent,
        chunks: Range<u64>,
        scratch: &mut [u8],
    ) -> Outcome<()> {
        let is_wanted = |index: &u64| self.tasks.wants(extent, *index);
        let all = chunks.clone().all(|index| is_wanted(&index));
        if all {
            let piece = piece_range(extent, &chunks);
            let _ = sys::advise(piece.start, piece.end - piece.start, MADV_POPULATE_WRITE);
        }
        for index in chunks.filter(is_wanted) {
            let chunk = piece_range(extent, &(index..index + 1));
            let (at, len) = (chunk.start, chunk.end - chunk.start);
            if !all {
                let _ = sys::advise(at, len, MADV_POPULATE_WRITE);
            }
            // SAFETY: extents do not overlap, each chunk is taken once, and the planner mapped
            // the range writable before; if it is not mapped the read fails with EFAULT.
            let to = unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len as usize) };
            read_from(self.context, self.file, extent, index, to, scratch)?;
        }
        Ok(())
    }
}

/// The memory of an extent.
fn range(extent: &Extent) -> Range<u64> {
    extent.at..extent.at + extent.len
}

/// The memory of some of its chunks.
fn piece_range(extent: &Extent, chunks: &Range<u64>) -> Range<u64> {
    extent.at + chunks.start * CHUNK..extent.at + (chunks.end * CHUNK).min(extent.len)
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
pub fn fill(
    context: &Context,
    process: u64,
    old_vdso: &OldVdso,
    advice: &PageAdvice,
) -> Outcome<()> {
    // Who asks for huge pages gets them from the kernel, and everybody where they come by themselves.
    let as_it_comes = advice.asks_for_huge() || context.huge_pages_come;
    let tasks = Tasks {
        context,
        space: Space::Process(process as u32).number(),
        skip: old_vdso.kept(),
        checks: process == 0,
        which: Which::Left,
        advice: Some(advice).filter(|_| !as_it_comes),
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
        // What is not as noted is there, most of it.
        advice: None,
    };
    carry_out(&tasks)
}

fn carry_out(tasks: &Tasks<'_>) -> Outcome<()> {
    let (context, space) = (tasks.context, tasks.space);
    let count = context.extents.extent_count();
    let at = |index: u64| {
        let Ok(extent) = context.extents.extent(index);
        extent.map_or(u64::MAX, |extent| extent.space)
    };
    let first = partition(count, |index| at(index) < space);
    let end = partition(count, |index| at(index) <= space);
    // Files come behind the memory of all processes.
    let end = if tasks.checks { count } else { end };
    let extents = || {
        let all = context.extents.extents_from(first).map(|Ok(extent)| extent);
        all.take((end - first) as usize)
    };
    let wanted = |extent: &Extent| tasks.of(extent).is_some();
    for image in 0..=context.extents.base_count() as u32 {
        let own = extents().filter(|extent| extent.image == image && wanted(extent));
        let bytes: u64 = own.map(|extent| extent.len).sum();
        if bytes == 0 {
            continue;
        }
        let file = open_image(context, image)?;
        let large = extents()
            .filter(|one| one.image == image && tasks.of(one) == Some(Task::Fill))
            .filter(|one| tasks.comes_fresh(one))
            .map(|one| range(&one));
        let fresh = FreshPages::of(large);
        let work = Work {
            context,
            file: &file,
            tasks,
            end,
            cursor: AtomicU64::new(first << 32),
            fresh,
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
        work.run(
            buffer(context, 0),
            Some(&mut Progress::begin("filling memory", bytes)),
        );
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
    for Ok(extent) in context.extents.extents_of(Space::Process(process as u32)) {
        let pages = (extent.at..extent.at + extent.len).step_by(PAGE as usize);
        let pages = pages.filter(|page| !except.contains(page));
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
