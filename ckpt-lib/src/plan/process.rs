//! Process stream: everything of a process that is not memory or threads.

use super::inodes::emit_late_seals;
use super::objects::{flock, itimerspec};
use super::slots::Slots;
use super::{Arg, OpsBuilder, PlanError, StreamIndex, threads};
use crate::snapshot::{
    DescriptionId, DescriptionKind, PipeRecord, PosixTimer, Process, SignalAction, SnapshotV1,
};
use loader::ops::{Expect, Fired, SpawnThreads, Stopped, TimerCreate};

/// `arch_prctl` code (arch/x86/include/uapi/asm/prctl.h).
const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
/// Number of the AMX tile data component.
const XFEATURE_XTILE_DATA: u64 = 18;
/// `MEMBARRIER_CMD_GET_REGISTRATIONS` reports registrations as these command bits.
const MEMBARRIER_REGISTER: [u64; 4] = [1 << 2, 1 << 4, 1 << 6, 1 << 8];
/// What a new process has.
const DEFAULT_COREDUMP_FILTER: u32 = 0x33;

pub(super) fn emit(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    process: &Process,
    slots: &Slots,
) -> Result<(), PlanError> {
    emit_session(ops, stream, process);
    emit_descriptors(ops, stream, snapshot, process, slots)?;
    emit_place(ops, stream, process);
    emit_signals(ops, stream, process);
    emit_attributes(ops, stream, process, slots);
    threads::emit_bounding_set(ops, stream, process);
    ops.push(stream, &SpawnThreads::default(), &[]);
    emit_owners(ops, stream, snapshot, process);
    emit_late_seals(ops, stream, snapshot, slots);
    emit_timers(ops, stream, process);
    for info in &process.pending {
        let signal = siginfo_signal(info);
        let args = [
            Arg::Value(u64::from(process.pid)),
            Arg::Value(signal),
            Arg::Bytes(info.clone()),
        ];
        let label = format!("pending signal {signal}");
        ops.call(
            stream,
            &label,
            libc::SYS_rt_sigqueueinfo,
            &args,
            Expect::Success,
            0,
        );
    }
    if process.stopped_by != 0 {
        ops.push(
            stream,
            &Stopped {
                signal: u64::from(process.stopped_by),
            },
            &[],
        );
    }
    emit_root(ops, stream, process);
    let last = slots.base() + slots.count() - 1;
    let args = [Arg::Value(slots.base()), Arg::Value(last), Arg::Value(0)];
    ops.call(
        stream,
        "closing slots",
        libc::SYS_close_range,
        &args,
        Expect::Success,
        0,
    );
    emit_record_locks(ops, stream, snapshot, process)
}

/// `si_signo` of a stored `siginfo_t`.
pub(super) fn siginfo_signal(info: &[u8]) -> u64 {
    let mut word = [0; 4];
    if let Some(bytes) = info.get(..4) {
        word.copy_from_slice(bytes);
    }
    u64::from(u32::from_le_bytes(word))
}

fn emit_session(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process) {
    if process.sid == process.pid {
        ops.call(stream, "session", libc::SYS_setsid, &[], Expect::Success, 0);
    } else if process.pgid == process.pid {
        let args = [Arg::Value(0), Arg::Value(0)];
        ops.call(
            stream,
            "process group",
            libc::SYS_setpgid,
            &args,
            Expect::Success,
            0,
        );
    }
}

