//! What forbids injected calls, looked for before anything is touched.

use super::gate::Gate;
use super::{InjectError, stub};
use crate::filters::Filters;
use crate::procfs::{ProcDir, ProcfsError, parse_status};
use crate::tracee::{Memory, StoppedProcess, StoppedThread};

/// What makes our calls. Refuses threads whose calls are dispatched by others than our shim, and a process with seccomp filters that wayfarer itself is
/// not under. The first thread, which makes the first calls, is looked at now; of the others what
/// was seen right before the stop counts.
pub(super) fn check(process: &StoppedProcess) -> Result<Gate, InjectError> {
    let pid = process.pid.0;
    let unknown = |source: ProcfsError| InjectError::Unknown {
        pid,
        source: Box::new(source),
    };
    let own = ProcDir::of_self().parsed("status", parse_status);
    let own = Filters::of(&own.map_err(unknown)?);
    for (index, thread) in process.threads.iter().enumerate() {
        let found = match thread.before.filters.filter(|_| index > 0) {
            Some(found) => found,
            None => {
                let dir = ProcDir::of(pid).thread(thread.tid.0);
                let status = dir.parsed("status", parse_status);
                Filters::of(&status.map_err(unknown)?)
            }
        };
        own.are_those_of(pid, found)
            .map_err(|reason| InjectError::Forbidden { pid, reason })?;
        if is_in_compat_call(thread, process.memory()) {
            return Err(InjectError::Compat {
                pid,
                tid: thread.tid.0,
            });
        }
    }
    // The kernel would hand our calls to the program's SIGSYS handler.
    Gate::find(process)
}

/// Whether a thread is in a call made by `int 0x80` that must be entered again: its number is one of the
/// 32-bit calls, and `restart_syscall` is another there.
fn is_in_compat_call(thread: &StoppedThread, memory: &Memory) -> bool {
    const INT_80: [u8; 2] = [0xcd, 0x80];
    let registers = thread.registers();
    let restarts = stub::interrupted_call(&registers).is_some()
        || registers.rax as i64 == -i64::from(libc::EINTR);
    let mut instruction = [0; 2];
    thread.in_call().is_some()
        && restarts
        && memory
            .read(registers.rip.wrapping_sub(2), &mut instruction)
            .is_ok()
        && instruction == INT_80
}
