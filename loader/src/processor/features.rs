//! Processor features that a program can use: their names, where CPUID shows them, and the
//! microarchitecture levels of the x86-64 psABI made of them.
//!
//! Only what changes the outcome of an instruction or decides whether it exists is here. Hints
//! that are true everywhere but faster somewhere (`erms`, `fsrm`, prefetches) are not: a program
//! that was told of them runs as well without.

/// Register of a CPUID answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Register {
    Eax,
    Ebx,
    Ecx,
    Edx,
}
use Register::{Eax, Ebx, Ecx, Edx};

/// Where CPUID shows a feature, and the XSAVE state that it needs switched on.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// As in the flags of `/proc/cpuinfo`.
    pub name: &'static str,
    pub(super) leaf: u32,
    pub(super) subleaf: u32,
    pub(super) register: Register,
    pub(super) bit: u32,
    pub(super) xsave: u64,
}

/// XSAVE components (Intel SDM volume 1, 13.1), by bit.
#[allow(missing_docs)] // the names say it
pub mod component {
    pub const SSE: u64 = 1 << 1;
    pub const AVX: u64 = SSE | 1 << 2;
    pub const AVX512: u64 = AVX | 7 << 5;
    pub const PKRU: u64 = 1 << 9;
    pub const AMX: u64 = 3 << 17;
    pub const APX: u64 = 1 << 19;
}
use component::{AMX, APX, AVX, AVX512, PKRU};

const fn feature(
    name: &'static str,
    leaf: u32,
    subleaf: u32,
    register: Register,
    bit: u32,
    xsave: u64,
) -> Feature {
    Feature {
        name,
        leaf,
        subleaf,
        register,
        bit,
        xsave,
    }
}

