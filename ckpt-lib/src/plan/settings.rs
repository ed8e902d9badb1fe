//! Settings that few programs have (`snapshot::settings`): calls in the streams of processes and threads.

use super::{Arg, OpsBuilder, StreamIndex};
use crate::snapshot::{MemoryPolicy, Process, Thread};
use loader::ops::Expect;

const PR_SET_SPECULATION_CTRL: u64 = 53;
const PR_MCE_KILL: u64 = 33;
const PR_MCE_KILL_CLEAR: u64 = 0;
const PR_MCE_KILL_SET: u64 = 1;
const PR_SET_IO_FLUSHER: u64 = 57;
const PR_SET_MEMORY_MERGE: u64 = 67;
const SPECULATION: [&str; 3] = [
    "store bypass",
    "indirect branches",
    "flush of the first cache",
];
/// `modify_ldt` with the present form of `struct user_desc`.
const WRITE_ENTRY: u64 = 0x11;
const MADV_GUARD_INSTALL: u64 = 102;
const MODES: [&str; 7] = [
    "default",
    "preferred",
    "bind",
    "interleave",
    "local",
    "preferred-many",
    "weighted-interleave",
];
/// Flags of a mode are above it.
const MODE: u32 = 0xff;

/// What comes before its memory is filled, so that this lies where it shall: the first thread fills it.
pub(super) fn emit_placement(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process) {
    if let Some(first) = process.threads.first() {
        // Said again, and heard, in the thread's own stream.
        let policy = &first.settings.memory_policy;
        emit_policy(ops, stream, "NUMA policy", policy, Expect::Ignore);
    }
    for (range, policy) in &process.settings.policies {
        let label = format!(
            "NUMA policy of memory {:x}-{:x} ({})",
            range.start,
            range.end,
            shown(policy)
        );
        let [mode, nodes, count] = arguments(policy);
        let args = [
            Arg::Value(range.start),
            Arg::Value(range.end - range.start),
            mode,
            nodes,
            count,
            Arg::Value(0),
        ];
        // Nodes that are not there: it lies where the kernel puts it.
        ops.call(stream, &label, libc::SYS_mbind, &args, Expect::OrNoted, 0);
    }
}

/// What comes when its memory is filled: pages that may not be touched.
pub(super) fn emit_guards(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process) {
    for range in &process.settings.guards {
        let label = format!("MADV_GUARD_INSTALL of {:x}-{:x}", range.start, range.end);
        let args = [range.start, range.end - range.start, MADV_GUARD_INSTALL].map(Arg::Value);
        let nr = libc::SYS_madvise;
        ops.call(stream, &label, nr, &args, Expect::OrDegraded, 0);
    }
}

/// What all threads of a process have in common.
pub(super) fn emit_process(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process) {
    for (index, entry) in process.settings.local_descriptors.iter().enumerate() {
        if *entry == 0 {
            continue;
        }
        let bytes = user_desc(index as u32, *entry);
        let args = [
            Arg::Value(WRITE_ENTRY),
            Arg::Bytes(bytes.to_vec()),
            Arg::Value(bytes.len() as u64),
        ];
        // Its errors come as 32 bits, which are no error to who looks at 64.
        ops.call(
            stream,
            &format!("entry {index} of the local descriptor table"),
            libc::SYS_modify_ldt,
            &args,
            Expect::Exactly,
            0,
        );
    }
    // The restarter may have them off.
    let (flags, expect) = match process.thp_disabled {
        true => ([1, u64::from(process.settings.thp_flags)], Expect::Success),
        false => ([0, 0], Expect::Ignore),
    };
    let args = [libc::PR_SET_THP_DISABLE as u64, flags[0], flags[1]].map(Arg::Value);
    let (what, nr) = ("transparent huge pages", libc::SYS_prctl);
    ops.call(stream, what, nr, &args, expect, 0);
    // The restarter may have it on.
    let merges = process.settings.merges_memory;
    let expect = if merges {
        Expect::OrNoted
    } else {
        Expect::Ignore
    };
    let args = [PR_SET_MEMORY_MERGE, u64::from(merges)].map(Arg::Value);
    ops.call(
        stream,
        "PR_SET_MEMORY_MERGE",
        libc::SYS_prctl,
        &args,
        expect,
        0,
    );
}

