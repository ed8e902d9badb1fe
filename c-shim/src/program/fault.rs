//! Fault points: a process of the job dies on purpose at a named step, so that tests can show that it harms neither files nor the others.
//!
//! With `WAYFARER_FAULT=shim:NAME:K` in its environment a program dies at its K-th step of that name (`shim:any:K`: the K-th of all); its
//! children by fork go on counting where it was. With `shim-stops:NAME:K` it is stopped there, to be checkpointed. Without either a step
//! is a load.

use super::sys::{self, call};
use crate::faults::wanted;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Steps to go; 0: nobody dies.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// The name that counts.
static NAME: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static NAME_LEN: AtomicUsize = AtomicUsize::new(0);
static STOPS: AtomicBool = AtomicBool::new(false);

/// What the variable says, if it is there.
pub(super) fn begin(text: Option<&'static [u8]>) {
    let Some(fault) = text.and_then(wanted) else {
        return;
    };
    NAME.store(fault.name.as_ptr().cast_mut(), Ordering::Relaxed);
    NAME_LEN.store(fault.name.len(), Ordering::Relaxed);
    STOPS.store(fault.stops, Ordering::Relaxed);
    LEFT.store(fault.step, Ordering::Release);
}

/// A step.
#[inline]
pub(super) fn at(name: &'static str) {
    if LEFT.load(Ordering::Acquire) != 0 {
        count(name);
    }
}

#[cold]
fn count(name: &'static str) {
    const SIGKILL: u64 = 9;
    const SIGSTOP: u64 = 19;
    let (at, len) = (
        NAME.load(Ordering::Relaxed),
        NAME_LEN.load(Ordering::Relaxed),
    );
    // SAFETY: `begin` has put both there; what the environment began with stays.
    let wanted = unsafe { core::slice::from_raw_parts(at.cast_const(), len) };
    if (wanted == name.as_bytes() || wanted == b"any") && LEFT.fetch_sub(1, Ordering::Relaxed) == 1
    {
        let signal = match STOPS.load(Ordering::Relaxed) {
            true => SIGSTOP,
            false => SIGKILL,
        };
        // SAFETY: it ends or stops the process.
        let _ = unsafe { call(sys::KILL, [u64::from(sys::pid()), signal]) };
    }
}
