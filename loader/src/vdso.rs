//! The vDSO: the machine's own, put where the job knows it, or behind the entry points the job knows.
//!
//! ```text
//! stage:  [vvar][vvar_vclock][vdso]  -> hole
//! place:  same as at the checkpoint  -> old addresses
//!         another                    -> refuge; old [vdso] becomes ordinary memory, and
//! redirect:                             each old function begins with a jump to the new one;
//!                                       who was inside goes on in a copy ([`crate::vdso_copy`])
//! ```

use crate::abi::*;
use crate::address_space::TOP;
use crate::context::Context;
use crate::interpret::fits;
use crate::report::{Outcome, failure};
use crate::sys::{self, Errno};
use crate::vdso_copy::{COPY_AT, TextCopy};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use loader::layout::PAGE;
use loader::ops::Vdso;
use loader::ops::tails::VdsoTail;

/// Most pages a piece is expected to have.
const MOST_PAGES: u64 = 24;
/// Most pieces.
const MOST_PIECES: usize = 6;

/// What `Fill` has to know and `redirect` to do.
pub enum OldVdso {
    /// There was none.
    None,
    /// The same: its range is not filled.
    Same { start: u64, end: u64 },
    /// Another: filled, then copied and redirected.
    Other { new_text: u64, copy: TextCopy },
}

impl OldVdso {
    /// Memory that is not filled.
    pub fn kept(&self) -> core::ops::Range<u64> {
        match self {
            OldVdso::Same { start, end } => *start..*end,
            _ => 0..0,
        }
    }
}

/// The machine's vDSO while it lies in the hole: pieces (address, length) from the top down, the
/// first one is the text.
struct Staged {
    pieces: [[AtomicU64; 2]; MOST_PIECES],
    count: AtomicU64,
}

static STAGED: Staged = Staged {
    pieces: [const { [const { AtomicU64::new(0) }; 2] }; MOST_PIECES],
    count: AtomicU64::new(0),
};

impl Staged {
    fn push(&self, address: u64, len: u64) {
        let count = self.count.load(Ordering::Relaxed);
        if let Some(piece) = self.pieces.get(count as usize) {
            piece[0].store(address, Ordering::Relaxed);
            piece[1].store(len, Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Relaxed);
        }
    }

    fn pieces(&self) -> impl Iterator<Item = (u64, u64)> {
        let count = self.count.load(Ordering::Relaxed) as usize;
        self.pieces[..count].iter().map(|piece| {
            (
                piece[0].load(Ordering::Relaxed),
                piece[1].load(Ordering::Relaxed),
            )
        })
    }
}

/// Moves the machine's vDSO into the hole.
///
/// Its pieces are special mappings that cannot be split: a move succeeds only if the
/// length is right, and that is how the lengths are found without /proc.
pub fn stage(context: &Context) -> Outcome<()> {
    if context.vdso == 0 {
        return Ok(());
    }
    let room = context.layout.vdso;
    let text_at = context.address(room) + room.len / 2;
    let moved = (1..=MOST_PAGES)
        .map(|pages| pages * PAGE)
        // SAFETY: nobody calls the vDSO: there is no libc here.
        .find(|len| unsafe { sys::remap(context.vdso, *len, text_at) }.is_ok());
    let Some(len) = moved else {
        return Err(failure!(
            Host,
            "the vDSO at {:#x} cannot be moved",
            context.vdso
        ));
    };
    STAGED.push(text_at, len);
    let mut below = context.vdso;
    while STAGED.count.load(Ordering::Relaxed) < MOST_PIECES as u64 {
        // Ordinary memory can be made writable (the old stack, say), the vDSO's data cannot.
        // SAFETY: what could be made writable is about to be unmapped.
        if unsafe { sys::protect(below - PAGE, PAGE, PROT_READ | PROT_WRITE) }.is_ok() {
            break;
        }
        let moved = (1..=MOST_PAGES).map(|pages| pages * PAGE).find(|len| {
            let to = text_at - (context.vdso - (below - len));
            // SAFETY: as above.
            to >= context.address(room) && unsafe { sys::remap(below - len, *len, to) }.is_ok()
        });
        let Some(len) = moved else { break };
        below -= len;
        STAGED.push(text_at - (context.vdso - below), len);
    }
    Ok(())
}

