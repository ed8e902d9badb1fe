//! Where a trampoline leads: decides in a few instructions whether a call can be ours at all.
//!
//! ```text
//! in:  every register as at the `syscall` instruction, but for a return address on the stack
//! out: carry clear: served, result in rax        carry set: not ours, registers as they were
//! ```
//! rcx and r11 are not kept, as by the kernel. Of the vector registers only the lower halves can be
//! changed by code without AVX, which this is; they are kept.

use super::calls;
use super::fast;
use super::vectors::{keep_vectors, take_vectors};
use crate::table::RESERVED;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32};

/// What is done about a system call, by its number.
pub(super) mod action {
    /// It is the kernel's.
    pub(crate) const NONE: u8 = 0;
    /// It is ours if its first argument is a remote descriptor.
    pub(crate) const BY_DESCRIPTOR: u8 = 1;
    /// It must be looked at.
    pub(crate) const ALWAYS: u8 = 2;
}

/// Numbers of system calls that are looked at.
pub(super) const NUMBERS: usize = 512;
/// Descriptors that can be remote.
pub(super) const NUMBERED: usize = 65536;

/// By number.
pub(super) static ACTIONS: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];
/// By descriptor: the index of its description and 1, or 0.
pub(super) static REMOTE: [AtomicU16; NUMBERED] = [const { AtomicU16::new(0) }; NUMBERED];
/// Not zero while a process that shares our memory may have other descriptors (vfork(2)).
pub(super) static DOUBT: AtomicU32 = AtomicU32::new(0);

/// A call and its arguments; `number` becomes the result.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Frame {
    pub(super) number: u64,
    pub(super) args: [u64; 6],
}

core::arch::global_asm!(
    ".text",
    ".globl wf_entry",
    ".hidden wf_entry",
    ".type wf_entry, @function",
    "wf_entry:",
    "cmp rax, {numbers}",
    "jae 9f",
    "lea r11, [rip + {actions}]",
    "movzx ecx, byte ptr [r11 + rax]",
    "test ecx, ecx",
    "jz 9f",
    "cmp ecx, 1",
    "jne 2f",
    "cmp dword ptr [rip + {doubt}], 0",
    "jne 2f",
    "mov r11d, edi",
    "cmp r11d, {reserved}",
    "jae 2f",
    "lea rcx, [rip + {remote}]",
    "cmp word ptr [rcx + 2*r11], 0",
    "je 9f",
    "2:",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "push rbp",
    "mov rbp, rsp",
    "and rsp, -16",
    keep_vectors!(),
    "lea rdi, [rbp + 8]",
    "call {handle}",
    "mov ecx, eax",
    take_vectors!(),
    "mov rsp, rbp",
    "pop rbp",
    "pop rax",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "test ecx, ecx",
    "jz 9f",
    "clc",
    "ret",
    "9:",
    "stc",
    "ret",
    ".size wf_entry, . - wf_entry",
    numbers = const NUMBERS,
    reserved = const RESERVED[0],
    actions = sym ACTIONS,
    remote = sym REMOTE,
    doubt = sym DOUBT,
    handle = sym handle,
);

unsafe extern "C" {
    /// See the module.
    pub(super) fn wf_entry();
}

/// Serves a call, or leaves it to the kernel (0).
pub(super) extern "C" fn handle(frame: &mut Frame) -> u32 {
    match fast::serve(frame).or_else(|| calls::serve(frame)) {
        Some(result) => {
            frame.number = result as u64;
            1
        }
        None => 0,
    }
}
