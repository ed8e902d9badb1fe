//! The beginning in each program: the shim is executed in its place, moves itself to where it was mapped, maps the table and
//! recognises inherited descriptors; then it puts the program into the process (`launch/`).

use super::entry::ACTIONS;
use super::launch::{self, Jump, STACK_ROOM};
use super::process::{self, UMASK};
use super::sys::{self, MMAP, call};
use super::{calls, ends, presence, resident};
use crate::table::{Reserved, Table};
use core::sync::atomic::Ordering;

// As the kernel leaves a program that is executed: everything lies on the stack, and rdx is what to call at its end.
core::arch::global_asm!(
    ".text",
    ".globl wf_start",
    ".hidden wf_start",
    ".hidden __ehdr_start",
    ".hidden _DYNAMIC",
    ".type wf_start, @function",
    "wf_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "lea rsi, [rip + __ehdr_start]",
    "lea rdx, [rip + _DYNAMIC]",
    "sub rsp, {room}",
    "and rsp, -16",
    "call {begin}",
    "mov rsp, rax",
    "mov r11, rdx",
    "xor eax, eax",
    "xor ebx, ebx",
    "xor ecx, ecx",
    "xor edx, edx",
    "xor esi, esi",
    "xor edi, edi",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "xor r10d, r10d",
    "xor r12d, r12d",
    "xor r13d, r13d",
    "xor r14d, r14d",
    "xor r15d, r15d",
    "jmp r11",
    ".size wf_start, . - wf_start",
    room = const STACK_ROOM,
    begin = sym begin,
);

/// Called first; nothing that needs relocation works before the second line.
unsafe extern "C" fn begin(stack: *mut u64, base: u64, dynamic: *const [u64; 2]) -> Jump {
    // SAFETY: the linker has put its table there.
    if unsafe { relocate(base, dynamic) }.is_none() {
        give_up("the shim was linked wrongly");
    }
    set_up();
    // SAFETY: `wf_start` has left the room.
    unsafe { launch::begin(stack) }
}

/// Adds where we are to the addresses that the linker has listed (elf(5), DT_RELA).
unsafe fn relocate(base: u64, dynamic: *const [u64; 2]) -> Option<()> {
    const DT_RELA: u64 = 7;
    const DT_RELASZ: u64 = 8;
    const R_X86_64_RELATIVE: u64 = 8;
    const ENTRY: u64 = 24;
    let (mut table, mut size, mut at) = (0, 0, dynamic);
    loop {
        // SAFETY: the table ends with a zero.
        match unsafe { at.read() } {
            [0, _] => break,
            [DT_RELA, value] => table = base + value,
            [DT_RELASZ, value] => size = value,
            _ => {}
        }
        at = at.wrapping_add(1);
    }
    for index in 0..size / ENTRY {
        let entry = (table + index * ENTRY) as *const [u64; 3];
        // SAFETY: there are so many entries.
        let [offset, kind, addend] = unsafe { entry.read() };
        if kind != R_X86_64_RELATIVE {
            return None;
        }
        // SAFETY: the linker says that a word of ours is there.
        unsafe { ((base + offset) as *mut u64).write(base + addend) };
    }
    Some(())
}

fn set_up() {
    let Some(table) = map_table() else {
        give_up("there is no file table of this version");
    };
    if process::begin(table).is_err() {
        give_up("a page cannot be wiped on fork (MADV_WIPEONFORK)");
    }
    calls::begin_limits();
    presence::resume();
    resident::begin();
    read_umask();
    calls::begin(&ACTIONS);
    if recognise_descriptors().is_err() {
        give_up("/proc/thread-self/fd cannot be read");
    }
    if calls::begin_directory(table).is_err() {
        give_up("the shadow does not let it begin in the directory it was started in");
    }
}

/// Finds out which inherited descriptors are remote.
fn recognise_descriptors() -> sys::SysResult<()> {
    sys::each_descriptor(|fd| process::set_remote(fd, ends::recognise(fd)))
}

/// A program of the job that would see this machine's files instead of the job's does not start.
fn give_up(why: &str) -> ! {
    for text in [
        "wayfarer: a program with remote files cannot start: ",
        why,
        "\n",
    ] {
        let _ = sys::write(2, text.as_bytes());
    }
    loop {
        // SAFETY: it ends the process; 3 is "host unsupported".
        let _ = unsafe { call(sys::EXIT_GROUP, [3]) };
    }
}

fn map_table() -> Option<&'static Table> {
    let fd = Reserved::Table.number();
    // PROT_READ|WRITE, MAP_SHARED
    let args = [0, size_of::<Table>() as u64, 3, 1, fd as u64, 0];
    // SAFETY: without MAP_FIXED nothing that is there is touched.
    let address = unsafe { call(MMAP, args) }.ok()?;
    // SAFETY: the mapping is as long as a table, shared, and never unmapped.
    let table = unsafe { &*(address as *const Table) };
    table.is_known().then_some(table)
}

/// umask(2) can only be read by setting it.
fn read_umask() {
    // SAFETY: umask(2) takes a number; no other thread runs yet.
    let before = unsafe { call(sys::UMASK, [0o77]) }.unwrap_or(0o22);
    // SAFETY: as above.
    let _ = unsafe { call(sys::UMASK, [before]) };
    UMASK.store(before as u32, Ordering::Relaxed);
}
