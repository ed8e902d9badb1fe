//! What belongs to one thread, as far as it can be read from outside.

use super::CaptureError;
use super::subject::JobIds;
use crate::platform::component_place;
use crate::procfs::Status;
use crate::snapshot::{Capabilities, KernelPath, Scheduling, Thread, ThreadSettings};
use crate::sys::foreign::{SchedAttr, affinity, io_priority, robust_list, scheduling};
use crate::tracee::{Memory, StoppedThread, reenter};
use loader::xstate::{Xstate, offered};
use std::io;
use std::sync::LazyLock;

/// A thread with all that needs neither ptrace nor a call inside it.
pub(super) fn read(tid: i32, status: &Status, ids: &JobIds) -> Result<Thread, CaptureError> {
    let wrong = |what| {
        move |source: io::Error| CaptureError::Kernel {
            pid: tid,
            what,
            source,
        }
    };
    let [inheritable, permitted, effective, bounding, ambient] = status.capabilities;
    let attr = scheduling(tid).map_err(wrong("its scheduling"))?;
    Ok(Thread {
        tid: ids.task(tid).unwrap_or(0),
        name: KernelPath(status.name.clone()),
        robust_list: robust_list(tid).map_err(wrong("its robust list"))?,
        scheduling: Scheduling {
            policy: attr.policy,
            flags: attr.flags,
            nice: attr.nice,
            priority: attr.priority,
            runtime: attr.runtime,
            deadline: attr.deadline,
            period: attr.period,
        },
        affinity: affinity(tid).map_err(wrong("its affinity"))?,
        io_priority: io_priority(tid).map_err(wrong("its I/O priority"))?,
        capabilities: Capabilities {
            inheritable,
            permitted,
            effective,
            bounding,
            ambient,
        },
        no_new_privs: status.no_new_privs,
        settings: ThreadSettings {
            utilization: utilization(&attr),
            ..ThreadSettings::default()
        },
        ..Thread::default()
    })
}

/// What the scheduler was told of a thread's utilisation, if it is not what a thread has by itself; urgent threads have that
/// of the machine (sched_util_clamp_min_rt_default).
fn utilization(attr: &SchedAttr) -> Option<(u32, u32)> {
    const ALL: u32 = 1024;
    let urgent = [libc::SCHED_FIFO, libc::SCHED_RR].map(i32::cast_unsigned);
    let [least, most] = attr.utilization;
    let usual = [[0, 0], [0, ALL]].contains(&attr.utilization)
        || urgent.contains(&attr.policy) && most == ALL;
    (!usual).then_some((least, most))
}

/// Bit of the first XSAVE component of AMX. Its tiles, 8 KiB, are behind all that has a lower one.
const TILES: u32 = 17;

/// Where that begins here.
static TILES_AT: LazyLock<usize> =
    LazyLock::new(|| component_place(TILES).map_or(usize::MAX, |(at, _)| at));

/// Without tiles that are not in use: few threads have any, and what is not there is as it is by itself.
fn without_unused_tiles(mut xstate: Vec<u8>, tiles_at: &LazyLock<usize>) -> Vec<u8> {
    let in_use = Xstate::of(&xstate).map_or(u64::MAX, |registers| registers.in_use());
    if offered(&xstate) >> TILES != 0 && in_use >> TILES == 0 {
        xstate.truncate((**tiles_at).max(Xstate::LEAST));
        xstate.shrink_to_fit();
    }
    xstate
}

/// Adds what ptrace gives.
pub(super) fn add_traced(
    thread: &mut Thread,
    stopped: &StoppedThread,
    memory: &Memory,
) -> Result<(), CaptureError> {
    let wrong = |error| CaptureError::Tracee(Box::new(error));
    thread.registers = stopped.registers();
    thread.xstate = without_unused_tiles(stopped.xstate().map_err(wrong)?, &TILES_AT);
    thread.blocked = stopped.signal_mask();
    thread.pending = pending(stopped)?;
    thread.rseq = stopped.rseq().map_err(wrong)?;
    thread.syscall_dispatch = stopped.syscall_dispatch().map_err(wrong)?;
    if let Some((registers, call)) = reenter::translate(stopped, memory, stopped.stopped_at_ns) {
        thread.registers = registers;
        thread.in_call = call;
    }
    // The kernel would do the same before the thread's next instruction.
    if let Some(abort) = stopped.rseq_abort_ip(memory).map_err(wrong)? {
        thread.registers.rip = abort;
    }
    Ok(())
}

