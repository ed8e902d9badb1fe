//! The job's side of a lesser processor (docs/adr/0007): its first process asks P1 from now on.
//!
//! # What callers may rely on
//! Nothing fails for want of enforcement: where a step is refused the job goes on without, and a line says so.
//!
//! # What it does not do
//! It answers nobody (`enforcer`), and does not know what the pages do (`loader::processor::handler`).

use crate::abi::*;
use crate::context::{Context, Own};
use crate::message::{Message, send};
use crate::report;
use crate::sys::{self, Errno, call};
use loader::ops::{AnyOp, tails};
use loader::processor::filter::{FILTER, SIGSEGV};
use loader::processor::handler::{FALLEN_AT, HANDLER_AT, HANDLER_LEN};

/// The pages that the image holds for its processes, if CPUID is to be answered.
pub fn pages(context: &Context) -> Option<&'static [u8; HANDLER_LEN]> {
    let prepare = context.ops.stream(0)?;
    let mut records = context.ops.records(&prepare).filter_map(Result::ok);
    records.find_map(|record| match record.op {
        AnyOp::Enforce(op) => tails::handler(&op, record.tail).ok(),
        _ => None,
    })
}

/// Where PKRU is in the register sets of a job that is enforced.
pub fn pkru_at(context: &Context) -> Option<usize> {
    let prepare = context.ops.stream(0)?;
    let mut records = context.ops.records(&prepare).filter_map(Result::ok);
    let at = records.find_map(|record| match record.op {
        AnyOp::Enforce(op) => usize::try_from(op.pkru_at).ok(),
        _ => None,
    });
    at.filter(|at| *at != 0)
}

/// Whether an image wants its job enforced.
pub fn is_wanted(context: &Context) -> bool {
    pages(context).is_some()
}

/// In the first process of the job, before anything else: from now on P1 is asked. Where that is
/// refused, the job goes on without.
pub fn begin(context: &mut Context) {
    if !is_wanted(context) {
        return;
    }
    match install(context) {
        Ok(fd) => {
            context.place(Own::Listener, fd);
            let listener = context.fd(Own::Listener) as u32;
            send(context.fd(Own::ReportWrite), Message::Listener(listener));
        }
        Err(why) => report::say(
            context.name(),
            format_args!("note: the job sees this processor as it is: {why}"),
        ),
    }
}

fn install(context: &Context) -> Result<i32, &'static str> {
    if !context.namespaces {
        return Err("it has no pid 1 of its own");
    }
    // SAFETY: CPUID is switched on, which it is; no pointers.
    let able = unsafe { call(SYS_ARCH_PRCTL, [ARCH_SET_CPUID, 1]) };
    if able.is_err() {
        return Err("it has no CPUID faulting");
    }
    // SAFETY: no descriptor is -1; no pointers.
    if unsafe { call(SYS_PIDFD_GETFD, [u64::MAX, 0, 0]) } != Err(Errno(EBADF)) {
        return Err("this kernel lends no descriptors");
    }
    let program = [FILTER.len() as u64, FILTER.as_ptr() as u64];
    // SAFETY: the kernel copies the filter.
    let made = unsafe {
        let program = program.as_ptr() as u64;
        call(
            SYS_SECCOMP,
            [
                SECCOMP_SET_MODE_FILTER,
                SECCOMP_FILTER_FLAG_NEW_LISTENER,
                program,
            ],
        )
    };
    made.map(|fd| fd as i32)
        .map_err(|_| "this machine lets us put no filter into it")
}

/// Takes SIGSEGV back in a process of the job whose memory is there, since nobody is asked.
pub fn give_up() {
    if sys::tid() != sys::pid() {
        return;
    }
    sys::default_action(SIGSEGV);
    let len = HANDLER_LEN as u64;
    // SAFETY: the pages of the job that is made here; nobody runs in them yet.
    unsafe {
        if sys::protect(HANDLER_AT, len, PROT_READ | PROT_WRITE).is_ok() {
            let fallen = (HANDLER_AT + FALLEN_AT as u64) as *mut u32;
            fallen.write_volatile(1);
            let _ = sys::protect(HANDLER_AT, len, PROT_READ | PROT_EXEC);
        }
    }
}
