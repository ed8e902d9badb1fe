//! A remote program is put into this process: it, its dynamic linker, their rewriting, and the stack it begins with.
//!
//! ```text
//! execve (calls/programs.rs) --descriptors Program, Start--> the shim is executed instead
//!   -> start.rs -> begin: program and interpreter mapped, rewritten, stack and auxv set -> jump
//! ```
//! The first program of a job has nobody who looked for it: then its name is that of the first argument.
//!
//! # What callers may rely on
//! The program finds the stack, the auxiliary vector and the registers as after execve(2).

mod clocks;
mod object;
mod vector;

pub(super) use object::{Copy, forget, mapped};

use super::calls::{self, Resolved};
use super::fault;
use super::foreseen;
use super::process;
use super::sys::{self, Errno, SysResult, call};
use crate::elf::Elf;
use crate::table::Reserved;
use core::ffi::CStr;
use object::{Kind, View};
use vector::{Vector, aux};

/// Bytes below the initial stack pointer that must be free.
pub(super) const STACK_ROOM: usize = Vector::ROOM.next_multiple_of(4096);
/// Where execvp(3) looks when PATH is not set.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
/// Statuses of env(1): found but not executed, not found.
const NOT_EXECUTABLE: u64 = 126;
const NOT_FOUND: u64 = 127;

/// Where to go on.
#[repr(C)]
pub(super) struct Jump {
    stack: u64,
    entry: u64,
}

/// Says why a program cannot go on.
pub(super) fn complain(name: &[u8], why: &str) {
    let parts = [&b"wayfarer: "[..], name, b": ", why.as_bytes(), b"\n"];
    for part in parts {
        let _ = sys::write(2, part);
    }
}

fn end(status: u64) -> ! {
    loop {
        // SAFETY: it ends the process.
        let _ = unsafe { call(sys::EXIT_GROUP, [status]) };
    }
}

fn give_up(name: &[u8], why: &str) -> ! {
    complain(name, why);
    end(NOT_EXECUTABLE)
}

/// Puts the program into memory.
///
/// # Safety
/// `stack` is where the kernel has put the arguments, with [`STACK_ROOM`] below it.
pub(super) unsafe fn begin(stack: *mut u64) -> Jump {
    // SAFETY: the caller's promise.
    let mut vector = unsafe { Vector::new(stack) };
    fault::begin(vector.variable(b"WAYFARER_FAULT"));
    let inherited = Resolved::inherited();
    let is_begin = inherited.is_none();
    let resolved = inherited.unwrap_or_else(|| find_first(&vector));
    let Some(start) = resolved.take() else {
        give_up(b"a program", "it was not said which is to be started");
    };
    if !is_begin {
        calls::inherit_limits(start.limits);
    }
    if is_begin || start.is_first {
        process::begins_the_job();
    }
    let name = start.name;
    let number = Reserved::Program.number();
    let description = process::remote(start.program);
    if description.is_none() || sys::dup3(start.program, number, 0).is_err() {
        give_up(name.to_bytes(), "it was closed before it was started");
    }
    process::set_remote(number, description);
    if start.program != number {
        process::set_remote(start.program, None);
        sys::close(start.program);
    }
    if !vector.replace_first(start.words()) {
        give_up(name.to_bytes(), "its interpreters have too many arguments");
    }
    foreseen::begin();
    let loaded = load(number, name.to_bytes(), vector.start());
    vector.set_auxiliary(&[
        (aux::PHDR, loaded.headers),
        (aux::PHNUM, loaded.count),
        (aux::BASE, loaded.linker.map_or(0, |(base, _)| base)),
        (aux::ENTRY, loaded.entry),
        (aux::EXECFN, name.as_ptr() as u64),
    ]);
    if let Some(offered) = vector
        .auxiliary_value(aux::SYSINFO_EHDR)
        .and_then(clocks::offer)
    {
        vector.set_auxiliary(&[(aux::SYSINFO_EHDR, offered)]);
    }
    set_comm(name.to_bytes());
    calls::occupy_start();
    Jump {
        stack: vector.start(),
        entry: loaded.linker.map_or(loaded.entry, |(_, entry)| entry),
    }
}

/// The kernel's name of the process: the last part of the program's.
fn set_comm(name: &[u8]) {
    const PR_SET_NAME: u64 = 15;
    let mut short = [0; 16];
    let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let len = last.len().min(15);
    short[..len].copy_from_slice(&last[..len]);
    // SAFETY: prctl(2) reads 16 bytes.
    let _ = unsafe { call(sys::PRCTL, [PR_SET_NAME, short.as_ptr() as u64]) };
}

/// A program that is mapped.
struct Loaded {
    headers: u64,
    count: u64,
    entry: u64,
    /// Base and entry of its dynamic linker.
    linker: Option<(u64, u64)>,
}

