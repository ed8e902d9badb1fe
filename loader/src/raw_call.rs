//! A system call, and nothing else. The shim has the same file.

use core::arch::asm;

/// A kernel error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Result of a system call.
pub type SysResult<T> = Result<T, Errno>;

/// Makes a system call.
///
/// # Safety
/// The kernel reads and writes whatever the arguments point to.
#[inline]
pub unsafe fn syscall(nr: u64, args: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the caller's promise; the kernel changes no registers but rax, rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") nr as i64 => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// The value or error of a raw result.
pub fn checked(result: i64) -> SysResult<u64> {
    if (-4095..0).contains(&result) {
        Err(Errno(-result as i32))
    } else {
        Ok(result as u64)
    }
}

/// Makes a system call with up to six arguments.
///
/// # Safety
/// As [`syscall`].
pub unsafe fn call<const N: usize>(nr: u64, args: [u64; N]) -> SysResult<u64> {
    let mut all = [0; 6];
    for (to, from) in all.iter_mut().zip(args) {
        *to = from;
    }
    // SAFETY: the caller's promise.
    checked(unsafe { syscall(nr, all) })
}
