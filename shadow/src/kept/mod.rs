//! What is known of a session on a disk, so that a shadow that was killed and is started again goes on with it
//! (docs/adr/0017-sessions-on-a-disk.md).
//!
//! ```text
//! request --changes something--> Begun is noted, it is made, its answer is noted --> answered
//!         --opens, closes, locks--> noted --> answered
//! killed, started again: adopt/ ── files by their names, locks, answers, what became of what had begun ──> the same session
//! ```
//! # What callers may rely on
//! What a job has been told was noted before. Nothing waits for a disk: the end of the process is survived, not that of the machine. Requests
//! that only look, and writes at an offset, note nothing.

mod adopt;
mod fault;
mod intent;
mod log;
mod noted;
mod presence;
mod record;
mod state;

pub use presence::{Presence, Probe};
pub use state::{State, StateError};

pub(crate) use adopt::adopt;
pub(crate) use fault::at as fault_point;
pub(crate) use log::{Log, serving};
pub(crate) use presence::now_ms;
pub(crate) use record::{Known, Record};

/// A new session, and its log.
pub(crate) fn begin(state: &State) -> std::io::Result<(u64, Log)> {
    state.begin(Known {
        next_handle: 1,
        began_ms: now_ms(),
        ..Known::default()
    })
}

/// Named in `WAYFARER_FAULT` by tests.
#[doc(hidden)]
pub use fault::POINTS as FAULT_POINTS;

/// As [`crate::fuzzed`] says: a log whose frames are as they come, and one of the same records with checksums that are right.
#[doc(hidden)]
pub fn fuzzed_log(bytes: &[u8]) {
    record::fuzzed(bytes);
}
