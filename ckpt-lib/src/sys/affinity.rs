//! Running on one CPU for a moment.
#![allow(unsafe_code)]

use std::ptr::{from_mut, from_ref};

/// Room for 8192 CPUs, the most that x86-64 kernels are built for.
type Mask = [u64; 128];

fn get() -> Option<Mask> {
    let mut mask = [0; 128];
    // SAFETY: the kernel writes at most the size given; 0 is the calling thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            size_of::<Mask>(),
            from_mut(&mut mask),
        )
    };
    (result > 0).then_some(mask)
}

fn set(mask: &Mask) -> bool {
    // SAFETY: the kernel reads at most the size given; 0 is the calling thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of::<Mask>(),
            from_ref(mask),
        )
    };
    result == 0
}

/// Does `work` on CPU `cpu`, right after having been switched in; none if we may not run there.
pub(crate) fn on_cpu<T>(cpu: usize, work: impl FnOnce() -> T) -> Option<T> {
    let before = get()?;
    let mut only: Mask = [0; 128];
    *only.get_mut(cpu / 64)? |= 1 << (cpu % 64);
    if !set(&only) {
        return None;
    }
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::sched_yield() };
    let result = work();
    set(&before);
    Some(result)
}
