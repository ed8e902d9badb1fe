//! Fault points: dying on purpose at a named step, so that tests can show that it harms nobody.
//!
//! Each step that changes a disk has a name. `WAYFARER_FAULT=journal:NAME:K` kills the process at its K-th step of that name
//! (`journal:any:K`: the K-th of all). A test can also arm its own thread: then the step and all later ones of that thread fail, as
//! if the process were gone. Without either a step is two loads.

use crate::JournalError;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// All names.
pub const POINTS: [&str; 21] = [
    "append",
    "applied",
    "attributes",
    "blocks",
    "change",
    "clean",
    "detach",
    "drop-segment",
    "fetch",
    "left",
    "keep",
    "manifest-renamed",
    "manifest-written",
    "open",
    "put",
    "recreate",
    "resize",
    "segment",
    "settle",
    "sync",
    "trash",
];

/// What a thread is to die of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    /// At the step after so many others, of this name or of any.
    After(u64, Option<&'static str>),
    Dead,
}

thread_local! {
    static ARMED: Cell<Armed> = const { Cell::new(Armed::No) };
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

static FATAL: Fatal = Fatal::of("journal");

/// Lets this thread "die" at its `step`-th step from now on (1 is the next), of this name if one is given.
pub fn arm(step: u64, name: Option<&'static str>) {
    ARMED.set(Armed::After(step, name));
}

/// Ends what [`arm`] began; whether the thread "died".
pub fn disarm() -> bool {
    ARMED.replace(Armed::No) == Armed::Dead
}

/// Whether this thread has "died".
#[must_use]
pub fn is_dead() -> bool {
    ARMED.get() == Armed::Dead
}

/// Steps that this thread has done.
#[must_use]
pub fn steps() -> u64 {
    SEEN.get()
}

/// A step that is about to change a disk.
pub(crate) fn at(name: &'static str) -> Result<(), JournalError> {
    debug_assert!(POINTS.contains(&name), "{name} is in the list");
    FATAL.step(name);
    SEEN.set(SEEN.get() + 1);
    match ARMED.get() {
        Armed::No => return Ok(()),
        Armed::Dead => {}
        Armed::After(left, only) => {
            if only.is_some_and(|only| only != name) {
                return Ok(());
            }
            if left > 1 {
                ARMED.set(Armed::After(left - 1, only));
                return Ok(());
            }
            ARMED.set(Armed::Dead);
        }
    }
    Err(JournalError::Killed { name })
}

/// Where `WAYFARER_FAULT` says that a part of the program dies: `PART:NAME:K`, one of several behind commas.
#[derive(Debug)]
pub struct Fatal {
    part: &'static str,
    wanted: OnceLock<Option<(String, u64)>>,
    steps: AtomicU64,
}

impl Fatal {
    /// For the steps of one part.
    #[must_use]
    pub const fn of(part: &'static str) -> Self {
        Fatal {
            part,
            wanted: OnceLock::new(),
            steps: AtomicU64::new(0),
        }
    }

    /// A step of this name: the end of the process, if it is the one that was asked for.
    pub fn step(&self, name: &str) {
        let wanted = self.wanted.get_or_init(|| {
            let text = std::env::var("WAYFARER_FAULT").ok()?;
            text.split(',').find_map(|text| parse(text, self.part))
        });
        if let Some((wanted, step)) = wanted
            && (wanted == name || wanted == "any")
            && self.steps.fetch_add(1, Ordering::Relaxed) + 1 == *step
        {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
    }
}

fn parse(text: &str, part: &str) -> Option<(String, u64)> {
    let (name, step) = text
        .strip_prefix(part)?
        .strip_prefix(':')?
        .split_once(':')?;
    Some((name.to_owned(), step.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let parse = |text| parse(text, "journal");
        assert_eq!(parse("journal:sync:3"), Some(("sync".to_owned(), 3)));
        assert_eq!(parse("ptrace:3"), None);
        assert_eq!(parse("shadow:sync:3"), None);
        assert_eq!(parse("journalsync:3"), None);
        assert_eq!(parse("journal:sync"), None);
    }

    #[test]
    fn a_thread_dies_once_and_stays_dead() {
        arm(2, None);
        assert!(at("append").is_ok());
        assert!(at("sync").is_err());
        assert!(at("append").is_err());
        assert!(disarm());
        assert!(at("append").is_ok());
    }
}
