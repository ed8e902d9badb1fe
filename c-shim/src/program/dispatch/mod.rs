//! Calls of programs whose code cannot be rewritten: the kernel raises SIGSYS for every `syscall` instruction outside of
//! the shim (docs/adr/0018-calls-that-are-dispatched.md).
//!
//! ```text
//! syscall -> SIGSYS -> trapped --can it be ours?--no--> stub: the same call from within the shim, jump back
//!                                   `yes-> gate: the dispatcher, in the program's own context --not ours--> stub
//!                                                                                            `-ours--> jump back
//! ```
//! # What callers may rely on
//! What the kernel answers it answers in the program's own context: signals, masks, stacks and restarted calls are as they
//! were. A thread that is armed has no call of its own that does not come here.
//!
//! # What it does not do
//! It knows nothing of files.

mod actions;
mod frames;
mod gate;
mod rooms;
mod sites;

use super::entry::{ACTIONS, DOUBT, NUMBERS, REMOTE, action};
use super::sys::{self, Errno, PRCTL, RT_SIGPROCMASK, SysResult, call};
use crate::table::RESERVED;
use core::sync::atomic::{AtomicU32, Ordering};
use sites::Site;

pub(super) use rooms::forget;

/// SIGSYS.
const SIGSYS: u64 = 31;
/// Its bit in a mask.
const BIT: u64 = 1 << (SIGSYS - 1);
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const PR_SYS_DISPATCH_ON: u64 = 1;
const SYS_USER_DISPATCH: i32 = 2;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// Not zero: calls of this process are dispatched.
static ON: AtomicU32 = AtomicU32::new(0);

// All of the shim; of it only code of ours is ever executed.
unsafe extern "C" {
    #[link_name = "__ehdr_start"]
    static BEGIN: u8;
    #[link_name = "_end"]
    static END: u8;
}

/// Where calls are not dispatched: begin and length.
fn allowed() -> (u64, u64) {
    let begin = &raw const BEGIN as u64;
    (begin, &raw const END as u64 - begin)
}

/// Whether calls of this process are dispatched.
pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

/// From now on they are, of this thread and of all that it begins. `small_stacks`: the program calls from stacks with no room for
/// anybody else.
///
/// # Errors
/// The kernel knows no dispatch (before Linux 5.11), or forbids it; no memory.
pub(super) fn begin(small_stacks: bool) -> SysResult<()> {
    if is_on() {
        return Ok(());
    }
    rooms::begin(small_stacks)?;
    actions::begin()?;
    let mask = BIT;
    const SIG_UNBLOCK: u64 = 1;
    // SAFETY: the kernel reads the word.
    unsafe { call(RT_SIGPROCMASK, [SIG_UNBLOCK, &raw const mask as u64, 0, 8]) }?;
    arm()?;
    ON.store(1, Ordering::Relaxed);
    Ok(())
}

fn arm() -> SysResult<u64> {
    let (begin, len) = allowed();
    let args = [
        PR_SET_SYSCALL_USER_DISPATCH,
        PR_SYS_DISPATCH_ON,
        begin,
        len,
        0,
    ];
    // SAFETY: from now on calls from elsewhere come to `trapped`.
    unsafe { call(PRCTL, args) }
}

/// A child of fork is not dispatched, unlike its parent.
pub(super) fn arm_child() {
    if is_on() && arm().is_err() {
        super::launch::complain(b"a child", "its system calls are not dispatched");
        loop {
            // SAFETY: it ends the process, which would see this machine's files.
            let _ = unsafe { call(sys::EXIT_GROUP, [126]) };
        }
    }
}

/// `siginfo_t` of SIGSYS.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    address: u64,
    number: i32,
    architecture: u32,
}

/// `ucontext_t`, up to the mask.
#[repr(C)]
struct Context {
    flags: u64,
    link: u64,
    stack: frames::Stack,
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    others: [u64; 15],
    mask: u64,
}

// As the kernel has them.
const _: () = assert!(core::mem::offset_of!(Context, rip) == 168);
const _: () = assert!(core::mem::offset_of!(Context, mask) == 296);

/// The handler of SIGSYS; all signals wait.
///
/// # Safety
/// The kernel calls it.
unsafe extern "C" fn trapped(signal: i32, info: &Info, context: &mut Context) {
    if info.code != SYS_USER_DISPATCH {
        // SAFETY: these are what the kernel has given us.
        return unsafe { actions::forward(signal, info, context) };
    }
    if info.architecture != AUDIT_ARCH_X86_64 {
        // `int 0x80`: as by a kernel without 32-bit calls.
        context.rax = Errno(sys::ENOSYS).raw();
        return;
    }
    if context.rax == PRCTL && context.rdi == PR_SET_SYSCALL_USER_DISPATCH {
        context.rax = Errno(sys::EINVAL).raw();
        return;
    }
    if context.rax == sys::RT_SIGRETURN {
        // SAFETY: the program says that what the kernel has put there is there still.
        let returned = unsafe { &mut *(context.rsp as *mut Context) };
        returned.mask &= !BIT;
    }
    frames::look(context);
    let Some(site) = Site::behind(context.rip) else {
        super::launch::complain(b"a program", "it makes calls from too many places");
        loop {
            // SAFETY: it ends the process.
            let _ = unsafe { call(sys::EXIT_GROUP, [126]) };
        }
    };
    if !may_be_ours(context) {
        context.rip = site.stub();
        return;
    }
    context.rcx = site.stub();
    match rooms::take() {
        Some(room) => {
            context.r11 = room;
            context.rip = gate::wf_gate_apart as *const () as u64;
        }
        None => context.rip = gate::wf_gate as *const () as u64,
    }
}

/// As in `entry`.
fn may_be_ours(context: &Context) -> bool {
    let number = context.rax as usize;
    if actions::is_about_signals(context.rax) {
        return true;
    }
    if number >= NUMBERS {
        return false;
    }
    match ACTIONS[number].load(Ordering::Relaxed) {
        action::NONE => false,
        action::BY_DESCRIPTOR if DOUBT.load(Ordering::Relaxed) == 0 => {
            let fd = context.rdi as u32 as usize;
            fd >= RESERVED[0] as usize || REMOTE[fd].load(Ordering::Relaxed) != 0
        }
        _ => true,
    }
}

impl Errno {
    /// As a system call returns it.
    fn raw(self) -> u64 {
        -i64::from(self.0) as u64
    }
}
