//! Bytes that go no faster than somebody wants, however many threads they come from.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What takes so long, or less, is not waited for: those behind it wait instead.
const SHORTEST: Duration = Duration::from_millis(5);
/// Between two looks whether the rate is another now.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How many bytes may go in a second.
#[derive(Clone, Debug)]
pub enum Rate {
    /// So many.
    Fixed(NonZeroU64),
    /// As many as somebody says, at any time, and as processes hear that were begun later: eight bytes, little-endian, 0 for no limit, and one that is not
    /// 0 when nothing goes any more.
    Told(Arc<File>),
}

impl Rate {
    /// One that can be changed by [`Rate::set`]; `file` is empty, and for nothing else.
    #[must_use]
    pub fn told_by(file: File) -> Self {
        Rate::Told(Arc::new(file))
    }

    /// Another from now on; none: as fast as they can.
    ///
    /// # Errors
    /// The file cannot be written; of [`Rate::Fixed`], `Unsupported`.
    pub fn set(&self, bytes_per_second: Option<NonZeroU64>) -> io::Result<()> {
        let number = bytes_per_second.map_or(0, NonZeroU64::get);
        self.tell(&number.to_le_bytes(), 0)
    }

    /// Nothing goes any more, for good: what this is the rate of is given up.
    ///
    /// # Errors
    /// As of [`Rate::set`].
    pub fn give_up(&self) -> io::Result<()> {
        self.tell(&[1], size_of::<u64>() as u64)
    }

    /// Whether it was.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        let mut byte = [0];
        match self {
            Rate::Fixed(_) => false,
            Rate::Told(file) => {
                let read = file.read_exact_at(&mut byte, size_of::<u64>() as u64);
                read.is_ok() && byte != [0]
            }
        }
    }

    /// # Errors
    /// It was given up.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.is_given_up() {
            true => Err(io::Error::other("it was given up")),
            false => Ok(()),
        }
    }

    fn tell(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self {
            Rate::Fixed(_) => Err(io::ErrorKind::Unsupported.into()),
            Rate::Told(file) => file.write_all_at(bytes, at),
        }
    }

    /// What it is now; none: as fast as they can.
    #[must_use]
    pub fn get(&self) -> Option<NonZeroU64> {
        match self {
            Rate::Fixed(rate) => Some(*rate),
            Rate::Told(file) => {
                let mut rate = [0; 8];
                file.read_exact_at(&mut rate, 0).ok()?;
                NonZeroU64::new(u64::from_le_bytes(rate))
            }
        }
    }
}

/// See the module. Time in which nothing goes is lost: nothing goes faster behind it.
#[derive(Debug)]
pub struct Pace {
    rate: Rate,
    hurries: bool,
    ahead: Mutex<Ahead>,
}

impl Pace {
    /// So many bytes in a second.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        let ahead = Ahead {
            bytes: 0.0,
            since: Instant::now(),
        };
        Pace {
            rate,
            hurries: false,
            ahead: Mutex::new(ahead),
        }
    }

    /// Whether nothing is held up for now, although there is a rate; what is given up is nevertheless.
    pub fn hurries(&mut self, hurries: bool) {
        self.hurries = hurries;
    }

    /// Waits until these bytes may go, or nearly. A rate that changes meanwhile counts at once.
    ///
    /// # Errors
    /// It was given up ([`Rate::give_up`]).
    pub fn pass(&self, bytes: u64) -> io::Result<()> {
        loop {
            self.rate.check()?;
            let rate = self.rate.get().filter(|_| !self.hurries);
            let wait = {
                let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
                ahead.wait_for(bytes, rate, Instant::now())
            };
            match wait {
                None => return Ok(()),
                Some(wait) => std::thread::sleep(wait.min(LOOK_AGAIN)),
            }
        }
    }
}

/// What has gone, and may not have gone yet at this rate.
#[derive(Debug)]
struct Ahead {
    bytes: f64,
    since: Instant,
}

impl Ahead {
    /// How long these bytes have to wait; none: they go.
    fn wait_for(&mut self, bytes: u64, rate: Option<NonZeroU64>, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.since = now;
        let Some(rate) = rate else {
            self.bytes = 0.0;
            return None;
        };
        let rate = rate.get() as f64;
        self.bytes = (self.bytes - passed * rate).max(0.0);
        let wait = self.bytes / rate;
        if wait < SHORTEST.as_secs_f64() {
            self.bytes += bytes as f64;
            return None;
        }
        Some(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: NonZeroU64 = NonZeroU64::new(1000).expect("not zero");

    fn is_about(found: Option<Duration>, ms: u64) -> bool {
        found.is_some_and(|found| found.abs_diff(Duration::from_millis(ms)).as_micros() < 10)
    }

    #[test]
    fn what_comes_behind_waits_for_what_went_before() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        let mut ahead = Ahead {
            bytes: 0.0,
            since: began,
        };
        assert_eq!(ahead.wait_for(500, Some(RATE), at(0)), None);
        assert!(is_about(ahead.wait_for(1, Some(RATE), at(100)), 400));
        // A rate that is another now.
        let slow = NonZeroU64::new(100);
        assert!(is_about(ahead.wait_for(1, slow, at(200)), 3900));
        let fast = NonZeroU64::new(10_000);
        assert!(is_about(ahead.wait_for(1, fast, at(210)), 29));
        assert_eq!(ahead.wait_for(1_000_000, None, at(211)), None);
        // Time in which nothing went is lost.
        assert_eq!(ahead.wait_for(1000, Some(RATE), at(5000)), None);
        assert!(is_about(ahead.wait_for(1, Some(RATE), at(5010)), 990));
        // What is not worth waiting for is not waited for.
        assert_eq!(ahead.wait_for(1, Some(RATE), at(5996)), None);
    }

    #[test]
    fn threads_share_it() {
        let pace = Pace::new(Rate::Fixed(RATE));
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| pace.pass(10).expect("passes")));
            }
        });
        // The last begins when those before it are through.
        assert!(
            began.elapsed() >= Duration::from_millis(180),
            "{:?}",
            began.elapsed()
        );
    }

    #[test]
    fn who_waits_hears_of_another_rate() {
        let rate = Rate::told_by(tempfile::tempfile().expect("a file"));
        assert_eq!(rate.get(), None);
        rate.set(NonZeroU64::new(1)).expect("is set");
        assert_eq!(rate.get(), NonZeroU64::new(1));
        let pace = Pace::new(rate.clone());
        pace.pass(1 << 30).expect("passes");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pace.pass(1));
            std::thread::sleep(2 * LOOK_AGAIN);
            assert!(!waiting.is_finished());
            rate.set(None).expect("is set");
            waiting.join().expect("ends").expect("passes");
        });
        pace.pass(1 << 30).expect("passes");
        rate.set(NonZeroU64::new(1)).expect("is set");
        let mut pace = pace;
        pace.hurries(true);
        pace.pass(1 << 30).expect("passes");
        rate.set(NonZeroU64::new(u64::MAX)).expect("is set");
        assert!(!rate.is_given_up());
        rate.give_up().expect("is told");
        pace.pass(1).expect_err("it was given up");
        rate.set(None).expect("is set");
        assert!(rate.is_given_up(), "for good");
        assert!(Rate::Fixed(RATE).set(None).is_err());
    }
}
