//! What the loader keeps where in its hole; the planner asks how big the hole must be.
//!
//! ```text
//! base | text, data, bss | ops | extents | context | stack | fill stacks | vDSO staging
//!      | buffers | slot table | shared table | thread stacks |               base + needed
//! ```
//! # What callers may rely on
//! The places depend on the numbers given and on nothing else. All are page aligned and
//! none overlap.

use crate::layout::{CHUNK, PAGE, WindowSum, Windows};

/// Threads that fill memory, the first one included.
pub const FILL_THREADS: u64 = 4;
/// Bytes of a huge page.
pub const HUGE_PAGE: u64 = 2 << 20;
/// Bytes of the loader's main stack.
pub const STACK_LEN: u64 = 192 << 10;
/// Bytes of the stack of a thread that helps to fill memory.
pub const FILL_STACK_LEN: u64 = 128 << 10;
/// Bytes of the stack of a thread of the job while it is in the loader.
pub const THREAD_STACK_LEN: u64 = 32 << 10;
/// Room for the machine's own vDSO and its data pages.
pub const VDSO_LEN: u64 = 256 << 10;
/// Bytes of one I/O buffer; there is one for each fill thread. A chunk, and what it takes to unpack one.
pub const BUFFER_LEN: u64 = CHUNK + (6 << 20);
/// Bytes of the loader's own notes.
pub const CONTEXT_LEN: u64 = 64 << 10;
/// Bytes of what is noted about tables.
pub const TABLES_LEN: u64 = PAGE;
/// Bytes of an entry of the table shared by all processes of a restart.
pub const SHARED_ENTRY_LEN: u64 = 64;

/// Numbers that decide the sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoleInput {
    /// Bytes of the loader's own segments.
    pub span: u64,
    /// Bytes of the operation list.
    pub ops_len: u64,
    /// Bytes of the extents section.
    pub extents_len: u64,
    /// Streams of the operation list.
    pub streams: u64,
    /// Slots of the operation list.
    pub slots: u64,
}

/// A part of the hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Distance from the base of the hole.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Part {
    /// First byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// The parts of a hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub struct HoleLayout {
    pub ops: Part,
    pub extents: Part,
    pub context: Part,
    pub stack: Part,
    pub fill_stacks: Part,
    pub vdso: Part,
    pub buffers: Part,
    pub slots: Part,
    pub shared: Part,
    pub thread_stacks: Part,
    /// Bytes from the base to the end of the last part.
    pub needed: u64,
}

impl HoleLayout {
    /// Lays the parts out. Absurd numbers give an absurd `needed`, never a panic.
    #[must_use]
    pub fn new(input: HoleInput) -> Self {
        let mut end = input
            .span
            .checked_next_multiple_of(PAGE)
            .unwrap_or(u64::MAX);
        let mut part = |len: u64| {
            let len = len.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
            let part = Part { offset: end, len };
            end = part.end();
            part
        };
        let mut layout = HoleLayout {
            ops: part(input.ops_len),
            extents: part(tables_len(input.extents_len)),
            context: part(CONTEXT_LEN),
            stack: part(STACK_LEN),
            fill_stacks: part(FILL_THREADS * FILL_STACK_LEN),
            vdso: part(VDSO_LEN),
            buffers: part(FILL_THREADS * BUFFER_LEN),
            slots: part(input.slots),
            shared: part((input.streams.saturating_add(1)).saturating_mul(SHARED_ENTRY_LEN)),
            thread_stacks: part(input.streams.saturating_mul(THREAD_STACK_LEN)),
            needed: 0,
        };
        layout.needed = end;
        layout
    }
}

/// What the tables of a section of `extents_len` bytes take: what is noted about them, a little of them at a time, and
/// what that is checked by.
fn tables_len(extents_len: u64) -> u64 {
    let (places, sums) = Windows::room(extents_len);
    let sums = sums.saturating_mul(size_of::<WindowSum>() as u64);
    TABLES_LEN.saturating_add(places).saturating_add(sums)
}

/// Bytes of free address space that the restart of a job needs: its image's `hole_len` at least.
///
/// `span`: the loader's own (`ckpt_lib::loader_code::span`), `ops_len` and `extents_len`: bytes of
/// these sections, `streams` and `slots`: as in the operation list's header.
#[must_use]
pub fn hole_needed(span: u64, ops_len: u64, extents_len: u64, streams: u64, slots: u64) -> u64 {
    HoleLayout::new(HoleInput {
        span,
        ops_len,
        extents_len,
        streams,
        slots,
    })
    .needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another_in_whole_pages() {
        let layout = HoleLayout::new(HoleInput {
            span: 100,
            ops_len: 5000,
            extents_len: 1,
            streams: 3,
            slots: 7,
        });
        let parts = [
            layout.ops,
            layout.extents,
            layout.context,
            layout.stack,
            layout.fill_stacks,
            layout.vdso,
            layout.buffers,
            layout.slots,
            layout.shared,
            layout.thread_stacks,
        ];
        let mut end = PAGE;
        for part in parts {
            assert_eq!((part.offset, part.len % PAGE), (end, 0));
            end = part.end();
        }
        assert_eq!(layout.needed, end);
    }

    #[test]
    fn absurd_numbers_do_not_fit_anywhere() {
        assert_eq!(hole_needed(1, 2, 3, u64::MAX / 2, 4), u64::MAX);
        assert_eq!(hole_needed(u64::MAX, 2, 3, 4, 4), u64::MAX);
    }
}
