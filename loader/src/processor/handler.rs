//! The two pages that answer CPUID in a job's process, and what is in them.
//!
//! ```text
//! CPUID --#GP--> SIGSEGV --> handler: 0f a2 at rip? --yes--> table --> four registers, rip += 2
//!                                                  `--no---> default action: as if there were no handler
//! ```
//! # What callers may rely on
//! The code is position independent, touches no vector register and nothing that belongs to the
//! program, and makes no call unless the signal is not for it.
//!
//! # What it does not do
//! It does not forward to a handler of the program's: where there is one, faulting is off (`enforce` in the
//! program half).
#![allow(unsafe_code)]

use super::answers::{ANY, Answer, MOST, answers, lessened};
use super::features::Level;

/// Where the pages are in every process: below what the kernel gives out by itself, above what programs are
/// linked for, and where the shadows of sanitizers are not.
pub const HANDLER_AT: u64 = 0x7e90_0000_0000;
/// Bytes of both pages.
pub const HANDLER_LEN: usize = 8192;

/// What the pages begin with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WFCPUID1");
/// Offset of a word that is not zero once faulting is off: the program has taken SIGSEGV for itself.
pub const FALLEN_AT: usize = 8;
const LEVEL_AT: usize = 12;
/// Offset of the two bytes of the instruction that is answered.
pub const INSTRUCTION_AT: usize = 16;
const COUNT_AT: usize = 20;
/// Offset of a `struct sigaction` (the kernel's, 32 bytes) of zeros: the default action.
pub const DEFAULT_AT: usize = 24;
/// Offset of the `struct sigaction` that leads here.
pub const ACTION_AT: usize = 56;
/// Offset of a `syscall` instruction.
pub const CALL_AT: usize = 96;
const RESTORER_AT: usize = 112;
const CODE_AT: usize = 128;
const TABLE_AT: usize = 1024;
const ANSWER_LEN: usize = 24;
const _: () = assert!(TABLE_AT + MOST * ANSWER_LEN <= HANDLER_LEN);

const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;

core::arch::global_asm!(
    ".section .text.wayfarer_cpuid,\"ax\",@progbits",
    ".balign 16",
    ".globl wayfarer_cpuid_begin",
    "wayfarer_cpuid_begin:",
    ".ascii \"WFCPUID1\"",
    ".long 0, 0",     // fallen, level
    "20: .word 0xa20f, 0", // the instruction that stands for CPUID: itself
    "21: .long 0",    // number of answers
    "22: .skip 64",   // default action, own action
    ".skip {call} - (. - wayfarer_cpuid_begin), 0xcc",
    "syscall",
    "int3",
    ".skip {restorer} - (. - wayfarer_cpuid_begin), 0xcc",
    "mov eax, 15",
    "syscall",
    ".skip {code} - (. - wayfarer_cpuid_begin), 0xcc",
    // handler(signal, info, context)
    "endbr64",
    "cmp dword ptr [rsi + 8], 0x80", // si_code: SI_KERNEL, as after #GP
    "jne 8f",
    "mov r8, [rdx + 168]", // rip
    "mov ax, [r8]",
    "cmp ax, word ptr [rip + 20b]",
    "jne 8f",
    "mov ecx, [rdx + 144]", // rax: leaf
    "mov r9d, [rdx + 152]", // rcx: subleaf
    "lea r10, [rip + wayfarer_cpuid_begin + {table}]",
    "mov r11d, dword ptr [rip + 21b]",
    "2: test r11d, r11d",
    "jz 4f",
    "cmp [r10], ecx",
    "jne 3f",
    "cmp dword ptr [r10 + 4], -1",
    "je 5f",
    "cmp [r10 + 4], r9d",
    "je 5f",
    "3: add r10, 24",
    "dec r11d",
    "jmp 2b",
    // Not there: zero.
    "4: lea r10, [rip + 22b]",
    "5: mov eax, [r10 + 8]",
    "mov [rdx + 144], rax",
    "mov eax, [r10 + 12]",
    "mov [rdx + 128], rax", // rbx
    "mov eax, [r10 + 16]",
    "mov [rdx + 152], rax",
    "mov eax, [r10 + 20]",
    "mov [rdx + 136], rax", // rdx
    "add qword ptr [rdx + 168], 2",
    "ret",
    // The default action; a fault comes again by itself, what was sent is sent again.
    "8: mov r12, rsi",
    "mov eax, 13",
    "mov edi, 11",
    "lea rsi, [rip + 22b]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "cmp dword ptr [r12 + 8], 0",
    "jg 9f",
    "mov eax, 39", // getpid
    "syscall",
    "mov r13d, eax",
    "mov eax, 186", // gettid
    "syscall",
    "mov edi, r13d",
    "mov esi, eax",
    "mov edx, 11",
    "mov r10, r12",
    "mov eax, 297", // rt_tgsigqueueinfo
    "syscall",
    "9: ret",
    ".skip {table} - (. - wayfarer_cpuid_begin), 0xcc",
    ".text",
    call = const CALL_AT,
    restorer = const RESTORER_AT,
    code = const CODE_AT,
    table = const TABLE_AT,
);

