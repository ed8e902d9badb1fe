//! What a stopped thread has of the processor that hardly any 64-bit program asks for: segments of the global descriptor table,
//! ports of devices.
#![allow(unsafe_code)]

use super::ptrace::get_set;
use std::io;

/// `PTRACE_GET_THREAD_AREA` (arch/x86/include/uapi/asm/ptrace-abi.h).
const GET_THREAD_AREA: libc::c_uint = 25;
/// The three entries that set_thread_area(2) gives out (`GDT_ENTRY_TLS_MIN`).
const ENTRIES: std::ops::Range<usize> = 12..15;
/// `NT_386_IOPERM` (linux/elf.h).
const IO_PERMISSIONS: usize = 0x201;
/// Bits for 65536 ports; one that is clear allows.
const PORTS_LEN: usize = 8192;

/// `struct user_desc` (asm/ldt.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct UserDesc {
    entry: u32,
    base: u32,
    limit: u32,
    flags: u32,
}

/// read_exec_only and seg_not_present: what an empty entry shows.
const EMPTY: u32 = 1 << 3 | 1 << 5;

/// Whether a thread at a ptrace stop has set an entry of the global descriptor table.
pub(crate) fn has_thread_areas(tid: i32) -> io::Result<bool> {
    for entry in ENTRIES {
        let mut found = UserDesc::default();
        // SAFETY: the kernel writes one `struct user_desc`, which `found` is.
        let result = unsafe { libc::ptrace(GET_THREAD_AREA, tid, entry, &raw mut found) };
        if result != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                // A kernel without 32-bit programs has no such call.
                Some(libc::EIO) => Ok(false),
                _ => Err(error),
            };
        }
        if (found.base, found.limit, found.flags) != (0, 0, EMPTY) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a thread at a ptrace stop may use ports (ioperm(2)). What iopl(2) has allowed nobody tells.
pub(crate) fn has_ports(tid: i32) -> bool {
    let mut bits = [0xff_u8; PORTS_LEN];
    get_set(tid, IO_PERMISSIONS, &mut bits)
        .is_ok_and(|len| bits[..len].iter().any(|byte| *byte != 0xff))
}
