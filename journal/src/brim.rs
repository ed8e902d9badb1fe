//! A journal that is nearly full says so, so that somebody can have an image made, which lets old state go.
//!
//! ```text
//! the job changes files ──> 3/4 are used ──wait returns──> images are made ──> old state goes: less than 3/4
//!                             `── that has not helped: once more when another 1/32 is used, or a change was refused
//! ```

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a journal tells and somebody waits for. See the module.
#[derive(Debug, Default)]
pub struct Brim {
    level: Mutex<Level>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Level {
    /// How much was used when that was told last; none: it is not nearly full.
    told_at: Option<u64>,
    is_news: bool,
    /// A change was refused since that was told last.
    is_refused: bool,
}

impl Brim {
    /// None is reached yet.
    #[must_use]
    pub fn new() -> Self {
        Brim::default()
    }

    fn level(&self) -> MutexGuard<'_, Level> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes are used of so many.
    pub(crate) fn is_filled(&self, used: u64, most: u64) {
        let mut level = self.level();
        if used < most - most / 4 {
            level.told_at = None;
            level.is_news = level.is_refused;
            return;
        }
        let is_more = |before: u64| used >= before.saturating_add(most / 32);
        if level.told_at.is_none_or(is_more) {
            level.told_at = Some(used);
            level.is_news = true;
            self.changed.notify_all();
        }
    }

    /// There is no room for a change: that is always told.
    pub(crate) fn has_refused(&self) {
        let mut level = self.level();
        (level.is_news, level.is_refused) = (true, true);
        self.changed.notify_all();
    }

    /// Whether the journal is nearly full.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.level().told_at.is_some()
    }

    /// Whether a change was refused since this, or [`Brim::wait`], was asked last.
    pub fn take_refused(&self) -> bool {
        std::mem::take(&mut self.level().is_refused)
    }

    /// Waits until it is nearly full, or is fuller than when this returned last, or a change was refused: whether one was.
    pub fn wait(&self) -> bool {
        let level = self
            .changed
            .wait_while(self.level(), |level| !level.is_news);
        let mut level = level.unwrap_or_else(PoisonError::into_inner);
        level.is_news = false;
        std::mem::take(&mut level.is_refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_and_again_when_it_gets_worse() {
        let brim = Brim::new();
        let mut told = vec![];
        for used in [0, 700, 749, 750, 760, 780, 781, 790, 812, 600, 1000, 1000] {
            brim.is_filled(used, 1000);
            if brim.level().is_news {
                brim.wait();
                told.push(used);
            }
            assert_eq!(brim.is_reached(), used >= 750, "{used}");
        }
        assert_eq!(told, [750, 781, 812, 1000]);
        // What is refused is told at any level, until it was heard.
        brim.is_filled(10, 1000);
        brim.has_refused();
        brim.is_filled(10, 1000);
        assert!(!brim.is_reached());
        assert!(brim.wait());
        brim.is_filled(10, 1000);
        assert!(!brim.level().is_news && !brim.take_refused());
        brim.has_refused();
        assert!(brim.take_refused() && !brim.take_refused());
        brim.is_filled(10, 1000);
        assert!(!brim.level().is_news, "it was heard");
        // Without a limit, and with none at all.
        brim.is_filled(1 << 60, u64::MAX);
        assert!(!brim.is_reached());
        brim.is_filled(0, 0);
        assert!(brim.is_reached());
    }

    #[test]
    fn who_waits_hears_of_it() {
        let brim = Brim::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| brim.wait());
            brim.is_filled(90, 100);
            waiting.join().expect("ends");
        });
    }
}
