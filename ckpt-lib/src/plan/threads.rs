//! Thread streams: everything that belongs to one thread, done by itself.

use super::limits;
use super::process::siginfo_signal;
use super::{Arg, OpsBuilder, StreamIndex};
use crate::snapshot::{Capabilities, KernelPath, Process, Registers, Thread, TimedCall};
use loader::ops::{self, Ended, Expect, InProgress, OwnId, timeout};

/// `SS_ONSTACK`: computed by the kernel, not settable.
const SS_ONSTACK: u32 = 1;
const IOPRIO_WHO_PROCESS: u64 = 1;
const IOPRIO_CLASS_SHIFT: u32 = 13;
const IOPRIO_LEVEL: u32 = 7;
/// Highest capability number tried.
const LAST_CAPABILITY: u64 = 63;

pub(super) fn emit(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process, thread: &Thread) {
    emit_identity(ops, stream, thread);
    if thread.own_id_at != 0 {
        ops.push(
            stream,
            &OwnId {
                address: thread.own_id_at,
            },
            &[],
        );
    }
    emit_scheduling(ops, stream, thread);
    emit_faults(ops, stream, thread);
    super::settings::emit_thread(ops, stream, thread);
    for info in &thread.pending {
        let signal = siginfo_signal(info);
        let args = [
            Arg::Value(u64::from(process.pid)),
            Arg::Value(u64::from(thread.tid)),
            Arg::Value(signal),
            Arg::Bytes(info.clone()),
        ];
        let label = format!("thread {}: pending signal {signal}", thread.tid);
        ops.call(
            stream,
            &label,
            libc::SYS_rt_tgsigqueueinfo,
            &args,
            Expect::Success,
            0,
        );
    }
    if thread.tid == process.pid {
        limits::emit(ops, stream, process);
    }
    emit_privileges(ops, stream, process, thread);
    let mut registers = thread.registers;
    if let Some(call) = &thread.in_call {
        emit_call(ops, stream, call, &mut registers);
    }
    emit_registers(ops, stream, thread, &registers);
}

/// A first thread that had ended while others went on: what it does for its process, and its name, which is the process's.
pub(super) fn emit_ended(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    process: &Process,
    name: &KernelPath,
) {
    emit_name(ops, stream, process.pid, name);
    limits::emit(ops, stream, process);
    ops.push(stream, &Ended::default(), &[]);
}

fn emit_name(ops: &mut OpsBuilder, stream: StreamIndex, tid: u32, name: &KernelPath) {
    let name = super::inodes::with_nul(&name.0);
    let args = [Arg::Value(libc::PR_SET_NAME as u64), Arg::Bytes(name)];
    ops.call(
        stream,
        &format!("thread {tid}: name"),
        libc::SYS_prctl,
        &args,
        Expect::Success,
        0,
    );
}

fn emit_identity(ops: &mut OpsBuilder, stream: StreamIndex, thread: &Thread) {
    let label = |what: &str| format!("thread {}: {what}", thread.tid);
    emit_name(ops, stream, thread.tid, &thread.name);
    let stack = &thread.alternate_stack;
    let mut bytes = stack.address.to_le_bytes().to_vec();
    bytes.extend(u64::from(stack.flags & !SS_ONSTACK).to_le_bytes());
    bytes.extend(stack.size.to_le_bytes());
    let args = [Arg::Bytes(bytes), Arg::Value(0)];
    let what = label("alternate signal stack");
    ops.call(
        stream,
        &what,
        libc::SYS_sigaltstack,
        &args,
        Expect::Success,
        0,
    );
    let (head, len) = thread.robust_list;
    if head != 0 {
        let args = [Arg::Value(head), Arg::Value(len)];
        let what = label("robust list");
        ops.call(
            stream,
            &what,
            libc::SYS_set_robust_list,
            &args,
            Expect::Success,
            0,
        );
    }
    let args = [Arg::Value(thread.clear_child_tid)];
    let what = label("clear_child_tid");
    ops.call(
        stream,
        &what,
        libc::SYS_set_tid_address,
        &args,
        Expect::Ignore,
        0,
    );
    if let Some(rseq) = &thread.rseq {
        let args = [
            Arg::Value(rseq.address),
            Arg::Value(u64::from(rseq.len)),
            Arg::Value(u64::from(rseq.flags)),
            Arg::Value(u64::from(rseq.signature)),
        ];
        let what = label("restartable sequences");
        ops.call(stream, &what, libc::SYS_rseq, &args, Expect::Success, 0);
    }
}

