//! Starting a program (`wayfarer run`): the process gets back everything the loader changed.

use crate::abi::*;
use crate::context::Context;
use crate::report::{Failure, Outcome, Raw, failure};
use crate::sys::{self, Errno, call};
use loader::ops;

/// Exit codes of shells for programs that cannot be started.
const NOT_FOUND: u32 = 127;
const NOT_EXECUTABLE: u32 = 126;

/// Executes the program; returns only if it cannot be.
pub fn exec(context: &Context, op: &ops::Exec, tail: &'static [u8]) -> Outcome<()> {
    let damaged = || failure!(Image, "section .wf.ops: Exec does not fit its record");
    let limits_len = op.limits.checked_mul(24).ok_or_else(damaged)?;
    let (limits, tail) = usize::try_from(limits_len)
        .ok()
        .and_then(|len| tail.split_at_checked(len))
        .ok_or_else(damaged)?;
    let count = op.args.checked_add(op.envs).ok_or_else(damaged)?;
    if count > tail.len() as u64 {
        return Err(damaged());
    }
    let table_len = (count + 2) * 8;
    // SAFETY: a new mapping, anywhere.
    let table = unsafe {
        sys::map(
            0,
            table_len,
            PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS,
        )
    };
    let table = table.map_err(|error| failure!(Host, "argument table: {error}"))?;
    // SAFETY: just mapped with room for `count + 2` words.
    let words = unsafe { core::slice::from_raw_parts_mut(table as *mut u64, count as usize + 2) };
    let mut strings = tail;
    let mut next = || {
        let len = strings.iter().position(|byte| *byte == 0)?;
        let string = &strings[..len];
        strings = &strings[len + 1..];
        Some(string)
    };
    let path = next().ok_or_else(damaged)?;
    for index in 0..op.args {
        words[index as usize] = next().ok_or_else(damaged)?.as_ptr() as u64;
    }
    for index in 0..op.envs {
        words[(op.args + 1 + index) as usize] = next().ok_or_else(damaged)?.as_ptr() as u64;
    }
    // Behind the last that takes memory, or a descriptor.
    for limit in limits.as_chunks::<24>().0 {
        let [resource, soft, hard] = [0, 8, 16].map(|at| word(limit, at));
        sys::set_limit(resource, soft, hard)
            .map_err(|error| failure!(Host, "limit {resource} of the program: {error}"))?;
    }
    if context.namespaces {
        let _ = sys::prctl(PR_SET_PDEATHSIG, 0);
    }
    // Without pid 1 of its own, with whom it would be gone, it dies with its supervisor.
    sys::set_action(SIGCHLD, &context.first_child_action);
    sys::set_mask(context.first_mask);
    let args = [path.as_ptr() as u64, table, table + (op.args + 1) * 8];
    // SAFETY: path and strings end in NUL, both tables in a null pointer.
    let result = unsafe { call(SYS_EXECVE, args) };
    sys::set_mask(!0);
    match result {
        Ok(_) => Ok(()),
        Err(error) => Err(not_started(path, error)),
    }
}

fn word(bytes: &[u8; 24], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn not_started(path: &[u8], error: Errno) -> Failure {
    let mut failure = failure!(Failed, "{} cannot be started: {error}", Raw(path));
    failure.exit = if error == Errno(ENOENT) {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    };
    failure
}
