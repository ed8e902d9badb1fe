//! How much memory wayfarer's own processes have.

use super::run;
use super::scenario::Job;
use std::fs;

/// A line of `/proc/PID/status`, in KiB.
pub fn kib(pid: i32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line?.split_whitespace().next()?.parse().ok()
}

/// The processes of wayfarer's that watch over a job, with the memory that is their own, and the most that they had: P0 since
/// it was executed, P1 since it is a process of its own.
pub fn supervisors(job: &Job<'_>) -> Vec<(i32, u64, u64)> {
    let program = job.guest.program.file_name().unwrap_or_default();
    let program = program.to_string_lossy();
    let pids = run::marked(&job.mark).into_iter();
    let ours = pids.filter(|pid| {
        // P0's is the name of the file that was executed, or its descriptor.
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        !program.starts_with(comm.trim_end())
    });
    ours.filter_map(|pid| Some((pid, kib(pid, "RssAnon:")?, kib(pid, "VmHWM:")?)))
        .collect()
}
