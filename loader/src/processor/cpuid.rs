//! CPUID and XGETBV.
#![allow(unsafe_code)]

/// The four registers that CPUID answers in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) eax: u32,
    pub(super) ebx: u32,
    pub(super) ecx: u32,
    pub(super) edx: u32,
}

/// What this processor answers.
#[allow(unused_unsafe)] // safe since Rust 1.92, not before
pub(super) fn ask(leaf: u32, subleaf: u32) -> Leaf {
    // SAFETY: every x86-64 processor has CPUID; it reads and writes registers only.
    let found = unsafe { core::arch::x86_64::__cpuid_count(leaf, subleaf) };
    Leaf {
        eax: found.eax,
        ebx: found.ebx,
        ecx: found.ecx,
        edx: found.edx,
    }
}

/// The answers for leaves and subleaves; all zero where the processor has none.
pub(super) fn leaves<const COUNT: usize>(asked: [(u32, u32); COUNT]) -> [Leaf; COUNT] {
    let highest = [ask(0, 0).eax, ask(0x8000_0000, 0).eax];
    // A subleaf that does not exist repeats others or is zero: the first of leaf 7 says how many.
    let subleaves_of_7 = if highest[0] >= 7 { ask(7, 0).eax } else { 0 };
    asked.map(|(leaf, subleaf)| {
        let exists =
            leaf <= highest[(leaf >> 31) as usize] && (leaf != 7 || subleaf <= subleaves_of_7);
        if exists {
            ask(leaf, subleaf)
        } else {
            Leaf::default()
        }
    })
}

/// Byte offset of an XSAVE component that is switched on, in the standard format.
pub(super) fn xsave_offset(component: u32) -> u32 {
    ask(0xd, component).ebx
}

/// Byte offset and bytes of an XSAVE component that is switched on, in the standard format.
pub(super) fn xsave_place(component: u32) -> (usize, usize) {
    let found = ask(0xd, component);
    (found.ebx as usize, found.eax as usize)
}

/// The features that the kernel has switched on for XSAVE (XCR0); 0 where XSAVE is off.
pub(super) fn xcr0() -> u64 {
    const OSXSAVE: u32 = 1 << 27;
    if ask(1, 0).ecx & OSXSAVE == 0 {
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