fn emit_descriptors(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    process: &Process,
    slots: &Slots,
) -> Result<(), PlanError> {
    let close_range = |ops: &mut OpsBuilder, from: u64, to: u64| {
        if from <= to {
            let args = [Arg::Value(from), Arg::Value(to), Arg::Value(0)];
            let label = "closing what the restarter had open";
            ops.call(
                stream,
                label,
                libc::SYS_close_range,
                &args,
                Expect::Success,
                0,
            );
        }
    };
    close_range(ops, 0, slots.base() - 1);
    close_range(ops, slots.end(), u64::from(u32::MAX));
    for descriptor in &process.descriptors {
        let id = descriptor.description;
        let count = snapshot.descriptions.len();
        if id.0 as usize >= count {
            return Err(PlanError::Dangling {
                what: "description",
                index: id.0 as usize,
                count,
            });
        }
        let label = format!("descriptor {}", descriptor.fd);
        let slot = slots.description(id);
        let flags = if descriptor.close_on_exec {
            libc::O_CLOEXEC as u64
        } else {
            0
        };
        let fd = descriptor.fd as u64;
        let args = [Arg::Value(slot), Arg::Value(fd), Arg::Value(flags)];
        ops.call(stream, &label, libc::SYS_dup3, &args, Expect::Exactly, fd);
    }
    for descriptor in &process.descriptors {
        let description = &snapshot.descriptions[descriptor.description.0 as usize];
        let fd = descriptor.fd as u64;
        if let DescriptionKind::Epoll { entries } = &description.kind
            && is_first(process, descriptor.description, descriptor.fd)
        {
            // Those that have fired first: no other is to be watched when they are added.
            let mut ordered: Vec<_> = entries.iter().collect();
            ordered.sort_by_key(|entry| !entry.has_fired());
            for entry in ordered {
                let label = format!("descriptor {fd} (epoll): member {}", entry.fd);
                let member = entry.fd as u64;
                let mut table = process.descriptors.iter();
                let has_number = table.any(|descriptor| descriptor.fd == entry.fd);
                // It was added under a number that is closed now: it has that again for a moment.
                let twin = process
                    .descriptors
                    .iter()
                    .find(|other| !has_number && other.description == entry.target);
                if let Some(twin) = twin {
                    let args = [
                        Arg::Value(twin.fd as u64),
                        Arg::Value(member),
                        Arg::Value(0),
                    ];
                    let expect = Expect::Exactly;
                    ops.call(stream, &label, libc::SYS_dup3, &args, expect, member);
                }
                if entry.has_fired() {
                    let op = Fired {
                        epoll: fd,
                        fd: member,
                        events: u64::from(entry.events),
                        data: entry.data,
                        pipe: u64::from(is_read_end(snapshot, entry.target)),
                    };
                    ops.push(stream, &op, &[]);
                } else {
                    let mut event = entry.events.to_le_bytes().to_vec();
                    event.extend(entry.data.to_le_bytes());
                    let args = [
                        Arg::Value(fd),
                        Arg::Value(libc::EPOLL_CTL_ADD as u64),
                        Arg::Value(member),
                        Arg::Bytes(event),
                    ];
                    let nr = libc::SYS_epoll_ctl;
                    ops.call(stream, &label, nr, &args, Expect::Success, 0);
                }
                if twin.is_some() {
                    let args = [Arg::Value(member)];
                    ops.call(stream, &label, libc::SYS_close, &args, Expect::Success, 0);
                }
            }
        }
    }
    Ok(())
}

/// Whether it is the end to read from of a pipe without a name: nobody but the job has that.
fn is_read_end(snapshot: &SnapshotV1, id: DescriptionId) -> bool {
    let description = &snapshot.descriptions[id.0 as usize];
    let DescriptionKind::Pipe(pipe) = description.kind else {
        return false;
    };
    let is_nameless = |pipe: &PipeRecord| pipe.fifo.is_none();
    let reads = description.flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32;
    reads && snapshot.pipes.get(pipe.0 as usize).is_some_and(is_nameless)
}

/// Who is told about a descriptor: threads of the job must be there by then.
fn emit_owners(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    process: &Process,
) {
    for descriptor in &process.descriptors {
        let description = &snapshot.descriptions[descriptor.description.0 as usize];
        let fd = descriptor.fd as u64;
        if let Some(owner) = &description.owner
            && is_first(process, descriptor.description, descriptor.fd)
        {
            let mut bytes = owner.kind.to_le_bytes().to_vec();
            bytes.extend(owner.id.to_le_bytes());
            let mut fcntl = |command: u64, arg: Arg| {
                let args = [Arg::Value(fd), Arg::Value(command), arg];
                let label = format!("descriptor {fd}: owner");
                ops.call(stream, &label, libc::SYS_fcntl, &args, Expect::Success, 0);
            };
            const F_SETOWN_EX: u64 = 15;
            const F_SETSIG: u64 = 10;
            fcntl(F_SETOWN_EX, Arg::Bytes(bytes));
            fcntl(F_SETSIG, Arg::Value(owner.signal as u64));
        }
        // What the restarter shares with others is not changed for nobody's sake.
        let is_for_somebody = description.owner.is_some()
            || !matches!(description.kind, DescriptionKind::External(_));
        if description.flags & libc::O_ASYNC as u32 != 0
            && is_for_somebody
            && is_first(process, descriptor.description, descriptor.fd)
        {
            let args = [fd, libc::F_SETFL as u64, u64::from(description.flags)].map(Arg::Value);
            let label = format!("descriptor {fd}: O_ASYNC");
            ops.call(stream, &label, libc::SYS_fcntl, &args, Expect::Success, 0);
        }
    }
}

