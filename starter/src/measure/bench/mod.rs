//! How fast a machine is: `KFlops` and `Mips`, measured, and averaged over all times they were.
//!
//! Both count processor time of their own thread, so that a loaded machine is not slower than an idle one.

mod dhrystone;
mod linpack;

pub use dhrystone::dhrystone_mips;
pub use linpack::linpack_kflops;

use classad::{Context, EvalError, Expr, Literal};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// For how long each of the two runs.
const RUNS: Duration = Duration::from_millis(500);

/// What one run has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Dhrystones a second, in units of a VAX 11/780.
    pub mips: i64,
    /// Thousand floating point operations a second.
    pub kflops: i64,
}

impl Score {
    /// Measures this machine: takes a second or so of one processor.
    #[must_use]
    pub fn measure() -> Self {
        Score {
            mips: dhrystone_mips(RUNS),
            kflops: linpack_kflops(RUNS),
        }
    }
}

/// What all runs have found (manual, "Unclaimed State").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Benchmarks {
    mips: Option<i64>,
    kflops: Option<i64>,
    last_at: i64,
}

impl Benchmarks {
    /// `Mips`; none before the first run.
    #[must_use]
    pub fn mips(&self) -> Option<i64> {
        self.mips
    }

    /// `KFlops`; none before the first run.
    #[must_use]
    pub fn kflops(&self) -> Option<i64> {
        self.kflops
    }

    /// `LastBenchmark`: when the last run ended, 0 before the first.
    #[must_use]
    pub fn last_at(&self) -> i64 {
        self.last_at
    }

    /// Notes a run: three parts of what was known and one part of what is new. What is not positive is no measurement.
    pub fn note(&mut self, now: i64, score: Score) {
        let average = |old: Option<i64>, new: i64| match old {
            _ if new <= 0 => old,
            Some(old) => Some(old.saturating_mul(3).saturating_add(new) / 4),
            None => Some(new),
        };
        self.mips = average(self.mips, score.mips);
        self.kflops = average(self.kflops, score.kflops);
        self.last_at = now;
    }

    /// Whether benchmarks are run once when a startd begins: RunBenchmarks is defined and something other than FALSE.
    #[must_use]
    pub fn run_at_start(run_benchmarks: Option<&Expr>) -> bool {
        let never = Expr::Literal(Literal::Boolean(false));
        run_benchmarks.is_some_and(|expr| *expr != never)
    }

    /// Whether an unclaimed machine runs them now: RunBenchmarks is TRUE of its ad.
    ///
    /// # Errors
    /// [`EvalError`] if RunBenchmarks cannot be evaluated within the limits.
    pub fn run_now(run_benchmarks: &Expr, machine: &Context<'_>) -> Result<bool, EvalError> {
        Ok(machine.eval(run_benchmarks)?.truth() == Some(true))
    }
}

/// Runs `round` until it has taken as long as `at_least`, but for the first time, which fills caches. How often, and how many seconds that took.
fn repeat(at_least: Duration, mut round: impl FnMut()) -> (u64, f64) {
    round();
    let begun = processor_time();
    let mut rounds = 0;
    loop {
        round();
        rounds += 1;
        let taken = processor_time().saturating_sub(begun);
        if taken >= at_least && !taken.is_zero() {
            return (rounds, taken.as_secs_f64());
        }
    }
}

/// Of this thread.
fn processor_time() -> Duration {
    // Every Linux has this clock; without it benchmarks would not end.
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::MAX, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use classad::{Nowhere, parse_expression, parse_old_ad};

    #[test]
    fn new_results_weigh_a_quarter() {
        let mut benchmarks = Benchmarks::default();
        let found = |b: &Benchmarks| (b.mips(), b.kflops(), b.last_at());
        assert_eq!(found(&benchmarks), (None, None, 0));
        let score = |mips, kflops| Score { mips, kflops };
        benchmarks.note(100, score(1000, 0));
        assert_eq!(found(&benchmarks), (Some(1000), None, 100));
        benchmarks.note(200, score(2000, 80_000));
        assert_eq!(found(&benchmarks), (Some(1250), Some(80_000), 200));
        benchmarks.note(300, score(-5, 40_000));
        assert_eq!(found(&benchmarks), (Some(1250), Some(70_000), 300));
    }

    #[test]
    fn benchmarks_run_when_the_expression_says_so() {
        let every = parse_expression("(time() - LastBenchmark) >= (4 * 3600)").expect("is there");
        let once = parse_expression("LastBenchmark == 0").expect("is there");
        let never = parse_expression("False").expect("is there");
        let asks = |expr: &Expr, last: &str| {
            let ad = parse_old_ad(last).expect("is there");
            Benchmarks::run_now(expr, &Context::new(&At(20_000)).with_my(ad)).expect("is there")
        };
        assert!(asks(&every, "LastBenchmark = 0") && !asks(&every, "LastBenchmark = 9999"));
        assert!(asks(&once, "LastBenchmark = 0") && !asks(&once, "LastBenchmark = 1"));
        assert!(!asks(&never, "") && !asks(&every, ""));
        assert!(Benchmarks::run_at_start(Some(&once)));
        assert!(!Benchmarks::run_at_start(Some(&never)) && !Benchmarks::run_at_start(None));
        // Where nothing is known nothing is true.
        assert!(!Benchmarks::run_now(&once, &Context::new(&Nowhere)).expect("is there"));
    }

    struct At(i64);
    impl classad::Surroundings for At {
        fn now(&self) -> i64 {
            self.0
        }
    }

    #[test]
    fn a_machine_is_as_fast_the_second_time() {
        let run = Duration::from_millis(60);
        // The best of some: others use the processor's caches too.
        let best =
            |measure: fn(Duration) -> i64| (0..3).map(|_| measure(run)).max().expect("is there");
        for measure in [linpack_kflops, dhrystone_mips] {
            let (first, second) = (best(measure), best(measure));
            assert!(first > 0 && second > 0, "found {first} and {second}");
            let factor = first.max(second) as f64 / first.min(second) as f64;
            assert!(factor < 3.0, "found {first} and {second}");
        }
    }
}
