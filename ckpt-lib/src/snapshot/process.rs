//! Processes: what all threads of one have in common.

use super::{AddressSpace, DescriptionId, InodeId, KernelPath, LockRange, ProcessSettings, Thread};
use serde::{Deserialize, Serialize};

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's; 0 if that is outside the job.
    pub ppid: u32,
    /// Its process group; 0 if that is led from outside the job.
    pub pgid: u32,
    /// Its session; 0 if that is led from outside the job.
    pub sid: u32,
    /// Its threads, the first one first, unless it has ended.
    pub threads: Vec<Thread>,
    /// Its memory.
    pub memory: AddressSpace,
    /// Its descriptor table.
    pub descriptors: Vec<Descriptor>,
    /// POSIX record locks it holds.
    pub record_locks: Vec<RecordLock>,
    /// Working directory.
    pub cwd: KernelPath,
    /// Root directory ("/" unless it called chroot).
    pub root: KernelPath,
    /// File mode creation mask.
    pub umask: u32,
    /// Soft and hard limits, indexed by RLIMIT_*; `u64::MAX` is unlimited.
    pub rlimits: Vec<(u64, u64)>,
    /// personality(2).
    pub personality: u32,
    /// PR_GET_DUMPABLE.
    pub dumpable: u32,
    /// PR_GET_CHILD_SUBREAPER.
    pub subreaper: bool,
    /// PR_GET_THP_DISABLE.
    pub thp_disabled: bool,
    /// Registrations with membarrier(2), MEMBARRIER_CMD_REGISTER_* bits.
    pub membarrier: u32,
    /// `/proc/PID/oom_score_adj`.
    pub oom_score_adj: i32,
    /// Permission for AMX tiles and other dynamic features (arch_prctl ARCH_GET_XCOMP_PERM).
    pub xcomp_permitted: u64,
    /// Dispositions of signals 1 to 64, at index signal - 1.
    pub actions: Vec<SignalAction>,
    /// Pending for the process, `siginfo_t` each, 128 bytes.
    pub pending: Vec<Vec<u8>>,
    /// The signal that stopped it (job control), 0 if it was running.
    pub stopped_by: u32,
    /// ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF.
    pub interval_timers: [IntervalTimer; 3],
    /// POSIX timers.
    pub posix_timers: Vec<PosixTimer>,
    /// What came later.
    #[serde(skip)]
    pub settings: ProcessSettings,
    /// What its first thread was called, if that had ended while others went on (`pthread_exit` in `main`); it is not among the threads then.
    /// Behind all else in the image, where older ones have nothing.
    #[serde(skip)]
    pub ended_first: Option<KernelPath>,
}

impl Process {
    /// What it is called (`comm` of its first thread).
    #[must_use]
    pub fn name(&self) -> Option<&KernelPath> {
        let first = || self.threads.first().map(|thread| &thread.name);
        self.ended_first.as_ref().or_else(first)
    }
}

/// An entry of a descriptor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number.
    pub fd: i32,
    /// Its open file description.
    pub description: DescriptionId,
    /// FD_CLOEXEC.
    pub close_on_exec: bool,
}

/// A POSIX record lock; belongs to the process and the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordLock {
    /// The file.
    pub inode: InodeId,
    /// The range.
    pub range: LockRange,
}

/// `struct kernel_sigaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SignalAction {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// setitimer(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalTimer {
    /// Time left, 0 if disarmed.
    pub value_us: u64,
    /// Period.
    pub interval_us: u64,
}

/// timer_create(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PosixTimer {
    /// Its id.
    pub id: i32,
    /// Its clock.
    pub clock: i32,
    /// SIGEV_SIGNAL, SIGEV_NONE, SIGEV_THREAD_ID.
    pub notify: i32,
    /// The signal.
    pub signal: i32,
    /// `sigev_value`.
    pub value: u64,
    /// Thread to notify (SIGEV_THREAD_ID), else 0.
    pub tid: u32,
    /// Time left, 0 if disarmed.
    pub left_ns: u64,
    /// Period.
    pub interval_ns: u64,
}

impl PosixTimer {
    /// Whether its clock is the processor time of a thread other than the first, which is named by its id (clock ids below -8,
    /// include/linux/posix-timers.h).
    #[must_use]
    pub fn counts_for_a_thread_by_its_id(&self) -> bool {
        self.clock < -8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_other_threads_have_their_ids() {
        let by_id = |clock| {
            let timer = PosixTimer {
                clock,
                ..PosixTimer::default()
            };
            timer.counts_for_a_thread_by_its_id()
        };
        // CLOCK_PROCESS_CPUTIME_ID and CLOCK_THREAD_CPUTIME_ID of whoever asks, as the kernel writes them.
        for clock in [libc::CLOCK_REALTIME, libc::CLOCK_PROCESS_CPUTIME_ID, -6, -2] {
            assert!(!by_id(clock), "{clock}");
        }
        for tid in [1, 4_194_304] {
            assert!(by_id((!tid << 3) | 6), "{tid}");
        }
    }
}
