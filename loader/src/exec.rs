//! Starting a program (`wayfarer run`): the process gets back everything the loader changed.

use crate::abi::*;
use crate::context::Context;
use crate::interpret::fits;
use crate::report::{Failure, Outcome, Raw, failure};
use crate::sys::{self, Errno, call};
use loader::ops::{self, tails::ExecTail};

/// Exit codes of shells for programs that cannot be started.
const NOT_FOUND: u32 = 127;
const NOT_EXECUTABLE: u32 = 126;

/// Executes the program; returns only if it cannot be.
pub fn exec(context: &Context, op: &ops::Exec, tail: &'static [u8]) -> Outcome<()> {
    let tail = fits(ExecTail::read(op, tail))?;
    let [args, envs] = tail.counts();
    let count = args + envs + 2;
    // SAFETY: a new mapping, anywhere.
    let table = unsafe {
        sys::map(
            0,
            8 * count as u64,
            PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS,
        )
    };
    let table = table.map_err(|error| failure!(Host, "argument table: {error}"))?;
    // SAFETY: just mapped with room for `count` words.
    let words = unsafe { core::slice::from_raw_parts_mut(table as *mut u64, count) };
    // Each with a null pointer behind it: the mapping is new.
    let (to_args, to_envs) = words.split_at_mut(args + 1);
    for (word, string) in to_args.iter_mut().zip(tail.args()) {
        *word = string.as_ptr() as u64;
    }
    for (word, string) in to_envs.iter_mut().zip(tail.envs()) {
        *word = string.as_ptr() as u64;
    }
    // Behind the last that takes memory, or a descriptor.
    for [resource, soft, hard] in tail.limits() {
        sys::set_limit(resource, soft, hard)
            .map_err(|error| failure!(Host, "limit {resource} of the program: {error}"))?;
    }
    if context.namespaces {
        let _ = sys::prctl(PR_SET_PDEATHSIG, 0);
    }
    // Without pid 1 of its own, with whom it would be gone, it dies with its supervisor.
    sys::set_action(SIGCHLD, &context.first_child_action);
    sys::set_mask(context.first_mask);
    let path = tail.path;
    let call_args = [path.as_ptr() as u64, table, table + 8 * (args as u64 + 1)];
    // SAFETY: path and strings end in NUL, both tables in a null pointer.
    let result = unsafe { call(SYS_EXECVE, call_args) };
    sys::set_mask(!0);
    match result {
        Ok(_) => Ok(()),
        Err(error) => Err(not_started(path.to_bytes(), error)),
    }
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
