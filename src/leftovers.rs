//! An orderly end in the middle of writing an image: a partial file with a name does not stay, and what counts already is brought to its end.
//!
//! Most file systems have files without a name, of which nothing is ever left.

use nix::sys::signal::{SigSet, Signal, raise};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};

/// What an end by a signal would take.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Nothing that counts.
    Early,
    /// An image that is about to count: it is waited with, unless it is told twice.
    Counting,
    /// Nothing any more: the image counts, and is noted.
    Done,
}

static STAGE: Mutex<Stage> = Mutex::new(Stage::Early);
static CHANGED: Condvar = Condvar::new();
/// A partial file that is not ckpt-lib's, and what is to be said if it goes.
static PART: Mutex<Option<(PathBuf, String)>> = Mutex::new(None);
static BEGUN: Once = Once::new();

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on INT, TERM and HUP remove partial files before they end this process as ever. Those that the
/// caller had ignored stay so. Before there are other threads.
pub(crate) fn remove_when_ended() {
    BEGUN.call_once(wait_for_signals);
}

fn wait_for_signals() {
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
    let begin = |act: Box<dyn FnOnce() + Send>| {
        let waiter = std::thread::Builder::new().name("signals".to_owned());
        waiter.spawn(act).is_ok()
    };
    let spawned = begin(Box::new(move || {
        let Ok(signal) = set.wait() else {
            return;
        };
        let hears_again = begin(Box::new(move || {
            if let Ok(signal) = set.wait() {
                end_by(signal, set, *locked(&STAGE));
            }
        }));
        let stage = locked(&STAGE);
        let is_waited_with = |stage: &mut Stage| hears_again && *stage == Stage::Counting;
        let stage = CHANGED.wait_while(stage, is_waited_with);
        // Held: nothing begins to count behind this.
        let stage = stage.unwrap_or_else(PoisonError::into_inner);
        end_by(signal, set, *stage);
    }));
    if !spawned {
        let _ = set.thread_unblock();
    }
}

fn end_by(signal: Signal, set: SigSet, stage: Stage) {
    ckpt_lib::image::remove_partials();
    if let Some((part, loss)) = locked(&PART).take() {
        let _ = std::fs::remove_file(part);
        if !loss.is_empty() {
            crate::report::tell(&loss);
        }
    }
    if stage == Stage::Done {
        std::process::exit(0);
    }
    let _ = set.thread_unblock();
    let _ = raise(signal);
}

fn enter(stage: Stage) {
    *locked(&STAGE) = stage;
    CHANGED.notify_all();
}

/// An image is about to count: whoever tells us to end waits until [`let_go`] or [`done`], or until he says it again.
pub(crate) fn hold() {
    enter(Stage::Counting);
}

/// It does not count after all.
pub(crate) fn let_go() {
    enter(Stage::Early);
}

/// Nobody can wait any longer until it is known whether it does.
pub(crate) fn lose_patience() {
    let mut stage = locked(&STAGE);
    if *stage == Stage::Counting {
        *stage = Stage::Early;
        CHANGED.notify_all();
    }
}

/// It counts, and is noted: whatever ends us now ends us well.
pub(crate) fn done() {
    enter(Stage::Done);
}

/// This goes, too, if we are ended, which is told in these words; in the place of what was said before.
pub(crate) fn remove_also(part: PathBuf, loss: String) {
    *locked(&PART) = Some((part, loss));
}

/// It is where it belongs, or gone.
pub(crate) fn remove_no_more() {
    *locked(&PART) = None;
}

/// The signals that this process ignores, as a bit mask.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
