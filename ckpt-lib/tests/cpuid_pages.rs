//! The pages that answer CPUID (docs/adr/0007), on any processor: `hlt` stands for CPUID. It raises the same
//! fault in a program, and the pages are told which instruction to answer.

#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)] // signals and pages of its own

use loader::processor::Level;
use loader::processor::handler::{HANDLER_AT, HANDLER_LEN, INSTRUCTION_AT, action, pages};
use std::arch::asm;

/// `hlt; nop`: as long as CPUID.
const HALT: [u8; 2] = [0xf4, 0x90];

/// Puts the pages where they belong and leads SIGSEGV there.
fn install(level: Level) {
    let mut pages = pages(level);
    pages[INSTRUCTION_AT..INSTRUCTION_AT + 2].copy_from_slice(&HALT);
    let action = action();
    // SAFETY: a new mapping where nothing is, filled before it is executed; the kernel reads 32 bytes.
    unsafe {
        let at = libc::mmap(
            HANDLER_AT as *mut libc::c_void,
            HANDLER_LEN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        );
        assert_eq!(at as u64, HANDLER_AT);
        std::ptr::copy_nonoverlapping(pages.as_ptr(), at.cast(), HANDLER_LEN);
        let executable = libc::PROT_READ | libc::PROT_EXEC;
        assert_eq!(libc::mprotect(at, HANDLER_LEN, executable), 0);
        let set = libc::syscall(
            libc::SYS_rt_sigaction,
            libc::SIGSEGV,
            action.as_ptr(),
            std::ptr::null_mut::<u64>(),
            8,
        );
        assert_eq!(set, 0);
    }
}

/// Asks as a program asks CPUID; and what it had in a vector register, the flags and below its stack.
fn ask(leaf: u32, subleaf: u32) -> ([u32; 4], u64) {
    const KEPT: u64 = 0x0123_4567_89ab_cdef;
    let (mut eax, mut ecx) = (leaf, subleaf);
    let (ebx, edx, kept): (u32, u32, u64);
    // SAFETY: the handler answers in these registers and changes no other.
    unsafe {
        asm!(
            "mov {saved}, rbx",
            "movq xmm9, {value}",
            ".byte 0xf4, 0x90",
            "mov {answer:e}, ebx",
            "mov rbx, {saved}",
            "movq {kept}, xmm9",
            saved = out(reg) _,
            value = in(reg) KEPT,
            answer = lateout(reg) ebx,
            kept = lateout(reg) kept,
            inout("eax") eax,
            inout("ecx") ecx,
            lateout("edx") edx,
            out("xmm9") _,
        );
    }
    assert_eq!(kept, KEPT);
    ([eax, ebx, ecx, edx], kept)
}

/// How a child ends that does this.
fn ended(child: impl FnOnce()) -> i32 {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let mut status = 0;
    // SAFETY: the child does little and ends; its parent waits for it.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::setrlimit(libc::RLIMIT_CORE, &no_core);
            child();
            libc::_exit(99);
        }
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
    }
    status
}

fn truth(leaf: u32, subleaf: u32) -> [u32; 4] {
    let found = std::arch::x86_64::__cpuid_count(leaf, subleaf);
    [found.eax, found.ebx, found.ecx, found.edx]
}

#[test]
fn the_pages_answer_for_the_processor_and_for_nothing_else() {
    install(Level::V2);
    let [eax, ebx, ecx, edx] = truth(0, 0);
    assert_eq!(ask(0, 7).0, [eax, ebx, ecx, edx]);
    let [_, _, ecx, edx] = ask(1, 0).0;
    assert_eq!(ecx >> 28 & 1, 0, "AVX");
    assert_eq!(ecx >> 26 & 3, 0, "XSAVE");
    assert_eq!(
        (ecx >> 20 & 1, edx >> 26 & 1),
        (truth(1, 0)[2] >> 20 & 1, 1)
    );
    assert_eq!(ask(7, 0).0[1] >> 5 & 1, 0, "AVX2");
    assert_eq!(ask(7, 1).0, [0; 4]);
    // Sizes are true, subleaf by subleaf; of what there is not, nothing.
    let bytes_of_avx = truth(0xd, 2)[..2].to_vec();
    assert_eq!(ask(0xd, 2).0[..2], bytes_of_avx);
    assert_eq!(ask(0x5000_0000, 0).0, [0; 4]);
    for _ in 0..1000 {
        assert_eq!(ask(0x8000_0002, 0).0, truth(0x8000_0002, 0));
    }

    let killed = |child: fn()| {
        let status = ended(child);
        assert!(libc::WIFSIGNALED(status), "{status:#x}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    };
    // SAFETY: these end their process, which is what is looked for.
    unsafe {
        killed(|| {
            (8 as *const u8).read_volatile();
        });
        killed(|| {
            // A fault of the same kind, by another instruction.
            (0x8000_0000_0000_0000 as *const u8).read_volatile();
        });
        killed(|| asm!("cli"));
        killed(|| asm!("jmp {}", in(reg) 16u64));
        killed(|| {
            libc::raise(libc::SIGSEGV);
        });
        killed(|| {
            libc::kill(libc::getpid(), libc::SIGSEGV);
            libc::pause();
        });
    }
    let status = ended(|| {
        let seen = ask(1, 0).0[2] >> 28 & 1;
        // SAFETY: ends the child.
        unsafe { libc::_exit(7 + seen as i32) };
    });
    assert_eq!(libc::WEXITSTATUS(status), 7);
}
