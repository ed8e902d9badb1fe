//! Fault points: dying or being late on purpose, so that tests can show that it harms nobody.
//!
//! `WAYFARER_FAULT=ptrace:K` kills the process right after its K-th step that touches a tracee (a
//! changing ptrace request, a wait that told something, or a write to its memory). `late:K:MS` stands still
//! for so many milliseconds there. Several are parted by commas. Without the variable a step is one atomic load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static STEPS: AtomicU64 = AtomicU64::new(0);
static FAULTS: OnceLock<Vec<Fault>> = OnceLock::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Die { step: u64 },
    Wait { step: u64, time: Duration },
}

impl Fault {
    fn parse(text: &str) -> Option<Fault> {
        if let Some(step) = text.strip_prefix("ptrace:") {
            let step = step.parse().ok()?;
            return Some(Fault::Die { step });
        }
        let (step, time) = text.strip_prefix("late:")?.split_once(':')?;
        Some(Fault::Wait {
            step: step.parse().ok()?,
            time: Duration::from_millis(time.parse().ok()?),
        })
    }
}

/// Counts a step.
pub(crate) fn step() {
    let faults = FAULTS.get_or_init(|| {
        let text = std::env::var("WAYFARER_FAULT").unwrap_or_default();
        text.split(',').filter_map(Fault::parse).collect()
    });
    if faults.is_empty() {
        return;
    }
    let now = STEPS.fetch_add(1, Ordering::Relaxed) + 1;
    for fault in faults {
        match *fault {
            Fault::Die { step } if step == now => {
                let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
            }
            Fault::Wait { step, time } if step == now => std::thread::sleep(time),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        assert_eq!(Fault::parse("ptrace:7"), Some(Fault::Die { step: 7 }));
        let time = Duration::from_millis(3200);
        assert_eq!(
            Fault::parse("late:3:3200"),
            Some(Fault::Wait { step: 3, time })
        );
        assert_eq!(Fault::parse("late:3"), None);
    }
}
