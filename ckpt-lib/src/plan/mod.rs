//! From a snapshot to the operations that bring it back: a pure function.
//!
//! ```text
//! slots     which descriptor number each inode and description is made at
//! inodes    Prepare stream: files found or made, memfds, shared memory
//! objects   Prepare stream: descriptions of every kind, contents of pipes and sockets
//! memory    Process stream: mappings, vDSO, fill, protections, layout
//! process   Process stream: descriptor table, limits, signals, timers ...
//! threads   Thread streams
//! hole      a free place for the loader
//! ```
//! # What callers may rely on
//! [`operations`] touches nothing; the same snapshot gives the same bytes.
//!
//! # What it does not do
//! It does not check that a machine can carry the list out (see `platform`).

mod builder;
mod hole;
mod inodes;
mod keys;
mod limits;
mod memory;
mod objects;
mod of_processes;
mod process;
mod settings;
mod slots;
#[cfg(test)]
mod tests;
mod threads;

pub use builder::{Arg, Operations, OpsBuilder, StreamIndex};
pub use hole::{HoleError, find_hole};

use crate::snapshot::{DescriptionKind, SnapshotV1};
use loader::ops::{Enforce, OpsHeader, StreamKind, flags};
use slots::Slots;
use std::ops::Range;
use std::path::Path;

/// Why a snapshot cannot be turned into operations.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There is nothing in it.
    #[error("the snapshot holds no process")]
    Empty,
    /// An index points at nothing.
    #[error("the snapshot names {what} {index}, of which there are {count}")]
    Dangling {
        /// Kind of record.
        what: &'static str,
        /// The index.
        index: usize,
        /// Number of such records.
        count: usize,
    },
    /// No place for the slots among the descriptor numbers.
    #[error("no {needed} free descriptor numbers in a row below {limit}")]
    NoSlots {
        /// How many are needed.
        needed: u64,
        /// Limit looked up to.
        limit: u64,
    },
    /// A record lock whose file is not open with the access mode it needs.
    #[error("process {pid}: record lock on {path}: no descriptor to take it again with")]
    LockWithoutDescriptor {
        /// Process id.
        pid: u32,
        /// Path of the file.
        path: String,
    },
    /// Bytes that lay unread in a pipe or socket are nowhere.
    #[error("the snapshot has none of the {len} bytes that lay unread in a pipe or socket")]
    Unread {
        /// How many.
        len: u64,
    },
    /// There is no room for it until it is in the image, or it cannot be read again there.
    #[error("the operations cannot be put aside, or read again")]
    PutAside(#[source] std::io::Error),
    /// No free place in the address space.
    #[error(transparent)]
    Hole(#[from] HoleError),
}

/// The memory contents of each process that the image holds: sorted, disjoint address ranges. What is told is in which mappings they lie.
pub type Contents = Vec<Vec<Range<u64>>>;

/// Writes the operation list for a snapshot.
///
/// `contents[i]` are the ranges of process `i` that have extents. A long list is put aside in `aside`, a folder, until it is in the image.
///
/// # Errors
/// [`PlanError`] when the snapshot's records do not fit together.
pub fn operations(
    snapshot: &SnapshotV1,
    contents: &Contents,
    aside: &Path,
) -> Result<Operations, PlanError> {
    if snapshot.processes.is_empty() {
        return Err(PlanError::Empty);
    }
    let slots = Slots::choose(snapshot)?;
    let mut header_flags = if ids_may_change(snapshot) {
        0
    } else {
        flags::IDS_MUST_MATCH
    };
    if snapshot.confined {
        header_flags |= flags::CONFINED;
    }
    let ops = OpsBuilder::new(OpsHeader {
        flags: header_flags,
        slot_base: slots.base(),
        slot_count: slots.count(),
        uid: u64::from(snapshot.identity.uid),
        gid: u64::from(snapshot.identity.gid),
        monotonic_ns: snapshot.clocks.monotonic_ns,
        monotonic_raw_ns: snapshot.clocks.monotonic_raw_ns,
        boottime_ns: snapshot.clocks.boottime_ns,
        ..OpsHeader::default()
    });
    let mut ops = ops.aside_in(aside);
    let prepare = StreamIndex(0);
    if !snapshot.enforcement.pages.is_empty() {
        ops.push(
            prepare,
            &Enforce {
                pkru_at: u64::from(snapshot.enforcement.pkru_at),
            },
            &snapshot.enforcement.pages,
        );
    }
    inodes::emit(&mut ops, prepare, snapshot, &slots);
    let mut late = objects::emit(&mut ops, prepare, snapshot, &slots)?;
    let mut streams: Vec<StreamIndex> = vec![];
    for (index, process) in snapshot.processes.iter().enumerate() {
        let parent = snapshot.processes[..index]
            .iter()
            .position(|other| other.pid == process.ppid)
            .map_or(prepare, |at| streams[at]);
        let stream = ops.stream(StreamKind::Process, u64::from(process.pid), parent);
        streams.push(stream);
        let ranges = contents.get(index).map_or(&[][..], Vec::as_slice);
        memory::emit(&mut ops, stream, snapshot, index, ranges, &slots)?;
        of_processes::emit(&mut ops, stream, snapshot, process, &slots, index == 0);
        if let Some(ends) = late.take() {
            objects::emit_late(&mut ops, stream, snapshot, &slots, &ends)?;
        }
        process::emit(&mut ops, stream, snapshot, process, &slots)?;
        if let Some(name) = &process.ended_first {
            let own = ops.stream(StreamKind::Thread, u64::from(process.pid), stream);
            threads::emit_ended(&mut ops, own, process, name);
            of_processes::emit_positions(&mut ops, own, snapshot, process);
        }
        for thread in &process.threads {
            let own = ops.stream(StreamKind::Thread, u64::from(thread.tid), stream);
            threads::emit(&mut ops, own, process, thread);
            if thread.tid == process.pid {
                of_processes::emit_positions(&mut ops, own, snapshot, process);
            }
        }
    }
    ops.finish().map_err(PlanError::PutAside)
}

/// Whether the job would not notice that its ids are new: one process, and no id anywhere but in the C
/// library's own word for each thread, which the loader corrects.
pub(crate) fn ids_may_change(snapshot: &SnapshotV1) -> bool {
    let [process] = &snapshot.processes[..] else {
        return false;
    };
    let elsewhere = snapshot.descriptions.iter().any(|description| {
        description.owner.is_some() || matches!(description.kind, DescriptionKind::PidFd { .. })
    });
    !elsewhere
        && !process.pending.iter().any(|info| names_a_process(info))
        && process
            .posix_timers
            .iter()
            .all(|timer| timer.tid == 0 && !timer.counts_for_a_thread_by_its_id())
        && process.threads.iter().all(|thread| {
            thread.own_id_at != 0
                && !thread.holds_robust_lock
                && !thread.pending.iter().any(|info| names_a_process(info))
        })
}

/// Whether a stored `siginfo_t` may hold the id of a process: all but those of timers and of the kernel.
fn names_a_process(info: &[u8]) -> bool {
    const SI_KERNEL: i32 = 0x80;
    let code = info.get(8..12).and_then(|raw| raw.try_into().ok());
    !matches!(
        code.map(i32::from_le_bytes),
        Some(libc::SI_TIMER | SI_KERNEL)
    )
}
