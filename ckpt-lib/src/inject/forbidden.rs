//! What forbids injected calls, looked for before anything is touched.

use super::InjectError;
use crate::tracee::{StoppedProcess, parse_seccomp};
use std::fs;

/// Refuses threads under syscall user dispatch, and a process with seccomp filters that wayfarer itself is not under: a filter cannot be read
/// without privileges, and a call that it does not like may kill the process.
pub(super) fn check(process: &StoppedProcess) -> Result<(), InjectError> {
    let read = |path: String| {
        let text = fs::read_to_string(path).unwrap_or_default();
        parse_seccomp(&text).unwrap_or((0, 0))
    };
    let own = read("/proc/thread-self/status".to_owned());
    let pid = process.pid.0;
    for thread in &process.threads {
        let (mode, found) = thread
            .before
            .seccomp
            .unwrap_or_else(|| read(format!("/proc/{pid}/task/{}/status", thread.tid.0)));
        // Filters are inherited, so as many of them as we have are ours.
        if mode != 0 && (mode, found) != own {
            return Err(InjectError::Forbidden {
                pid,
                mode,
                found,
                own: own.1,
            });
        }
        // The kernel would hand our calls to the program's SIGSYS handler.
        let dispatch = thread.syscall_dispatch();
        if dispatch
            .map_err(|source| InjectError::Trace { pid, source })?
            .is_some()
        {
            return Err(InjectError::Dispatched {
                pid,
                tid: thread.tid.0,
            });
        }
    }
    Ok(())
}
