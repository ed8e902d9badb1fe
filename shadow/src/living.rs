//! How many sessions there are, until the last thing that is done for each has been done.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Living {
    count: Mutex<Count>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Count {
    begun: u64,
    there: u64,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Alive(Arc<Living>);

impl Living {
    /// One more.
    pub(crate) fn begin(self: &Arc<Self>) -> Alive {
        let mut count = self.count();
        count.begun += 1;
        count.there += 1;
        drop(count);
        self.changed.notify_all();
        Alive(self.clone())
    }

    /// Waits until there has been one, which is to begin within this time, and there is none any more.
    pub(crate) fn wait_for_end(&self, begins_within: Duration) {
        let none_yet = |count: &mut Count| count.begun == 0;
        let waited = self
            .changed
            .wait_timeout_while(self.count(), begins_within, none_yet);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let over = self.changed.wait_while(count, |count| count.there > 0);
        drop(over.unwrap_or_else(PoisonError::into_inner));
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.count().there -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::spawn;

    #[test]
    fn the_end_is_that_of_the_last() {
        let living = Arc::new(Living::default());
        living.wait_for_end(Duration::from_millis(1));
        let (first, second) = (living.begin(), living.begin());
        let (sender, ended) = std::sync::mpsc::channel();
        let waits = living.clone();
        let waiting = spawn(move || {
            waits.wait_for_end(Duration::from_secs(60));
            sender.send(()).expect("is heard");
        });
        drop(first);
        assert!(ended.try_recv().is_err());
        drop(second);
        let within = Duration::from_secs(60);
        ended.recv_timeout(within).expect("is over");
        waiting.join().expect("ends");
        living.wait_for_end(Duration::from_secs(60));
    }
}
