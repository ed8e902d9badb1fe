//! The picture: a copy-on-write child that shows memory as it was at the freeze (ADR 0002).
//!
//! # What callers may rely on
//! It is traced by us and killed and reaped when the `Picture` is dropped; if the thread that took it
//! ends, or all of us dies, the kernel kills it. It holds no descriptor of the job and nobody in
//! the job sees it.
//!
//! # What it does not do
//! It does not show `MADV_DONTFORK` and `MADV_WIPEONFORK` ranges; shared memory goes on changing in it.
//! It is made by [`crate::inject::Workshop::take_picture`].

use crate::sys::ptrace;
use crate::tracee::{Deadline, HostPid, Memory, has_ended};
use std::io;
use std::time::Duration;

/// How long the kernel may take to end a picture: it has page tables to free.
const END_LIMIT: Duration = Duration::from_secs(30);

/// A copy-on-write child of a process of the job.
#[derive(Debug)]
pub struct Picture {
    pid: HostPid,
    memory: Memory,
}

impl Picture {
    /// Takes charge of a child that we trace and that is at a stop; on an error it is killed.
    pub(crate) fn adopt(pid: HostPid) -> io::Result<Self> {
        match Memory::open_shared(pid) {
            Ok(memory) => Ok(Picture { pid, memory }),
            Err(error) => {
                end(pid);
                Err(error)
            }
        }
    }

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

    /// Kills it, without waiting for its end: nothing can be read from it any more.
    pub fn kill(&self) {
        // Traced by us and not yet waited for, it still owns its id.
        let _ = ptrace::kill(self.pid.0, libc::SIGKILL);
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        end(self.pid);
    }
}

/// Kills a picture and takes notice of its end, so that its reaper is told.
fn end(pid: HostPid) {
    // Traced by us and not yet waited for, it still owns its id.
    let _ = ptrace::kill(pid.0, libc::SIGKILL);
    Deadline::after(END_LIMIT).poll(|| has_ended(pid.0));
}
