//! The clocks of a job, which may live in a time namespace of its own.

use super::CaptureError;
use super::subject::Subject;
use crate::procfs::{ProcDir, parse_time_offsets};
use crate::snapshot::Clocks;
use nix::time::{ClockId, clock_gettime};

/// Clocks as the job sees them.
pub(super) fn of(root: &Subject) -> Result<Clocks, CaptureError> {
    let offsets = |dir: &ProcDir| match dir.parsed("timens_offsets", parse_time_offsets) {
        Ok(offsets) => Ok(offsets),
        // A kernel without time namespaces.
        Err(error) if error.is_gone() => Ok(Default::default()),
        Err(error) => Err(error),
    };
    let own = offsets(&ProcDir::of_self())?;
    let theirs = offsets(&root.dir)?;
    let now = |clock, what| {
        let time = clock_gettime(clock).map_err(|errno| CaptureError::Kernel {
            pid: root.pid,
            what,
            source: errno.into(),
        })?;
        Ok::<i128, CaptureError>(
            i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()),
        )
    };
    let shifted =
        |time: i128, own: i128, theirs: i128| u64::try_from(time - own + theirs).unwrap_or(0);
    let monotonic = now(ClockId::CLOCK_MONOTONIC, "its CLOCK_MONOTONIC")?;
    let raw = now(ClockId::CLOCK_MONOTONIC_RAW, "its CLOCK_MONOTONIC_RAW")?;
    let boottime = now(ClockId::CLOCK_BOOTTIME, "its CLOCK_BOOTTIME")?;
    let realtime = now(ClockId::CLOCK_REALTIME, "its CLOCK_REALTIME")?;
    Ok(Clocks {
        monotonic_ns: shifted(monotonic, own.monotonic_ns, theirs.monotonic_ns),
        monotonic_raw_ns: shifted(raw, own.monotonic_ns, theirs.monotonic_ns),
        boottime_ns: shifted(boottime, own.boottime_ns, theirs.boottime_ns),
        realtime_ns: shifted(realtime, 0, 0),
    })
}
