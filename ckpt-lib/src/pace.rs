//! Bytes that go no faster than somebody wants, however many threads they come from.

use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

const SHORTEST: Duration = Duration::from_millis(5);

/// See the module. Time in which nothing goes is lost: nothing goes faster behind it.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: NonZeroU64,
    /// When the next may go.
    next: Mutex<Instant>,
}

impl Pace {
    /// So many bytes in a second.
    #[must_use]
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        Pace {
            bytes_per_second,
            next: Mutex::new(Instant::now()),
        }
    }

    /// How long who has these bytes is to wait before they go.
    #[must_use]
    pub fn wait_for(&self, bytes: u64) -> Duration {
        let now = Instant::now();
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.get() as f64);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = now.max(*next);
        *next = begins + takes;
        begins - now
    }

    /// Waits until these bytes may go, or nearly: what is not worth a sleep is waited for by those behind them.
    pub fn pass(&self, bytes: u64) {
        let wait = self.wait_for(bytes);
        if wait >= SHORTEST {
            std::thread::sleep(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: NonZeroU64 = NonZeroU64::new(1000).expect("not zero");

    #[test]
    fn what_comes_behind_waits_for_what_went_before() {
        let pace = Pace::new(RATE);
        assert_eq!(pace.wait_for(500_000), Duration::ZERO);
        for before in [500, 501, 1501] {
            let waits = pace.wait_for(if before == 500 { 1000 } else { 1_000_000 });
            let expected = Duration::from_secs(before);
            assert!(
                waits <= expected && expected - waits < Duration::from_secs(60),
                "{waits:?}"
            );
        }
    }

    #[test]
    fn threads_share_it() {
        let pace = Pace::new(RATE);
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| pace.pass(10)));
            }
        });
        // The last begins when those before it are through.
        assert!(
            began.elapsed() >= Duration::from_millis(180),
            "{:?}",
            began.elapsed()
        );
    }
}
