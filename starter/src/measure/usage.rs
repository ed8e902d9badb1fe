//! How much of the load is a job's own (manual, "Load Average for Multi-core Machines").
//!
//! No kernel says it. The original's answer, and ours: the share of the processors that the job's processes have used, averaged over a minute
//! as the load is, times the load.

use super::read::ProcessUse;
use super::source::Source;

/// What the processes of a job use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobUse {
    /// Processor time since they began, in ticks of which a second has [`JobUse::TICKS`].
    pub ticks: u64,
    /// `ImageSize`: their address spaces, KiB.
    pub image_size_kib: u64,
}

impl JobUse {
    /// USER_HZ, the same on every Linux of this architecture.
    pub const TICKS: u64 = 100;

    /// Asks the machine. Processes that are gone use nothing.
    #[must_use]
    pub fn of(source: &dyn Source, pids: &[i32]) -> Self {
        let mut sum = JobUse::default();
        for pid in pids {
            let stat = source.process(*pid).unwrap_or_default();
            let used = ProcessUse::parse(&stat).unwrap_or_default();
            sum.ticks = sum.ticks.saturating_add(used.ticks);
            let kib = used.virtual_bytes / 1024;
            sum.image_size_kib = sum.image_size_kib.saturating_add(kib);
        }
        sum
    }

    /// Percent of one processor that were used since `before`, `seconds` ago; 0 if a process with its ticks has gone meanwhile.
    #[must_use]
    pub fn percent_since(&self, before: &JobUse, seconds: f64) -> f64 {
        let ticks = self.ticks.saturating_sub(before.ticks) as f64;
        match seconds > 0.0 {
            true => ticks / JobUse::TICKS as f64 / seconds * 100.0,
            false => 0.0,
        }
    }
}

/// Seconds over which is averaged.
const LEN: usize = 60;

/// The last minute of a slot: percent of one processor, second by second.
#[derive(Clone, Debug)]
pub struct Minute {
    percents: [f64; LEN],
    next: usize,
    at: Option<i64>,
}

impl Default for Minute {
    fn default() -> Self {
        Minute {
            percents: [0.0; LEN],
            next: 0,
            at: None,
        }
    }
}

impl Minute {
    /// Notes what is used at a moment, for all seconds since the last one: at least one, at most `polling_interval_s`.
    pub fn note(&mut self, now: i64, percent: f64, polling_interval_s: i64) {
        let since = self.at.map_or(1, |at| now.saturating_sub(at));
        self.at = Some(now);
        let percent = if percent.is_finite() {
            percent.max(0.0)
        } else {
            0.0
        };
        for _ in 0..since.clamp(1, polling_interval_s.max(1)).min(LEN as i64) {
            self.percents[self.next] = percent;
            self.next = (self.next + 1) % LEN;
        }
    }

    /// `CondorLoadAvg` of the slot: never more than the whole load.
    #[must_use]
    pub fn load(&self, processors: u32, system_load: f64) -> f64 {
        let processors = f64::from(processors.max(1));
        let mean = self.percents.iter().sum::<f64>() / LEN as f64;
        let share = mean / processors / 100.0;
        (share * processors.max(system_load)).min(system_load)
    }
}
