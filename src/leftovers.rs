//! An orderly end in the middle of writing an image: a partial file with a name does not stay.
//!
//! Most file systems have files without a name, of which nothing is ever left; then there is nothing to do here.

use nix::sys::signal::{SigSet, Signal, raise};

/// From now on INT, TERM and HUP remove partial files before they end this process as ever. Those that the
/// caller had ignored stay so.
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
        if let Ok(signal) = set.wait() {
            ckpt_lib::image::remove_partials();
            let _ = set.thread_unblock();
            let _ = raise(signal);
        }
    });
    if spawned.is_err() {
        let _ = set.thread_unblock();
    }
}

/// The signals that this process ignores, as a bit mask.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
