//! How far a job's clocks are from the machine's, so that none of them goes back.
//!
//! ```text
//! a time namespace has two offsets (time_namespaces(7)):
//!   monotonic: CLOCK_MONOTONIC, CLOCK_MONOTONIC_COARSE, CLOCK_MONOTONIC_RAW
//!   boottime:  CLOCK_BOOTTIME
//! ```
//! # What callers may rely on
//! With the offsets of [`Reading::offsets_for`] no clock of the job shows less than it did in its image, but
//! CLOCK_MONOTONIC_RAW where the two machines' corrections of CLOCK_MONOTONIC differ by more than [`RAW_NS`].
//!
//! # What it does not do
//! It asks and sets nothing.

/// How much later than it has to be CLOCK_MONOTONIC may go on, for the sake of CLOCK_MONOTONIC_RAW, nanoseconds.
///
/// Machines that have run for long are many seconds apart. Whoever measures with CLOCK_MONOTONIC, as all do, is not to
/// find them added at each move.
pub const RAW_NS: i128 = 1_000_000_000;

/// What clocks show, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub monotonic: i128,
    /// CLOCK_MONOTONIC_RAW: without the corrections of NTP.
    pub raw: i128,
    /// CLOCK_BOOTTIME.
    pub boottime: i128,
}

impl Reading {
    /// The offsets `(monotonic, boottime)`, nanoseconds, under which the clocks of this machine, that show `self`
    /// without one, go on where they were when a job's showed `job`. `coarse` is this machine's
    /// CLOCK_MONOTONIC_COARSE: the CLOCK_MONOTONIC of the last tick (kernel/time/timekeeping.c).
    #[must_use]
    pub fn offsets_for(&self, coarse: i128, job: &Reading) -> (i128, i128) {
        let least = job.monotonic - self.monotonic;
        // The tick that the job has seen last may be at `job.monotonic`, and the one here long ago.
        let coarse = job.monotonic - coarse;
        let raw = job.raw - self.raw;
        let behind = least.max(coarse);
        let monotonic = match raw <= behind + RAW_NS {
            true => behind.max(raw),
            false => behind,
        };
        let further = monotonic - least;
        (monotonic, job.boottime - self.boottime + further)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const JOB: Reading = Reading {
        monotonic: 900_000_000_000,
        raw: 900_001_000_000,
        boottime: 950_000_000_000,
    };

    #[test]
    fn a_coarse_clock_does_not_show_an_earlier_tick() {
        let here = Reading {
            monotonic: 100_000_000,
            raw: 100_001_000,
            boottime: 100_000_000,
        };
        let coarse = 97_000_000;
        let (monotonic, boottime) = here.offsets_for(coarse, &JOB);
        assert_eq!(coarse + monotonic, JOB.monotonic);
        assert_eq!(here.boottime + boottime, JOB.boottime + 3_000_000);
    }

    #[test]
    fn a_clock_that_nobody_corrects_costs_a_second_at_most() {
        let here = Reading {
            monotonic: 100_000_000_000,
            raw: 99_000_000_000,
            boottime: 100_000_000_000,
        };
        let same = Reading {
            raw: JOB.monotonic,
            ..JOB
        };
        let (monotonic, _) = here.offsets_for(here.monotonic, &same);
        assert_eq!(here.raw + monotonic, same.raw);
        let further = Reading {
            raw: same.raw + 1,
            ..same
        };
        let (monotonic, _) = here.offsets_for(here.monotonic, &further);
        assert_eq!(here.monotonic + monotonic, further.monotonic);
    }

    proptest! {
        #[test]
        fn no_clock_goes_back(
            monotonic in 0i64.., gap in 0i64..1_000_000_000_000, skew in -RAW_NS / 2..RAW_NS / 2,
            here in 0i64.., here_gap in 0i64..1_000_000_000_000, here_skew in -RAW_NS / 2..RAW_NS / 2,
            tick in 0i128..20_000_000,
        ) {
            let reading = |at: i64, gap: i64, skew: i128| Reading {
                monotonic: i128::from(at),
                raw: i128::from(at) + skew,
                boottime: i128::from(at) + i128::from(gap),
            };
            let job = reading(monotonic, gap, skew);
            let here = reading(here, here_gap, here_skew);
            let coarse = here.monotonic - tick;
            let (offset, boottime) = here.offsets_for(coarse, &job);
            let now = Reading {
                monotonic: here.monotonic + offset,
                raw: here.raw + offset,
                boottime: here.boottime + boottime,
            };
            prop_assert!(now.monotonic >= job.monotonic && coarse + offset >= job.monotonic);
            prop_assert!(now.raw >= job.raw && now.boottime >= job.boottime);
            prop_assert!(now.monotonic <= job.monotonic + tick + RAW_NS);
            prop_assert_eq!(now.boottime - now.monotonic, job.boottime - job.monotonic);
        }
    }
}
