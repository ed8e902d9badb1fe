//! What CPUID is answered with, where a job is to see a lesser processor.
//!
//! ```text
//! every leaf that says something --ask--> true answer --lessened(level)--> the table of `handler`
//! ```
//! # What callers may rely on
//! [`lessened`] lets through what it knows: the features of the level, hints that are true everywhere
//! but faster somewhere, sizes, names and topology. Everything else is zero, also what is not
//! invented yet. It is pure, and doing it twice is doing it once.
//!
//! # What it does not do
//! Leaf 0xD says how much state there is, truly: XGETBV does not fault, and who saves all state needs the
//! room. APIC ids are those of the processor that the table was made on, for all.

use super::cpuid::{Leaf, ask};
use super::features::{FEATURES, Level, Register};

/// One answer of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The leaf asked for (EAX).
    pub leaf: u32,
    /// The subleaf (ECX), or [`ANY`].
    pub subleaf: u32,
    /// EAX, EBX, ECX, EDX.
    pub registers: [u32; 4],
}

/// The leaf does not look at ECX.
pub const ANY: u32 = u32::MAX;
/// Most answers that a table has room for.
pub const MOST: usize = 298;

/// Subleaves that are asked for in a leaf that has some.
const SUBLEAVES: u32 = 8;
/// The same for leaf 0xD: one for each component of XSAVE.
const COMPONENTS: u32 = 20;
const HIGHEST_BASIC: u32 = 0x20;
const HYPERVISOR: u32 = 0x4000_0000;
const HIGHEST_HYPERVISOR: u32 = 0x4000_0010;
const EXTENDED: u32 = 0x8000_0000;
const HIGHEST_EXTENDED: u32 = 0x8000_0022;

/// Bits that are no features of a level and harm nobody: EAX, EBX, ECX, EDX.
const HARMLESS: &[(u32, u32, [u32; 4])] = &[
    // dtes64, xtpr, pdcm, pcid, dca, x2apic, tsc-deadline, hypervisor; of EDX all but what is a feature.
    (
        1,
        0,
        [
            !0,
            !0,
            1 << 2 | 1 << 14 | 1 << 15 | 1 << 17 | 1 << 18 | 1 << 21 | 1 << 24 | 1 << 31,
            !0,
        ],
    ),
    // tsc_adjust, fdp_excptn, smep, erms, invpcid, zero_fcs, smap; umip; fsrm, md_clear, hybrid, mitigations.
    (
        7,
        0,
        [
            0,
            1 << 1 | 1 << 6 | 1 << 7 | 1 << 9 | 1 << 10 | 1 << 13 | 1 << 20,
            1 << 2,
            1 << 4 | 1 << 10 | 1 << 15 | 0xfc00_0000,
        ],
    ),
    // cmp_legacy, 3dnowprefetch, topoext; what EDX has of leaf 1, nx, pdpe1gb, lm.
    (
        0x8000_0001,
        0,
        [
            !0,
            !0,
            1 << 1 | 1 << 8 | 1 << 22,
            0x0183_f3ff | 1 << 20 | 1 << 26 | 1 << 29,
        ],
    ),
    (0x8000_0008, 0, [!0, 0, !0, !0]),
    // Of the instructions around XSAVE only the first; sizes are true.
    (0xd, 1, [0, !0, !0, !0]),
];
/// Leaves that hold nothing but features, or say how to use what is hidden: answered with zero.
fn is_hidden(leaf: u32, subleaf: u32) -> bool {
    match leaf {
        7 => subleaf != 0,
        // SGX, processor trace, key locker, AMX, HRESET, AVX10.
        0x12 | 0x14 | 0x19 | 0x1d | 0x1e | 0x20 => true,
        0x21..=0x3fff_ffff => true,
        // SVM, IBS, lightweight profiling, SME.
        0x8000_000a | 0x8000_001b | 0x8000_001c | 0x8000_001f..=0x8000_0022 => true,
        _ => false,
    }
}

/// The answer that a processor of `level` would give where this one gives `answer`.
#[must_use]
pub fn lessened(level: Level, answer: Answer) -> Answer {
    const OSXSAVE: u32 = 1 << 27;
    const XSAVE: u32 = 1 << 26;
    let mut lesser = answer;
    let subleaf = if answer.subleaf == ANY {
        0
    } else {
        answer.subleaf
    };
    if is_hidden(answer.leaf, subleaf) {
        lesser.registers = [0; 4];
        return lesser;
    }
    let Some((.., harmless)) = HARMLESS
        .iter()
        .find(|(leaf, sub, _)| (*leaf, *sub) == (answer.leaf, subleaf))
    else {
        return lesser;
    };
    let mut kept = *harmless;
    for feature in FEATURES {
        if (feature.leaf, feature.subleaf) != (answer.leaf, subleaf) {
            continue;
        }
        let place = match feature.register {
            Register::Eax => 0,
            Register::Ebx => 1,
            Register::Ecx => 2,
            Register::Edx => 3,
        };
        let bit = 1 << feature.bit;
        if level.features().any(|name| name == feature.name) {
            kept[place] |= bit;
        } else {
            kept[place] &= !bit;
        }
    }
    if answer.leaf == 1 && kept[2] & OSXSAVE != 0 {
        kept[2] |= XSAVE;
    }
    for (register, kept) in lesser.registers.iter_mut().zip(kept) {
        *register &= kept;
    }
    lesser
}

