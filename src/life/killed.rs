//! A starter that was killed, and its copy with it: what is known of that counts, too.
//!
//! It has written down what the copy had used whenever it wrote anything, and its last sign says until when it was there: a minute too early at most.

use super::Starter;
use crate::jobs::{LifeRecord, pulse};
use crate::sys::Usage;
use starter::life::State;
use std::path::Path;
use std::time::Duration;

/// A copy that was lost with its starter.
pub(super) struct Lost {
    /// When that was there last, seconds since 1970.
    last_sign: u64,
    /// Whether it was suspended.
    stood: bool,
    used: Usage,
}

/// What was lost with the starter that has written this record, if anything.
pub(super) fn with_its_copy(before: Option<&LifeRecord>, dir: &Path) -> Option<Lost> {
    let before = before?;
    let stood = match before.state()? {
        State::Suspended => true,
        State::Running
        | State::Checkpointing
        | State::Vacating
        | State::Killing
        | State::Reconnecting => false,
        _ => return None,
    };
    let [user, system] = before.copy_used.unwrap_or_default();
    let seconds = |number: f64| Duration::try_from_secs_f64(number).unwrap_or_default();
    Some(Lost {
        last_sign: pulse::last(dir).max(before.counted.entered_current_status),
        stood,
        used: Usage {
            user: seconds(user),
            system: seconds(system),
        },
    })
}

impl Starter<'_> {
    pub(super) fn count_lost(&mut self, lost: &Lost) {
        let counted = &mut self.record.counted;
        let since = |begun: u64| Duration::from_secs(lost.last_sign.saturating_sub(begun));
        counted.was_there(since(counted.job_current_start_date));
        if lost.stood {
            counted.stood(since(
                counted.last_suspension_time.unwrap_or(lost.last_sign),
            ));
        }
        counted.add_usage(lost.used);
        counted.last_vacate_time = Some(lost.last_sign);
        let used = counted.used().since(self.used_before);
        self.used_before = counted.used();
        self.record.copy_used = None;
        self.chronicle
            .evicted(used, None, "its starter was killed by somebody");
    }
}
