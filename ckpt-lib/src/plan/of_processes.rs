//! Process stream: descriptors that lead to a process of the job, and so are made by one that is there: pidfds, files of `/proc`.

use super::inodes::with_nul;
use super::process::is_first;
use super::slots::Slots;
use super::{Arg, OpsBuilder, StreamIndex};
use crate::snapshot::{
    Description, DescriptionId, DescriptionKind, InodeKind, Process, SnapshotV1,
};
use loader::ops::Expect;

/// Opens those that this process holds, and if it is the first of the job those that lie in sockets only.
pub(super) fn emit(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    process: &Process,
    slots: &Slots,
    is_first_of_job: bool,
) {
    let holds = |process: &Process, id: DescriptionId| {
        let mut table = process.descriptors.iter();
        table.any(|descriptor| descriptor.description == id)
    };
    for (index, description) in snapshot.descriptions.iter().enumerate() {
        let Some(leads_to) = leads_to(snapshot, description) else {
            continue;
        };
        let id = DescriptionId(index as u32);
        let nobodys = || !snapshot.processes.iter().any(|process| holds(process, id));
        let is_opened_here = holds(process, id) || is_first_of_job && nobodys();
        if !is_opened_here {
            continue;
        }
        let slot = slots.description(id);
        match leads_to {
            LeadsTo::Process(pid) => {
                // O_EXCL: PIDFD_THREAD.
                let flags = (libc::O_NONBLOCK | libc::O_EXCL) as u32;
                let flags = u64::from(description.flags & flags);
                let args = [Arg::Value(u64::from(pid)), Arg::Value(flags)];
                let label = format!("description {index} (pidfd)");
                let nr = libc::SYS_pidfd_open;
                ops.call(stream, &label, nr, &args, Expect::Slot, slot);
            }
            LeadsTo::FileOf(path) => emit_of_process(ops, stream, description, path, slot),
        }
    }
}

/// What a description shows of a process.
enum LeadsTo<'a> {
    Process(u32),
    /// A file in `/proc`.
    FileOf(&'a [u8]),
}

fn leads_to<'a>(snapshot: &'a SnapshotV1, description: &Description) -> Option<LeadsTo<'a>> {
    match description.kind {
        DescriptionKind::PidFd { pid } => Some(LeadsTo::Process(pid)),
        DescriptionKind::Inode(inode) => {
            let inode = snapshot.inodes.get(inode.0 as usize)?;
            let is_it = inode.kind == InodeKind::OfProcess;
            is_it.then_some(LeadsTo::FileOf(&inode.path.0))
        }
        _ => None,
    }
}

/// Whether a description can be had only where its process is there.
pub(super) fn needs_its_process(snapshot: &SnapshotV1, id: DescriptionId) -> bool {
    let description = snapshot.descriptions.get(id.0 as usize);
    description.is_some_and(|description| leads_to(snapshot, description).is_some())
}

/// Opens what `/proc` says about this process, which may have got another id.
fn emit_of_process(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    description: &Description,
    path: &[u8],
    slot: u64,
) {
    let below = path.strip_prefix(b"/proc/").unwrap_or(path);
    let digits = below.iter().take_while(|byte| byte.is_ascii_digit());
    let below = &below[digits.count()..];
    let own = [b"/proc/self", below].concat();
    let label = crate::shown::bytes(path);
    let opening = (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC) as u32;
    let flags = description.flags & !opening & !(libc::O_ASYNC as u32);
    let args = [
        Arg::Value(libc::AT_FDCWD as u64),
        Arg::Bytes(with_nul(&own)),
        Arg::Value(u64::from(flags)),
    ];
    ops.call(stream, &label, libc::SYS_openat, &args, Expect::Slot, slot);
}

/// Moves what [`emit_of_process`] opened to where it was. The kernel writes the text up to there when it
/// is told to, so that must be when the process is as good as itself again: in its first thread's stream.
pub(super) fn emit_positions(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    process: &Process,
) {
    for descriptor in &process.descriptors {
        let id = descriptor.description;
        let Some(description) = snapshot.descriptions.get(id.0 as usize) else {
            continue;
        };
        let inode = match description.kind {
            DescriptionKind::Inode(inode) => snapshot.inodes.get(inode.0 as usize),
            _ => None,
        };
        let of_process = inode.is_some_and(|inode| inode.kind == InodeKind::OfProcess);
        let first = is_first(process, id, descriptor.fd);
        if of_process && first && description.offset != 0 {
            let args = [
                Arg::Value(descriptor.fd as u64),
                Arg::Value(description.offset),
                Arg::Value(libc::SEEK_SET as u64),
            ];
            let label = format!("descriptor {}: position", descriptor.fd);
            ops.call(stream, &label, libc::SYS_lseek, &args, Expect::Success, 0);
        }
    }
}
