//! execve: the remote program is opened here, where its errors belong, and the shim is executed, which puts it into the
//! new process (`launch/`).
//!
//! ```text
//! descriptor Start: [4 bytes: the program's descriptor] [1: whether this is the job's first process] [8, 8: limits] name 0 [argument 0]...
//! ```
//! The arguments stand in the first one's place, the last one first: for a script its name, what its first line gives to the
//! interpreter, the interpreter, and again if that is a script.

use super::opening::open_first;
use super::places::{self, AT_EMPTY_PATH, text};
use super::{File, Served, limits, processes};
use crate::elf::is_program;
use crate::program::foreseen;
use crate::program::offered;
use crate::program::process;
use crate::program::sys::{self, Errno, SysResult, call};
use crate::table::Reserved;
use core::ffi::CStr;
use wire::{Open, Place};

/// Bytes that the kernel looks at (`BINPRM_BUF_SIZE`).
const HEAD_LEN: usize = 256;
/// Where it says who the process is.
const FIRST_AT: u64 = 4;
/// Where its limits on the length of files are.
const LIMITS_AT: u64 = 5;
const NUMBERS_LEN: usize = 21;
/// Interpreters that are scripts (`exec_binprm`).
const MOST_INTERPRETERS: usize = 5;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [first, second, third, fourth, fifth, _] = *args;
    let (place, shown, arguments, variables) = match number {
        sys::EXECVE => {
            let here = sys::AT_FDCWD as u64;
            (places::place(here, first, 0)?, text(first)?, second, third)
        }
        sys::EXECVEAT => {
            let place = places::place(first, second, fifth)?;
            if fifth & AT_SYMLINK_NOFOLLOW != 0 {
                return Some(Err(Errno(sys::EINVAL)));
            }
            (place, text(second)?, third, fourth)
        }
        _ => return None,
    };
    // Below a descriptor it is called by that, as by the kernel.
    let mut below = [0; 4200];
    let by_descriptor = number == sys::EXECVEAT && first as i32 != sys::AT_FDCWD;
    let shown = if by_descriptor && shown.first() != Some(&b'/') {
        let folder = sys::DescriptorName::of(first as i32);
        let slash: &[u8] = if shown.is_empty() { b"" } else { b"/" };
        let mut len = 0;
        for part in [b"/dev/fd/", folder.digits(), slash, shown] {
            let Some(place) = below.get_mut(len..len + part.len()) else {
                return Some(Err(Errno(sys::ENAMETOOLONG)));
            };
            place.copy_from_slice(part);
            len += part.len();
        }
        &below[..len]
    } else {
        shown
    };
    Some(resolve(place, shown).and_then(|resolved| resolved.execute(arguments, variables)))
}

/// A program that was found: its descriptor, and what the new process is told.
pub(in crate::program) struct Resolved {
    program: Option<Opened>,
    start: i32,
}

/// What is read of [`Resolved`] in the new process.
pub(in crate::program) struct Start {
    /// The program's descriptor.
    pub(in crate::program) program: i32,
    /// The process is the one that the job began with.
    pub(in crate::program) is_first: bool,
    /// Soft and hard limit on the length of files.
    pub(in crate::program) limits: [u64; 2],
    /// What it was called.
    pub(in crate::program) name: &'static CStr,
    words: &'static [u8],
}

impl Start {
    /// What stands in the first argument's place, the last one first.
    pub(in crate::program) fn words(&self) -> impl Iterator<Item = &'static CStr> + Clone + use<> {
        let words = self.words.split_inclusive(|byte| *byte == 0);
        words.filter_map(|word| CStr::from_bytes_with_nul(word).ok())
    }
}

/// A descriptor that is closed again.
struct Opened(i32);

impl Drop for Opened {
    fn drop(&mut self) {
        process::set_remote(self.0, None);
        sys::close(self.0);
    }
}

impl Drop for Resolved {
    fn drop(&mut self) {
        sys::close(self.start);
    }
}

impl Resolved {
    /// What execve has left in this new process.
    pub(in crate::program) fn inherited() -> Option<Self> {
        let start = Reserved::Start.number();
        sys::fcntl(start, sys::F_GETFD, 0).ok()?;
        let program = None;
        Some(Resolved { program, start })
    }

    fn begin() -> SysResult<Self> {
        let start = sys::memfd(c"wf-start", 1)?;
        let program = None;
        let resolved = Resolved { program, start };
        resolved.add(&[0; NUMBERS_LEN])?;
        Ok(resolved)
    }

    fn add(&self, bytes: &[u8]) -> SysResult<()> {
        match sys::write(self.start, bytes) {
            Ok(len) if len == bytes.len() => Ok(()),
            Ok(_) => Err(Errno(sys::EIO)),
            Err(error) => Err(error),
        }
    }

    fn word(&self, word: &[u8]) -> SysResult<()> {
        self.add(word)?;
        self.add(&[0])
    }

    /// The program; its descriptor is the caller's to close.
    pub(in crate::program) fn take(mut self) -> Option<Start> {
        let len = sys::length(self.start).ok()?;
        // PROT_READ|WRITE, MAP_PRIVATE: it stays as long as the process, whose arguments these are, to be written to.
        let mapped = sys::map(len, 3, 2, self.start).ok()?;
        // SAFETY: the mapping is so long and stays.
        let bytes = unsafe { core::slice::from_raw_parts(mapped, len as usize) };
        let (number, rest) = bytes.split_first_chunk::<4>()?;
        let (first, rest) = rest.split_first()?;
        let (soft, rest) = rest.split_first_chunk::<8>()?;
        let (hard, rest) = rest.split_first_chunk::<8>()?;
        let name = CStr::from_bytes_until_nul(rest).ok()?;
        core::mem::forget(self.program.take());
        Some(Start {
            program: i32::from_le_bytes(*number),
            is_first: *first != 0,
            limits: [soft, hard].map(|limit| u64::from_le_bytes(*limit)),
            name,
            words: &rest[name.count_bytes() + 1..],
        })
    }

