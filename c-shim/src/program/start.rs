//! The beginning in each program: the table is mapped, inherited descriptors are recognised, libc and ld.so
//! are rewritten.
//!
//! Nothing is said and nothing changes in a program that is not a job's. One that is does not start if the shim cannot
//! come in.

use super::entry::{ACTIONS, NUMBERED};
use super::patch;
use super::process::{self, UMASK};
use super::sys::{self, MMAP, call};
use super::{calls, ends, heap, presence};
use crate::rewrite::{Number, find};
use crate::table::{Reserved, Table, VARIABLE};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

const PT_LOAD: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;

/// `struct dl_phdr_info` (dl_iterate_phdr(3)).
#[repr(C)]
struct Object {
    base: u64,
    name: *const c_char,
    headers: *const ProgramHeader,
    count: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    in_file: u64,
    in_memory: u64,
    align: u64,
}

unsafe extern "C" {
    fn dl_iterate_phdr(
        callback: extern "C" fn(*const Object, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

/// How many objects were.
static REWRITTEN: AtomicU32 = AtomicU32::new(0);

/// Called by the dynamic linker before the program.
extern "C" fn begin() {
    if !environment_has(VARIABLE.as_bytes()) {
        return;
    }
    let Some(table) = map_table() else {
        give_up("there is no file table of this version");
    };
    if process::begin(table).is_err() {
        give_up("a page cannot be wiped on fork (MADV_WIPEONFORK)");
    }
    presence::resume();
    read_umask();
    calls::begin(&ACTIONS);
    for fd in 0..NUMBERED as i32 {
        // Descriptors are few and low, but may have gaps.
        if sys::fcntl(fd, sys::F_GETFD, 0).is_err() {
            if fd > Reserved::Directory.number() {
                break;
            }
            continue;
        }
        process::set_remote(fd, ends::ask_kernel(fd));
    }
    if calls::begin_directory(table).is_err() {
        give_up("the shadow does not let it begin in the directory it was started in");
    }
    // SAFETY: the callback is called with valid objects; no other thread runs yet.
    let rewritten = unsafe { dl_iterate_phdr(rewrite, core::ptr::null_mut()) };
    if rewritten != 0 || REWRITTEN.load(Ordering::Relaxed) == 0 {
        give_up("its C library cannot be rewritten");
    }
    // SAFETY: nothing that was allocated is used any more.
    unsafe { heap::release() };
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

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

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

/// The environment as the kernel has it: libc's may not be there yet.
fn environment_has(name: &[u8]) -> bool {
    let Ok(fd) = sys::open(c"/proc/self/environ", sys::O_CLOEXEC) else {
        return false;
    };
    let mut buffer = [0; 4096];
    let mut matched = Some(0);
    let mut found = false;
    while let Ok(len @ 1..) = sys::read(fd, &mut buffer) {
        for byte in &buffer[..len] {
            matched = match (*byte, matched) {
                (0, _) => Some(0),
                (b'=', Some(count)) if count == name.len() => {
                    found = true;
                    None
                }
                (byte, Some(count)) if name.get(count) == Some(&byte) => Some(count + 1),
                _ => None,
            };
        }
    }
    sys::close(fd);
    found
}

/// umask(2) can only be read by setting it.
fn read_umask() {
    // SAFETY: umask(2) takes a number; no other thread runs yet.
    let before = unsafe { call(sys::UMASK, [0o77]) }.unwrap_or(0o22);
    // SAFETY: as above.
    let _ = unsafe { call(sys::UMASK, [before]) };
    UMASK.store(before as u32, Ordering::Relaxed);
}

/// Objects that make system calls.
fn is_libc(name: &[u8]) -> bool {
    let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    [
        &b"libc.so"[..],
        b"libc-",
        b"libpthread",
        b"ld-linux",
        b"ld-2",
        b"ld-musl",
        b"libc.musl",
    ]
    .iter()
    .any(|prefix| last.starts_with(prefix))
}

extern "C" fn rewrite(object: *const Object, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker gives a valid object.
    let object = unsafe { &*object };
    if object.name.is_null() {
        return 0;
    }
    // SAFETY: the name is a string.
    if !is_libc(unsafe { CStr::from_ptr(object.name) }.to_bytes()) {
        return 0;
    }
    // SAFETY: there are so many headers.
    let headers = unsafe { core::slice::from_raw_parts(object.headers, object.count.into()) };
    let loads = || headers.iter().filter(|header| header.kind == PT_LOAD);
    let text = loads().find(|header| header.flags & PF_X != 0);
    let table = headers.iter().find(|header| header.kind == PT_GNU_EH_FRAME);
    let (Some(text), Some(table)) = (text, table) else {
        return 0;
    };
    let end = loads().map(|load| load.address + load.in_memory).max();
    let mapped = object.base as *const u8;
    // SAFETY: functions and their table lie in segments that are mapped; the gaps between are not looked at.
    let bytes = unsafe { core::slice::from_raw_parts(mapped, end.unwrap_or(0) as usize) };
    let wanted = |number| match number {
        Number::Known(number) => calls::is_wanted(number),
        Number::Computed => true,
    };
    let Ok(found) = find(bytes, table.address, wanted) else {
        return 1;
    };
    // What cannot be led here would see this machine's files.
    if !found.refused.is_empty() {
        return 1;
    }
    let text: Range<u64> = object.base + text.address..object.base + text.address + text.in_memory;
    // SAFETY: these are its sites, and no other thread runs yet.
    let applied = unsafe { patch::apply(object.base, &text, &found.sites) };
    REWRITTEN.fetch_add(1, Ordering::Relaxed);
    applied.is_err().into()
}