/// Record locks, after the last slot has been closed: closing any descriptor of a file gives up
/// all locks that the process holds on it (fcntl(2)).
fn emit_record_locks(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    process: &Process,
) -> Result<(), PlanError> {
    for lock in &process.record_locks {
        let wanted = if lock.range.exclusive {
            libc::O_WRONLY
        } else {
            libc::O_RDONLY
        } as u32;
        let found = process.descriptors.iter().find(|descriptor| {
            let description = &snapshot.descriptions[descriptor.description.0 as usize];
            let access = description.flags & libc::O_ACCMODE as u32;
            description.kind == DescriptionKind::Inode(lock.inode)
                && (access == wanted || access == libc::O_RDWR as u32)
        });
        let Some(descriptor) = found else {
            return Err(PlanError::LockWithoutDescriptor {
                pid: process.pid,
                path: snapshot.inodes[lock.inode.0 as usize].path.to_string(),
            });
        };
        let args = [
            Arg::Value(descriptor.fd as u64),
            Arg::Value(libc::F_SETLK as u64),
            Arg::Bytes(flock(&lock.range)),
        ];
        let label = format!(
            "record lock on {}",
            snapshot.inodes[lock.inode.0 as usize].path
        );
        ops.call(stream, &label, libc::SYS_fcntl, &args, Expect::Success, 0);
    }
    Ok(())
}

/// Whether this is the lowest of the process's descriptors of one description.
pub(super) fn is_first(process: &Process, id: DescriptionId, fd: i32) -> bool {
    let own = process
        .descriptors
        .iter()
        .filter(|descriptor| descriptor.description == id);
    own.map(|descriptor| descriptor.fd).min() == Some(fd)
}

fn emit_place(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process) {
    let path = |bytes: &[u8]| Arg::Bytes(super::inodes::with_nul(bytes));
    let label = format!("working directory {}", process.cwd);
    ops.call(
        stream,
        &label,
        libc::SYS_chdir,
        &[path(&process.cwd.0)],
        Expect::OrDegraded,
        0,
    );
    let mask = [Arg::Value(u64::from(process.umask))];
    ops.call(stream, "umask", libc::SYS_umask, &mask, Expect::Ignore, 0);
}

/// After everything that is found by a path: all paths of a snapshot begin at the root of the
/// job's mount namespace, and /proc lies there.
fn emit_root(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process) {
    if process.root.0.is_empty() || process.root.0 == b"/" {
        return;
    }
    let label = format!("root directory {}", process.root);
    let args = [Arg::Bytes(super::inodes::with_nul(&process.root.0))];
    ops.call(stream, &label, libc::SYS_chroot, &args, Expect::Success, 0);
}

fn emit_signals(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process) {
    for signal in 1..=64u64 {
        if signal == libc::SIGKILL as u64 || signal == libc::SIGSTOP as u64 {
            continue;
        }
        let action = process
            .actions
            .get(signal as usize - 1)
            .copied()
            .unwrap_or_default();
        let SignalAction {
            handler,
            flags,
            restorer,
            mask,
        } = action;
        let bytes = [handler, flags, restorer, mask]
            .into_iter()
            .flat_map(u64::to_le_bytes);
        let args = [
            Arg::Value(signal),
            Arg::Bytes(bytes.collect()),
            Arg::Value(0),
            Arg::Value(8),
        ];
        let label = format!("disposition of signal {signal}");
        ops.call(
            stream,
            &label,
            libc::SYS_rt_sigaction,
            &args,
            Expect::Success,
            0,
        );
    }
}