/// Every feature known here.
#[rustfmt::skip]
pub static FEATURES: &[Feature] = &[
    feature("sse3", 1, 0, Ecx, 0, 0),
    feature("pclmulqdq", 1, 0, Ecx, 1, 0),
    feature("ssse3", 1, 0, Ecx, 9, 0),
    feature("fma", 1, 0, Ecx, 12, AVX),
    feature("cx16", 1, 0, Ecx, 13, 0),
    feature("sse4_1", 1, 0, Ecx, 19, 0),
    feature("sse4_2", 1, 0, Ecx, 20, 0),
    feature("movbe", 1, 0, Ecx, 22, 0),
    feature("popcnt", 1, 0, Ecx, 23, 0),
    feature("aes", 1, 0, Ecx, 25, 0),
    feature("osxsave", 1, 0, Ecx, 27, 0),
    feature("avx", 1, 0, Ecx, 28, AVX),
    feature("f16c", 1, 0, Ecx, 29, AVX),
    feature("rdrand", 1, 0, Ecx, 30, 0),
    feature("tsc", 1, 0, Edx, 4, 0),
    feature("cx8", 1, 0, Edx, 8, 0),
    feature("cmov", 1, 0, Edx, 15, 0),
    feature("clflush", 1, 0, Edx, 19, 0),
    feature("mmx", 1, 0, Edx, 23, 0),
    feature("fxsr", 1, 0, Edx, 24, 0),
    feature("sse", 1, 0, Edx, 25, 0),
    feature("sse2", 1, 0, Edx, 26, 0),
    feature("bmi1", 7, 0, Ebx, 3, 0),
    feature("avx2", 7, 0, Ebx, 5, AVX),
    feature("bmi2", 7, 0, Ebx, 8, 0),
    feature("rtm", 7, 0, Ebx, 11, 0),
    feature("avx512f", 7, 0, Ebx, 16, AVX512),
    feature("avx512dq", 7, 0, Ebx, 17, AVX512),
    feature("rdseed", 7, 0, Ebx, 18, 0),
    feature("adx", 7, 0, Ebx, 19, 0),
    feature("avx512ifma", 7, 0, Ebx, 21, AVX512),
    feature("clflushopt", 7, 0, Ebx, 23, 0),
    feature("clwb", 7, 0, Ebx, 24, 0),
    feature("avx512pf", 7, 0, Ebx, 26, AVX512),
    feature("avx512er", 7, 0, Ebx, 27, AVX512),
    feature("avx512cd", 7, 0, Ebx, 28, AVX512),
    feature("sha", 7, 0, Ebx, 29, 0),
    feature("avx512bw", 7, 0, Ebx, 30, AVX512),
    feature("avx512vl", 7, 0, Ebx, 31, AVX512),
    feature("avx512vbmi", 7, 0, Ecx, 1, AVX512),
    feature("ospke", 7, 0, Ecx, 4, PKRU),
    feature("waitpkg", 7, 0, Ecx, 5, 0),
    feature("avx512_vbmi2", 7, 0, Ecx, 6, AVX512),
    feature("gfni", 7, 0, Ecx, 8, 0),
    feature("vaes", 7, 0, Ecx, 9, AVX),
    feature("vpclmulqdq", 7, 0, Ecx, 10, AVX),
    feature("avx512_vnni", 7, 0, Ecx, 11, AVX512),
    feature("avx512_bitalg", 7, 0, Ecx, 12, AVX512),
    feature("avx512_vpopcntdq", 7, 0, Ecx, 14, AVX512),
    feature("rdpid", 7, 0, Ecx, 22, 0),
    feature("movdiri", 7, 0, Ecx, 27, 0),
    feature("movdir64b", 7, 0, Ecx, 28, 0),
    feature("avx512_4vnniw", 7, 0, Edx, 2, AVX512),
    feature("avx512_4fmaps", 7, 0, Edx, 3, AVX512),
    feature("avx512_vp2intersect", 7, 0, Edx, 8, AVX512),
    feature("serialize", 7, 0, Edx, 14, 0),
    feature("tsxldtrk", 7, 0, Edx, 16, 0),
    feature("amx_bf16", 7, 0, Edx, 22, AMX),
    feature("avx512_fp16", 7, 0, Edx, 23, AVX512),
    feature("amx_tile", 7, 0, Edx, 24, AMX),
    feature("amx_int8", 7, 0, Edx, 25, AMX),
    feature("sha512", 7, 1, Eax, 0, AVX),
    feature("sm3", 7, 1, Eax, 1, AVX),
    feature("sm4", 7, 1, Eax, 2, AVX),
    feature("rao_int", 7, 1, Eax, 3, 0),
    feature("avx_vnni", 7, 1, Eax, 4, AVX),
    feature("avx512_bf16", 7, 1, Eax, 5, AVX512),
    feature("cmpccxadd", 7, 1, Eax, 7, 0),
    feature("amx_fp16", 7, 1, Eax, 21, AMX),
    feature("avx_ifma", 7, 1, Eax, 23, AVX),
    feature("movrs", 7, 1, Eax, 31, 0),
    feature("avx_vnni_int8", 7, 1, Edx, 4, AVX),
    feature("avx_ne_convert", 7, 1, Edx, 5, AVX),
    feature("amx_complex", 7, 1, Edx, 8, AMX),
    feature("avx_vnni_int16", 7, 1, Edx, 10, AVX),
    feature("avx10", 7, 1, Edx, 19, AVX512),
    feature("apx_f", 7, 1, Edx, 21, APX),
    feature("xsaveopt", 0xd, 1, Eax, 0, 0),
    feature("xsavec", 0xd, 1, Eax, 1, 0),
    feature("xgetbv1", 0xd, 1, Eax, 2, 0),
    feature("ptwrite", 0x14, 0, Ebx, 4, 0),
    feature("aeskle", 0x19, 0, Ebx, 0, 0),
    feature("amx_fp8", 0x1e, 1, Eax, 4, AMX),
    feature("amx_transpose", 0x1e, 1, Eax, 5, AMX),
    feature("amx_tf32", 0x1e, 1, Eax, 6, AMX),
    feature("amx_avx512", 0x1e, 1, Eax, 7, AMX),
    feature("amx_movrs", 0x1e, 1, Eax, 8, AMX),
    feature("lahf", 0x8000_0001, 0, Ecx, 0, 0),
    feature("lzcnt", 0x8000_0001, 0, Ecx, 5, 0),
    feature("sse4a", 0x8000_0001, 0, Ecx, 6, 0),
    feature("misalignsse", 0x8000_0001, 0, Ecx, 7, 0),
    feature("xop", 0x8000_0001, 0, Ecx, 11, AVX),
    feature("fma4", 0x8000_0001, 0, Ecx, 16, AVX),
    feature("tbm", 0x8000_0001, 0, Ecx, 21, 0),
    feature("mwaitx", 0x8000_0001, 0, Ecx, 29, 0),
    feature("syscall", 0x8000_0001, 0, Edx, 11, 0),
    feature("mmxext", 0x8000_0001, 0, Edx, 22, 0),
    feature("rdtscp", 0x8000_0001, 0, Edx, 27, 0),
    feature("3dnowext", 0x8000_0001, 0, Edx, 30, 0),
    feature("3dnow", 0x8000_0001, 0, Edx, 31, 0),
    feature("clzero", 0x8000_0008, 0, Ebx, 0, 0),
    feature("rdpru", 0x8000_0008, 0, Ebx, 4, 0),
];

