//! What ends soon after it has begun, again and again, is begun more and more seldom.
//!
//! A job that had to leave its slot would be back in it at once: an owner whose PREEMPT is TRUE for it would have it begun and ended many
//! times a second. In HTCondor a round of matchmaking, about a minute, stands between.

use super::Startd;
use super::queue::Phase;
use std::time::{Duration, Instant};

/// Who has run for so long is begun as one that has never been.
const LONG: Duration = Duration::from_secs(60);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// How long to wait before the next beginning: twice as long each time, until one has run for a minute.
#[derive(Debug, Default)]
pub(super) struct Pace {
    short_runs: u32,
    until: Option<Instant>,
}

impl Pace {
    /// It has run for so long, and is to wait for `first`, or a longer time; how long.
    pub(super) fn has_ended(&mut self, ran: Duration, first: Duration) -> Duration {
        if ran >= LONG {
            self.short_runs = 0;
        }
        let pause = first.saturating_mul(1 << self.short_runs.min(6));
        let pause = pause.min(LONGEST);
        self.short_runs = self.short_runs.saturating_add(1);
        self.until = Some(Instant::now() + pause);
        pause
    }

    /// How long it still waits; none: it does not.
    pub(super) fn left(&self) -> Option<Duration> {
        let until = self.until?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Whether it still waits. One whose time is over does so until [`Pace::is_over_now`] has said it.
    pub(super) fn waits(&self) -> bool {
        self.until.is_some()
    }

    /// Whether it has waited long enough since it was asked last.
    fn is_over_now(&mut self) -> bool {
        let is_over = self.until.is_some_and(|until| until <= Instant::now());
        if is_over {
            self.until = None;
        }
        is_over
    }
}

impl Startd<'_> {
    /// How long until somebody has waited long enough.
    pub(super) fn next_turn(&self) -> Option<Duration> {
        let idle = |phase: &Phase| matches!(phase, Phase::Idle);
        let entries = self.queue.entries.values();
        let jobs = entries.filter_map(|entry| entry.pace.left().filter(|_| idle(&entry.phase)));
        let backfills = self.backfill_turns.values();
        let backfills = backfills.filter_map(|turn| turn.pace.left().filter(|_| turn.is_wanted));
        jobs.chain(backfills).min()
    }

    /// Who has waited long enough is offered, or begins.
    pub(super) fn take_turns(&mut self) {
        for entry in self.queue.entries.values_mut() {
            self.offers |= entry.pace.is_over_now();
        }
        let mut wanted = vec![];
        for (slot, turn) in &mut self.backfill_turns {
            if turn.pace.is_over_now() && std::mem::take(&mut turn.is_wanted) {
                wanted.push(*slot);
            }
        }
        for slot in wanted {
            self.backfill(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_begin_anew_behind_a_long_run() {
        let mut pace = Pace::default();
        assert!(!pace.waits());
        let mut ended = |ran, first| {
            let pause = pace.has_ended(Duration::from_secs(ran), Duration::from_secs(first));
            assert!(pace.waits() && !pace.is_over_now());
            assert!(pace.left().is_some_and(|left| left <= pause));
            pause.as_secs()
        };
        let pauses: Vec<u64> = [0, 59, 0, 0, 0, 0, 0].map(|ran| ended(ran, 2)).into();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((ended(60, 1), ended(1, 1)), (1, 2));
        for _ in 0..100 {
            assert!(ended(0, 1) <= 60);
        }
        let mut now = Pace::default();
        now.has_ended(Duration::ZERO, Duration::ZERO);
        assert!(now.is_over_now() && !now.is_over_now() && !now.waits());
    }
}
