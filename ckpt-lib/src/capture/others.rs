//! Processes that belong to the job besides those that are captured.

use super::CaptureError;
use crate::procfs::{ProcDir, ProcfsError, has_ended, parse_stat, parse_status};
use crate::tracee::HostPid;

/// Children of these processes, and orphans of theirs: children of `reaper`, the process of ours that
/// orphans of the job are given to and that has no children but the job's. Final only if the processes
/// are stopped. Dead and dying ones that `reaper` has not yet taken notice of do not count: the copy of a
/// checkpoint that was killed dies with it, but not in no time.
///
/// # Errors
/// When `/proc` cannot be read: then nobody knows.
pub fn others(pids: &[HostPid], reaper: Option<HostPid>) -> Result<Vec<HostPid>, CaptureError> {
    let (mut found, mut own) = (vec![], vec![]);
    for pid in pids {
        let dir = ProcDir::of(pid.0);
        // It may be a thread that stands for its process.
        own.push(dir.parsed("status", parse_status)?.tgid);
        found.extend(dir.children()?);
    }
    if let Some(reaper) = reaper {
        for child in ProcDir::of(reaper.0).children()? {
            if !is_dead(child)? {
                found.push(child);
            }
        }
    }
    found.retain(|pid| !own.contains(pid));
    Ok(found.into_iter().map(HostPid).collect())
}

/// Whether a process is dead, on its way out, or has been sent SIGKILL. One whose first thread has ended may go on.
fn is_dead(pid: i32) -> Result<bool, ProcfsError> {
    const KILLED: u64 = 1 << (libc::SIGKILL - 1);
    let dir = ProcDir::of(pid);
    let dead = || {
        let ending = dir.parsed("stat", parse_stat)?.is_ending();
        Ok(ending && has_ended(pid) || dir.parsed("status", parse_status)?.pending & KILLED != 0)
    };
    match dead() {
        Err(error) if ProcfsError::is_gone(&error) => Ok(true),
        known => known,
    }
}
