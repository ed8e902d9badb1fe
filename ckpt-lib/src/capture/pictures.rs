//! Copies (docs/adr/0002) that a checkpoint has left behind which was killed: they end by themselves.

use super::CaptureError;
use super::others::others;
use crate::procfs::ProcDir;
use crate::tracee::HostPid;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How long one is waited for: longer than it waits for whoever made it, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a process is looked at before it is believed to be none: for some moments after it has been made, one has its original's descriptors.
const DOUBT: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(20);
/// What it does until then: `pselect6` without descriptors.
const ITS_WAIT: &str = "270 0x0 0x0 0x0 0x0 ";

/// As [`others`], when copies of killed checkpoints have ended. One that does not is among them.
///
/// # Errors
/// Those of [`others`].
pub fn others_but_pictures(
    pids: &[HostPid],
    reaper: Option<HostPid>,
) -> Result<Vec<HostPid>, CaptureError> {
    let began = Instant::now();
    // One that has been seen to be one is one to its end: on its way out it does not look so any more.
    let mut pictures = HashSet::new();
    loop {
        let others = others(pids, reaper)?;
        if others.is_empty() {
            return Ok(others);
        }
        for other in &others {
            if pids.iter().any(|pid| is_picture(*other, *pid)) {
                pictures.insert(other.0);
            }
        }
        let limit = match others.iter().all(|other| pictures.contains(&other.0)) {
            true => PATIENCE,
            false => DOUBT,
        };
        if began.elapsed() > limit {
            return Ok(others);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether a process looks like a copy of another that was made for a checkpoint: it runs the same program, has
/// no descriptor at all, and waits as the copy does. A process of the job's own that looks so is waited for in vain, no more.
#[must_use]
pub fn is_picture(other: HostPid, of: HostPid) -> bool {
    let [dir, original] = [other, of].map(|pid| ProcDir::of(pid.0));
    let call = dir.bytes("syscall").unwrap_or_default();
    let has_none = || {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", other.0));
        entries.is_ok_and(|mut entries| entries.next().is_none())
    };
    let same_program = || match (dir.link("exe"), original.link("exe")) {
        (Ok(own), Ok(of)) => own == of,
        _ => false,
    };
    call.starts_with(ITS_WAIT.as_bytes()) && same_program() && has_none()
}