/// Moves the staged vDSO to its old place, or to the refuge.
pub fn place(op: &Vdso, tail: &'static [u8]) -> Outcome<OldVdso> {
    let tail = fits(VdsoTail::read(op, tail))?;
    let Some(Range { start, end }) = tail.text() else {
        return Ok(OldVdso::None);
    };
    let Some((text, text_len)) = STAGED.pieces().next() else {
        return Err(failure!(Host, "this machine has no vDSO, the job had one"));
    };
    let shape_is_old = STAGED.count.load(Ordering::Relaxed) == op.pieces
        && STAGED.pieces().all(|(address, len)| {
            let at = start.wrapping_sub(text.wrapping_sub(address));
            tail.pieces()
                .any(|piece| (piece.start, piece.len) == (at, len))
        });
    if shape_is_old && fingerprint(text, text_len) == op.fingerprint {
        move_to(start)?;
        return Ok(OldVdso::Same { start, end });
    }
    let lowest = STAGED
        .pieces()
        .map(|(address, _)| address)
        .min()
        .unwrap_or(text);
    let longest = COPY_AT - PAGE;
    let refuge = op.refuge.checked_next_multiple_of(PAGE);
    let refuge = refuge.filter(|refuge| *refuge < TOP - 2 * COPY_AT);
    let (Some(refuge), Some(old)) = (refuge, tail.place(longest)) else {
        return Err(failure!(
            Image,
            "section .wf.ops: the vDSO at {start:#x} cannot be put beside another"
        ));
    };
    if STAGED.pieces().any(|(at, len)| at + len - lowest > longest) {
        return Err(failure!(
            Host,
            "this machine's vDSO is larger than {longest} bytes"
        ));
    }
    let (data_len, copy) = (old.data.end - old.data.start, refuge + COPY_AT);
    reserve(copy, data_len)?;
    reserve(copy + data_len, end - start)?;
    for (address, len) in STAGED.pieces() {
        reserve(refuge + (address - lowest), len)?;
    }
    let new_text = refuge + (text - lowest);
    move_to(new_text)?;
    for piece in tail.pieces() {
        reserve(piece.start, piece.len)?;
    }
    let copy = TextCopy {
        base: copy,
        data_len,
        start,
        end,
        symbols: tail.symbols,
    };
    Ok(OldVdso::Other { new_text, copy })
}

/// Anonymous memory at a place that must be free.
fn reserve(address: u64, len: u64) -> Outcome<()> {
    if len == 0 {
        return Ok(());
    }
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing.
    let mapped = unsafe { sys::map(address, len, PROT_READ | PROT_WRITE, flags) };
    match mapped {
        Ok(at) if at == address => Ok(()),
        Ok(_) => Err(failure!(Failed, "vDSO: {address:#x} is not free")),
        Err(error) => Err(failure!(Failed, "vDSO at {address:#x}: {error}")),
    }
}

/// Moves all staged pieces, the text to `to`.
fn move_to(to: u64) -> Outcome<()> {
    let text = STAGED.pieces().next().map_or(0, |(address, _)| address);
    for (address, len) in STAGED.pieces() {
        let target = to.wrapping_sub(text - address);
        // SAFETY: nobody uses the vDSO; the target is the old vDSO's place or was reserved for it.
        unsafe { sys::remap(address, len, target) }
            .map_err(|error| failure!(Failed, "moving the vDSO to {target:#x}: {error}"))?;
    }
    Ok(())
}

fn fingerprint(text: u64, len: u64) -> u64 {
    // SAFETY: the vDSO's text is readable for its whole length.
    first_word(unsafe { core::slice::from_raw_parts(text as *const u8, len as usize) })
}

fn first_word(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    let mut word = [0; 8];
    word.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(word)
}

/// Functions a system call can stand in for: name, number.
const STAND_INS: [(&str, u32); 6] = [
    ("gettimeofday", 96),
    ("time", 201),
    ("clock_gettime", 228),
    ("clock_getres", 229),
    ("getcpu", 309),
    ("getrandom", 318),
];
const PREFIX: &str = "__vdso_";
/// A function of kernels with SGX. Only who has an enclave can call it, and so a device that is not
/// carried; it reads no data of the kernel's. Where there is no other, it stays as it was.
const ENCLAVES: &str = "sgx_enter_enclave";

