//! Memory for calls that need some: stacks for programs whose own have no room, and what is kept while a process or thread is made.
//!
//! Stacks of ours are for programs whose own are small (Go), and for children of vfork, whom posix_spawn(3) gives small ones. Neither
//! leaves a signal's handler by a jump; so what is taken is given back, but by a child that executes a program: its stack
//! is taken back when no other is free.

use crate::program::entry::DOUBT;
use crate::program::process;
use crate::program::sys::{self, SysResult, call};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Calls at once that need a stack.
const ROOMS: usize = 128;
/// Bytes.
const ROOM: usize = 64 << 10;

/// At the upper end of each stack.
#[repr(C, align(64))]
struct Head {
    /// The thread that has it, or 0; first, as the gate writes it.
    owner: AtomicU32,
    /// Where the gate keeps the program's stack pointer.
    stack: AtomicU64,
}

const _: () = assert!(core::mem::offset_of!(Head, stack) == 8);

static BEGIN: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Not zero: all stacks of the program may be small.
static SMALL: AtomicU32 = AtomicU32::new(0);

/// From now on there are stacks.
pub(super) fn begin(small_stacks: bool) -> SysResult<()> {
    SMALL.store(small_stacks.into(), Ordering::Relaxed);
    // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS|NORESERVE
    let mapped = sys::map((ROOMS * ROOM) as u64, 3, 0x4022, -1)?;
    BEGIN.store(mapped, Ordering::Release);
    Ok(())
}

fn head(begin: *mut u8, index: usize) -> &'static Head {
    let at = begin.wrapping_add((index + 1) * ROOM - size_of::<Head>());
    // SAFETY: the mapping has so many rooms, and stays.
    unsafe { &*at.cast::<Head>() }
}

fn all() -> Option<impl Iterator<Item = &'static Head>> {
    let begin = BEGIN.load(Ordering::Acquire);
    (!begin.is_null()).then(|| (0..ROOMS).map(move |index| head(begin, index)))
}

/// Whether all stacks of the program may be small.
pub(super) fn are_stacks_small() -> bool {
    SMALL.load(Ordering::Relaxed) != 0
}

/// The upper end of a stack that is ours until its first word is zero; none if the program's own is to be used.
pub(super) fn take() -> Option<u64> {
    if !are_stacks_small() && !process::is_borrowing() {
        return None;
    }
    take_any()
}

/// Address and length of a stack that this thread has until it ends.
pub(super) fn take_for_good() -> Option<(u64, u64)> {
    let len = (ROOM - size_of::<Head>()) as u64;
    take_any().map(|top| (top - len, len))
}

/// A stack that was taken for good.
pub(super) fn give_back(stack: u64) {
    for one in all().into_iter().flatten() {
        let top = core::ptr::from_ref(one) as u64;
        if (top - ROOM as u64..top).contains(&stack) {
            one.owner.store(0, Ordering::Release);
        }
    }
}

/// Whether a stack is one of ours.
pub(super) fn is_ours(stack: u64) -> bool {
    let begin = BEGIN.load(Ordering::Acquire) as u64;
    (begin..begin + (ROOMS * ROOM) as u64).contains(&stack)
}

fn take_any() -> Option<u64> {
    let us = sys::tid();
    loop {
        for one in all()? {
            let took = one
                .owner
                .compare_exchange(0, us, Ordering::Acquire, Ordering::Relaxed);
            if took.is_ok() {
                return Some(core::ptr::from_ref(one) as u64);
            }
        }
        for one in all()? {
            let owner = one.owner.load(Ordering::Relaxed);
            if owner != 0 && !may_be_in_use(owner) {
                let free =
                    one.owner
                        .compare_exchange(owner, 0, Ordering::Relaxed, Ordering::Relaxed);
                let _ = free;
            }
        }
        sys::give_way();
    }
}

/// Whether a thread may still use this memory: one of the process whose it is, or of a child of vfork. Either may ask.
fn may_be_in_use(tid: u32) -> bool {
    // SAFETY: tgkill(2) takes numbers; signal 0 only asks.
    let is_of = |pid| unsafe { call(sys::TGKILL, [u64::from(pid), tid.into(), 0]) }.is_ok();
    let Some(owner) = process::owner() else {
        return true;
    };
    is_of(owner) || DOUBT.load(Ordering::Relaxed) != 0 && is_of(tid)
}

/// We are a fork's child: nobody else is here.
pub(in crate::program) fn forget() {
    for one in &ALL {
        one.users.store(0, Ordering::Relaxed);
    }
    let Some(all) = all() else { return };
    let here = &raw const all as u64;
    for one in all {
        let top = core::ptr::from_ref(one) as u64;
        if !(top - ROOM as u64..top).contains(&here) {
            one.owner.store(0, Ordering::Relaxed);
        }
    }
}

/// What is kept while a process or thread is made: by whom, and by what is made, until both have gone on.
#[repr(C)]
pub(super) struct Errand {
    /// Who still needs it.
    pub(super) users: AtomicU32,
    /// Blocked signals.
    pub(super) mask: AtomicU64,
    /// Where to go on.
    pub(super) behind: AtomicU64,
    /// Registers.
    pub(super) rbx: AtomicU64,
    pub(super) r12: AtomicU64,
    pub(super) rdi: AtomicU64,
    pub(super) rsi: AtomicU64,
    pub(super) rdx: AtomicU64,
    pub(super) r10: AtomicU64,
    pub(super) r8: AtomicU64,
}

const ERRANDS: usize = 64;

static ALL: [Errand; ERRANDS] = [const {
    Errand {
        users: AtomicU32::new(0),
        mask: AtomicU64::new(0),
        behind: AtomicU64::new(0),
        rbx: AtomicU64::new(0),
        r12: AtomicU64::new(0),
        rdi: AtomicU64::new(0),
        rsi: AtomicU64::new(0),
        rdx: AtomicU64::new(0),
        r10: AtomicU64::new(0),
        r8: AtomicU64::new(0),
    }
}; ERRANDS];

impl Errand {
    /// One for so many users.
    pub(super) fn take(users: u32) -> &'static Errand {
        loop {
            for one in &ALL {
                let took =
                    one.users
                        .compare_exchange(0, users, Ordering::Acquire, Ordering::Relaxed);
                if took.is_ok() {
                    return one;
                }
            }
            sys::give_way();
        }
    }
}
