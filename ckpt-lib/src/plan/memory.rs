//! Process stream: the address space.

use super::hole::find_refuge;
use super::keys::{Keys, is_kernels};
use super::slots::Slots;
use super::{Arg, OpsBuilder, PlanError, StreamIndex};
use crate::snapshot::{Mapping, MappingKind, SnapshotV1, VdsoRecord, mapping_flags};
use loader::ops::{Expect, Fill, MmMap, UnmapAll, Vdso, VdsoPiece, VdsoSymbol};
use std::ops::Range;

/// `MAP_DROPPABLE` (linux/mman.h, 6.11 and later): a type of mapping, like `MAP_PRIVATE`.
const MAP_DROPPABLE: u32 = 8;
const READ_WRITE: u32 = (libc::PROT_READ | libc::PROT_WRITE) as u32;
/// Flag bit of `MAP_HUGETLB`'s page size (mmap(2)).
const HUGE_SHIFT: u32 = 26;
/// Room for the machine's own vDSO, its data pages and its text, and for a copy of the old one.
const VDSO_ROOM: u64 = 512 << 10;
/// `PR_SET_VMA`, `PR_SET_VMA_ANON_NAME` (linux/prctl.h).
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Advice given again after the memory is filled, and its number for madvise(2).
const ADVICE: [(u32, i32, &str); 8] = [
    (
        mapping_flags::DONTFORK,
        libc::MADV_DONTFORK,
        "MADV_DONTFORK",
    ),
    (
        mapping_flags::WIPEONFORK,
        libc::MADV_WIPEONFORK,
        "MADV_WIPEONFORK",
    ),
    (
        mapping_flags::DONTDUMP,
        libc::MADV_DONTDUMP,
        "MADV_DONTDUMP",
    ),
    (
        mapping_flags::MERGEABLE,
        libc::MADV_MERGEABLE,
        "MADV_MERGEABLE",
    ),
    (
        mapping_flags::SEQUENTIAL,
        libc::MADV_SEQUENTIAL,
        "MADV_SEQUENTIAL",
    ),
    (mapping_flags::RANDOM, libc::MADV_RANDOM, "MADV_RANDOM"),
    (
        mapping_flags::HUGEPAGE,
        libc::MADV_HUGEPAGE,
        "MADV_HUGEPAGE",
    ),
    (
        mapping_flags::NOHUGEPAGE,
        libc::MADV_NOHUGEPAGE,
        "MADV_NOHUGEPAGE",
    ),
];
/// Advice that must be there before memory is filled.
const EARLY: u32 = mapping_flags::HUGEPAGE | mapping_flags::NOHUGEPAGE;

pub(super) fn emit(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    index: usize,
    contents: &[Range<u64>],
    slots: &Slots,
) -> Result<(), PlanError> {
    let memory = &snapshot.processes[index].memory;
    ops.push(stream, &UnmapAll::default(), &[]);
    emit_vdso(
        ops,
        stream,
        snapshot,
        &memory.mappings,
        memory.vdso.as_ref(),
    )?;
    // Before the kernel takes one for what may only be executed.
    let keys = Keys::of(memory);
    keys.emit_allocation(ops, stream);
    for mapping in &memory.mappings {
        emit_map(ops, stream, snapshot, mapping, contents, slots)?;
    }
    super::settings::emit_placement(ops, stream, &snapshot.processes[index]);
    ops.push(
        stream,
        &Fill {
            process: index as u64,
        },
        &[],
    );
    for mapping in &memory.mappings {
        emit_protection(ops, stream, mapping, contents, keys);
        emit_advice(
            ops,
            stream,
            mapping,
            ADVICE.iter().filter(|(flag, ..)| flag & EARLY == 0),
        );
    }
    // Not in memory that is locked.
    super::settings::emit_guards(ops, stream, &snapshot.processes[index]);
    for mapping in &memory.mappings {
        emit_lock(ops, stream, mapping);
    }
    keys.emit_freeing(ops, stream);
    let layout = &memory.layout;
    let exe_slot = memory.exe.map_or(u64::MAX, |exe| slots.inode(exe));
    let op = MmMap {
        start_code: layout.start_code,
        end_code: layout.end_code,
        start_data: layout.start_data,
        end_data: layout.end_data,
        start_brk: layout.start_brk,
        brk: layout.brk,
        start_stack: layout.start_stack,
        arg_start: layout.arg_start,
        arg_end: layout.arg_end,
        env_start: layout.env_start,
        env_end: layout.env_end,
        exe_slot,
    };
    ops.push(stream, &op, &memory.auxv);
    if memory.lock_future != 0 {
        let args = [Arg::Value(u64::from(memory.lock_future))];
        ops.call(
            stream,
            "mlockall",
            libc::SYS_mlockall,
            &args,
            Expect::OrDegraded,
            0,
        );
    }
    Ok(())
}

