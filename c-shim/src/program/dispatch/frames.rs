//! Where the kernel puts the frames of SIGSYS: each call of a thread needs room for one, also the last one that it makes.
//!
//! ```text
//! munmap of the stack that it is made on (musl: a detached thread ends) -> an alternate stack of ours, till the thread ends
//! sigaltstack(SS_DISABLE) where stacks are small (Go: a thread ends)    -> the same, and it is told that there is none
//! ```

use super::{Context, rooms};
use crate::program::sys::{self, SIGALTSTACK, SysResult, call};

const SS_DISABLE: u64 = 2;

/// `stack_t`; the upper half of the flags is padding.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Stack {
    at: u64,
    flags: u64,
    len: u64,
}

impl Stack {
    const NONE: Stack = Stack {
        at: 0,
        flags: SS_DISABLE,
        len: 0,
    };

    /// One of ours, which this thread has from now on.
    fn ours() -> Option<Self> {
        let (at, len) = rooms::take_for_good()?;
        Some(Stack { at, flags: 0, len })
    }

    fn is_none(&self) -> bool {
        self.flags & SS_DISABLE != 0
    }

    fn is_ours(&self) -> bool {
        !self.is_none() && rooms::is_ours(self.at)
    }
}

/// A call is about to be made; in a signal's handler.
pub(super) fn look(context: &mut Context) {
    let is_own = context.rsp.wrapping_sub(context.rdi) < context.rsi;
    if context.rax == sys::MUNMAP
        && is_own
        && context.stack.is_none()
        && let Some(ours) = Stack::ours()
    {
        // It is set by returning. (Where the handler runs on one itself, it would not be.)
        context.stack = ours;
    }
}

/// sigaltstack(2) where stacks are small; not in a handler.
pub(super) fn alternate(args: &[u64; 6]) -> SysResult<u64> {
    let (new, old) = (args[0] as *const Stack, args[1] as *mut Stack);
    let mut was = Stack::NONE;
    set(core::ptr::null(), &raw mut was)?;
    // SAFETY: the program says that a structure is there, if it gives one.
    let asked = (!new.is_null()).then(|| unsafe { new.read_unaligned() });
    match asked {
        None => {}
        Some(asked) if asked.is_none() => {
            if !was.is_ours()
                && let Some(ours) = Stack::ours()
            {
                set(&raw const ours, core::ptr::null_mut())?;
            }
        }
        Some(_) => {
            set(new, core::ptr::null_mut())?;
            if was.is_ours() {
                rooms::give_back(was.at);
            }
        }
    }
    if !old.is_null() {
        let told = if was.is_ours() { Stack::NONE } else { was };
        // SAFETY: the program says that there is room.
        unsafe { old.write_unaligned(told) };
    }
    Ok(0)
}

fn set(new: *const Stack, old: *mut Stack) -> SysResult<u64> {
    // SAFETY: the kernel reads and writes a structure where there is one.
    unsafe { call(SIGALTSTACK, [new as u64, old as u64]) }
}
