//! Calls in progress: entered again with the time that was left (ADR 0004).

use super::{Memory, StoppedThread};
use crate::snapshot::{Registers, TimedCall};

/// What a thread that was stopped in a call goes on with, when that is not what the kernel left in
/// its registers, and the call and its remaining time, if time was running. `None`: it was in no
/// call, or the kernel's own registers are right and no time runs.
///
/// `now_ns` is the CLOCK_MONOTONIC moment that the rest is counted from: the stop for a snapshot, the
/// resumption for a mere checkpoint.
#[must_use]
pub fn translate(
    _thread: &StoppedThread,
    _memory: &Memory,
    _now_ns: u64,
) -> Option<(Registers, Option<TimedCall>)> {
    unimplemented!("lands within the hour")
}
