//! CPU clocks are asked for in the vDSO, whose `syscall` instruction is not ours to lead elsewhere: a program is shown a copy of the
//! vDSO's tables in which `clock_gettime` is ours and everything else is where it was.
//!
//! ```text
//! program -> clock_gettime of the copy -> a CPU clock? --yes--> as any call that is led to us
//!                                                      `-no---> the vDSO's own
//! ```
//! Only what the program looks for by its auxiliary vector is a copy; the vDSO stays as it is, for checkpoints too.

use crate::program::entry::wf_entry;
use crate::program::sys::{self, call};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

/// Where the vDSO's own function is.
static OWN: AtomicU64 = AtomicU64::new(0);

core::arch::global_asm!(
    ".text",
    ".globl wf_clock_gettime",
    ".hidden wf_clock_gettime",
    ".type wf_clock_gettime, @function",
    "wf_clock_gettime:",
    // CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, and those that are made of an id.
    "lea eax, [rdi - 2]",
    "cmp eax, 1",
    "jbe 2f",
    "test edi, edi",
    "js 2f",
    "jmp qword ptr [rip + {own}]",
    "2:",
    "mov eax, {number}",
    "call {entry}",
    "jnc 3f",
    "syscall",
    "3:",
    "ret",
    ".size wf_clock_gettime, . - wf_clock_gettime",
    own = sym OWN,
    number = const sys::CLOCK_GETTIME,
    entry = sym wf_entry,
);

unsafe extern "C" {
    fn wf_clock_gettime();
}

/// `Elf64_Ehdr`, `Elf64_Phdr`, `Elf64_Dyn`, `Elf64_Sym` (elf(5)).
mod elf {
    pub(super) const HEADERS: usize = 0x20;
    pub(super) const HEADER_COUNT: usize = 0x38;
    pub(super) const HEADER_LEN: usize = 56;
    pub(super) const LOAD: u32 = 1;
    pub(super) const DYNAMIC: u32 = 2;
    pub(super) const HASH: u64 = 4;
    pub(super) const STRINGS: u64 = 5;
    pub(super) const SYMBOLS: u64 = 6;
    pub(super) const SYMBOL_LEN: usize = 24;
    /// Symbols in sections from here on are no addresses (SHN_LORESERVE).
    pub(super) const RESERVED: u16 = 0xff00;
}

/// Longer than any vDSO, which are two pages.
const MOST: usize = 1 << 20;

/// Its bytes, or a copy's.
struct View<'a>(&'a [u8]);

impl View<'_> {
    fn number<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn word(&self, at: usize) -> Option<u64> {
        self.number(at).map(u64::from_le_bytes)
    }

    fn half(&self, at: usize) -> Option<u32> {
        self.number(at).map(u32::from_le_bytes)
    }

    fn quarter(&self, at: usize) -> Option<u16> {
        self.number(at).map(u16::from_le_bytes)
    }

    /// Type, address and length of each part.
    fn parts(&self) -> Option<impl Iterator<Item = (u32, u64, u64)>> {
        let first = self.word(elf::HEADERS)? as usize;
        let count = usize::from(self.quarter(elf::HEADER_COUNT)?);
        Some((0..count).map_while(move |index| {
            let at = first + index * elf::HEADER_LEN;
            Some((self.half(at)?, self.word(at + 16)?, self.word(at + 40)?))
        }))
    }

    fn tagged(&self, dynamic: usize, wanted: u64) -> Option<usize> {
        let entries = (dynamic..).step_by(16);
        let mut entries = entries.map_while(|at| Some((self.word(at)?, self.word(at + 8)?)));
        let found = entries.find(|(tag, _)| *tag == wanted || *tag == 0)?;
        (found.0 == wanted).then_some(found.1 as usize)
    }
}

/// A copy of the tables of the vDSO at this address, for the program to look at; none if there is nothing that it could be used for.
pub(super) fn offer(vdso: u64) -> Option<u64> {
    // SAFETY: the kernel has put one there, which begins with its headers in a page.
    let head = View(unsafe { core::slice::from_raw_parts(vdso as *const u8, 4096) });
    let (_, start, len) = head.parts()?.find(|(kind, ..)| *kind == elf::LOAD)?;
    let (_, dynamic, _) = head.parts()?.find(|(kind, ..)| *kind == elf::DYNAMIC)?;
    let len = (len as usize).next_multiple_of(4096);
    if start != 0 || len > MOST {
        return None;
    }
    // SAFETY: so much of it is mapped.
    let own = unsafe { core::slice::from_raw_parts(vdso as *const u8, len) };
    // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS
    let place = sys::map(len as u64, 3, 0x22, -1).ok()?;
    // SAFETY: it was mapped just now, so long, and nobody else knows it.
    let copy = unsafe { core::slice::from_raw_parts_mut(place, len) };
    copy.copy_from_slice(own);
    if lead(&View(own), copy, (vdso, place as u64), dynamic as usize).is_none() {
        // SAFETY: nobody knows it.
        let _ = unsafe { call(sys::MUNMAP, [place as u64, len as u64]) };
        return None;
    }
    // PROT_READ
    // SAFETY: the same.
    let _ = unsafe { call(sys::MPROTECT, [place as u64, len as u64, 1]) };
    Some(place as u64)
}

/// Symbols of the copy lead to the vDSO, but for the one that is ours. None if that is not there.
fn lead(own: &View<'_>, copy: &mut [u8], (vdso, at): (u64, u64), dynamic: usize) -> Option<()> {
    let [symbols, strings] = [elf::SYMBOLS, elf::STRINGS].map(|tag| own.tagged(dynamic, tag));
    let (symbols, strings) = (symbols?, strings?);
    let count = match own.tagged(dynamic, elf::HASH) {
        // Its chains are as many.
        Some(hash) => own.half(hash + 4)? as usize,
        // Names follow symbols.
        None => strings.checked_sub(symbols)? / elf::SYMBOL_LEN,
    };
    let mut is_led = false;
    for symbol in (symbols..).step_by(elf::SYMBOL_LEN).take(count) {
        let (section, value) = (own.quarter(symbol + 6)?, own.word(symbol + 8)?);
        if section == 0 || section >= elf::RESERVED {
            continue;
        }
        let name = own.0.get(strings + own.half(symbol)? as usize..)?;
        let name = CStr::from_bytes_until_nul(name).ok()?;
        let leads = if name == c"clock_gettime" || name == c"__vdso_clock_gettime" {
            is_led = true;
            OWN.store(vdso + value, Ordering::Relaxed);
            wf_clock_gettime as *const () as u64
        } else {
            vdso + value
        };
        let value = leads.wrapping_sub(at).to_le_bytes();
        copy.get_mut(symbol + 8..symbol + 16)?
            .copy_from_slice(&value);
    }
    is_led.then_some(())
}
