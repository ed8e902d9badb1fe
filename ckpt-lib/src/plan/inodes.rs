//! Prepare stream: every inode is found at its path, or made from the image.

use super::slots::Slots;
use super::{Arg, OpsBuilder, StreamIndex};
use crate::snapshot::{ContentCheck, InodeId, InodeKind, InodeRecord, SnapshotV1};
use loader::ops::{CutBack, Expect, FillInode, Inode, Open, check, inode_flags};

/// `F_SEAL_FUTURE_WRITE | F_SEAL_SEAL`: added only when the job's own mappings exist.
const LATE_SEALS: u32 = 0x10 | 0x1;
const F_SEAL_SEAL: u32 = 1;
const F_SEAL_EXEC: u32 = 0x20;

pub(super) fn emit(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    slots: &Slots,
) {
    for (index, inode) in snapshot.inodes.iter().enumerate() {
        let id = InodeId(index as u32);
        match &inode.kind {
            InodeKind::Regular | InodeKind::Deleted | InodeKind::Directory => {
                emit_file(ops, stream, id, inode, slots);
            }
            InodeKind::MemFd {
                name,
                seals,
                huge_shift,
            } => {
                let mut flags = libc::MFD_CLOEXEC;
                if *seals != F_SEAL_SEAL {
                    flags |= libc::MFD_ALLOW_SEALING;
                }
                if *huge_shift != 0 {
                    flags |= libc::MFD_HUGETLB | (huge_shift << 26);
                }
                let label = format!("memfd {name}");
                emit_memfd(ops, stream, id, inode, &label, &name.0, flags, slots);
                emit_seals(ops, stream, &label, slots.inode(id), seals & !LATE_SEALS);
            }
            InodeKind::SharedAnonymous | InodeKind::Unread => {
                let (label, name) = match inode.kind {
                    InodeKind::Unread => ("what lay unread".to_owned(), &b"unread"[..]),
                    _ => (format!("shared anonymous memory {index}"), &b"shared"[..]),
                };
                let flags = libc::MFD_CLOEXEC;
                emit_memfd(ops, stream, id, inode, &label, name, flags, slots);
            }
            // Opened by path where a description needs them.
            InodeKind::Device | InodeKind::Fifo | InodeKind::OfProcess => {}
        }
        if let Some(slot) = slots.inode_writable(id) {
            let tail = with_nul(&inode.path.0);
            let open = Open {
                slot,
                inode_slot: slots.inode(id),
                flags: libc::O_RDWR as u64,
                offset: 0,
            };
            ops.push(stream, &open, &tail);
        }
    }
}

/// Seals that would have been in the way of the job's own mappings.
pub(super) fn emit_late_seals(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    slots: &Slots,
) {
    for (index, inode) in snapshot.inodes.iter().enumerate() {
        if let InodeKind::MemFd { name, seals, .. } = &inode.kind
            && *seals != F_SEAL_SEAL
        {
            let slot = slots.inode(InodeId(index as u32));
            emit_seals(
                ops,
                stream,
                &format!("memfd {name}"),
                slot,
                seals & LATE_SEALS,
            );
        }
    }
}

fn emit_seals(ops: &mut OpsBuilder, stream: StreamIndex, label: &str, slot: u64, seals: u32) {
    if seals & !F_SEAL_EXEC == 0 {
        return;
    }
    let label = format!("{label}: seals");
    let args = [
        Arg::Value(slot),
        Arg::Value(libc::F_ADD_SEALS as u64),
        Arg::Value(u64::from(seals)),
    ];
    ops.call(stream, &label, libc::SYS_fcntl, &args, Expect::Success, 0);
}

fn emit_file(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    id: InodeId,
    inode: &InodeRecord,
    slots: &Slots,
) {
    let (kind, hash) = match &inode.check {
        ContentCheck::None => (check::NONE, [0; 32]),
        ContentCheck::Full(hash) if inode.written => (check::FULL_PREFIX, *hash),
        ContentCheck::Full(hash) => (check::FULL, *hash),
        ContentCheck::Sampled(hash) if inode.written => (check::SAMPLED_PREFIX, *hash),
        ContentCheck::Sampled(hash) => (check::SAMPLED, *hash),
        ContentCheck::Size => (check::SIZE, [0; 32]),
    };
    let mut flags = 0;
    if inode.carried {
        flags |= inode_flags::CARRIED;
    }
    if inode.written {
        flags |= inode_flags::WRITTEN;
    }
    match inode.kind {
        InodeKind::Deleted => flags |= inode_flags::DELETED | inode_flags::CARRIED,
        InodeKind::Directory => flags |= inode_flags::DIRECTORY,
        _ => {}
    }
    let op = Inode {
        slot: slots.inode(id),
        inode: u64::from(id.0),
        size: inode.size,
        check: kind,
        flags,
        mode: u64::from(inode.mode & 0o7777),
    };
    let mut tail = hash.to_vec();
    tail.extend(with_nul(&inode.path.0));
    ops.push(stream, &op, &tail);
    if inode.written && inode.kind == InodeKind::Regular {
        ops.push(
            stream,
            &CutBack {
                size: inode.size,
                slot: slots.inode(id),
            },
            &with_nul(&inode.path.0),
        );
    }
}

#[allow(clippy::too_many_arguments)] // one call site shape, all of it needed
fn emit_memfd(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    id: InodeId,
    inode: &InodeRecord,
    label: &str,
    name: &[u8],
    flags: u32,
    slots: &Slots,
) {
    let slot = slots.inode(id);
    let args = [Arg::Bytes(with_nul(name)), Arg::Value(u64::from(flags))];
    ops.call(
        stream,
        label,
        libc::SYS_memfd_create,
        &args,
        Expect::Slot,
        slot,
    );
    ops.push(
        stream,
        &FillInode {
            slot,
            inode: u64::from(id.0),
            size: inode.size,
        },
        &[],
    );
    let mode = u64::from(inode.mode & 0o7777);
    // What has no type has no mode either.
    if inode.mode & libc::S_IFMT != 0 && mode != 0o777 {
        let args = [Arg::Value(slot), Arg::Value(mode)];
        ops.call(stream, label, libc::SYS_fchmod, &args, Expect::OrNoted, 0);
    }
}

/// Whether a description of this inode could be the one that `memfd_create` made.
pub(super) fn is_memory(kind: &InodeKind) -> bool {
    matches!(kind, InodeKind::MemFd { .. } | InodeKind::SharedAnonymous)
}

pub(super) fn with_nul(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.push(0);
    bytes
}
