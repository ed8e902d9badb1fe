//! Processes that belong to the job besides those that are captured.

use super::CaptureError;
use crate::procfs::{ProcDir, ProcfsError, parse_stat};
use crate::tracee::HostPid;

/// Children of these processes, and orphans of theirs: children of `reaper`, the process of ours that
/// orphans of the job are given to and that has no children but the job's. Final only if the processes
/// are stopped. Dead ones that `reaper` has not yet taken notice of do not count.
///
/// # Errors
/// When `/proc` cannot be read: then nobody knows.
pub fn others(pids: &[HostPid], reaper: Option<HostPid>) -> Result<Vec<HostPid>, CaptureError> {
    let mut found = vec![];
    for pid in pids {
        found.extend(ProcDir::of(pid.0).children()?);
    }
    if let Some(reaper) = reaper {
        for child in ProcDir::of(reaper.0).children()? {
            if !is_dead(child)? {
                found.push(child);
            }
        }
    }
    let found = found.into_iter().map(HostPid);
    Ok(found.filter(|pid| !pids.contains(pid)).collect())
}

fn is_dead(pid: i32) -> Result<bool, ProcfsError> {
    match ProcDir::of(pid).parsed("stat", parse_stat) {
        Ok(stat) => Ok(matches!(stat.state, b'Z' | b'X')),
        Err(error) if error.is_gone() => Ok(true),
        Err(error) => Err(error),
    }
}
