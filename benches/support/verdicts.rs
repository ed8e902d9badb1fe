//! What the benches print, and what they are told by their environment.

use std::time::Duration;

/// How many lines were over their limits.
#[derive(Default)]
pub(crate) struct Verdicts {
    pub(crate) over: usize,
}

impl Verdicts {
    /// Prints a line: what, what was measured, what is allowed.
    pub(crate) fn line(&mut self, what: &str, measured: f64, limit: f64, unit: &str, note: &str) {
        let verdict = if measured <= limit { "ok" } else { "OVER" };
        self.over += usize::from(measured > limit);
        println!("  {what:<40} {measured:>10.2} {unit:<5} limit {limit:>9.2}  {verdict:<5} {note}");
    }
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}