unsafe extern "C" {
    #[link_name = "wayfarer_cpuid_begin"]
    static BEGIN: [u8; TABLE_AT];
}

fn put(pages: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = pages.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn word(pages: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    if let Some(bytes) = pages.get(at..at + 4) {
        raw.copy_from_slice(bytes);
    }
    u32::from_le_bytes(raw)
}

/// The kernel's `struct sigaction` of SIGSEGV that leads to the pages: handler, flags, restorer, mask.
#[must_use]
pub fn action() -> [u64; 4] {
    [
        HANDLER_AT + CODE_AT as u64,
        SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
        HANDLER_AT + RESTORER_AT as u64,
        0,
    ]
}

/// Code and head, without answers.
fn code(level: Level, count: u32) -> [u8; TABLE_AT] {
    // SAFETY: TABLE_AT bytes, written by nobody.
    let mut code = unsafe { BEGIN };
    put(&mut code, LEVEL_AT, &(level as u32).to_le_bytes());
    put(&mut code, COUNT_AT, &count.to_le_bytes());
    for (index, word) in action().iter().enumerate() {
        put(&mut code, ACTION_AT + 8 * index, &word.to_le_bytes());
    }
    code
}

/// The pages for a job that is to see a processor of `level`, made on this one.
#[must_use]
pub fn pages(level: Level) -> [u8; HANDLER_LEN] {
    let mut table = [Answer::default(); MOST];
    let count = answers(level, &mut table);
    let mut pages = [0; HANDLER_LEN];
    put(&mut pages, 0, &code(level, count as u32));
    for (index, answer) in table.iter().take(count).enumerate() {
        let at = TABLE_AT + index * ANSWER_LEN;
        let words = [answer.leaf, answer.subleaf]
            .into_iter()
            .chain(answer.registers);
        for (number, word) in words.enumerate() {
            put(&mut pages, at + 4 * number, &word.to_le_bytes());
        }
    }
    pages
}

/// Whether these are the pages of a process, on whatever machine they were made.
#[must_use]
pub fn are_pages(pages: &[u8]) -> bool {
    pages.get(..8) == Some(&MAGIC.to_le_bytes()[..])
}

/// The level that pages were made for.
#[must_use]
pub fn level(pages: &[u8]) -> Option<Level> {
    let number = word(pages, LEVEL_AT);
    Level::DESCENDING
        .into_iter()
        .find(|level| *level as u32 == number)
}

/// Whether faulting was switched off, since the program has taken SIGSEGV for itself.
#[must_use]
pub fn have_fallen(pages: &[u8]) -> bool {
    word(pages, FALLEN_AT) != 0
}

/// Whether these pages, unchanged, show nothing above `level`, on whatever machine they were made.
#[must_use]
pub fn show_no_more_than(pages: &[u8], level: Level) -> bool {
    let count = word(pages, COUNT_AT);
    let answer = |index: usize| {
        let at = TABLE_AT + index * ANSWER_LEN;
        Answer {
            leaf: word(pages, at),
            subleaf: word(pages, at + 4),
            registers: [8, 12, 16, 20].map(|offset| word(pages, at + offset)),
        }
    };
    pages.len() == HANDLER_LEN
        && count as usize <= MOST
        && pages.get(..TABLE_AT) == Some(&code(level, count)[..])
        && (0..count as usize).all(|index| {
            let answer = answer(index);
            let sound = answer.subleaf == ANY || answer.subleaf < 64;
            sound && lessened(level, answer) == answer
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_show_no_more_than_their_level_and_say_when_they_were_changed() {
        for level in Level::DESCENDING {
            let made = pages(level);
            assert!(are_pages(&made) && !have_fallen(&made));
            assert!(show_no_more_than(&made, level));
            assert_eq!(super::level(&made), Some(level));
        }
        let made = pages(Level::V3);
        assert!(!show_no_more_than(&made, Level::V2));
        let mut changed = made;
        changed[FALLEN_AT] = 1;
        assert!(have_fallen(&changed) && !show_no_more_than(&changed, Level::V3));
        let mut changed = made;
        changed[CODE_AT + 9] ^= 1;
        assert!(!show_no_more_than(&changed, Level::V3));
        // AVX-512 F shown after all.
        let count = word(&made, COUNT_AT) as usize;
        let leaf_7 = (0..count)
            .map(|index| TABLE_AT + index * ANSWER_LEN)
            .find(|at| (word(&made, *at), word(&made, at + 4)) == (7, 0));
        let mut changed = made;
        changed[leaf_7.expect("leaf 7") + 12 + 2] |= 1;
        assert!(!show_no_more_than(&changed, Level::V3));
        assert!(!show_no_more_than(&made[..4096], Level::V3));
    }
}
