//! Chunks stored as zstd frames. The decoder wants an allocator: each filling thread has an
//! arena behind its I/O buffer, emptied for each chunk.
//!
//! # What callers may rely on
//! Only [`decode`] allocates, and nothing it allocates outlives the call. A frame whose checksum is right
//! and that none the less is not what it says, or needs more than its arena, ends the restart.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicU64, Ordering};
use loader::hole::{FILL_STACK_LEN, FILL_THREADS};
use ruzstd::decoding::FrameDecoder;

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

/// The arena has room for such a window; a chunk needs no more than its own length.
const LARGEST_WINDOW: u64 = 1 << 20;

/// Bytes of a frame's contents, if its header says, and of its window (RFC 8878, 3.1.1.1).
fn frame_sizes(frame: &[u8]) -> Option<(u64, u64)> {
    let rest = frame.strip_prefix(&0xfd2f_b528u32.to_le_bytes())?;
    let (descriptor, rest) = rest.split_first()?;
    let single_segment = descriptor & 0x20 != 0;
    let (window, rest) = match single_segment {
        true => (None, rest),
        false => {
            let (byte, rest) = rest.split_first()?;
            let base = 1u64 << (10 + (byte >> 3));
            (Some(base + base / 8 * u64::from(byte & 7)), rest)
        }
    };
    // No dictionary was used.
    if descriptor & 3 != 0 {
        return None;
    }
    let len = match (descriptor >> 6, single_segment) {
        (0, false) => return None,
        (0, true) => 1,
        (bits, _) => 1 << bits,
    };
    let mut word = [0; 8];
    word[..len].copy_from_slice(rest.get(..len)?);
    let content = u64::from_le_bytes(word) + if len == 2 { 256 } else { 0 };
    Some((content, window.unwrap_or(content)))
}

/// Decodes one frame to exactly `to.len()` bytes, using `room` meanwhile.
pub fn decode(frame: &[u8], to: &mut [u8], room: &mut [u8]) -> Result<(), &'static str> {
    if frame_sizes(frame)
        .is_none_or(|(content, window)| content != to.len() as u64 || window > LARGEST_WINDOW)
    {
        return Err("a zstd frame whose header does not give its chunk's length");
    }
    let arena = ARENAS.own();
    let range = room.as_mut_ptr_range();
    arena.next.store(range.start as u64, Ordering::Relaxed);
    arena.end.store(range.end as u64, Ordering::Relaxed);
    let result = FrameDecoder::new().decode_all(frame, to);
    arena.next.store(0, Ordering::Relaxed);
    match result {
        Ok(len) if len == to.len() => Ok(()),
        Ok(_) => Err("the zstd frame is shorter than its chunk"),
        Err(_) => Err("not a zstd frame of its chunk's length"),
    }
}
