//! Fault points: the shadow dies on purpose at a named step, so that tests can show that it harms no job.
//!
//! `WAYFARER_FAULT=shadow:NAME:K` kills the process at its K-th step of that name (`shadow:any:K`: the K-th of all). Without it a step is a
//! load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// All names, in the order in which a session comes by them.
pub const POINTS: [&str; 18] = [
    "session",
    "begun",
    "done",
    "renamed",
    "noted",
    "opened",
    "opened-noted",
    "closing",
    "closed",
    "locked",
    "locks-noted",
    "whole-written",
    "whole-renamed",
    "adopting",
    "settled",
    "adopted",
    "ending",
    "ended",
];

static WANTED: OnceLock<Option<(String, u64)>> = OnceLock::new();
static STEPS: AtomicU64 = AtomicU64::new(0);

/// A step: before or after something is done or noted.
pub(crate) fn at(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is in the list");
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("WAYFARER_FAULT").ok()?;
        text.split(',').find_map(parse)
    });
    if let Some((wanted, step)) = wanted
        && (wanted == name || wanted == "any")
        && STEPS.fetch_add(1, Ordering::Relaxed) + 1 == *step
    {
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    }
}

fn parse(text: &str) -> Option<(String, u64)> {
    let (name, step) = text.strip_prefix("shadow:")?.split_once(':')?;
    Some((name.to_owned(), step.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        assert_eq!(parse("shadow:begun:3"), Some(("begun".to_owned(), 3)));
        assert_eq!(parse("journal:sync:3"), None);
        assert_eq!(parse("shadow:begun"), None);
    }
}
