//! What the processor says about itself: CPUID, XGETBV, the auxiliary vector.
#![allow(unsafe_code)]

/// The four registers that CPUID answers in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) eax: u32,
    pub(crate) ebx: u32,
    pub(crate) ecx: u32,
    pub(crate) edx: u32,
}

/// CPUID of a leaf; all zero where the processor has no such leaf.
pub(crate) fn cpuid(leaf: u32, subleaf: u32) -> Leaf {
    let highest = raw_cpuid(leaf & 0x8000_0000, 0).eax;
    if leaf > highest {
        return Leaf::default();
    }
    raw_cpuid(leaf, subleaf)
}

#[allow(unused_unsafe)] // safe since Rust 1.92, not before
fn raw_cpuid(leaf: u32, subleaf: u32) -> Leaf {
    // SAFETY: every x86-64 processor has CPUID; it reads and writes registers only.
    let found = unsafe { core::arch::x86_64::__cpuid_count(leaf, subleaf) };
    Leaf {
        eax: found.eax,
        ebx: found.ebx,
        ecx: found.ecx,
        edx: found.edx,
    }
}

/// The features that the kernel has switched on for XSAVE (XCR0); 0 where XSAVE is off.
pub(crate) fn xcr0() -> u64 {
    const OSXSAVE: u32 = 1 << 27;
    if cpuid(1, 0).ecx & OSXSAVE == 0 {
        return 0;
    }
    let (low, high): (u32, u32);
    // SAFETY: OSXSAVE says that XGETBV may be used; it writes EDX:EAX and nothing else.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
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
