//! The picture: a copy-on-write child that shows memory as it was at the freeze (ADR 0002).
//!
//! # What callers may rely on
//! It is traced by us and killed and reaped when the `Picture` is dropped; if we die, the kernel kills it.
//! It holds no descriptor of the job and nobody in the job sees it.
//!
//! # What it does not do
//! It does not show `MADV_DONTFORK` and `MADV_WIPEONFORK` ranges; shared memory goes on changing in it.

use crate::tracee::{HostPid, Memory};

/// A copy-on-write child of a process of the job.
#[derive(Debug)]
pub struct Picture {
    pid: HostPid,
    memory: Memory,
}

impl Picture {
    /// The child's process id.
    #[must_use]
    pub fn pid(&self) -> HostPid {
        self.pid
    }

    /// The memory as it was.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}
