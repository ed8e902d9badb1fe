//! Calls of a process whose own are dispatched (PR_SET_SYSCALL_USER_DISPATCH): made by an instruction where they are not.
//!
//! ```text
//! stub: r14 = where to go on -> gate, in the allowed range: syscall; jmp r14
//! ```
//! So dispatch stays on: if we die, nothing has to be put back. A range without such instructions is somebody else's; then there are no calls.

use super::InjectError;
use crate::procfs::{ProcDir, parse_maps, parse_status};
use crate::snapshot::Registers;
use crate::tracee::{StoppedProcess, StoppedThread};
use c_shim::link::LINK_NAME;
use c_shim::table::Reserved;
use std::ops::Range;

/// `syscall; jmp r14`.
const INSTRUCTIONS: [u8; 5] = [0x0f, 0x05, 0x41, 0xff, 0xe6];
/// Bytes of `syscall`.
pub(super) const SYSCALL_LEN: u64 = 2;
/// Bytes of what leads to a gate: `lea r14, [behind]; jmp [address]; address`.
const DETOUR_LEN: u64 = 21;
/// More is not searched.
const RANGE_MAX: u64 = 64 << 20;
const PROT_EXEC: u32 = 4;

/// What makes the calls of stubs: their own instructions, or those at an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gate(pub(super) Option<u64>);

impl Gate {
    /// What the threads of a process must use.
    ///
    /// # Errors
    /// [`InjectError::Dispatched`]: there is nothing that they could use.
    pub(super) fn find(process: &StoppedProcess) -> Result<Gate, InjectError> {
        let pid = process.pid.0;
        let mut gate = Gate::default();
        for thread in &process.threads {
            let dispatch = thread.syscall_dispatch();
            let dispatch = dispatch.map_err(|source| InjectError::Trace { pid, source })?;
            let Some(dispatch) = dispatch else { continue };
            let range = dispatch.offset..dispatch.offset.saturating_add(dispatch.len);
            // Most often it is the same for all.
            let known = gate.0.filter(|at| holds(&range, *at));
            gate.0 = known.or_else(|| search(process, &range));
            if gate.0.is_none() {
                return Err(InjectError::Dispatched {
                    pid,
                    tid: thread.tid.0,
                });
            }
        }
        if gate.0.is_none()
            && !process
                .threads
                .iter()
                .all(StoppedThread::tells_syscall_dispatch)
            && may_be_dispatched(pid)
        {
            return Err(InjectError::Untold { pid });
        }
        // One that is not in the range of all is of no use.
        for thread in &process.threads {
            let dispatch = thread.syscall_dispatch();
            let dispatch = dispatch.map_err(|source| InjectError::Trace { pid, source })?;
            if let (Some(dispatch), Some(at)) = (dispatch, gate.0)
                && !holds(&(dispatch.offset..dispatch.offset + dispatch.len), at)
            {
                return Err(InjectError::Dispatched {
                    pid,
                    tid: thread.tid.0,
                });
            }
        }
        Ok(gate)
    }

    /// Bytes of a call in a stub.
    pub(super) fn call_len(self) -> u64 {
        match self.0 {
            Some(_) => DETOUR_LEN,
            None => SYSCALL_LEN,
        }
    }

    /// Puts a thread before the call at `address` of a stub.
    pub(super) fn set_before(self, registers: &mut Registers, address: u64) {
        registers.rip = self.0.unwrap_or(address);
        if self.0.is_some() {
            registers.r14 = address + DETOUR_LEN;
        }
    }

    /// The same, right behind its `syscall`.
    pub(super) fn set_behind(self, registers: &mut Registers, address: u64) {
        self.set_before(registers, address);
        registers.rip += SYSCALL_LEN;
    }

    /// Where in a stub a thread is.
    pub(super) fn place(self, registers: &Registers) -> u64 {
        match self.0 {
            Some(at) if (at..=at + SYSCALL_LEN).contains(&registers.rip) => registers.r14,
            _ => registers.rip,
        }
    }
}

/// Whether a process has our shim, and a handler of SIGSYS.
fn may_be_dispatched(pid: i32) -> bool {
    const SIGSYS: u64 = 1 << (libc::SIGSYS - 1);
    let dir = ProcDir::of(pid);
    let status = dir.parsed("status", parse_status);
    let link = dir.link(&format!("fd/{}", Reserved::Link.number()));
    status.is_ok_and(|status| status.caught & SIGSYS != 0)
        && link.is_ok_and(|name| name == LINK_NAME)
}

fn holds(range: &Range<u64>, at: u64) -> bool {
    range.contains(&at) && range.contains(&(at + SYSCALL_LEN))
}

/// The first place in a range with such instructions.
fn search(process: &StoppedProcess, range: &Range<u64>) -> Option<u64> {
    let maps = ProcDir::of(process.pid.0).parsed("maps", parse_maps).ok()?;
    maps.iter()
        .filter(|line| line.prot & PROT_EXEC != 0)
        .map(|line| line.start.max(range.start)..line.end.min(range.end))
        .filter(|part| part.start < part.end && part.end - part.start <= RANGE_MAX)
        .find_map(|part| {
            let mut bytes = vec![0; usize::try_from(part.end - part.start).ok()?];
            process.memory().read(part.start, &mut bytes).ok()?;
            let mut windows = bytes.windows(INSTRUCTIONS.len());
            let offset = windows.position(|window| window == INSTRUCTIONS)?;
            Some(part.start + offset as u64)
        })
}

#[cfg(test)]
mod tests {
    use super::super::asm::Asm;
    use super::super::runner::runner;
    use super::super::stub::{HOME_CODE, Home, emit_home, later_call, tail_stub};
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// Each `syscall` is a detour to another, from which `r14` leads behind it; all fits where the others do.
    #[test]
    fn calls_through_a_gate_fit_and_come_back() {
        const AT: u64 = 0x7f12_3456_7000;
        let gate = Gate(Some(AT));
        let home = Home {
            registers: Registers::default(),
            mask: 0,
            ending_mask: 0,
        };
        let mut asm = Asm::at(0x1000, gate);
        emit_home(&mut asm, 0x5000);
        let way_home = asm.finish().expect("near");
        assert!(way_home.len() as u64 <= HOME_CODE, "{}", way_home.len());
        let runner = runner(gate, 0x1000).expect("near");
        assert!(runner.bytes.len() <= 1024, "{}", runner.bytes.len());
        let tail = tail_stub(gate, &home, 0x1000).expect("fits");
        for (code, calls) in [(&way_home, 2), (&runner.bytes, 13), (&tail.bytes, 4)] {
            assert!(!code.windows(2).any(|two| two == [0x0f, 0x05]));
            let detours = code.windows(8).filter(|word| *word == AT.to_le_bytes());
            assert_eq!(detours.count(), calls);
        }
        let mut first = Decoder::with_ip(64, &tail.bytes, 0x1000, DecoderOptions::NONE);
        let behind = 0x1000 + gate.call_len();
        assert_eq!(first.decode().ip_rel_memory_address(), behind);
        assert_eq!(first.decode().ip_rel_memory_address(), behind - 8);
        let call = later_call(gate, &home.registers, tail.call, libc::SYS_munmap, [0; 6]);
        assert_eq!((call.rip, call.r14), (AT, behind));
        assert_eq!(gate.place(&call), behind);
    }
}
