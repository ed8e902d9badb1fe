//! An orderly end in the middle of writing an image: a partial file with a name does not stay, and what counts already is brought to its end.
//!
//! Most file systems have files without a name, of which nothing is ever left.

use nix::sys::signal::{SigSet, Signal, raise};
use std::sync::{Condvar, Mutex, PoisonError};

/// Nothing may end this process now, unless it is told twice.
static HOLD: Mutex<bool> = Mutex::new(false);
static LETS_GO: Condvar = Condvar::new();

/// From now on INT, TERM and HUP remove partial files before they end this process as ever. Those that the
/// caller had ignored stay so. Before there are other threads.
pub(crate) fn remove_when_ended() {
    let ignored = ignored();
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        if ignored & (1 << (signal as i32 - 1)) == 0 {
            set.add(signal);
        }
    }
    // Threads made later inherit the mask, so that the one below is the only one to be told.
    if set.thread_block().is_err() {
        return;
    }
    let waiter = std::thread::Builder::new().name("signals".to_owned());
    let spawned = waiter.spawn(move || {
        let Ok(signal) = set.wait() else {
            return;
        };
        let again = std::thread::Builder::new().name("signals".to_owned());
        let again = again.spawn(move || {
            if let Ok(signal) = set.wait() {
                end_by(signal, set);
            }
        });
        let held = HOLD.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody can hold it up behind this.
        let _held = match again {
            Ok(_) => LETS_GO.wait_while(held, |is_held| *is_held).ok(),
            Err(_) => None,
        };
        end_by(signal, set);
    });
    if spawned.is_err() {
        let _ = set.thread_unblock();
    }
}

fn end_by(signal: Signal, set: SigSet) {
    ckpt_lib::image::remove_partials();
    let _ = set.thread_unblock();
    let _ = raise(signal);
}

/// An image is about to count: whoever tells us to end waits until [`let_go`], or until he says it again.
pub(crate) fn hold() {
    *HOLD.lock().unwrap_or_else(PoisonError::into_inner) = true;
}

/// It counts, and is noted, or it does not count after all.
pub(crate) fn let_go() {
    *HOLD.lock().unwrap_or_else(PoisonError::into_inner) = false;
    LETS_GO.notify_all();
}

/// The signals that this process ignores, as a bit mask.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
