//! The seccomp filter of a job whose CPUID is answered: which calls P1 is asked about.
//!
//! # What callers may rely on
//! P1 is asked at execve, at rt_sigaction of SIGSEGV or with an action whose mask could hold it, and when signals are
//! blocked. The handler's own pages are not asked, nor anybody who only looks at or unblocks
//! signals. Every other call is let through, also those of 32-bit programs.

use super::handler::{HANDLER_AT, HANDLER_LEN};

/// An instruction, as in `struct sock_filter`.
pub type Step = u64;

/// Numbers of calls.
pub const RT_SIGACTION: u32 = 13;
/// .
pub const RT_SIGPROCMASK: u32 = 14;
/// .
pub const EXECVE: u32 = 59;
/// .
pub const EXECVEAT: u32 = 322;
/// The signal that CPUID raises.
pub const SIGSEGV: u32 = 11;

const SIG_UNBLOCK: u32 = 1;
const X86_64: u32 = 0xc000_003e;
const ALLOW: u32 = 0x7fff_0000;
const ASK: u32 = 0x7fc0_0000;

const LOAD: u64 = 0x20;
const GO: u64 = 0x05;
const EQUAL: u64 = 0x15;
const AT_LEAST: u64 = 0x35;
const RETURN: u64 = 0x06;

/// Offsets in `struct seccomp_data`.
const NR: u32 = 0;
const ARCH: u32 = 4;
const AT: u32 = 8;
const FIRST: u32 = 16;
const SECOND: u32 = 24;

const fn step(code: u64, yes: u64, no: u64, operand: u32) -> Step {
    code | yes << 16 | no << 24 | (operand as u64) << 32
}

/// The filter.
pub const FILTER: [Step; 23] = [
    step(LOAD, 0, 0, ARCH),
    step(EQUAL, 0, 19, X86_64), // else 21
    step(LOAD, 0, 0, NR),
    step(EQUAL, 18, 0, EXECVE),        // 22
    step(EQUAL, 17, 0, EXECVEAT),      // 22
    step(EQUAL, 2, 0, RT_SIGACTION),   // 8
    step(EQUAL, 8, 0, RT_SIGPROCMASK), // 15
    step(RETURN, 0, 0, ALLOW),
    // 8: from the pages?
    step(LOAD, 0, 0, AT + 4),
    step(EQUAL, 0, 2, (HANDLER_AT >> 32) as u32), // else 12
    step(LOAD, 0, 0, AT),
    step(AT_LEAST, 0, 9, HANDLER_LEN as u32), // else 21
    // 12: which signal?
    step(LOAD, 0, 0, FIRST),
    step(EQUAL, 8, 0, SIGSEGV), // 22
    step(GO, 0, 0, 2),          // 17
    // 15: blocked or unblocked?
    step(LOAD, 0, 0, FIRST),
    step(EQUAL, 4, 0, SIG_UNBLOCK), // 21
    // 17: is there an action, a set?
    step(LOAD, 0, 0, SECOND),
    step(EQUAL, 0, 3, 0), // else 22
    step(LOAD, 0, 0, SECOND + 4),
    step(EQUAL, 0, 1, 0), // else 22
    step(RETURN, 0, 0, ALLOW),
    step(RETURN, 0, 0, ASK),
];

const _: () = assert!(HANDLER_AT as u32 == 0);

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says to a call.
    fn asked(arch: u32, nr: u32, at: u64, args: [u64; 2]) -> bool {
        let mut data = [0u8; 64];
        data[..4].copy_from_slice(&nr.to_le_bytes());
        data[4..8].copy_from_slice(&arch.to_le_bytes());
        data[8..16].copy_from_slice(&at.to_le_bytes());
        data[16..24].copy_from_slice(&args[0].to_le_bytes());
        data[24..32].copy_from_slice(&args[1].to_le_bytes());
        let (mut next, mut value) = (0usize, 0u32);
        loop {
            let step = FILTER[next];
            let [yes, no] = [16, 24].map(|shift| (step >> shift & 0xff) as usize);
            let operand = (step >> 32) as u32;
            next += 1;
            let holds = match step & 0xffff {
                LOAD => {
                    let at = operand as usize;
                    value = u32::from_le_bytes(data[at..at + 4].try_into().expect("word"));
                    continue;
                }
                GO => {
                    next += operand as usize;
                    continue;
                }
                EQUAL => value == operand,
                AT_LEAST => value >= operand,
                RETURN => return operand == ASK,
                other => panic!("{other:#x}"),
            };
            next += if holds { yes } else { no };
        }
    }

    #[test]
    fn p1_is_asked_what_it_must_know_and_nothing_else() {
        const CODE: u64 = 0x40_1000;
        let ask = |nr, args| asked(X86_64, nr, CODE, args);
        assert!(ask(EXECVE, [0, 0]) && ask(EXECVEAT, [0, 0]));
        assert!(!ask(0, [11, 1]) && !ask(60, [0, 0]) && !ask(435, [1, 1]));
        // SIGSEGV also when it is only looked at; other signals if an action is given.
        assert!(ask(RT_SIGACTION, [11, 0]) && ask(RT_SIGACTION, [11, 8]));
        assert!(!ask(RT_SIGACTION, [10, 0]));
        assert!(ask(RT_SIGACTION, [10, 8]) && ask(RT_SIGACTION, [10, 1 << 32]));
        for how in [0, 2] {
            assert!(ask(RT_SIGPROCMASK, [how, 8]) && !ask(RT_SIGPROCMASK, [how, 0]));
            assert!(ask(RT_SIGPROCMASK, [how, 5 << 32]));
        }
        assert!(!ask(RT_SIGPROCMASK, [1, 8]));
        // The pages' own call; right beside them it is anybody's.
        let len = HANDLER_LEN as u64;
        assert!(!asked(X86_64, RT_SIGACTION, HANDLER_AT + 98, [11, 8]));
        assert!(!asked(X86_64, RT_SIGACTION, HANDLER_AT + len - 1, [11, 8]));
        for other in [HANDLER_AT + len, HANDLER_AT - 1, HANDLER_AT + (1 << 32), 98] {
            assert!(asked(X86_64, RT_SIGACTION, other, [11, 8]), "{other:#x}");
        }
        assert!(asked(X86_64, EXECVE, HANDLER_AT, [0, 0]));
        // int 0x80 of 32-bit programs: other numbers.
        assert!(!asked(0x4000_0003, RT_SIGACTION, CODE, [11, 8]));
    }
}
