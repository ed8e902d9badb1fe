//! Fault points: dying on purpose, so that tests can show that it harms nobody.
//!
//! `WAYFARER_FAULT=ptrace:K` kills the process right after its K-th step that touches a tracee (a
//! changing ptrace request, or a write to its memory). Without the variable a step is one atomic load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static STEPS: AtomicU64 = AtomicU64::new(0);
static LAST: OnceLock<Option<u64>> = OnceLock::new();

/// Counts a step.
pub(crate) fn step() {
    let last = *LAST.get_or_init(|| {
        let value = std::env::var("WAYFARER_FAULT").ok()?;
        value.strip_prefix("ptrace:")?.parse().ok()
    });
    let Some(last) = last else { return };
    if STEPS.fetch_add(1, Ordering::Relaxed) + 1 == last {
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    }
}
