//! Places that make calls, and for each a stub that makes them in its stead.
//!
//! ```text
//! stub N: syscall; jmp [BEHIND + 8 N]
//! ```
//! The kernel changes rcx and r11 only, so a stub needs no register and no stack. All are there from the beginning; to give one away
//! is one compare-and-swap, so a handler, a thread or a child of fork finds nothing half done.

use core::sync::atomic::{AtomicU64, Ordering};

/// Places; musl has about 400.
const COUNT: usize = 4096;
/// Bytes of a stub.
const STUB: u64 = 8;
/// Bytes of `syscall`.
const SYSCALL: u64 = 2;

/// By stub: the address behind the `syscall` instruction, or 0.
static BEHIND: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];

core::arch::global_asm!(
    ".text",
    ".balign 8",
    ".globl wf_stubs",
    ".hidden wf_stubs",
    ".type wf_stubs, @function",
    "wf_stubs:",
    ".set wf_stub, 0",
    ".rept {count}",
    "syscall",
    "jmp qword ptr [rip + {behind} + 8*wf_stub]",
    ".set wf_stub, wf_stub + 1",
    ".endr",
    ".size wf_stubs, . - wf_stubs",
    count = const COUNT,
    behind = sym BEHIND,
);

unsafe extern "C" {
    fn wf_stubs();
}

/// What makes calls.
#[derive(Clone, Copy)]
pub(super) struct Site(usize);

impl Site {
    /// By the address behind its `syscall`; none if there are too many.
    pub(super) fn behind(address: u64) -> Option<Site> {
        let first = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..COUNT)
            .map(|step| (first + step) % COUNT)
            .find(|index| {
                let place = &BEHIND[*index];
                let took = place.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
                took.is_ok() || took == Err(address)
            })
            .map(Site)
    }

    /// Where it makes the call from.
    pub(super) fn stub(self) -> u64 {
        wf_stubs as *const () as u64 + STUB * self.0 as u64
    }

    /// The site of a stub.
    pub(super) fn of_stub(stub: u64) -> Option<Site> {
        let index = stub.checked_sub(wf_stubs as *const () as u64)? / STUB;
        (index < COUNT as u64).then_some(Site(index as usize))
    }

    /// The address behind its `syscall`.
    pub(super) fn end(self) -> u64 {
        BEHIND[self.0].load(Ordering::Relaxed)
    }
}

/// For a thread that is in a stub: the address at which it would be if it had made the call itself.
pub(super) fn seen(rip: u64) -> u64 {
    let within = rip.wrapping_sub(wf_stubs as *const () as u64) % STUB;
    match Site::of_stub(rip) {
        Some(site) if within == 0 => site.end().wrapping_sub(SYSCALL),
        Some(site) => site.end(),
        None => rip,
    }
}
