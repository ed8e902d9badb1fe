//! A lesser processor than there is: `run --baseline x86-64-v3`.
//!
//! ```text
//! level + environment --environment--> GLIBC_TUNABLES and its like --> the job
//! job's environment   --asked_for----> "baseline=v3,requested" in the platform string
//! CPUID answered      --enforced-----> "baseline=v3,proven", and the requirement shrinks
//! ```
//! # What callers may rely on
//! What [`environment`] sets, programs that choose code through glibc obey, and the libraries whose
//! own switches are set here. Unless CPUID is answered too (`enforced`) an image of such a job says
//! `requested` and keeps the full requirement (ADR 7).
//!
//! # What it does not do
//! It does not overrule what the user has set: such a variable stays as it is, and
//! [`Request::left_alone`] names it.

mod enforced;

pub use enforced::{can_be_enforced, pages};
pub(crate) use enforced::{handler_action, note_enforcement, proven};

use crate::platform::Level;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Tells later checkpoints what was asked for.
pub const MARK: &str = "WAYFARER_BASELINE";

const TUNABLES: &str = "GLIBC_TUNABLES";
const HWCAPS: &str = "glibc.cpu.hwcaps";

/// glibc's names of what each level adds (`sysdeps/x86/cpu-tunables.c`); unknown ones are ignored.
const ABOVE_V1: &[&str] = &["SSSE3", "SSE4_1", "SSE4_2", "POPCNT"];
const ABOVE_V2: &[&str] = &[
    "AVX", "AVX2", "BMI1", "BMI2", "FMA", "LZCNT", "MOVBE", "F16C", "FMA4", "XSAVE", "OSXSAVE",
    "RTM",
];
// XSAVEC belongs to no level; processors of level v3 without it exist (Haswell, qemu's), and the dynamic
// linker uses it.
const ABOVE_V3: &[&str] = &[
    "XSAVEC", "AVX512F", "AVX512VL", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512ER", "AVX512PF",
];

/// What a job is given to see a lesser processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Variables to set, by name.
    pub set: Vec<(OsString, OsString)>,
    /// Variables that would have to be set but that the user has set already.
    pub left_alone: Vec<OsString>,
}

/// What to set in a job's environment for `level`, given what is set already.
#[must_use]
pub fn environment(level: Level, value_of: impl Fn(&str) -> Option<OsString>) -> Request {
    let mut request = Request {
        set: vec![(MARK.into(), format!("x86-64-{}", level.name()).into())],
        left_alone: vec![],
    };
    match tunables(level, value_of(TUNABLES).as_deref()) {
        Some(value) => request.set.push((TUNABLES.into(), value)),
        None => request.left_alone.push(TUNABLES.into()),
    }
    for (name, value) in switches(level) {
        match value_of(name) {
            None => request.set.push(((*name).into(), (*value).into())),
            Some(there) if there == *value => {}
            Some(_) => request.left_alone.push((*name).into()),
        }
    }
    request
}

/// The value of GLIBC_TUNABLES; `None` if the user has masked processor features already.
fn tunables(level: Level, there: Option<&OsStr>) -> Option<OsString> {
    let above: &[&[&str]] = match level {
        Level::V1 => &[ABOVE_V1, ABOVE_V2, ABOVE_V3],
        Level::V2 => &[ABOVE_V2, ABOVE_V3],
        Level::V3 => &[ABOVE_V3],
        Level::V4 => &[],
    };
    let names = above.iter().copied().flatten();
    let masked: Vec<String> = names.map(|name| format!("-{name}")).collect();
    let there = there.unwrap_or_default().as_bytes();
    let setting = format!("{HWCAPS}={}", masked.join(","));
    let mut parts: Vec<&[u8]> = there.split(|byte| *byte == b':').collect();
    parts.retain(|part| !part.is_empty());
    let masks = |part: &&[u8]| part.starts_with(HWCAPS.as_bytes());
    match parts.iter().find(|part| masks(part)) {
        Some(part) if *part != setting.as_bytes() => return None,
        Some(_) => {}
        None if masked.is_empty() => {}
        None => parts.push(setting.as_bytes()),
    }
    Some(OsString::from_vec(parts.join(&b':')))
}

/// Switches of libraries that ask CPUID themselves.
fn switches(level: Level) -> &'static [(&'static str, &'static str)] {
    match level {
        Level::V4 => &[],
        Level::V3 => &[
            ("OPENBLAS_CORETYPE", "Haswell"),
            // Clears AES, PCLMULQDQ, RDRAND, XOP; SHA, ADX, RDSEED and everything of AVX-512.
            ("OPENSSL_ia32cap", "~0x4200080200000000:~0x5f42f02f0000"),
            ("MKL_ENABLE_INSTRUCTIONS", "AVX2"),
            ("ONEDNN_MAX_CPU_ISA", "AVX2"),
            ("GODEBUG", "cpu.avx512=off"),
        ],
        Level::V2 | Level::V1 => &[
            ("OPENBLAS_CORETYPE", "Nehalem"),
            // Also AVX, F16C, FMA, MOVBE, and all of CPUID leaf 7.
            ("OPENSSL_ia32cap", "~0x7240180200000000:~0xffffffffffffffff"),
            ("MKL_ENABLE_INSTRUCTIONS", "SSE4_2"),
            ("ONEDNN_MAX_CPU_ISA", "SSE41"),
            (
                "GODEBUG",
                "cpu.avx=off,cpu.avx2=off,cpu.fma=off,cpu.bmi1=off,cpu.bmi2=off",
            ),
        ],
    }
}

