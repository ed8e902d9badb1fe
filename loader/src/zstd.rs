//! Chunks stored as zstd frames. The decoder wants an allocator: each filling thread has an
//! arena behind its I/O buffer, emptied for each chunk.
//!
//! # What callers may rely on
//! Only [`decode`] allocates, and nothing it allocates outlives the call. A frame whose checksum is right
//! and that none the less is not what it says, or needs more than its arena, ends the restart.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicU64, Ordering};
use loader::frame;
use loader::hole::{FILL_STACK_LEN, FILL_THREADS};

/// An arena: next free byte and end, 0 while nobody decodes.
struct Arena {
    next: AtomicU64,
    end: AtomicU64,
}

struct Arenas {
    arenas: [Arena; FILL_THREADS as usize],
    stacks: AtomicU64,
}

#[global_allocator]
static ARENAS: Arenas = Arenas {
    arenas: [const {
        Arena {
            next: AtomicU64::new(0),
            end: AtomicU64::new(0),
        }
    }; FILL_THREADS as usize],
    stacks: AtomicU64::new(0),
};

impl Arenas {
    /// The arena of the thread we are: told by the stack it runs on.
    fn own(&self) -> &Arena {
        let marker = 0u8;
        let here = &raw const marker as u64;
        let number = here.wrapping_sub(self.stacks.load(Ordering::Relaxed)) / FILL_STACK_LEN;
        self.arenas.get(number as usize).unwrap_or(&self.arenas[0])
    }
}

// SAFETY: every block lies between `next` and `end` of one arena, which only one thread uses,
// and `next` moves past it; it moves back only over the last block, when that is given back.
unsafe impl GlobalAlloc for Arenas {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let arena = self.own();
        let start = arena
            .next
            .load(Ordering::Relaxed)
            .next_multiple_of(layout.align() as u64);
        let end = start.saturating_add(layout.size() as u64);
        if start == 0 || end > arena.end.load(Ordering::Relaxed) {
            return core::ptr::null_mut();
        }
        arena.next.store(end, Ordering::Relaxed);
        start as *mut u8
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let arena = self.own();
        if block as u64 + layout.size() as u64 == arena.next.load(Ordering::Relaxed) {
            arena.next.store(block as u64, Ordering::Relaxed);
        }
    }
}

/// Whether this thread is decoding a frame.
pub fn is_decoding() -> bool {
    ARENAS.own().next.load(Ordering::Relaxed) != 0
}

/// Tells where the stacks of the filling threads begin.
pub fn stacks_begin_at(address: u64) {
    ARENAS.stacks.store(address, Ordering::Relaxed);
}

/// Decodes one frame to exactly `to.len()` bytes, using `room` meanwhile.
pub fn decode(stored: &[u8], to: &mut [u8], room: &mut [u8]) -> Result<(), &'static str> {
    let arena = ARENAS.own();
    let range = room.as_mut_ptr_range();
    arena.next.store(range.start as u64, Ordering::Relaxed);
    arena.end.store(range.end as u64, Ordering::Relaxed);
    let result = frame::decode(stored, to);
    arena.next.store(0, Ordering::Relaxed);
    result
}
