//! Having a resident, or the list of all, to oneself: by a mutex among the threads of a process, and among processes by a record
//! lock of the kernel's, which goes with whoever is killed.

use super::super::process;
use super::super::record_lock::{F_SETLKW, F_UNLCK, F_WRLCK, set_own};
use super::super::sys::{self, Undisturbed, call};
use crate::residents::RESIDENTS;
use core::sync::atomic::{AtomicU32, Ordering};

/// In the place of a file: the list of all.
pub(super) const REGISTRY: usize = RESIDENTS;

/// Mutexes among the threads of this process: 0 free, 1 taken, 2 taken and waited for.
static MUTEXES: [AtomicU32; RESIDENTS + 1] = [const { AtomicU32::new(0) }; RESIDENTS + 1];
/// We are a fork's child: our parent's threads are not there. What it holds we hold too.
pub(in crate::program) fn forget() {
    for mutex in &MUTEXES {
        mutex.store(0, Ordering::Relaxed);
    }
}

/// A program begins: what a thread of the one before had to itself is free.
pub(in crate::program) fn begin() {
    let _ = set_own(F_SETLKW, F_UNLCK, 0, 0);
}

fn futex(mutex: &AtomicU32, operation: u64, value: u64) {
    const FUTEX: u64 = 202;
    const PRIVATE: u64 = 128;
    let args = [mutex.as_ptr() as u64, operation | PRIVATE, value, 0];
    // SAFETY: the kernel looks at the word.
    let _ = unsafe { call(FUTEX, args) };
}

/// A file, or the list of all, is ours alone as long as this lives; signals wait.
pub(super) struct Alone {
    index: usize,
    /// A child of vfork leaves its parent's memory as it is.
    by_mutex: bool,
    _undisturbed: Undisturbed,
}

impl Alone {
    pub(super) fn begin(index: usize) -> Self {
        let undisturbed = Undisturbed::begin();
        let by_mutex = process::is_own();
        let mutex = &MUTEXES[index];
        if by_mutex
            && mutex
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            while mutex.swap(2, Ordering::Acquire) != 0 {
                futex(mutex, 0, 2);
            }
        }
        // The kernel may see a deadlock where two threads of two processes wait crosswise for what others have.
        while set_own(F_SETLKW, F_WRLCK, index as i64, 1).is_err() {
            sys::give_way();
        }
        Alone {
            index,
            by_mutex,
            _undisturbed: undisturbed,
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = set_own(F_SETLKW, F_UNLCK, self.index as i64, 1);
        let mutex = &MUTEXES[self.index];
        if self.by_mutex && mutex.swap(0, Ordering::Release) == 2 {
            futex(mutex, 1, 1);
        }
    }
}