fn emit_scheduling(ops: &mut OpsBuilder, stream: StreamIndex, thread: &Thread) {
    let label = |what: &str| format!("thread {}: {what}", thread.tid);
    let affinity = [
        Arg::Value(0),
        Arg::Value(thread.affinity.len() as u64),
        Arg::Bytes(thread.affinity.clone()),
    ];
    if !thread.affinity.is_empty() {
        let what = label("CPU affinity");
        let nr = libc::SYS_sched_setaffinity;
        ops.call(stream, &what, nr, &affinity, Expect::OrDegraded, 0);
    }
    let scheduling = &thread.scheduling;
    // struct sched_attr, 48 bytes (sched_setattr(2)).
    let mut bytes = 48u32.to_le_bytes().to_vec();
    bytes.extend(scheduling.policy.to_le_bytes());
    bytes.extend(scheduling.flags.to_le_bytes());
    bytes.extend(scheduling.nice.to_le_bytes());
    bytes.extend(scheduling.priority.to_le_bytes());
    bytes.extend(scheduling.runtime.to_le_bytes());
    bytes.extend(scheduling.deadline.to_le_bytes());
    bytes.extend(scheduling.period.to_le_bytes());
    let args = [Arg::Value(0), Arg::Bytes(bytes), Arg::Value(0)];
    let what = label("scheduling policy and nice value");
    ops.call(
        stream,
        &what,
        libc::SYS_sched_setattr,
        &args,
        Expect::OrDegraded,
        0,
    );
    // The restarter may have one. Kernels before 6.0 say level 4 for a thread that has none, and do not take that.
    let (io_priority, expect) = match thread.io_priority >> IOPRIO_CLASS_SHIFT {
        0 => (thread.io_priority & !IOPRIO_LEVEL, Expect::Ignore),
        _ => (thread.io_priority, Expect::OrNoted),
    };
    let args = [IOPRIO_WHO_PROCESS, 0, u64::from(io_priority)].map(Arg::Value);
    let (what, nr) = (label("I/O priority"), libc::SYS_ioprio_set);
    ops.call(stream, &what, nr, &args, expect, 0);
    let args = [
        Arg::Value(libc::PR_SET_TIMERSLACK as u64),
        Arg::Value(thread.timer_slack_ns),
    ];
    let what = label("timer slack");
    ops.call(stream, &what, libc::SYS_prctl, &args, Expect::Success, 0);
}

fn emit_faults(ops: &mut OpsBuilder, stream: StreamIndex, thread: &Thread) {
    let label = |what: &str| format!("thread {}: {what}", thread.tid);
    const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
    const ARCH_SET_CPUID: u64 = 0x1012;
    if let Some(dispatch) = &thread.syscall_dispatch {
        let args = [
            PR_SET_SYSCALL_USER_DISPATCH,
            dispatch.mode,
            dispatch.offset,
            dispatch.len,
            dispatch.selector,
        ]
        .map(Arg::Value);
        let what = label("syscall user dispatch");
        ops.call(stream, &what, libc::SYS_prctl, &args, Expect::Success, 0);
    }
    if thread.tsc_faults {
        let args = [
            Arg::Value(libc::PR_SET_TSC as u64),
            Arg::Value(libc::PR_TSC_SIGSEGV as u64),
        ];
        ops.call(
            stream,
            &label("PR_SET_TSC"),
            libc::SYS_prctl,
            &args,
            Expect::Success,
            0,
        );
    }
    if thread.cpuid_faults {
        let args = [Arg::Value(ARCH_SET_CPUID), Arg::Value(0)];
        let what = label("CPUID faulting");
        ops.call(
            stream,
            &what,
            libc::SYS_arch_prctl,
            &args,
            Expect::Success,
            0,
        );
    }
    if thread.parent_death_signal != 0 {
        let args = [
            Arg::Value(libc::PR_SET_PDEATHSIG as u64),
            Arg::Value(u64::from(thread.parent_death_signal)),
        ];
        let what = label("parent death signal");
        ops.call(stream, &what, libc::SYS_prctl, &args, Expect::Success, 0);
    }
}

/// Drops from the bounding set what no thread has in it, before there are others: they get it from the one that begins them.
pub(super) fn emit_bounding_set(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process) {
    for capability in capabilities(!had_by_any(process)) {
        let args = [libc::PR_CAPBSET_DROP as u64, capability].map(Arg::Value);
        // Numbers above the kernel's last are EINVAL; without a namespace it is EPERM, and then
        // the set is what the restarter's is.
        let label = "capability bounding set";
        ops.call(stream, label, libc::SYS_prctl, &args, Expect::Ignore, 0);
    }
}

