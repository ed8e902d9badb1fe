//! The functions that compilers call without being asked.
//!
//! # What it does not do
//! It contains no loop over bytes: the compiler would turn it into a call of
//! the very function it stands in.

use core::arch::asm;

/// Copies `len` bytes; the ranges do not overlap.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise; `rep movsb` touches just these `len` bytes.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

/// Copies `len` bytes; the ranges may overlap.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: copying upwards is right when the target does not begin inside the source.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: the caller's promise; here the target begins inside the source, and copying
    // downwards reads every byte before it is overwritten.
    unsafe {
        asm!("std", "rep movsb", "cld",
            inout("rcx") len => _,
            inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _,
            options(nostack));
    }
    to
}

/// Sets `len` bytes to `value`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise; `rep stosb` touches just these `len` bytes.
    unsafe {
        asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") value as u8,
            options(nostack, preserves_flags));
    }
    to
}

/// Compares `len` bytes; the sign of the result is that of the first difference.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    let (left, right): (u32, u32);
    // SAFETY: the caller's promise; `repe cmpsb` reads at most `len` bytes of each, and the two
    // loads afterwards read the last bytes it compared, or are skipped when there were none.
    unsafe {
        asm!(
            "xor {left:e}, {left:e}",
            "xor {right:e}, {right:e}",
            "test rcx, rcx",
            "jz 2f",
            "repe cmpsb",
            "movzx {left:e}, byte ptr [rsi - 1]",
            "movzx {right:e}, byte ptr [rdi - 1]",
            "2:",
            left = out(reg) left, right = out(reg) right,
            inout("rcx") len => _, inout("rsi") one => _, inout("rdi") other => _,
            options(nostack, readonly));
    }
    left as i32 - right as i32
}

/// Compares `len` bytes; zero if they are the same.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(one, other, len) }
}

/// Bytes of a string before its NUL.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(string: *const u8) -> usize {
    let end: *const u8;
    // SAFETY: the caller's promise; `repne scasb` reads up to the NUL.
    unsafe {
        asm!("repne scasb", inout("rcx") usize::MAX => _, inout("rdi") string => end, in("al") 0u8,
            options(nostack, readonly));
    }
    end as usize - string as usize - 1
}

/// Named by the unwind tables of the core library, which are not kept; never called.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() {}
