//! The jumps that are written over `syscall` instructions, and what they lead to.
//!
//! ```text
//! trampoline: [instructions before]  rsp -= 128 (red zone)  [pushf]  call entry
//!             carry clear: [popf]  rsp += 128  [instructions behind]  jump back
//!             carry set:   [popf]  rsp += 128  jump to the `syscall`, or one of our own and [instructions behind]  jump back
//! ```
//! The flags are kept where somebody asks for them behind: the instruction leaves them as they are, and Rust's compilers know it.

use super::entry::wf_entry;
use super::sys::{MMAP, MPROTECT, SysResult, call};
use crate::rewrite::Site;
use core::ops::Range;

/// Bytes for each trampoline.
const ROOM: u64 = 128;
const PAGE: u64 = 4096;
/// How far a `jmp` reaches, and some.
const REACH: u64 = 0x7ff0_0000;

/// PROT_READ, PROT_WRITE, PROT_EXEC.
const RX: u64 = 5;
const RWX: u64 = 7;
const RW: u64 = 3;

/// Leads sites of the object at `base` (whose mapped text is `text`, with that protection) to the entry.
///
/// # Errors
/// What mmap(2) and mprotect(2) say.
///
/// # Safety
/// The sites are those of this object, and no other thread executes there.
pub(super) unsafe fn apply(
    base: u64,
    text: &Range<u64>,
    protection: u64,
    sites: impl Iterator<Item = Site> + Clone,
) -> SysResult<()> {
    let count = sites.clone().count() as u64;
    if count == 0 {
        return Ok(());
    }
    let len = (PAGE + ROOM * count).next_multiple_of(PAGE);
    let room = map_near(text, len)?;
    // The entry's address, in reach of every trampoline.
    // SAFETY: the page is ours and writable.
    unsafe { (room as *mut u64).write(wf_entry as *const () as u64) };
    let start = text.start & !(PAGE - 1);
    let text_len = (text.end - start).next_multiple_of(PAGE);
    protect(start, text_len, RWX)?;
    for (index, site) in sites.enumerate() {
        let at = room + PAGE + ROOM * index as u64;
        // SAFETY: each trampoline has its own room; the window is mapped and writable now.
        unsafe { write_trampoline(at, room, base, &site) };
        let mut jump = Code::at(base + site.window.start);
        jump.byte(0xe9);
        jump.near(at);
        // The rest is never executed.
        while jump.at < base + site.window.end {
            jump.byte(0xcc);
        }
    }
    protect(start, text_len, protection)?;
    protect(room, len, RX)
}

/// Instructions that are written one after another.
struct Code {
    at: u64,
}

impl Code {
    fn at(at: u64) -> Self {
        Code { at }
    }

    fn byte(&mut self, byte: u8) {
        // SAFETY: `apply` and `write_trampoline` write only where they may.
        unsafe { (self.at as *mut u8).write_volatile(byte) };
        self.at += 1;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte(*byte);
        }
    }

    /// The distance to `target` from behind it.
    fn near(&mut self, target: u64) {
        let distance = target.wrapping_sub(self.at + 4) as u32;
        self.bytes(&distance.to_le_bytes());
    }
}

/// # Safety
/// `at` has room for a trampoline; the object is mapped.
unsafe fn write_trampoline(at: u64, entry: u64, base: u64, site: &Site) {
    let copy = |range: Range<u64>| {
        // SAFETY: the window lies in the object's text, which nobody has changed yet.
        unsafe {
            core::slice::from_raw_parts(
                (base + range.start) as *const u8,
                (range.end - range.start) as usize,
            )
        }
    };
    let mut code = Code::at(at);
    code.bytes(copy(site.before()));
    code.bytes(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]
    if site.needs_flags {
        code.byte(0x9c); // pushf
    }
    code.bytes(&[0xff, 0x15]); // call [rip + entry]
    code.near(entry);
    let behind = site.window.end.max(site.syscall + 2);
    let after = copy(site.after());
    // popf; lea rsp, [rsp + 128]
    let restored = [0x9d, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];
    let restored = &restored[usize::from(!site.needs_flags)..];
    // jc over the restoring, the instructions behind and a jump
    code.bytes(&[0x72, (restored.len() + after.len()) as u8 + 5]);
    code.bytes(restored);
    code.bytes(after);
    code.byte(0xe9);
    code.near(base + behind);
    code.bytes(restored);
    if site.keeps_syscall() {
        code.byte(0xe9);
        code.near(base + site.syscall);
    } else {
        code.bytes(&[0x0f, 0x05]);
        code.bytes(after);
        code.byte(0xe9);
        code.near(base + behind);
    }
}

fn protect(at: u64, len: u64, protection: u64) -> SysResult<()> {
    // SAFETY: code stays executable; only who may write it changes.
    unsafe { call(MPROTECT, [at, len, protection]) }.map(|_| ())
}

/// Maps memory in reach of jumps from all of `text`.
fn map_near(text: &Range<u64>, len: u64) -> SysResult<u64> {
    // MAP_PRIVATE|ANONYMOUS|FIXED_NOREPLACE
    const FLAGS: u64 = 0x10_0022;
    let mut at = text.start & !(PAGE - 1);
    let lowest = text.end.saturating_sub(REACH).max(PAGE << 4);
    let mut step = len.next_multiple_of(64 << 10);
    let mut last = Err(super::sys::Errno(12));
    while at > lowest + step {
        at -= step;
        // SAFETY: with MAP_FIXED_NOREPLACE nothing that is there is touched.
        last = unsafe { call(MMAP, [at, len, RW, FLAGS, u64::MAX, 0]) };
        match last {
            Ok(mapped) if mapped == at => return Ok(at),
            // Before Linux 4.17 it is a hint only.
            Ok(elsewhere) => {
                // SAFETY: it was mapped just now.
                let _ = unsafe { call(super::sys::MUNMAP, [elsewhere, len]) };
                return Err(super::sys::Errno(12));
            }
            Err(_) => step = (step * 2).min(64 << 20),
        }
    }
    last
}