/// Whether the hash is that of the function's name, with the kernel's prefix or without.
pub fn is_called(name_hash: u64, name: &str) -> bool {
    let mut long = [0u8; 24];
    long[..PREFIX.len()].copy_from_slice(PREFIX.as_bytes());
    long[PREFIX.len()..PREFIX.len() + name.len()].copy_from_slice(name.as_bytes());
    let long = &long[..PREFIX.len() + name.len()];
    name_hash == first_word(long) || name_hash == first_word(name.as_bytes())
}

/// Copies the old text, overwrites the old functions' first bytes, and makes the old text executable.
pub fn redirect(context: &Context, process: u64, old: &OldVdso) -> Outcome<()> {
    let OldVdso::Other { new_text, copy } = old else {
        return Ok(());
    };
    copy.make(context, process)?;
    let TextCopy {
        start,
        end,
        symbols,
        ..
    } = copy;
    for symbol in symbols.iter() {
        let mut code = [0x90u8; 12];
        let stand_in = STAND_INS
            .iter()
            .find(|(name, _)| is_called(symbol.name_hash, name));
        let target = find_symbol(*new_text, symbol.name_hash);
        match (target, stand_in) {
            // A state made by one kernel's getrandom means nothing to another's.
            (_, Some((_, nr @ 318))) | (None, Some((_, nr))) => {
                code[0] = 0xb8; // mov eax, nr
                code[1..5].copy_from_slice(&nr.to_le_bytes());
                code[5..8].copy_from_slice(&[0x0f, 0x05, 0xc3]); // syscall; ret
            }
            (Some(target), _) => {
                code[..2].copy_from_slice(&[0x48, 0xb8]); // movabs rax, target
                code[2..10].copy_from_slice(&target.to_le_bytes());
                code[10..].copy_from_slice(&[0xff, 0xe0]); // jmp rax
            }
            (None, None) if is_called(symbol.name_hash, ENCLAVES) => continue,
            (None, None) => {
                return Err(failure!(
                    Host,
                    "the vDSO function at {:#x} has no counterpart on this machine",
                    symbol.address
                ));
            }
        }
        let fits = symbol.address >= *start && symbol.address.saturating_add(12) <= *end;
        if !fits {
            return Err(failure!(
                Image,
                "section .wf.ops: vDSO function at {:#x}",
                symbol.address
            ));
        }
        // SAFETY: inside the old text, which is writable anonymous memory now.
        unsafe { core::ptr::copy_nonoverlapping(code.as_ptr(), symbol.address as *mut u8, 12) };
    }
    // SAFETY: written for the last time.
    unsafe { sys::protect(*start, *end - *start, PROT_READ | PROT_EXEC) }
        .map(|_| ())
        .map_err(|error: Errno| failure!(Failed, "old vDSO at {start:#x}: {error}"))
}

/// Address of a function of the vDSO at `text`, by the hash of its name.
fn find_symbol(text: u64, name_hash: u64) -> Option<u64> {
    // SAFETY: the kernel's vDSO is a sound ELF image, mapped and readable at `text`.
    let word = |at: u64| unsafe { *(at as *const u64) };
    // SAFETY: as above.
    let half = |at: u64| unsafe { *(at as *const u16) };
    let (headers, count) = (text + word(text + 32), u64::from(half(text + 56)));
    let dynamic = (0..count)
        .map(|index| headers + index * 56)
        .find(|header| word(*header) as u32 == 2)?;
    let mut at = text + word(dynamic + 16);
    let (mut strings, mut symbols) = (0, 0);
    while word(at) != 0 {
        match word(at) {
            5 => strings = text + word(at + 8),
            6 => symbols = text + word(at + 8),
            _ => {}
        }
        at += 16;
    }
    if symbols == 0 || strings <= symbols {
        return None;
    }
    (symbols..strings - 23).step_by(24).find_map(|symbol| {
        let name = strings + (word(symbol) & 0xffff_ffff);
        let defined = half(symbol + 6) != 0;
        // SAFETY: names of the vDSO end in NUL inside its mapping.
        let name = unsafe { core::ffi::CStr::from_ptr(name as *const core::ffi::c_char) };
        (defined && first_word(name.to_bytes()) == name_hash).then(|| text + word(symbol + 8))
    })
}
