//! A place for the first stub: bytes of an executable mapping that nobody uses.

use super::InjectError;
use super::stub::{TAIL_LEN, TAIL_MARK, TailStub};
use crate::procfs::{MapsLine, ProcDir, parse_maps};
use crate::tracee::{Memory, StoppedProcess};
use crate::vdso;

const PROT_EXEC: u32 = 4;
const PAGE: u64 = 4096;
/// More is not read for a vDSO.
const VDSO_MAX: u64 = 1 << 20;

/// An address with room for a tail stub: in the vDSO behind its ELF image, or else at the zero end of
/// another executable mapping.
pub(super) fn find(process: &StoppedProcess) -> Result<u64, InjectError> {
    let pid = process.pid.0;
    let found = in_vdso(process).or_else(|| in_other(process));
    let at = found.ok_or(InjectError::NoPlace {
        pid,
        why: "no executable mapping ends in unused zeros",
    })?;
    let busy = process.threads.iter().any(|thread| {
        let rip = thread.registers().rip;
        (at..=at + TAIL_LEN).contains(&rip)
    });
    if busy {
        return Err(InjectError::NoPlace {
            pid,
            why: "a stub of a checkpoint that was killed is still at work, for 2 s at most",
        });
    }
    Ok(at)
}

fn in_vdso(process: &StoppedProcess) -> Option<u64> {
    let range = process.vdso()?;
    let len = range.end.checked_sub(range.start)?;
    if len > VDSO_MAX {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    process.memory().read(range.start, &mut bytes).ok()?;
    let tail = vdso::tail(&bytes).ok()?;
    let at = (range.start + tail.start as u64).next_multiple_of(16);
    let offset = usize::try_from(at - range.start).ok()?;
    let room = bytes.get(offset..offset + usize::try_from(TAIL_LEN).ok()?)?;
    is_free(room).then_some(at)
}

/// Zeros, or a stub that a killed checkpoint left behind.
fn is_free(room: &[u8]) -> bool {
    // `syscall; lea rcx, [rax + 4]; jrcxz`
    const MARK: [u8; TAIL_MARK - 1] = [0x0f, 0x05, 0x48, 0x8d, 0x88, 4, 0, 0, 0, 0xe3];
    // `lea r14, [rip + 14]; jmp [rip]`
    const DETOUR: [u8; TAIL_MARK + 2] = [0x4c, 0x8d, 0x35, 14, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0];
    room.iter().all(|byte| *byte == 0) || room.starts_with(&MARK) || room.starts_with(&DETOUR)
}

fn in_other(process: &StoppedProcess) -> Option<u64> {
    let maps = ProcDir::of(process.pid.0).parsed("maps", parse_maps).ok()?;
    maps.iter()
        .filter(|line| line.prot & PROT_EXEC != 0 && !line.shared && line.inode != 0)
        .find_map(|line| at_end(process.memory(), line))
}

fn at_end(memory: &Memory, line: &MapsLine) -> Option<u64> {
    let mut page = vec![0; PAGE as usize];
    memory.read(line.end - PAGE, &mut page).ok()?;
    let used = page.iter().rposition(|byte| *byte != 0)? as u64 + 1;
    // Some distance to the last instruction, whose operand may end in zeros.
    let at = (line.end - PAGE + used + 16).next_multiple_of(16);
    (at + TAIL_LEN <= line.end).then_some(at)
}

/// A tail stub in its place. The bytes that were there are zeros.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) stub: TailStub,
    at: u64,
}

impl Placed {
    pub(super) fn put(memory: &Memory, at: u64, stub: TailStub) -> Result<Self, InjectError> {
        write(memory, at, &stub.bytes)?;
        Ok(Placed { stub, at })
    }

    /// Says how long a mapping is undone if we die while the stub's next call makes it; 0: none.
    pub(super) fn set_undo(&self, memory: &Memory, len: u64) -> Result<(), InjectError> {
        write(memory, self.stub.undo, &len.to_le_bytes())
    }

    /// Whether an address is inside it.
    pub(super) fn covers(&self, address: u64) -> bool {
        (self.at..self.at + TAIL_LEN).contains(&address)
    }

    /// Makes the bytes zero again.
    pub(super) fn take_away(&self, memory: &Memory) -> Result<(), InjectError> {
        write(memory, self.at, &vec![0; self.stub.bytes.len()])
    }
}

pub(super) fn write(memory: &Memory, address: u64, bytes: &[u8]) -> Result<(), InjectError> {
    let pid = memory.pid().0;
    memory
        .write(address, bytes)
        .map_err(|source| InjectError::Memory {
            pid,
            address,
            source,
        })
}
