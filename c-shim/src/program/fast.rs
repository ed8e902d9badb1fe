//! Reads and writes that memory answers: without a system call, and without anything that a call needs only now and then.
//!
//! ```text
//! read, write --nothing is in doubt--> out of, or into, a buffer        --anything is--> as any other call
//! ```
//! What is used here must not be found half done by a signal's handler, nor left so by one that jumps. Elsewhere signals wait, which
//! takes two system calls: here the process has no handler. A signal then ends or stops it, or is not heard.
//!
//! # What it does not do
//! A handler that is set by a system call outside libc is not known.

use super::entry::{DOUBT, Frame, REMOTE};
use super::process::{self, Own};
use super::{behind, cache, count, sys};
use crate::table::Description;
use core::sync::atomic::{AtomicU32, Ordering};

/// Not zero once this program has set a handler for a signal.
static HANDLES_SIGNALS: AtomicU32 = AtomicU32::new(0);

/// rt_sigaction(2) is about to be called.
pub(super) fn handles(action: u64) {
    /// SIG_IGN; SIG_DFL is less.
    const IGNORES: u64 = 1;
    if action == 0 {
        return;
    }
    // SAFETY: the program says that a record is there, which begins with the handler.
    let handler = unsafe { (action as *const u64).read_unaligned() };
    if handler > IGNORES {
        HANDLES_SIGNALS.store(1, Ordering::SeqCst);
    }
}

/// Serves a call, if it can be served so.
pub(super) fn serve(frame: &Frame) -> Option<i64> {
    let [fd, place, len, ..] = frame.args;
    if frame.number > sys::WRITE
        || DOUBT.load(Ordering::Relaxed) != 0
        || HANDLES_SIGNALS.load(Ordering::Relaxed) != 0
    {
        return None;
    }
    // A forked child has to settle first, and has no number.
    let own = process::own()?;
    let writer = own.writer.load(Ordering::Relaxed);
    let index = REMOTE.get(usize::try_from(fd).ok()?)?;
    let index = usize::from(index.load(Ordering::Relaxed).checked_sub(1)?);
    let description = process::table()?.descriptions.get(index)?;
    let len = len as usize;
    let done = match frame.number {
        sys::READ => own.is_settled() && read(description, place as *mut u8, len),
        _ => writer != 0 && fd != 2 && behind::write_fast(writer, index, description, place, len),
    };
    if !done {
        return None;
    }
    count::served(frame.number, description, len as u64);
    Some(len as i64)
}

fn read(description: &Description, to: *mut u8, len: usize) -> bool {
    let offset = description.offset.load(Ordering::Relaxed);
    let moves = || {
        let moved = description.offset.compare_exchange(
            offset,
            offset + len as u64,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        moved.is_ok()
    };
    cache::read_fast(description, to, len, offset, moves)
}

/// Copies; most are short.
///
/// # Safety
/// As `memcpy`.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len == 1 {
        // SAFETY: the caller's promise.
        let byte = unsafe { from.read() };
        // SAFETY: the caller's promise.
        unsafe { to.write(byte) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
}

impl Own {
    fn is_settled(&self) -> bool {
        !matches!(self.pid.load(Ordering::Relaxed), 0 | process::SETTLING)
    }
}