/// `struct user_desc` (asm/ldt.h) of an entry as modify_ldt(2) reads it: the reverse of `fill_ldt`
/// (arch/x86/include/asm/desc.h).
fn user_desc(number: u32, entry: u64) -> [u8; 16] {
    let bits = |from: u32, count: u32| (entry >> from) as u32 & ((1 << count) - 1);
    let base = bits(16, 24) | bits(56, 8) << 24;
    let limit = bits(0, 16) | bits(48, 4) << 16;
    let is_writable = bits(41, 1);
    let contents = bits(42, 2);
    let is_present = bits(47, 1);
    let flags = bits(54, 1)
        | contents << 1
        | (is_writable ^ 1) << 3
        | bits(55, 1) << 4
        | (is_present ^ 1) << 5
        | bits(52, 1) << 6;
    let mut bytes = [0; 16];
    for (place, word) in bytes.chunks_mut(4).zip([number, base, limit, flags]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// What one thread has for itself.
pub(super) fn emit_thread(ops: &mut OpsBuilder, stream: StreamIndex, thread: &Thread) {
    let settings = &thread.settings;
    let policy = &settings.memory_policy;
    let label = format!("thread {}: NUMA policy ({})", thread.tid, shown(policy));
    // The default is set, too: the restarter may have another.
    let expect = if *policy == MemoryPolicy::default() {
        Expect::Ignore
    } else {
        Expect::OrNoted
    };
    emit_policy(ops, stream, &label, policy, expect);
    let mut prctl = |what: &str, numbers: &[u64], expect| {
        let args: Vec<Arg> = numbers.iter().copied().map(Arg::Value).collect();
        let label = format!("thread {}: {what}", thread.tid);
        ops.call(stream, &label, libc::SYS_prctl, &args, expect, 0);
    };
    let all = settings.speculation.iter().zip(SPECULATION);
    for (which, (setting, name)) in all.enumerate() {
        if *setting != 0 {
            let what = format!("control of speculation ({name})");
            let numbers = [PR_SET_SPECULATION_CTRL, which as u64, u64::from(*setting)];
            prctl(&what, &numbers, Expect::OrNoted);
        }
    }
    let what = "PR_MCE_KILL";
    match settings.memory_failure {
        Some(policy) => {
            let numbers = [PR_MCE_KILL, PR_MCE_KILL_SET, u64::from(policy)];
            prctl(what, &numbers, Expect::OrNoted);
        }
        None => prctl(what, &[PR_MCE_KILL, PR_MCE_KILL_CLEAR], Expect::Ignore),
    }
    if settings.flushes_io {
        prctl(
            "PR_SET_IO_FLUSHER",
            &[PR_SET_IO_FLUSHER, 1],
            Expect::OrNoted,
        );
    }
    if let Some((least, most)) = settings.utilization {
        // struct sched_attr, 56 bytes: policy and numbers stay as they are (sched_setattr(2)).
        const KEEP_ALL: u64 = 0x8 | 0x10;
        const CLAMPS: u64 = 0x20 | 0x40;
        let mut bytes = 56u64.to_le_bytes().to_vec();
        bytes.extend((KEEP_ALL | CLAMPS).to_le_bytes());
        bytes.resize(48, 0);
        bytes.extend(least.to_le_bytes());
        bytes.extend(most.to_le_bytes());
        let args = [Arg::Value(0), Arg::Bytes(bytes), Arg::Value(0)];
        let label = format!("thread {}: utilisation {least} to {most}", thread.tid);
        let nr = libc::SYS_sched_setattr;
        ops.call(stream, &label, nr, &args, Expect::OrNoted, 0);
    }
}

fn emit_policy(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    label: &str,
    policy: &MemoryPolicy,
    expect: Expect,
) {
    let args = arguments(policy);
    ops.call(stream, label, libc::SYS_set_mempolicy, &args, expect, 0);
}

/// Mode, nodes and their number, as set_mempolicy(2) and mbind(2) take them: one less counts.
fn arguments(policy: &MemoryPolicy) -> [Arg; 3] {
    let mode = Arg::Value(u64::from(policy.mode));
    if policy.nodes.is_empty() {
        return [mode, Arg::Value(0), Arg::Value(0)];
    }
    let count = policy.nodes.len() as u64 * 8 + 1;
    [mode, Arg::Bytes(policy.nodes.clone()), Arg::Value(count)]
}

/// "bind, nodes 0 2": for messages.
fn shown(policy: &MemoryPolicy) -> String {
    let name = MODES.get((policy.mode & MODE) as usize);
    let name = name.map_or_else(|| policy.mode.to_string(), |name| (*name).to_owned());
    let has = |node: &usize| policy.nodes[node / 8] & 1 << (node % 8) != 0;
    let nodes: Vec<String> = (0..policy.nodes.len() * 8)
        .filter(has)
        .map(|node| node.to_string())
        .collect();
    if nodes.is_empty() {
        return name;
    }
    format!("{name}, nodes {}", nodes.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_written_as_it_was_read() {
        // Data, writable, 32 bits, in pages, base 0x12345678, limit 0x9abcd, available.
        let entry = 0x12d9_f334_5678_abcd_u64;
        let words: Vec<u32> = user_desc(3, entry)
            .as_chunks()
            .0
            .iter()
            .copied()
            .map(u32::from_le_bytes)
            .collect();
        let flags = 1 | 1 << 4 | 1 << 6;
        assert_eq!(words, [3, 0x1234_5678, 0x9_abcd, flags]);
    }

    #[test]
    fn a_policy_is_shown_with_its_nodes() {
        let policy = MemoryPolicy {
            mode: 2 | 1 << 15,
            nodes: vec![5, 0, 0, 0, 0, 0, 0, 1],
        };
        assert_eq!(shown(&policy), "bind, nodes 0 2 56");
        assert_eq!(shown(&MemoryPolicy::default()), "default");
    }
}
