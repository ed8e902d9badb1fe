//! Memory for the rewriting, which happens once: taken from the kernel, given back as a whole.

use super::sys::map;
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Reserved; what is not used costs nothing.
const SIZE: usize = 64 << 20;

struct Heap {
    start: AtomicUsize,
    used: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap {
    start: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
};

// SAFETY: pieces never overlap, since `used` only grows.
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

/// Gives all of it back: nothing that was allocated is used any more.
///
/// # Safety
/// As it says.
pub(super) unsafe fn release() {
    let start = HEAP.start.swap(0, Ordering::AcqRel);
    HEAP.used.store(0, Ordering::Relaxed);
    if start != 0 {
        // SAFETY: the mapping is the heap's own.
        let _ = unsafe { super::sys::call(super::sys::MUNMAP, [start as u64, SIZE as u64]) };
    }
}
