//! A seccomp filter that refuses one system call, for machines that do.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes system call `nr` fail with `errno` for the command and its descendants.
pub(crate) fn refuse(command: &mut Command, nr: i64, errno: i32) {
    let load = |at| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let give = |value| statement(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let code = [
        load(0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, nr as u32),
        give(libc::SECCOMP_RET_ERRNO | errno as u32),
        give(libc::SECCOMP_RET_ALLOW),
    ];
    // SAFETY: between fork and exec only two system calls are made.
    unsafe { command.pre_exec(move || install(&code)) };
}

fn statement(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

fn install(code: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: code.len() as u16,
        filter: code.as_ptr().cast_mut(),
    };
    // SAFETY: no pointers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let filter = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the kernel copies the program.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