/// Whether a leaf looks at ECX.
fn has_subleaves(leaf: u32) -> bool {
    matches!(
        leaf,
        4 | 7
            | 0xb
            | 0xd
            | 0xf
            | 0x10
            | 0x17
            | 0x18
            | 0x1f
            | 0x8000_001d
            | 0x8000_0020
            | 0x8000_0026
    )
}

/// Every answer of a processor of `level`, made from those of this one; how many there are.
pub fn answers(level: Level, table: &mut [Answer; MOST]) -> usize {
    let mut count = 0;
    let mut put = |leaf: u32, subleaf: u32| {
        let Leaf { eax, ebx, ecx, edx } = ask(leaf, if subleaf == ANY { 0 } else { subleaf });
        let answer = Answer {
            leaf,
            subleaf,
            registers: [eax, ebx, ecx, edx],
        };
        if let Some(place) = table.get_mut(count) {
            *place = lessened(level, answer);
            count += 1;
        }
    };
    let virtual_machine = ask(1, 0).ecx >> 31 != 0;
    let ranges = [
        (0, ask(0, 0).eax.min(HIGHEST_BASIC)),
        (
            EXTENDED,
            ask(EXTENDED, 0).eax.clamp(EXTENDED, HIGHEST_EXTENDED),
        ),
        (
            HYPERVISOR,
            if virtual_machine {
                ask(HYPERVISOR, 0).eax.clamp(HYPERVISOR, HIGHEST_HYPERVISOR)
            } else {
                0
            },
        ),
    ];
    for (first, last) in ranges {
        for leaf in first..=last {
            if has_subleaves(leaf) {
                let subleaves = if leaf == 0xd { COMPONENTS } else { SUBLEAVES };
                (0..subleaves).for_each(|subleaf| put(leaf, subleaf));
            } else {
                put(leaf, ANY);
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(leaf: u32, subleaf: u32) -> Answer {
        Answer {
            leaf,
            subleaf,
            registers: [!0; 4],
        }
    }

    #[test]
    fn no_feature_above_the_level_is_let_through_and_none_of_it_is_lost() {
        for level in Level::DESCENDING {
            for feature in FEATURES {
                let answer = lessened(level, full(feature.leaf, feature.subleaf));
                let register = match feature.register {
                    Register::Eax => answer.registers[0],
                    Register::Ebx => answer.registers[1],
                    Register::Ecx => answer.registers[2],
                    Register::Edx => answer.registers[3],
                };
                let of_level = level.features().any(|name| name == feature.name);
                let shown = register >> feature.bit & 1 != 0;
                assert_eq!(shown, of_level, "{} at {}", feature.name, level.name());
            }
        }
    }

    #[test]
    fn what_has_not_been_invented_is_hidden_and_sizes_are_true() {
        let zero = |leaf, subleaf| {
            assert_eq!(lessened(Level::V4, full(leaf, subleaf)).registers, [0; 4]);
        };
        zero(7, 1);
        zero(7, 2);
        zero(0x24, ANY);
        zero(0x1e, ANY);
        // Bits of leaf 7 that nobody here knows: ECX 24 is reserved.
        assert_eq!(lessened(Level::V4, full(7, 0)).registers[2] >> 24 & 1, 0);
        assert_eq!(lessened(Level::V1, full(0xd, 0)).registers, [!0; 4]);
        assert_eq!(lessened(Level::V1, full(0xd, 2)).registers, [!0; 4]);
        // XSAVE is seen with OSXSAVE only.
        assert_eq!(lessened(Level::V2, full(1, ANY)).registers[2] >> 26 & 3, 0);
        assert_eq!(lessened(Level::V3, full(1, ANY)).registers[2] >> 26 & 3, 3);
    }

    #[test]
    fn the_table_of_this_processor_fits_and_is_what_it_would_be_made_of() {
        let mut table = [Answer::default(); MOST];
        let count = answers(Level::V2, &mut table);
        assert!(count > 20 && count < MOST, "{count}");
        for answer in &table[..count] {
            assert_eq!(*answer, lessened(Level::V2, *answer));
        }
        let first = table[0];
        assert_eq!((first.leaf, first.registers[0]), (0, ask(0, 0).eax));
        let leaf_1 = table.iter().find(|answer| answer.leaf == 1);
        let [_, _, ecx, edx] = leaf_1.expect("leaf 1").registers;
        assert_eq!((ecx >> 28 & 1, edx >> 26 & 1), (0, 1)); // AVX, SSE2
    }
}
