//! A starter that was killed, and its copy with it: what is known of that counts, too.
//!
//! It has written down what the copy had used whenever it wrote anything, and its last sign says until when it was there: a minute too early at most.

use super::Chronicle;
use super::counting::Spent;
use crate::jobs::{Counted, LifeRecord, RunningCopy, pulse};
use crate::sys::Usage;
use std::path::Path;
use std::time::Duration;

/// A copy that was lost with its starter.
pub(super) struct Lost {
    /// When that was there last, seconds since 1970.
    last_sign: u64,
    /// Whether it stood still.
    stood: bool,
    spent: Spent,
}

/// What was lost with the starter that has written this record, if anything.
pub(super) fn with_its_copy(before: Option<&LifeRecord>, dir: &Path) -> Option<Lost> {
    let before = before?;
    let RunningCopy {
        used,
        bytes,
        stands,
    } = before.running?;
    let [user, system] = used;
    let [sent_bytes, received_bytes] = bytes;
    let seconds = |number: f64| Duration::try_from_secs_f64(number).unwrap_or_default();
    Some(Lost {
        last_sign: pulse::last(dir).max(before.counted.entered_current_status),
        stood: stands,
        spent: Spent {
            used: Usage {
                user: seconds(user),
                system: seconds(system),
            },
            sent_bytes,
            received_bytes,
        },
    })
}

impl Lost {
    /// Adds it to what is known of copies before.
    pub(super) fn count(&self, counted: &mut Counted) {
        let since = |begun: u64| Duration::from_secs(self.last_sign.saturating_sub(begun));
        counted.was_there(since(counted.job_current_start_date));
        if self.stood {
            counted.stood(since(
                counted.last_suspension_time.unwrap_or(self.last_sign),
            ));
        }
        counted.add(self.spent);
        counted.last_vacate_time = Some(self.last_sign);
    }

    /// Writes it into the event log.
    pub(super) fn tell(&self, chronicle: &Chronicle) {
        chronicle.evicted(self.spent, false, "its starter was killed by somebody");
    }
}