/// What some thread has in its bounding set.
fn had_by_any(process: &Process) -> u64 {
    let threads = process.threads.iter();
    threads.fold(0, |all, thread| all | thread.capabilities.bounding)
}

fn capabilities(set: u64) -> impl Iterator<Item = u64> {
    (0..=LAST_CAPABILITY).filter(move |bit| set & (1 << bit) != 0)
}

/// `SECBIT_KEEP_CAPS`, the one of securebits that needs no privilege (PR_SET_KEEPCAPS).
const KEEP_CAPS: u32 = 1 << 4;

/// Capability sets and what goes with them; last, since it takes rights away.
fn emit_privileges(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process, thread: &Thread) {
    let label = |what: &str| format!("thread {}: {what}", thread.tid);
    let Capabilities {
        inheritable,
        permitted,
        effective,
        bounding,
        ambient,
    } = thread.capabilities;
    let mut prctl = |what: &str, args: &[u64], expect: Expect| {
        let args: Vec<Arg> = args.iter().copied().map(Arg::Value).collect();
        ops.call(stream, &label(what), libc::SYS_prctl, &args, expect, 0);
    };
    for capability in capabilities(had_by_any(process) & !bounding) {
        let args = [libc::PR_CAPBSET_DROP as u64, capability];
        prctl("capability bounding set", &args, Expect::Ignore);
    }
    if thread.securebits == KEEP_CAPS {
        prctl(
            "PR_SET_KEEPCAPS",
            &[libc::PR_SET_KEEPCAPS as u64, 1],
            Expect::Success,
        );
    } else if thread.securebits != 0 {
        let args = [libc::PR_SET_SECUREBITS as u64, u64::from(thread.securebits)];
        prctl("securebits", &args, Expect::OrNoted);
    }
    if thread.no_new_privs {
        prctl(
            "no_new_privs",
            &[libc::PR_SET_NO_NEW_PRIVS as u64, 1],
            Expect::Success,
        );
    }
    // struct __user_cap_header_struct, version 3; then two words of each set.
    let header = [0x2008_0522u32, 0]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    let half = |shift: u32| [effective, permitted, inheritable].map(|set| (set >> shift) as u32);
    let sets = [half(0), half(32)]
        .concat()
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    let args = [Arg::Bytes(header), Arg::Bytes(sets)];
    let what = label("capability sets");
    ops.call(stream, &what, libc::SYS_capset, &args, Expect::OrNoted, 0);
    for capability in capabilities(ambient) {
        let args = [
            libc::PR_CAP_AMBIENT as u64,
            libc::PR_CAP_AMBIENT_RAISE as u64,
            capability,
        ]
        .map(Arg::Value);
        let what = label("ambient capability");
        ops.call(stream, &what, libc::SYS_prctl, &args, Expect::OrNoted, 0);
    }
}

/// The call the thread was in (docs/adr/0004-time-in-calls.md).
fn emit_call(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    call: &TimedCall,
    registers: &mut Registers,
) {
    let nr = call.nr as i64;
    let (timeout_in, timeout_arg) = match nr {
        libc::SYS_nanosleep => (timeout::TIMESPEC, 0),
        libc::SYS_clock_nanosleep => (timeout::TIMESPEC, 2),
        libc::SYS_futex => (timeout::TIMESPEC, 3),
        libc::SYS_poll => (timeout::MILLISECONDS, 2),
        // No other call keeps its rest in the kernel; its arguments say what is left.
        _ => return,
    };
    let op = InProgress {
        nr: call.nr,
        a0: registers.rdi,
        a1: registers.rsi,
        a2: registers.rdx,
        a3: registers.r10,
        a4: registers.r8,
        a5: registers.r9,
        timeout_in,
        timeout_arg,
        remaining_ns: call.remaining_ns,
    };
    ops.push(stream, &op, &[]);
    registers.orig_rax = call.nr;
    registers.rax = -516i64 as u64; // ERESTART_RESTARTBLOCK
}

fn emit_registers(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    thread: &Thread,
    registers: &Registers,
) {
    let Registers {
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        orig_rax,
        rip,
        cs,
        eflags,
        rsp,
        ss,
        fs_base,
        gs_base,
        ds,
        es,
        fs,
        gs,
    } = *registers;
    let op = ops::Registers {
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        orig_rax,
        rip,
        cs,
        eflags,
        rsp,
        ss,
        fs_base,
        gs_base,
        ds,
        es,
        fs,
        gs,
        mask: thread.blocked,
    };
    ops.push(stream, &op, &thread.xstate);
}
