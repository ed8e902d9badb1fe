//! The auxiliary vector, wide addresses, and CPUID as something that may fault.
#![allow(unsafe_code)]

/// Executes CPUID, which raises SIGSEGV where CPUID faulting is on (arch_prctl(2), `ARCH_SET_CPUID`).
#[allow(unused_unsafe)] // safe since Rust 1.92, not before
pub(crate) fn execute_cpuid() {
    // SAFETY: every x86-64 processor has CPUID; it reads and writes registers only.
    std::hint::black_box(unsafe { core::arch::x86_64::__cpuid(0) });
}

/// Whether there are protection keys, and the kernel has switched them on (pkeys(7)): OSPKE.
#[allow(unused_unsafe)] // safe since Rust 1.92, not before
pub(crate) fn has_protection_keys() -> bool {
    // SAFETY: as above.
    let [highest, features] = unsafe {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        [__cpuid(0).eax, __cpuid_count(7, 0).ecx]
    };
    highest >= 7 && features >> 4 & 1 == 1
}

/// Whether the processor tells the kernel how fast it runs: APERF and MPERF (`X86_FEATURE_APERFMPERF`).
#[allow(unused_unsafe)] // safe since Rust 1.92, not before
pub(crate) fn tells_its_speed() -> bool {
    // SAFETY: as above.
    let [highest, features] = unsafe {
        use core::arch::x86_64::__cpuid;
        [__cpuid(0).eax, __cpuid(6).ecx]
    };
    highest >= 6 && features & 1 == 1
}

/// An entry of this process's auxiliary vector, 0 if there is none.
pub(crate) fn auxv(kind: u64) -> u64 {
    // SAFETY: getauxval reads the process's own vector and returns a number.
    unsafe { libc::getauxval(kind) }
}

/// Whether the kernel gives out addresses of more than 47 bits when asked.
pub(crate) fn wide_addresses() -> bool {
    const PAGE: usize = 4096;
    let hint = (1u64 << 48) as *mut libc::c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at a hint replaces nothing.
    let found = unsafe { libc::mmap(hint, PAGE, libc::PROT_NONE, flags, -1, 0) };
    if found == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: this is the page just mapped, and nothing refers to it.
    unsafe { libc::munmap(found, PAGE) };
    found as u64 >= 1 << 47
}