fn emit_vdso(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    mappings: &[Mapping],
    record: Option<&VdsoRecord>,
) -> Result<(), PlanError> {
    let pieces: Vec<VdsoPiece> = mappings
        .iter()
        .filter_map(|mapping| {
            let kind = match mapping.kind {
                MappingKind::Vvar => 1,
                MappingKind::VvarVclock => 2,
                MappingKind::Vdso => 3,
                _ => return None,
            };
            Some(VdsoPiece {
                kind,
                start: mapping.start,
                len: mapping.len(),
            })
        })
        .collect();
    let refuge = find_refuge(snapshot, VDSO_ROOM)?.start;
    let empty = VdsoRecord::default();
    let record = record.unwrap_or(&empty);
    let symbols: Vec<VdsoSymbol> = record
        .symbols
        .iter()
        .map(|symbol| VdsoSymbol {
            address: symbol.address,
            len: symbol.len,
            name_hash: first_word(blake3::hash(symbol.name.as_bytes()).as_bytes()),
        })
        .collect();
    let op = Vdso {
        pieces: pieces.len() as u64,
        symbols: symbols.len() as u64,
        fingerprint: first_word(&record.hash),
        refuge,
    };
    let mut tail = vec![];
    for piece in &pieces {
        piece.encode(|bytes| tail.extend(bytes));
    }
    for symbol in &symbols {
        symbol.encode(|bytes| tail.extend(bytes));
    }
    ops.push(stream, &op, &tail);
    Ok(())
}

fn first_word(hash: &[u8; 32]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(word)
}

/// Whether some of the mapping's pages come from the image.
fn has_contents(mapping: &Mapping, contents: &[Range<u64>]) -> bool {
    let at = contents.partition_point(|range| range.end <= mapping.start);
    contents
        .get(at)
        .is_some_and(|range| range.start < mapping.end)
}

fn emit_map(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    snapshot: &SnapshotV1,
    mapping: &Mapping,
    contents: &[Range<u64>],
    slots: &Slots,
) -> Result<(), PlanError> {
    let mut prot = mapping.prot;
    if has_contents(mapping, contents) {
        prot |= READ_WRITE;
    }
    let dangling = |inode: u32| PlanError::Dangling {
        what: "inode",
        index: inode as usize,
        count: snapshot.inodes.len(),
    };
    let mut flags = (libc::MAP_FIXED) as u32;
    let (fd, offset) = match mapping.kind {
        MappingKind::Vvar | MappingKind::VvarVclock | MappingKind::Vdso => return Ok(()),
        MappingKind::Anonymous { huge_shift } => {
            let kind = if mapping.has(mapping_flags::DROPPABLE) {
                MAP_DROPPABLE
            } else {
                libc::MAP_PRIVATE as u32
            };
            flags |= kind | libc::MAP_ANONYMOUS as u32;
            if huge_shift != 0 {
                flags |= libc::MAP_HUGETLB as u32 | (huge_shift << HUGE_SHIFT);
            }
            (u64::MAX, 0)
        }
        MappingKind::PrivateFile { inode, offset } => {
            snapshot
                .inodes
                .get(inode.0 as usize)
                .ok_or(dangling(inode.0))?;
            flags |= libc::MAP_PRIVATE as u32;
            (slots.inode(inode), offset)
        }
        MappingKind::Shared {
            inode,
            offset,
            may_write,
        } => {
            snapshot
                .inodes
                .get(inode.0 as usize)
                .ok_or(dangling(inode.0))?;
            flags |= libc::MAP_SHARED as u32;
            prot = mapping.prot;
            let writable = slots.inode_writable(inode).filter(|_| may_write);
            (writable.unwrap_or_else(|| slots.inode(inode)), offset)
        }
    };
    if mapping.has(mapping_flags::NORESERVE) {
        flags |= libc::MAP_NORESERVE as u32;
    }
    if mapping.has(mapping_flags::GROWSDOWN) {
        flags |= libc::MAP_GROWSDOWN as u32;
    }
    let label = format!("mapping {:x}-{:x}", mapping.start, mapping.end);
    let args = [
        Arg::Value(mapping.start),
        Arg::Value(mapping.len()),
        Arg::Value(u64::from(prot)),
        Arg::Value(u64::from(flags)),
        Arg::Value(fd),
        Arg::Value(offset),
    ];
    ops.call(
        stream,
        &label,
        libc::SYS_mmap,
        &args,
        Expect::Exactly,
        mapping.start,
    );
    emit_advice(
        ops,
        stream,
        mapping,
        ADVICE.iter().filter(|(flag, ..)| flag & EARLY != 0),
    );
    if !mapping.name.0.is_empty() {
        let args = [
            Arg::Value(PR_SET_VMA),
            Arg::Value(0),
            Arg::Value(mapping.start),
            Arg::Value(mapping.len()),
            Arg::Bytes(super::inodes::with_nul(&mapping.name.0)),
        ];
        ops.call(stream, &label, libc::SYS_prctl, &args, Expect::Ignore, 0);
    }
    Ok(())
}