/// Signals pending for a thread.
pub(super) fn pending(stopped: &StoppedThread) -> Result<Vec<Vec<u8>>, CaptureError> {
    let pending = stopped
        .pending()
        .map_err(|error| CaptureError::Tracee(Box::new(error)))?;
    Ok(pending.iter().map(|info| info.to_vec()).collect())
}

/// Finds where the C library keeps the thread's id, and whether the id is in a robust lock. `alone`: it is the only
/// thread.
pub(super) fn find_own_id(thread: &mut Thread, alone: bool, memory: &Memory) {
    let holds_id = |at: u64| {
        let mut word = [0; 4];
        at != 0 && memory.read(at, &mut word).is_ok() && u32::from_le_bytes(word) == thread.tid
    };
    let of_musl = alone.then(|| id_of_musl(thread.registers.fs_base, memory));
    let places = [Some(thread.clear_child_tid), of_musl.flatten()];
    if let Some(at) = places.into_iter().flatten().find(|at| holds_id(*at)) {
        thread.own_id_at = at;
    }
    // struct robust_list_head: the list (empty if it points to itself), an offset, a pending lock.
    let (head, _) = thread.robust_list;
    if head != 0 {
        let first = memory.read_u64(head).unwrap_or(0);
        let pending = memory.read_u64(head.wrapping_add(16)).unwrap_or(1);
        thread.holds_robust_lock = first != head || pending != 0;
    }
}

/// Where the only thread of a program with musl keeps its id, if this is one: its descriptor begins with a pointer to
/// itself and links of a ring of which it is all (src/internal/pthread_impl.h, `struct pthread`). With more threads
/// ids are in locks, too.
fn id_of_musl(descriptor: u64, memory: &Memory) -> Option<u64> {
    const PREVIOUS: u64 = 16;
    const NEXT: u64 = 24;
    const ID: u64 = 48;
    let own = |offset: u64| memory.read_u64(descriptor.checked_add(offset)?).ok();
    let ring = [0, PREVIOUS, NEXT].map(own);
    (descriptor != 0 && ring == [Some(descriptor); 3]).then(|| descriptor + ID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loader::xstate::{IN_USE_AT, XCR0_AT};

    #[test]
    fn only_tiles_that_are_not_in_use_are_left_out() {
        let at: LazyLock<usize> = LazyLock::new(|| 2752);
        let len_of = |offered: u64, in_use: u64| {
            let mut xstate = vec![0; 11008];
            xstate[XCR0_AT..XCR0_AT + 8].copy_from_slice(&offered.to_le_bytes());
            xstate[IN_USE_AT..IN_USE_AT + 8].copy_from_slice(&in_use.to_le_bytes());
            without_unused_tiles(xstate, &at).len()
        };
        assert_eq!(len_of(0x602e7, 0x2e7), 2752);
        assert_eq!(len_of(0x602e7, 0x602e7), 11008);
        assert_eq!(len_of(0x602e7, 0x20003), 11008);
        // Whatever else is behind it.
        assert_eq!(len_of(0x602e7, 1 << 19), 11008);
        assert_eq!(len_of(0x2e7, 0x2e7), 11008);
        // Where nobody knows where they begin.
        let nowhere: LazyLock<usize> = LazyLock::new(|| usize::MAX);
        let mut xstate = vec![0; 11008];
        xstate[XCR0_AT + 2] = 6;
        assert_eq!(without_unused_tiles(xstate, &nowhere).len(), 11008);
    }
}