/// What a job was asked to see, from the environment it was started with
/// (`/proc/PID/environ`).
#[must_use]
pub fn asked_for(environ: &[u8]) -> Option<Level> {
    let mut entries = environ.split(|byte| *byte == 0);
    let value = entries.find_map(|entry| {
        let value = entry.strip_prefix(MARK.as_bytes())?;
        value.strip_prefix(b"=")
    })?;
    Level::from_name(std::str::from_utf8(value).ok()?)
}

/// Whether a job was started so that its dynamic linker does all its work before the program begins
/// (ld.so(8), `LD_BIND_NOW`), from its environment.
#[must_use]
pub fn binds_early(environ: &[u8]) -> bool {
    let mut entries = environ.split(|byte| *byte == 0);
    entries.any(|entry| {
        entry
            .strip_prefix(b"LD_BIND_NOW=")
            .is_some_and(|value| !value.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const LD_SO: &str = "/lib64/ld-linux-x86-64.so.2";

    fn set(request: &Request, name: &str) -> Option<String> {
        let found = request.set.iter().find(|(key, _)| key == name)?;
        Some(found.1.to_string_lossy().into_owned())
    }

    #[test]
    fn what_the_user_has_set_stays_and_is_named() {
        let none = environment(Level::V3, |_| None);
        assert!(none.left_alone.is_empty());
        let tunables = set(&none, TUNABLES).expect("tunables");
        assert!(
            tunables.contains("-AVX512F") && !tunables.contains("-AVX2"),
            "{tunables}"
        );

        let other = environment(Level::V2, |name| {
            (name == TUNABLES).then(|| "glibc.malloc.check=1:".into())
        });
        let tunables = set(&other, TUNABLES).expect("tunables");
        assert!(tunables.starts_with("glibc.malloc.check=1:glibc.cpu.hwcaps=-AVX,"));

        let masked = environment(Level::V3, |name| match name {
            TUNABLES => Some("glibc.cpu.hwcaps=-ERMS".into()),
            "OPENBLAS_CORETYPE" => Some("Zen".into()),
            _ => None,
        });
        assert_eq!(masked.left_alone, [TUNABLES, "OPENBLAS_CORETYPE"]);
        assert_eq!(set(&masked, TUNABLES), None);
        // What was asked for once can be asked for again.
        let again = environment(Level::V3, |name| set(&none, name).map(Into::into));
        assert!(again.left_alone.is_empty());
    }

    #[test]
    fn the_mark_is_found_in_an_environment() {
        let environ = b"PATH=/bin\0WAYFARER_BASELINE=x86-64-v2\0HOME=/\0";
        assert_eq!(asked_for(environ), Some(Level::V2));
        assert_eq!(asked_for(b"WAYFARER_BASELINES=x86-64-v2\0"), None);
        assert_eq!(asked_for(b"WAYFARER_BASELINE=\xff\0"), None);
    }

    /// Bits that glibc takes for usable: CPUID leaf 7 EBX and leaf 1 ECX.
    fn usable(tunables: Option<String>) -> Option<(u64, u64)> {
        let mut command = Command::new(LD_SO);
        command.arg("--list-diagnostics").env_remove(TUNABLES);
        command.envs(tunables.map(|value| (TUNABLES, value)));
        let output = command.output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let word = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            u64::from_str_radix(line.trim_start_matches("=0x"), 16).ok()
        };
        let leaf_7_ebx = word("x86.cpu_features.features[0x1].active[0x1]")?;
        Some((
            leaf_7_ebx,
            word("x86.cpu_features.features[0x0].active[0x2]")?,
        ))
    }

    #[test]
    fn glibc_no_longer_takes_masked_features_for_usable() {
        const AVX2: u64 = 1 << 5;
        const AVX512: u64 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31;
        const AVX: u64 = 1 << 28;
        let Some((plain, _)) = usable(None) else {
            return crate::skip::note(
                "glibc_no_longer_takes_masked_features_for_usable",
                &format!("{LD_SO} --list-diagnostics does not work here"),
            );
        };
        let masked = |level| {
            let request = environment(level, |_| None);
            usable(set(&request, TUNABLES)).expect("diagnostics")
        };
        let (leaf_7, leaf_1) = masked(Level::V3);
        assert_eq!(leaf_7 & AVX512, 0);
        assert_eq!(leaf_7 & AVX2, plain & AVX2);
        let (leaf_7_v2, leaf_1_v2) = masked(Level::V2);
        assert_eq!((leaf_7_v2 & (AVX2 | AVX512), leaf_1_v2 & AVX), (0, 0));
        assert!(leaf_1 & AVX != 0 || plain & AVX2 == 0);
        assert_eq!(masked(Level::V4).0, plain);
    }
}
