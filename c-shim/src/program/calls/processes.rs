//! Processes: what their making and the executing of programs means for streams and locks.

use super::{File, Served};
use crate::program::entry::REMOTE;
use crate::program::sys::{self, call};
use crate::program::{dispatch, presence, process};
use crate::table::MACHINE_NAME;
use core::sync::atomic::Ordering;

const CLONE_VM: u64 = 0x100;
const CLONE_FILES: u64 = 0x400;
const CLONE_THREAD: u64 = 0x10000;

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    match number {
        sys::VFORK => {
            process::shares_memory_now();
            None
        }
        sys::FORK => Some(fork(number, args)),
        sys::CLONE => make(number, args, args[0], args[1]),
        sys::CLONE3 => {
            // SAFETY: the structure begins with eight words; without one it is the kernel's to say so.
            let words = unsafe { (args[0] as *const [u64; 8]).as_ref() };
            // Flags, and the lowest address of a stack.
            words.and_then(|words| make(number, args, words[0], words[5]))
        }
        sys::UNAME => Some(name_machine(args)),
        // A local program.
        sys::EXECVE | sys::EXECVEAT if presence::is_there() => Some(with_locks(|| {
            // SAFETY: it is what the program asked for.
            unsafe { call(number, *args) }
        })),
        _ => None,
    }
}

/// uname(2), which gethostname(3) and getdomainname(2) of a C library call, too.
fn name_machine(args: &[u64; 6]) -> sys::SysResult<u64> {
    // SAFETY: it is what the program asked for.
    let result = unsafe { call(sys::UNAME, [args[0]]) }?;
    let names = process::table().map(|table| &table.header.machine);
    for (name, at) in names.into_iter().flatten().zip([1, 5]) {
        if name[0] != 0 {
            let place = (args[0] as usize + at * MACHINE_NAME) as *mut [u8; MACHINE_NAME];
            // SAFETY: the kernel has just filled such a structure there, of six names (`struct new_utsname`).
            unsafe { place.write(*name) };
        }
    }
    Ok(result)
}

fn make(number: u64, args: &[u64; 6], flags: u64, stack: u64) -> Served {
    if flags & (CLONE_VM | CLONE_THREAD) == CLONE_VM {
        process::shares_memory_now();
    }
    // Others begin elsewhere, or with descriptors that are not their own.
    let as_fork = flags & (CLONE_VM | CLONE_FILES) == 0 && stack == 0;
    as_fork.then(|| fork(number, args))
}

/// The child gives up what is its parent's at once: streams of a process end with it, whoever its children are.
fn fork(number: u64, args: &[u64; 6]) -> sys::SysResult<u64> {
    let _undisturbed = sys::Undisturbed::begin();
    // SAFETY: it is what the program asked for; the child goes on with a copy of this stack.
    let forked = presence::between(|| unsafe { call(number, *args) });
    if forked == Ok(0) {
        dispatch::arm_child();
    }
    forked
}

/// Locks stay with a process that executes a program, but those of files of which a descriptor is closed by that.
pub(super) fn with_locks(execute: impl FnOnce() -> sys::SysResult<u64>) -> sys::SysResult<u64> {
    if !process::is_own() || !presence::is_there() {
        return execute();
    }
    let mut told = false;
    for (fd, description) in REMOTE.iter().enumerate() {
        if description.load(Ordering::Relaxed) != 0
            && sys::fcntl(fd as i32, sys::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0)
            && let Some(file) = File::of(fd as u64)
        {
            told |= presence::closes(file.description, true);
        }
    }
    presence::survive_exec(true);
    let failed = execute();
    presence::survive_exec(false);
    if told {
        presence::stays();
    }
    failed
}
