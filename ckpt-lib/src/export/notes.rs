//! The PT_NOTE segment of a core: registers of every thread, and what gdb wants to know of the
//! process (`include/linux/elfcore.h`, `fs/binfmt_elf.c`).

use super::xstate::for_gdb;
use crate::platform::Platform;
use crate::snapshot::{MappingKind, Process, Registers, SnapshotV1, Thread};

const NT_PRSTATUS: u32 = 1;
const NT_FPREGSET: u32 = 2;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_X86_XSTATE: u32 = 0x202;
const NT_FILE: u32 = 0x4649_4c45;

/// Bytes of `struct user_fpregs_struct`, which is also how an XSAVE area begins.
const FPREGSET_LEN: usize = 512;
const PAGE: u64 = 4096;

/// All notes of a process. gdb takes the first thread for the current one.
pub(super) fn notes(snapshot: &SnapshotV1, process: &Process) -> Vec<u8> {
    let mut notes = vec![];
    let taken_on = snapshot.platform.parse::<Platform>();
    let layout = taken_on.map(|platform| platform.layout).unwrap_or_default();
    for (index, thread) in process.threads.iter().enumerate() {
        note(&mut notes, NT_PRSTATUS, b"CORE", &status(process, thread));
        if index == 0 {
            note(&mut notes, NT_PRPSINFO, b"CORE", &info(snapshot, process));
            note(&mut notes, NT_AUXV, b"CORE", &process.memory.auxv);
            note(&mut notes, NT_FILE, b"CORE", &files(snapshot, process));
        }
        if let Some(fpregs) = thread.xstate.get(..FPREGSET_LEN) {
            note(&mut notes, NT_FPREGSET, b"CORE", fpregs);
            let xstate = for_gdb(&thread.xstate, &layout);
            note(&mut notes, NT_X86_XSTATE, b"LINUX", &xstate);
        }
    }
    notes
}

fn note(notes: &mut Vec<u8>, kind: u32, name: &[u8], body: &[u8]) {
    notes.extend((name.len() as u32 + 1).to_le_bytes());
    notes.extend((body.len() as u32).to_le_bytes());
    notes.extend(kind.to_le_bytes());
    for part in [&[name, b"\0"].concat(), body] {
        notes.extend(part);
        notes.resize(notes.len().next_multiple_of(4), 0);
    }
}

/// `struct elf_prstatus`, 336 bytes.
fn status(process: &Process, thread: &Thread) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    let signal = process.stopped_by as u16;
    bytes.extend(signal.to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(pending_mask(thread).to_le_bytes());
    bytes.extend(thread.blocked.to_le_bytes());
    for id in [thread.tid, process.ppid, process.pgid, process.sid] {
        bytes.extend(id.to_le_bytes());
    }
    bytes.extend([0; 64]); // user and system time, own and children's
    for word in register_words(&thread.registers) {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(1u32.to_le_bytes()); // there are floating point registers
    bytes.extend([0; 4]);
    bytes
}

fn pending_mask(thread: &Thread) -> u64 {
    let signals = thread.pending.iter().filter_map(|info| {
        let raw = info.get(..4)?.try_into().ok()?;
        1u64.checked_shl(u32::from_le_bytes(raw).checked_sub(1)?)
    });
    signals.fold(0, |mask, bit| mask | bit)
}

fn register_words(r: &Registers) -> [u64; 27] {
    [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx,
        r.rsi, r.rdi, r.orig_rax, r.rip, r.cs, r.eflags, r.rsp, r.ss, r.fs_base, r.gs_base, r.ds,
        r.es, r.fs, r.gs,
    ]
}

/// `struct elf_prpsinfo`, 136 bytes.
fn info(snapshot: &SnapshotV1, process: &Process) -> Vec<u8> {
    let leader = process.threads.first();
    let nice = leader.map_or(0, |thread| thread.scheduling.nice);
    let mut bytes = vec![0, b'R', 0, nice as i8 as u8, 0, 0, 0, 0];
    bytes.extend([0; 8]); // flags
    let identity = &snapshot.identity;
    let ids = [
        identity.uid,
        identity.gid,
        process.pid,
        process.ppid,
        process.pgid,
        process.sid,
    ];
    for id in ids {
        bytes.extend(id.to_le_bytes());
    }
    let name = process.name().map_or(&[][..], |name| &name.0);
    bytes.extend(padded::<16>(name));
    let program = process
        .memory
        .exe
        .and_then(|inode| snapshot.inodes.get(inode.0 as usize));
    // The arguments are in memory, for whoever wants them; here stands the program's path.
    let program = program.map_or(name, |inode| &inode.path.0);
    bytes.extend(padded::<80>(program));
    bytes
}

/// The first bytes of a name, ended by at least one NUL.
fn padded<const LEN: usize>(name: &[u8]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let len = name.len().min(LEN - 1);
    bytes[..len].copy_from_slice(&name[..len]);
    bytes
}

/// NT_FILE: which file is mapped where.
fn files(snapshot: &SnapshotV1, process: &Process) -> Vec<u8> {
    let mapped: Vec<_> = process
        .memory
        .mappings
        .iter()
        .filter_map(|mapping| {
            let (inode, offset) = match mapping.kind {
                MappingKind::PrivateFile { inode, offset }
                | MappingKind::Shared { inode, offset, .. } => (inode, offset),
                _ => return None,
            };
            let path = &snapshot.inodes.get(inode.0 as usize)?.path.0;
            (!path.is_empty()).then_some((mapping, offset, path))
        })
        .collect();
    let mut bytes = vec![];
    bytes.extend((mapped.len() as u64).to_le_bytes());
    bytes.extend(PAGE.to_le_bytes());
    for (mapping, offset, _) in &mapped {
        for word in [mapping.start, mapping.end, offset / PAGE] {
            bytes.extend(word.to_le_bytes());
        }
    }
    for (_, _, path) in &mapped {
        bytes.extend(path.iter());
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_kernels_sizes() {
        let (snapshot, process) = (SnapshotV1::default(), Process::default());
        let thread = Thread {
            tid: 0x1234,
            ..Thread::default()
        };
        let status = status(&process, &thread);
        assert_eq!(status.len(), 336);
        assert_eq!(status[32..36], 0x1234u32.to_le_bytes());
        assert_eq!(info(&snapshot, &process).len(), 136);
    }

    #[test]
    fn pending_signals_become_a_mask_and_wrong_ones_do_not_panic() {
        let info = |signal: u32| {
            let mut info = signal.to_le_bytes().to_vec();
            info.resize(128, 0);
            info
        };
        let thread = Thread {
            pending: vec![info(2), info(64), info(0), info(400), vec![]],
            ..Thread::default()
        };
        assert_eq!(pending_mask(&thread), 1 << 1 | 1 << 63);
    }
}
