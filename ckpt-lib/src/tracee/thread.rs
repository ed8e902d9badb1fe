//! A stopped thread: what ptrace tells of it.

use super::{HostTid, Memory, StopError};
use crate::snapshot::{Registers, Rseq, SyscallDispatch};

/// What was seen of a thread before it was stopped (ADR 0004).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeforeStop {
    /// How long it had been asleep when it was stopped; none if it was running, or the kernel does not tell.
    pub asleep_ns: Option<u64>,
    /// The kernel function it slept in (`/proc/PID/task/TID/wchan`); empty if not to be had.
    pub wchan: String,
    /// The call it was in, with its arguments (`/proc/PID/task/TID/syscall`).
    pub syscall: Option<(i64, [u64; 6])>,
}

/// A thread at a ptrace stop.
#[derive(Debug)]
pub struct StoppedThread {
    /// Its id.
    pub tid: HostTid,
    /// What was seen of it before.
    pub before: BeforeStop,
    /// CLOCK_MONOTONIC when it had stopped, nanoseconds.
    pub stopped_at_ns: u64,
    registers: Registers,
    mask: u64,
}

impl StoppedThread {
    /// Its registers as they were at the stop, also while an injected call runs in it.
    #[must_use]
    pub fn registers(&self) -> Registers {
        self.registers
    }

    /// Sets the registers it goes on with.
    ///
    /// # Errors
    /// If the kernel refuses them.
    pub fn set_registers(&mut self, _registers: &Registers) -> Result<(), StopError> {
        unimplemented!("lands within the hour")
    }

    /// The NT_X86_XSTATE register set in its full size.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn xstate(&self) -> Result<Vec<u8>, StopError> {
        unimplemented!("lands within the hour")
    }

    /// Blocked signals as they were at the stop (the saved mask in sigsuspend, ppoll ...).
    #[must_use]
    pub fn signal_mask(&self) -> u64 {
        self.mask
    }

    /// Sets the mask it goes on with.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_signal_mask(&mut self, _mask: u64) -> Result<(), StopError> {
        unimplemented!("lands within the hour")
    }

    /// Signals pending for this thread, oldest first; `siginfo_t` each.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn pending(&self) -> Result<Vec<[u8; 128]>, StopError> {
        unimplemented!("lands within the hour")
    }

    /// Signals pending for the whole process, oldest first; `siginfo_t` each.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn process_pending(&self) -> Result<Vec<[u8; 128]>, StopError> {
        unimplemented!("lands within the hour")
    }

    /// Its registration of restartable sequences.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn rseq(&self) -> Result<Option<Rseq>, StopError> {
        unimplemented!("lands within the hour")
    }

    /// Syscall user dispatch, if it is on.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn syscall_dispatch(&self) -> Result<Option<SyscallDispatch>, StopError> {
        unimplemented!("lands within the hour")
    }

    /// Where it must go on if it was stopped inside a restartable sequence.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn rseq_abort_ip(&self, _memory: &Memory) -> Result<Option<u64>, StopError> {
        unimplemented!("lands within the hour")
    }
}