fn load(fd: i32, name: &[u8], stack: u64) -> Loaded {
    let copy = contents(fd, name);
    let view = view(&copy, name);
    let Some(elf) = view.elf() else {
        give_up(name, "it is damaged");
    };
    let base = map(&copy, &elf, name);
    if elf.executes_stack() && make_executable(stack).is_err() {
        give_up(name, "its stack cannot be made executable");
    }
    if elf.is_go() {
        // It makes calls itself, from stacks that have no room for others.
        dispatch(name, "it is made by Go", true);
    }
    let linker = elf.interpreter();
    // A static program has its C library in it.
    let kind = linker.map_or(Kind::Libc, |_| Kind::Other);
    lead(&copy, &elf, base, name, kind);
    let linker = linker.map(load_linker);
    Loaded {
        headers: elf.headers_address().map_or(0, |at| base + at),
        count: elf.count.into(),
        entry: base + elf.entry,
        linker,
    }
}

/// Leads the calls of an object to us: those of its instructions, or, where these cannot be told, all of the process.
fn lead(copy: &Copy, elf: &Elf<'_>, base: u64, name: &[u8], kind: Kind) {
    if super::dispatch::is_on() {
        return;
    }
    match object::rewrite(copy, elf, base, kind, |_| true) {
        Ok(()) => {}
        Err(why) if kind == Kind::Libc => dispatch(name, why, false),
        // What it does by its C library is served in any case.
        Err(_) => drop(super::dispatch::begin(false)),
    }
}

fn dispatch(name: &[u8], why: &str, small_stacks: bool) {
    if super::dispatch::begin(small_stacks).is_err() {
        complain(name, why);
        give_up(
            name,
            "the kernel does not dispatch its system calls, either (Linux 5.11)",
        );
    }
}

/// Makes the stack what the kernel would have made it for this program, from its beginning downwards.
fn make_executable(stack: u64) -> SysResult<()> {
    const PROT_ALL_GROWSDOWN: u64 = 7 | 0x0100_0000;
    let page = stack & !4095;
    // SAFETY: the stack stays what it is, and may be executed, too.
    unsafe { call(sys::MPROTECT, [page, 4096, PROT_ALL_GROWSDOWN]) }.map(|_| ())
}

fn load_linker(name: &[u8]) -> (u64, u64) {
    let fd = match calls::open_named(name, sys::O_CLOEXEC, 0) {
        Ok(fd) => fd,
        Err(_) => give_up(name, "the program's dynamic linker cannot be opened"),
    };
    let copy = contents(fd, name);
    process::set_remote(fd, None);
    sys::close(fd);
    let view = view(&copy, name);
    let Some(elf) = view.elf() else {
        give_up(name, "it is damaged");
    };
    let base = map(&copy, &elf, name);
    lead(&copy, &elf, base, name, Kind::Libc);
    (base, base + elf.entry)
}

fn contents(fd: i32, name: &[u8]) -> Copy {
    match calls::contents_of(fd) {
        Ok(copy) => copy,
        Err(_) => give_up(name, "it cannot be read"),
    }
}

fn view(copy: &Copy, name: &[u8]) -> View {
    match copy.view() {
        Ok(view) => view,
        Err(_) => give_up(name, "there is no memory for looking at it"),
    }
}

fn map(copy: &Copy, elf: &Elf<'_>, name: &[u8]) -> u64 {
    match object::map(copy, elf) {
        Ok(base) => base,
        Err(Errno(sys::EEXIST)) => give_up(name, "its place in memory is taken"),
        Err(_) => give_up(name, "there is no memory for it"),
    }
}

/// Looks for the program that the first argument names, as execvp(3) does.
fn find_first(vector: &Vector) -> Resolved {
    let name = vector.first().map_or(&b""[..], CStr::to_bytes);
    let mut worst = Errno(sys::ENOENT);
    let mut path = [0; 4096];
    let path_variable = vector.variable(b"PATH").unwrap_or(DEFAULT_PATH);
    let folders = if name.contains(&b'/') {
        b""
    } else {
        path_variable
    };
    for folder in folders.split(|byte| *byte == b':') {
        let parts = [folder, if folder.is_empty() { b"" } else { b"/" }, name];
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len >= path.len() || name.is_empty() {
            continue;
        }
        let mut at = 0;
        for part in parts {
            path[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        match calls::resolve_name(&path[..len]) {
            Ok(resolved) => return resolved,
            Err(Errno(sys::ENOEXEC)) => match calls::resolve_by_shell(&path[..len]) {
                Ok(resolved) => return resolved,
                Err(error) => worst = error,
            },
            Err(Errno(sys::ENOENT | sys::ENOTDIR)) => {}
            Err(error) => worst = error,
        }
    }
    match worst {
        Errno(sys::ENOENT) => {
            complain(name, "no such program at the shadow");
            end(NOT_FOUND)
        }
        Errno(sys::ENOEXEC) => give_up(name, "it is no program for this machine"),
        Errno(sys::EACCES) => give_up(name, "it may not be executed"),
        _ => give_up(name, "it cannot be opened at the shadow"),
    }
}
