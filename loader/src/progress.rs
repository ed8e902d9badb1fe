//! How far a long restart is: on a terminal, when it has lasted a second; the line is gone when the job runs.

use crate::abi::CLOCK_MONOTONIC;
use crate::report::{self, Line};
use crate::sys;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

/// What is over sooner is not worth a line.
const PATIENCE_NS: i128 = 1_000_000_000;
/// From one drawing to the next.
const PAUSE_NS: i128 = 100_000_000;
/// Less is done before it could be read.
const LEAST: u64 = 16 << 20;
/// Bytes of the bar.
const WIDTH: u64 = 40;

/// When the first of a restart began, for its patience is that of all; 0 before that.
static FIRST_NS: AtomicU64 = AtomicU64::new(0);

/// Drawn by one thread, for all.
pub struct Progress {
    what: &'static str,
    total: u64,
    /// When it is drawn next; none: there is no terminal.
    next_ns: Option<i128>,
    is_shown: bool,
}

impl Progress {
    /// Of so many bytes, from now on; `what` is being done ("filling memory").
    pub fn begin(what: &'static str, total: u64) -> Self {
        let at = || {
            let now = sys::clock(CLOCK_MONOTONIC);
            let first =
                FIRST_NS.compare_exchange(0, now as u64, Ordering::Relaxed, Ordering::Relaxed);
            first.map_or_else(i128::from, |_| now) + PATIENCE_NS
        };
        Progress {
            what,
            total,
            next_ns: (total >= LEAST && report::is_on_terminal()).then(at),
            is_shown: false,
        }
    }

    /// So many are done.
    pub fn at(&mut self, done: u64) {
        let now = sys::clock(CLOCK_MONOTONIC);
        if self.next_ns.is_none_or(|next| now < next) {
            return;
        }
        self.next_ns = Some(now + PAUSE_NS);
        self.is_shown = true;
        let filled = done.saturating_mul(WIDTH) / self.total.max(1);
        let mut line = Line::new();
        line.push(b"\r\x1b[K");
        line.push(self.what.as_bytes());
        line.push(b" [");
        for place in 0..WIDTH {
            line.push(if place < filled { b"=" } else { b" " });
        }
        let [done, total] = [done, self.total].map(|bytes| bytes >> 20);
        let _ = write!(line, "] {done}/{total} MiB");
        report::draw(&line);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let mut line = Line::new();
            line.push(b"\r\x1b[K");
            report::draw(&line);
        }
    }
}
