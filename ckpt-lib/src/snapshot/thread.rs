//! Threads: everything that belongs to one.

use super::{KernelPath, ThreadSettings};
use serde::{Deserialize, Serialize};

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// Its name (`comm`), at most 15 bytes.
    pub name: KernelPath,
    /// General registers. `rax` and `orig_rax` are as at a ptrace stop: -512 ... -516 in `rax` with
    /// a call number in `orig_rax` means that the kernel would enter the call again.
    pub registers: Registers,
    /// The NT_X86_XSTATE register set: x87, SSE, AVX, AVX-512, PKRU, AMX.
    pub xstate: Vec<u8>,
    /// Blocked signals (the saved mask, if it was in sigsuspend, ppoll ...).
    pub blocked: u64,
    /// Pending for this thread, `siginfo_t` each, 128 bytes.
    pub pending: Vec<Vec<u8>>,
    /// sigaltstack(2): address, flags, size.
    pub alternate_stack: AlternateStack,
    /// get_robust_list(2): address and length.
    pub robust_list: (u64, u64),
    /// Registration of restartable sequences.
    pub rseq: Option<Rseq>,
    /// set_tid_address(2).
    pub clear_child_tid: u64,
    /// Policy, priority, nice.
    pub scheduling: Scheduling,
    /// CPUs it may run on, one bit each, lowest first.
    pub affinity: Vec<u8>,
    /// PR_GET_TIMERSLACK, nanoseconds.
    pub timer_slack_ns: u64,
    /// ioprio_get(2).
    pub io_priority: u32,
    /// Capability sets.
    pub capabilities: Capabilities,
    /// PR_GET_SECUREBITS.
    pub securebits: u32,
    /// PR_GET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// PR_GET_PDEATHSIG.
    pub parent_death_signal: u32,
    /// Syscall user dispatch, if on.
    pub syscall_dispatch: Option<SyscallDispatch>,
    /// PR_GET_TSC: PR_TSC_SIGSEGV.
    pub tsc_faults: bool,
    /// ARCH_GET_CPUID: CPUID raises SIGSEGV.
    pub cpuid_faults: bool,
    /// Where its C library keeps its id (glibc: the word that `clear_child_tid` points to); 0 if that
    /// is not known.
    pub own_id_at: u64,
    /// It holds a robust lock: its id is in the lock's word.
    pub holds_robust_lock: bool,
    /// The call it was in, if time was running in it.
    pub in_call: Option<TimedCall>,
    /// What came later.
    #[serde(skip)]
    pub settings: ThreadSettings,
}

/// `struct user_regs_struct` (sys/user.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// sigaltstack(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlternateStack {
    /// Lowest address.
    pub address: u64,
    /// SS_DISABLE, SS_AUTODISARM.
    pub flags: u32,
    /// Bytes.
    pub size: u64,
}

/// PTRACE_GET_RSEQ_CONFIGURATION.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Rseq {
    pub address: u64,
    pub len: u32,
    pub signature: u32,
    pub flags: u32,
}

/// `struct sched_attr` (sched_setattr(2)) without the utilisation hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Scheduling {
    pub policy: u32,
    pub flags: u64,
    pub nice: i32,
    pub priority: u32,
    pub runtime: u64,
    pub deadline: u64,
    pub period: u64,
}

/// Capability sets, one bit per capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Capabilities {
    pub inheritable: u64,
    pub permitted: u64,
    pub effective: u64,
    pub bounding: u64,
    pub ambient: u64,
}

/// PR_SET_SYSCALL_USER_DISPATCH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SyscallDispatch {
    pub mode: u64,
    pub offset: u64,
    pub len: u64,
    pub selector: u64,
}

/// A call with a relative time-out in which a thread was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedCall {
    /// System call number (never restart_syscall: the call it stands for).
    pub nr: u64,
    /// Time left, nanoseconds.
    pub remaining_ns: u64,
}
