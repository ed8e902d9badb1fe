//! Memory for rewritings: taken from the kernel; what one has used is given back when it is over.
//!
//! The decoder makes its tables once, when it is used first; they are made before anything else and stay.

use super::sys::{MADVISE, call, map};
use crate::rewrite;
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Reserved; what is not used costs nothing.
const SIZE: usize = 64 << 20;
const PAGE: usize = 4096;
const MADV_DONTNEED: u64 = 4;

struct Heap {
    start: AtomicUsize,
    used: AtomicUsize,
    /// What stays.
    kept: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap {
    start: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
    kept: AtomicUsize::new(0),
};

// SAFETY: pieces never overlap, since `used` only grows as long as any is used.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut start = self.start.load(Ordering::Acquire);
        if start == 0 {
            // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS|NORESERVE
            let Ok(mapped) = map(SIZE as u64, 3, 0x4022, -1) else {
                return core::ptr::null_mut();
            };
            start = mapped as usize;
            self.start.store(start, Ordering::Release);
        }
        let size = layout.size() + layout.align();
        let at = self.used.fetch_add(size, Ordering::Relaxed);
        if at + size > SIZE {
            return core::ptr::null_mut();
        }
        (start + at).next_multiple_of(layout.align()) as *mut u8
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// Before a rewriting; one at a time.
pub(super) fn begin() {
    if HEAP.kept.load(Ordering::Relaxed) == 0 {
        rewrite::make_tables();
        let used = HEAP.used.load(Ordering::Relaxed);
        let kept = used.next_multiple_of(PAGE);
        HEAP.used.store(kept, Ordering::Relaxed);
        HEAP.kept.store(kept, Ordering::Relaxed);
    }
}

/// Gives back all that was allocated since [`begin`].
///
/// # Safety
/// Nothing of it is used any more.
pub(super) unsafe fn end() {
    let start = HEAP.start.load(Ordering::Acquire);
    let kept = HEAP.kept.load(Ordering::Relaxed);
    HEAP.used.store(kept, Ordering::Relaxed);
    if start != 0 {
        let args = [(start + kept) as u64, (SIZE - kept) as u64, MADV_DONTNEED];
        // SAFETY: these pages are the heap's own.
        let _ = unsafe { call(MADVISE, args) };
    }
}