fn emit_attributes(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process, slots: &Slots) {
    let mut prctl = |label: &str, option: i32, value: u64| {
        let args = [Arg::Value(option as u64), Arg::Value(value)];
        ops.call(stream, label, libc::SYS_prctl, &args, Expect::Success, 0);
    };
    // Another is refused (`capture::inside`): such a process could not be traced to its end here.
    prctl("dumpable", libc::PR_SET_DUMPABLE, 1);
    if process.subreaper {
        prctl("child subreaper", libc::PR_SET_CHILD_SUBREAPER, 1);
    }
    super::settings::emit_process(ops, stream, process);
    if process.xcomp_permitted & (1 << XFEATURE_XTILE_DATA) != 0 {
        let args = [
            Arg::Value(ARCH_REQ_XCOMP_PERM),
            Arg::Value(XFEATURE_XTILE_DATA),
        ];
        let label = "permission for AMX tiles";
        ops.call(
            stream,
            label,
            libc::SYS_arch_prctl,
            &args,
            Expect::Success,
            0,
        );
    }
    for command in MEMBARRIER_REGISTER {
        if u64::from(process.membarrier) & command != 0 {
            let args = [Arg::Value(command), Arg::Value(0)];
            let label = "membarrier registration";
            ops.call(
                stream,
                label,
                libc::SYS_membarrier,
                &args,
                Expect::Success,
                0,
            );
        }
    }
    let personality = [Arg::Value(u64::from(process.personality))];
    ops.call(
        stream,
        "personality",
        libc::SYS_personality,
        &personality,
        Expect::Success,
        0,
    );
    if process.memory.coredump_filter != DEFAULT_COREDUMP_FILTER {
        let text = format!("{:#x}", process.memory.coredump_filter);
        emit_proc_write(ops, stream, "/proc/self/coredump_filter", &text, slots);
    }
    if process.oom_score_adj != 0 {
        let text = process.oom_score_adj.to_string();
        emit_proc_write(ops, stream, "/proc/self/oom_score_adj", &text, slots);
    }
}

fn emit_proc_write(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    path: &str,
    text: &str,
    slots: &Slots,
) {
    let slot = slots.work();
    let open = [
        Arg::Value(libc::AT_FDCWD as u64),
        Arg::Bytes(format!("{path}\0").into_bytes()),
        Arg::Value(libc::O_WRONLY as u64),
    ];
    ops.call(stream, path, libc::SYS_openat, &open, Expect::Slot, slot);
    let len = text.len() as u64;
    let write = [
        Arg::Value(slot),
        Arg::Bytes(text.as_bytes().to_vec()),
        Arg::Value(len),
    ];
    ops.call(stream, path, libc::SYS_write, &write, Expect::OrNoted, 0);
    ops.call(
        stream,
        path,
        libc::SYS_close,
        &[Arg::Value(slot)],
        Expect::Success,
        0,
    );
}

fn emit_timers(ops: &mut OpsBuilder, stream: StreamIndex, process: &Process) {
    // Kernels before 6.16 count ids up and never back.
    let mut timers: Vec<&PosixTimer> = process.posix_timers.iter().collect();
    timers.sort_by_key(|timer| timer.id);
    for timer in timers {
        let op = TimerCreate {
            clock: timer.clock as u64,
            id: timer.id as u64,
        };
        ops.push(stream, &op, &sigevent(timer));
        if timer.left_ns != 0 {
            let args = [
                Arg::Value(timer.id as u64),
                Arg::Value(0),
                Arg::Bytes(itimerspec(timer.left_ns, timer.interval_ns)),
                Arg::Value(0),
            ];
            let label = format!("POSIX timer {}", timer.id);
            ops.call(
                stream,
                &label,
                libc::SYS_timer_settime,
                &args,
                Expect::Success,
                0,
            );
        }
    }
    for (which, timer) in process.interval_timers.iter().enumerate() {
        if timer.value_us != 0 {
            // struct itimerval: interval, then value.
            let bytes = [timer.interval_us, timer.value_us]
                .into_iter()
                .flat_map(|us| [us / 1_000_000, us % 1_000_000])
                .flat_map(u64::to_le_bytes);
            let args = [
                Arg::Value(which as u64),
                Arg::Bytes(bytes.collect()),
                Arg::Value(0),
            ];
            let label = format!("interval timer {which}");
            ops.call(
                stream,
                &label,
                libc::SYS_setitimer,
                &args,
                Expect::Success,
                0,
            );
        }
    }
}

/// `struct sigevent`, 64 bytes: value, signal, notify, thread id.
fn sigevent(timer: &PosixTimer) -> Vec<u8> {
    let mut bytes = timer.value.to_le_bytes().to_vec();
    bytes.extend(timer.signal.to_le_bytes());
    bytes.extend(timer.notify.to_le_bytes());
    bytes.extend(timer.tid.to_le_bytes());
    bytes.resize(64, 0);
    bytes
}
