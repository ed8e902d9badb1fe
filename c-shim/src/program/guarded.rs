//! What one thread of a process uses at a time, while others do without.

use super::process;
use super::sys::Undisturbed;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

/// A state, and whether somebody is at it.
pub(super) struct Guarded<T> {
    busy: AtomicU32,
    state: UnsafeCell<T>,
}

// SAFETY: the state is used by whoever has set `busy`.
unsafe impl<T> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(super) const fn new(state: T) -> Self {
        Guarded {
            busy: AtomicU32::new(0),
            state: UnsafeCell::new(state),
        }
    }

    /// None: another thread is at it, or the memory is our parent's (vfork). Signals wait meanwhile.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !process::is_own() {
            return None;
        }
        let _undisturbed = Undisturbed::begin();
        if self.busy.swap(1, Ordering::Acquire) != 0 {
            return None;
        }
        // SAFETY: `busy` is ours.
        let result = act(unsafe { &mut *self.state.get() });
        self.busy.store(0, Ordering::Release);
        Some(result)
    }

    /// We are a fork's child, and nobody else is in this process yet: whoever was at it is not here.
    pub(super) fn anew(&self, act: impl FnOnce(&mut T)) {
        // SAFETY: nobody else is there.
        act(unsafe { &mut *self.state.get() });
        self.busy.store(0, Ordering::Release);
    }
}