/// A microarchitecture level of the x86-64 psABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// x86-64, the first.
    V1 = 1,
    /// Nehalem and later: SSE4.2, POPCNT.
    V2 = 2,
    /// Haswell and later: AVX2, BMI, FMA.
    V3 = 3,
    /// AVX-512 F, BW, CD, DQ, VL.
    V4 = 4,
}

const V1: &[&str] = &[
    "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "syscall", "tsc", "clflush",
];
const V2: &[&str] = &[
    "cx16", "lahf", "popcnt", "sse3", "ssse3", "sse4_1", "sse4_2",
];
const V3: &[&str] = &[
    "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe", "osxsave",
];
const V4: &[&str] = &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"];

impl Level {
    /// All levels, the highest first.
    pub const DESCENDING: [Level; 4] = [Level::V4, Level::V3, Level::V2, Level::V1];

    /// "v1" to "v4".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::V1 => "v1",
            Level::V2 => "v2",
            Level::V3 => "v3",
            Level::V4 => "v4",
        }
    }

    /// The level called `name`: "v3" or "x86-64-v3".
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix("x86-64-").unwrap_or(name);
        Self::DESCENDING
            .into_iter()
            .find(|level| level.name() == name)
    }

    /// Every feature of the level and of those below it.
    pub fn features(self) -> impl Iterator<Item = &'static str> {
        let parts: [&[&str]; 4] = [V1, V2, V3, V4];
        parts.into_iter().take(self as usize).flatten().copied()
    }

    /// Bits of XCR0 that the level's features need.
    #[must_use]
    pub fn xsave(self) -> u64 {
        match self {
            Level::V1 | Level::V2 => 3,
            Level::V3 => 7,
            Level::V4 => 0xe7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_there_once_and_every_bit_too() {
        let names: BTreeSet<_> = FEATURES.iter().map(|feature| feature.name).collect();
        assert_eq!(names.len(), FEATURES.len());
        let bits: BTreeSet<_> = FEATURES
            .iter()
            .map(|f| (f.leaf, f.subleaf, f.register as u8, f.bit))
            .collect();
        assert_eq!(bits.len(), FEATURES.len());
    }

    #[test]
    fn levels_are_made_of_known_features_and_include_each_other() {
        let names: BTreeSet<_> = FEATURES.iter().map(|feature| feature.name).collect();
        for level in Level::DESCENDING {
            assert!(level.features().all(|name| names.contains(name)));
            assert_eq!(Level::from_name(level.name()), Some(level));
        }
        let of_v3: BTreeSet<_> = Level::V3.features().collect();
        assert!(Level::V2.features().all(|name| of_v3.contains(name)));
        assert!(Level::V4.features().any(|name| !of_v3.contains(name)));
        assert_eq!(Level::from_name("x86-64-v2"), Some(Level::V2));
        assert_eq!(Level::from_name("v5"), None);
    }
}