    fn found(mut self, program: Opened) -> SysResult<Self> {
        sys::pwrite(self.start, &program.0.to_le_bytes(), 0)?;
        self.program = Some(program);
        Ok(self)
    }

    /// Replaces this process.
    fn execute(self, arguments: u64, variables: u64) -> Result<u64, Errno> {
        let start = Reserved::Start.number();
        sys::pwrite(self.start, &[process::is_first().into()], FIRST_AT)?;
        let [soft, hard] = limits::own().map(u64::to_le_bytes);
        sys::pwrite(self.start, &soft, LIMITS_AT)?;
        sys::pwrite(self.start, &hard, LIMITS_AT + 8)?;
        sys::dup3(self.start, start, 0)?;
        offered::end();
        foreseen::end();
        let shim = Reserved::Shim.number() as u64;
        let nothing = c"".as_ptr() as u64;
        let args = [shim, nothing, arguments, variables, AT_EMPTY_PATH];
        let failed = processes::with_locks(|| {
            // SAFETY: the kernel reads what the program has given it.
            unsafe { call(sys::EXECVEAT, args) }
        });
        occupy_start();
        failed
    }
}

/// Between two programs the descriptor that tells the next one is something that does not outlive exec, so that it is nobody else's.
pub(in crate::program) fn occupy_start() {
    let table = Reserved::Table.number();
    let _ = sys::dup3(table, Reserved::Start.number(), sys::O_CLOEXEC);
}

/// Finds out what is executed for a name.
pub(in crate::program) fn resolve_name(name: &[u8]) -> Result<Resolved, Errno> {
    resolve(place_of(name)?, name)
}

/// As execvp(3) does with what the kernel calls no program: it is the shell's.
pub(in crate::program) fn resolve_by_shell(name: &[u8]) -> Result<Resolved, Errno> {
    const SHELL: &[u8] = b"/bin/sh";
    let resolved = Resolved::begin()?;
    for word in [name, name, SHELL] {
        resolved.word(word)?;
    }
    let mut head = [0; HEAD_LEN];
    let program = open(place_of(SHELL)?, &mut head)?;
    if is_program(&head) {
        resolved.found(program)
    } else {
        Err(Errno(sys::ENOEXEC))
    }
}

fn place_of(name: &[u8]) -> Result<Place<'_>, Errno> {
    places::place_of(name).ok_or(Errno(sys::ENOENT))
}

fn resolve(place: Place<'_>, shown: &[u8]) -> Result<Resolved, Errno> {
    let resolved = Resolved::begin()?;
    resolved.word(shown)?;
    let mut head = [0; HEAD_LEN];
    let mut program = open(place, &mut head)?;
    if is_program(&head) {
        return resolved.found(program);
    }
    resolved.word(shown)?;
    for _ in 0..MOST_INTERPRETERS {
        let line = head;
        let (interpreter, argument) = script(&line).ok_or(Errno(sys::ENOEXEC))?;
        if !argument.is_empty() {
            resolved.word(argument)?;
        }
        resolved.word(interpreter)?;
        program = open(place_of(interpreter)?, &mut head)?;
        if is_program(&head) {
            return resolved.found(program);
        }
    }
    drop(program);
    Err(Errno(sys::ELOOP))
}

/// The interpreter and what it is given, of a script that begins so.
fn script(head: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| matches!(byte, b'\n' | 0)).next()?;
    let line = trimmed(line);
    let blank = line.iter().position(|byte| is_blank(*byte));
    let (interpreter, argument) = line.split_at(blank.unwrap_or(line.len()));
    (!interpreter.is_empty()).then_some((interpreter, trimmed(argument)))
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trimmed(line: &[u8]) -> &[u8] {
    let first = line.iter().position(|byte| !is_blank(*byte));
    let last = line.iter().rposition(|byte| !is_blank(*byte));
    match (first, last) {
        (Some(first), Some(last)) => &line[first..=last],
        _ => &[],
    }
}

/// Opens what may be executed, and reads its first bytes.
fn open(place: Place<'_>, head: &mut [u8; HEAD_LEN]) -> Result<Opened, Errno> {
    const FILE: u32 = 0o100_000;
    head.fill(0);
    let program = Opened(open_first(place, Open::EXECUTE, 0, head)?);
    let file = File::of(program.0 as u64).ok_or(Errno(sys::EIO))?;
    if file.kind() != FILE {
        return Err(Errno(sys::EACCES));
    }
    Ok(program)
}

/// The program that this process executes, if a name means that.
pub(super) fn own(name: &[u8]) -> Option<File> {
    let names: [&[u8]; 2] = [b"/proc/self/exe", b"/proc/thread-self/exe"];
    let itself = || {
        let number = name.strip_prefix(b"/proc/")?.strip_suffix(b"/exe")?;
        let digits = core::str::from_utf8(number).ok()?;
        (digits.parse() == Ok(sys::pid())).then_some(())
    };
    if !names.contains(&name) {
        itself()?;
    }
    File::of(Reserved::Program.number() as u64)
}