fn emit_protection(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    mapping: &Mapping,
    contents: &[Range<u64>],
    keys: Keys,
) {
    let special = matches!(
        mapping.kind,
        MappingKind::Vvar
            | MappingKind::VvarVclock
            | MappingKind::Vdso
            | MappingKind::Shared { .. }
    );
    let changed =
        !special && has_contents(mapping, contents) && mapping.prot & READ_WRITE != READ_WRITE;
    let key = if is_kernels(mapping, keys.allocated) {
        0
    } else {
        mapping.pkey
    };
    if !changed && key == 0 {
        return;
    }
    let label = format!("protection of {:x}-{:x}", mapping.start, mapping.end);
    let mut args = vec![
        Arg::Value(mapping.start),
        Arg::Value(mapping.len()),
        Arg::Value(u64::from(mapping.prot)),
    ];
    let mut nr = libc::SYS_mprotect;
    if key != 0 {
        args.push(Arg::Value(u64::from(key)));
        nr = libc::SYS_pkey_mprotect;
    }
    ops.call(stream, &label, nr, &args, Expect::Success, 0);
}

fn emit_advice<'a>(
    ops: &mut OpsBuilder,
    stream: StreamIndex,
    mapping: &Mapping,
    advice: impl Iterator<Item = &'a (u32, i32, &'static str)>,
) {
    for (flag, number, name) in advice {
        if mapping.has(*flag) {
            let label = format!("{name} of {:x}-{:x}", mapping.start, mapping.end);
            let args = [
                Arg::Value(mapping.start),
                Arg::Value(mapping.len()),
                Arg::Value(*number as u64),
            ];
            let expect = match *flag {
                // Promises of behaviour; the others are hints.
                mapping_flags::DONTFORK | mapping_flags::WIPEONFORK => Expect::Success,
                _ => Expect::OrNoted,
            };
            ops.call(stream, &label, libc::SYS_madvise, &args, expect, 0);
        }
    }
}

fn emit_lock(ops: &mut OpsBuilder, stream: StreamIndex, mapping: &Mapping) {
    if !mapping.has(mapping_flags::LOCKED) {
        return;
    }
    let label = format!("mlock of {:x}-{:x}", mapping.start, mapping.end);
    let mut lock = |on_fault: bool, expect: Expect| {
        let args = [
            Arg::Value(mapping.start),
            Arg::Value(mapping.len()),
            Arg::Value(u64::from(on_fault)),
        ];
        ops.call(stream, &label, libc::SYS_mlock2, &args, expect, 0);
    };
    let on_fault = mapping.has(mapping_flags::LOCK_ONFAULT);
    if mapping.prot == 0 && !on_fault {
        // Locking what nobody may touch works, and says ENOMEM since there is nothing to bring in: the
        // same as for a limit that is too low, which is seen by the first of these.
        lock(true, Expect::OrDegraded);
        lock(false, Expect::Ignore);
    } else {
        lock(on_fault, Expect::OrDegraded);
    }
}
