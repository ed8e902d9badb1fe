//! Peers that have not said who they are yet: so many at once, and whoever comes then waits a moment for a place.
//!
//! Two hundred jobs that are begun at once are no attack. Somebody who takes all places and says nothing keeps others
//! out no longer than that is allowed (`HELLO_WITHIN`, the time-out of a handshake), as long as they come again.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Peers that have not said who they are, at once.
const MOST: usize = 64;
/// How long one waits for a place. Those that come behind it wait, too.
const PATIENCE: Duration = Duration::from_secs(2);

/// Those that are there.
#[derive(Debug)]
pub(crate) struct Crowd {
    most: usize,
    patience: Duration,
    count: Mutex<usize>,
    less: Condvar,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stranger(Arc<Crowd>);

impl Default for Crowd {
    fn default() -> Self {
        Self::of(MOST, PATIENCE)
    }
}

impl Crowd {
    fn of(most: usize, patience: Duration) -> Self {
        Crowd {
            most,
            patience,
            count: Mutex::new(0),
            less: Condvar::new(),
        }
    }

    /// A place, or none: there are too many, and they do not get fewer.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Stranger> {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .less
            .wait_timeout_while(count, self.patience, |count| *count >= self.most);
        let (mut count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Stranger(self.clone()))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let crowd = &self.0;
        *crowd.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        crowd.less.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_place_waits_for_one_but_not_for_ever() {
        let crowd = Arc::new(Crowd::of(2, Duration::from_millis(50)));
        let first = crowd.enter().expect("a place");
        let _second = crowd.enter().expect("a place");
        assert!(crowd.enter().is_none());
        drop(first);
        let _third = crowd.enter().expect("a place");
        assert!(crowd.enter().is_none());

        let crowd = Arc::new(Crowd::of(1, Duration::from_secs(60)));
        let first = crowd.enter().expect("a place");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| crowd.enter().is_some());
            drop(first);
            assert!(waits.join().expect("no panic"));
        });
        assert_eq!(*crowd.count.lock().expect("a number"), 0);
    }
}
