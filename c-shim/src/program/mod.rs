//! The shim itself: freestanding, executed in place of each program, which it then puts into its own process.
#![allow(unsafe_code)]

mod behind;
mod cache;
mod calls;
mod count;
mod direct;
mod dispatch;
mod ends;
mod entry;
mod fast;
mod fault;
mod foreseen;
mod guarded;
mod heap;
mod here;
mod known;
mod lanes;
mod launch;
#[path = "../../../loader/src/memory_functions.rs"]
mod memory_functions;
mod nodes;
mod offered;
mod patch;
mod patience;
mod presence;
mod process;
#[allow(unreachable_pub)]
#[path = "../../../loader/src/raw_call.rs"]
mod raw_call;
mod record_lock;
mod renewal;
mod resident;
mod start;
mod stream;
mod sys;
mod vectors;
mod waiting;
mod xattrs;

/// Our own bug, or no memory for the rewriting: the program ends where it stands, with SIGILL.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    let _ = sys::write(2, b"wayfarer: the shim has failed in this program\n");
    // SAFETY: it ends the process.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
