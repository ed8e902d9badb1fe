//! Resource limits of a process.

use super::{Arg, OpsBuilder, StreamIndex};
use crate::platform::LIMIT_NAMES;
use crate::snapshot::Process;
use loader::ops::Expect;

/// Limits that a machine without the original's memory cannot grant to the full: noted only.
const SIZE_OF_MACHINE: [usize; 3] = [
    libc::RLIMIT_NPROC as usize,
    libc::RLIMIT_SIGPENDING as usize,
    libc::RLIMIT_MEMLOCK as usize,
];

/// Resource limits, near the end of the first thread's stream: threads, timers and queued signals that
/// were there may be more than a limit set later allows, and nice values beyond it.
pub(super) fn emit(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process) {
    for (resource, (soft, hard)) in process.rlimits.iter().enumerate() {
        let expect = if SIZE_OF_MACHINE.contains(&resource) {
            Expect::OrNoted
        } else {
            Expect::OrDegraded
        };
        let limits = [*soft, *hard]
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .collect();
        let args = [
            Arg::Value(0),
            Arg::Value(resource as u64),
            Arg::Bytes(limits),
            Arg::Value(0),
        ];
        let name = LIMIT_NAMES.get(resource).map_or("?", |name| *name);
        let label = format!(
            "resource limit {name} (expected {} and at most {})",
            limit(*soft),
            limit(*hard)
        );
        ops.call(stream, &label, libc::SYS_prlimit64, &args, expect, 0);
    }
}

/// A resource limit, as people see it.
fn limit(value: u64) -> String {
    match value {
        libc::RLIM_INFINITY => "unlimited".to_owned(),
        value => value.to_string(),
    }
}
