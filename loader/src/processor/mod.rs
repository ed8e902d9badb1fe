//! What a processor offers, and what an image needs of it.
//!
//! ```text
//! CPUID, XGETBV, auxv -> Processor -- lacking(platform string) --> what is not there, item by item
//! ```
//! Both sides ask: `ckpt_lib::platform` for the whole machine, the loader for the processor alone, so that
//! `./IMAGE` does not start what would die of an instruction that is not there. `docs/PLATFORM.md`
//! explains the string word by word.
//!
//! # What callers may rely on
//! CPUID is asked once for each leaf: in a virtual machine an answer takes microseconds. A string that cannot
//! be read is an error, never "nothing is lacking".

pub mod answers;
pub mod features;
pub mod filter;
pub mod handler;

mod cpuid;
mod lacking;

pub use features::{FEATURES, Feature, Level, component};
pub use lacking::{Lacking, Unreadable, requested};

use cpuid::Leaf;
use features::Register;

/// What PKRU is unless a program has changed it: the kernel's `init_pkru`, all keys but the first closed.
pub const USUAL_PKRU: u32 = 0x5555_5554;
/// XSAVE components that glibc's dynamic linker saves around lazy binding (`STATE_SAVE_MASK`,
/// sysdeps/x86/sysdep.h): it measures the room for them once, when the program starts.
pub const SAVED_BY_LINKER: u64 = 0b1110_1110;
/// XSAVE components whose place in the standard format is the same everywhere (x87, SSE, AVX).
const FIXED_COMPONENTS: u32 = 3;
/// The feature that CPUID does not show: the kernel decides.
const FSGSBASE: &str = "fsgsbase";
const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// Leaf and subleaf of every feature in [`FEATURES`].
const LEAVES: [(u32, u32); 10] = [
    (1, 0),
    (7, 0),
    (7, 1),
    (0xd, 1),
    (0x14, 0),
    (0x19, 0),
    (0x1e, 1),
    (0x8000_0001, 0),
    (0x8000_0008, 0),
    (0, 0),
];

/// What the kernel says about the processor in the auxiliary vector of a process (getauxval(3)).
#[derive(Clone, Copy, Debug, Default)]
pub struct AuxiliaryVector {
    /// `AT_HWCAP2`.
    pub hwcap2: u64,
    /// `AT_MINSIGSTKSZ`: bytes of a signal frame; 0 if it is not said.
    pub minsigstksz: u64,
}

/// What this processor offers to programs.
#[derive(Clone, Debug)]
pub struct Processor {
    leaves: [Leaf; LEAVES.len()],
    xcr0: u64,
    auxiliary: AuxiliaryVector,
}

impl Processor {
    /// Asks the processor that runs this.
    #[must_use]
    pub fn here(auxiliary: AuxiliaryVector) -> Self {
        Processor {
            leaves: cpuid::leaves(LEAVES),
            xcr0: cpuid::xcr0(),
            auxiliary,
        }
    }

    /// Bits of XSAVE components that are kept across a switch of threads. Without XSAVE the kernel
    /// keeps x87 and SSE by FXSAVE.
    #[must_use]
    pub fn xsave(&self) -> u64 {
        self.xcr0 | 3
    }

    /// Whether a program sees this feature and may use it.
    #[must_use]
    pub fn has(&self, feature: &Feature) -> bool {
        let asked = (feature.leaf, feature.subleaf);
        let number = LEAVES.iter().position(|leaf| *leaf == asked);
        let Some(leaf) = number.and_then(|number| self.leaves.get(number)) else {
            return false;
        };
        let register = match feature.register {
            Register::Eax => leaf.eax,
            Register::Ebx => leaf.ebx,
            Register::Ecx => leaf.ecx,
            Register::Edx => leaf.edx,
        };
        register >> feature.bit & 1 != 0 && feature.xsave & !self.xcr0 == 0
    }

    /// The names of all features that a program sees and may use.
    pub fn features(&self) -> impl Iterator<Item = &'static str> {
        let kernels = self.auxiliary.hwcap2 & HWCAP2_FSGSBASE != 0;
        let shown = FEATURES.iter().filter(|feature| self.has(feature));
        shown
            .map(|feature| feature.name)
            .chain(kernels.then_some(FSGSBASE))
    }

    /// XSAVE components whose place differs between processors, and their byte offset in the
    /// standard format.
    pub fn layout(&self) -> impl Iterator<Item = (u32, u32)> {
        let components = (FIXED_COMPONENTS..63).filter(|bit| self.xcr0 >> bit & 1 != 0);
        components.map(|bit| (bit, cpuid::xsave_offset(bit)))
    }

    /// Where an XSAVE component that is switched on is in the standard format: offset and bytes.
    #[must_use]
    pub fn component_place(&self, bit: u32) -> Option<(usize, usize)> {
        let on = (2..63).contains(&bit) && self.xcr0 >> bit & 1 != 0;
        on.then(|| cpuid::xsave_place(bit))
    }

    /// Bytes of a signal frame, if the kernel says so.
    #[must_use]
    pub fn signal_frame(&self) -> Option<u64> {
        Some(self.auxiliary.minsigstksz).filter(|bytes| *bytes != 0)
    }
}

/// The name of an XSAVE component, if it has one.
#[must_use]
pub fn component_name(bit: u32) -> Option<&'static str> {
    Some(match bit {
        0 => "x87",
        1 => "sse",
        2 => "avx",
        5 => "avx512-opmask",
        6 => "avx512-zmm-high",
        7 => "avx512-zmm16-31",
        9 => "protection-keys",
        17 => "amx-config",
        18 => "amx-tiles",
        19 => "apx",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_its_leaf() {
        for Feature {
            name,
            leaf,
            subleaf,
            ..
        } in FEATURES
        {
            assert!(LEAVES.contains(&(*leaf, *subleaf)), "{name}");
        }
    }
}
