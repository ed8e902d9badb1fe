//! Whether a job is there, as far as whoever runs the shadow can see: a job that has nothing to ask has no stream.

use wire::Token;

/// What is to be seen of a session's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Their ids, as they know them themselves.
    pub pids: Vec<u32>,
    /// There are no others.
    pub is_all: bool,
}

impl Presence {
    /// Nobody is there any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_all && self.pids.is_empty()
    }
}

/// Looks for the processes of a session that began so many milliseconds after the machine did.
pub type Probe = dyn Fn(&Token, u64, u64) -> Presence + Send + Sync;

/// Milliseconds since the machine began.
pub(crate) fn now_ms() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    let ms = now.map_or(0, |now| {
        now.tv_sec().saturating_mul(1000) + now.tv_nsec() / 1_000_000
    });
    u64::try_from(ms).unwrap_or(0)
}
