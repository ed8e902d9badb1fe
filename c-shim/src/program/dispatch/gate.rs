//! The dispatcher, called as if the program itself had called it: with its registers, its signal mask, and its stack or one of ours.
//!
//! ```text
//! in:  every register as at the `syscall`, but rcx: the stub; r11: a stack of ours (wf_gate_apart)
//! out: every register as behind the `syscall`, or as at it, at the stub
//! make: clone, fork and vfork with all signals blocked; whoever is made is armed before it goes on
//! ```
//! A call that the kernel makes is made from a stub, and one that makes a process or thread from `wf_make`, without a stack, since
//! whoever is made may have none in common with its maker.

use super::actions;
use super::rooms::Errand;
use super::sites::Site;
use super::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON};
use crate::program::entry::{Frame, handle};
use crate::program::sys::{self, RT_SIGPROCMASK, call};
use crate::program::vectors::{keep_vectors, take_vectors};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

/// In the place of a stack's first word, if it is the program's own.
static NO_OWNER: AtomicU32 = AtomicU32::new(0);

core::arch::global_asm!(
    ".text",
    ".globl wf_gate",
    ".hidden wf_gate",
    ".type wf_gate, @function",
    "wf_gate:",
    "mov r11, rsp",
    "lea rsp, [rsp - 128]",
    "push r11",
    "lea r11, [rip + {no_owner}]",
    "jmp 1f",
    ".globl wf_gate_apart",
    ".hidden wf_gate_apart",
    "wf_gate_apart:",
    "mov [r11 + 8], rsp",
    "mov rsp, r11",
    "push qword ptr [r11 + 8]",
    "1:",
    "push r11",
    "pushf",
    "push rcx",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "push r12",
    "push rbx",
    "push rbp",
    "mov rbp, rsp",
    "and rsp, -16",
    keep_vectors!(),
    "lea rdi, [rbp + 8]",
    "call {lead}",
    take_vectors!(),
    "mov rsp, rbp",
    "pop rbp",
    "pop rbx",
    "pop r12",
    "pop rax",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "pop rcx",
    "popf",
    "pop r11",
    "pop rsp",
    // From here on the stack may be somebody else's.
    "mov dword ptr [r11], 0",
    "jmp rcx",
    ".size wf_gate, . - wf_gate",
    ".globl wf_make",
    ".hidden wf_make",
    ".hidden __ehdr_start",
    ".hidden _end",
    ".type wf_make, @function",
    // In: rbx: an errand; r12: free; all else as at the `syscall`.
    "wf_make:",
    "syscall",
    "mov r12, rax",
    "test rax, rax",
    "jg 2f",
    "jz 1f",
    // Nobody was made.
    "mov dword ptr [rbx + {users}], 1",
    "jmp 2f",
    "1:",
    "mov eax, {prctl}",
    "mov edi, {dispatch}",
    "mov esi, {on}",
    "lea rdx, [rip + __ehdr_start]",
    "lea r10, [rip + _end]",
    "sub r10, rdx",
    "xor r8d, r8d",
    "syscall",
    "test rax, rax",
    "jnz 3f",
    "2:",
    "mov eax, {sigprocmask}",
    // SIG_SETMASK
    "mov edi, 2",
    "lea rsi, [rbx + {mask}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "mov rdi, [rbx + {rdi}]",
    "mov rsi, [rbx + {rsi}]",
    "mov rdx, [rbx + {rdx}]",
    "mov r10, [rbx + {r10}]",
    "mov r8, [rbx + {r8}]",
    "mov rax, r12",
    "mov r12, [rbx + {r12}]",
    "mov rcx, [rbx + {behind}]",
    "mov r11, rbx",
    "mov rbx, [rbx + {rbx}]",
    "lock dec dword ptr [r11 + {users}]",
    "jmp rcx",
    // It was dispatched before, so it is now.
    "3:",
    "ud2",
    ".size wf_make, . - wf_make",
    // For calls that a checkpoint has us make (ckpt-lib/src/inject/gate.rs looks for these instructions).
    ".globl wf_borrowed",
    ".hidden wf_borrowed",
    ".type wf_borrowed, @function",
    "wf_borrowed:",
    "syscall",
    "jmp r14",
    ".size wf_borrowed, . - wf_borrowed",
    no_owner = sym NO_OWNER,
    lead = sym lead,
    prctl = const sys::PRCTL,
    dispatch = const PR_SET_SYSCALL_USER_DISPATCH,
    on = const PR_SYS_DISPATCH_ON,
    sigprocmask = const RT_SIGPROCMASK,
    users = const offset_of!(Errand, users),
    mask = const offset_of!(Errand, mask),
    behind = const offset_of!(Errand, behind),
    rbx = const offset_of!(Errand, rbx),
    r12 = const offset_of!(Errand, r12),
    rdi = const offset_of!(Errand, rdi),
    rsi = const offset_of!(Errand, rsi),
    rdx = const offset_of!(Errand, rdx),
    r10 = const offset_of!(Errand, r10),
    r8 = const offset_of!(Errand, r8),
);

unsafe extern "C" {
    /// See the module.
    pub(super) fn wf_gate();
    /// See the module.
    pub(super) fn wf_gate_apart();
    fn wf_make();
}

/// What lies on the stack while a call is looked at.
#[repr(C)]
struct Led {
    rbx: u64,
    r12: u64,
    frame: Frame,
    /// The stub; where to go on.
    next: u64,
}

/// Serves a call, or has the kernel make it.
extern "C" fn lead(led: &mut Led) {
    let number = led.frame.number;
    let Some(site) = Site::of_stub(led.next) else {
        return;
    };
    if let Some(result) = actions::serve(&mut led.frame) {
        led.frame.number = result;
        led.next = site.end();
    } else if handle(&mut led.frame) != 0 {
        led.next = site.end();
    } else if makes(number) {
        make(led, site);
    }
}

/// Whether a process or thread is made.
fn makes(number: u64) -> bool {
    matches!(number, sys::CLONE | sys::CLONE3 | sys::FORK | sys::VFORK)
}

/// The kernel is to make a process or thread, and who is made is to be dispatched.
fn make(led: &mut Led, site: Site) {
    const CLONE_VM: u64 = 0x100;
    let args = led.frame.args;
    let shares = match led.frame.number {
        sys::CLONE => args[0] & CLONE_VM != 0,
        sys::VFORK => true,
        sys::CLONE3 => {
            // SAFETY: the structure begins with its flags; without one nothing is made.
            let flags = unsafe { (args[0] as *const u64).as_ref() };
            flags.is_some_and(|flags| flags & CLONE_VM != 0)
        }
        _ => false,
    };
    let (all, mut mask) = (u64::MAX, 0u64);
    let place = &raw mut mask as u64;
    // SAFETY: the kernel reads and writes the two words.
    let _ = unsafe { call(RT_SIGPROCMASK, [2, &raw const all as u64, place, 8]) };
    let errand = Errand::take(if shares { 2 } else { 1 });
    let [rdi, rsi, rdx, r10, r8, _] = args;
    for (place, value) in [
        (&errand.mask, mask),
        (&errand.behind, site.end()),
        (&errand.rbx, led.rbx),
        (&errand.r12, led.r12),
        (&errand.rdi, rdi),
        (&errand.rsi, rsi),
        (&errand.rdx, rdx),
        (&errand.r10, r10),
        (&errand.r8, r8),
    ] {
        place.store(value, Ordering::Relaxed);
    }
    led.rbx = core::ptr::from_ref(errand) as u64;
    led.next = wf_make as *const () as u64;
}
