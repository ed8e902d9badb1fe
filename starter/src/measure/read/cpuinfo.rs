//! `/proc/cpuinfo` of x86: how many processors there are, and what they can.

use std::collections::BTreeSet;

/// Flags that HTCondor 25 publishes, as `has_NAME`.
const PUBLISHED: [&str; 8] = [
    "avx",
    "avx2",
    "avx512_vnni",
    "avx512dq",
    "avx512f",
    "sse4_1",
    "sse4_2",
    "ssse3",
];

/// What each level needs beyond the one before (x86-64 psABI), by the kernel's names.
const LEVELS: [(&str, &[&str]); 3] = [
    (
        "x86_64-v2",
        &["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"],
    ),
    (
        "x86_64-v3",
        &[
            "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave",
        ],
    ),
    (
        "x86_64-v4",
        &["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"],
    ),
];

/// The processors of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// How many the kernel shows.
    pub threads: u32,
    /// How many cores these are, hyper-threads of a core counted once.
    pub cores: u32,
    /// What the first can, by the kernel's names.
    pub flags: BTreeSet<String>,
    /// `cpu family`.
    pub family: Option<i64>,
    /// `model`.
    pub model: Option<i64>,
    /// `cache size`, KiB.
    pub cache_kib: Option<i64>,
}

impl Processors {
    /// None if no processor is there.
    pub(in crate::measure) fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let mut found = Processors::default();
        let mut cores = BTreeSet::new();
        for paragraph in text.split("\n\n") {
            let named = |wanted: &str| {
                let mut fields = paragraph.lines().filter_map(super::field);
                fields.find(|(name, _)| *name == wanted).map(|(_, v)| v)
            };
            if named("processor").is_none() {
                continue;
            }
            found.threads += 1;
            let core = (named("physical id"), named("core id"));
            // Where the kernel does not say which core it is, it is one of its own.
            let own = core.1.is_none().then_some(found.threads);
            cores.insert((core.0.map(str::to_owned), core.1.map(str::to_owned), own));
            if found.threads > 1 {
                continue;
            }
            let number = |name| {
                let digits = named(name)?.split_whitespace().next()?;
                digits.parse::<i64>().ok().filter(|number| *number > 0)
            };
            found.family = number("cpu family");
            found.model = number("model");
            found.cache_kib = number("cache size");
            let flags = named("flags").unwrap_or_default();
            found.flags = flags.split_whitespace().map(str::to_owned).collect();
        }
        found.cores = u32::try_from(cores.len()).unwrap_or(u32::MAX);
        (found.threads > 0).then_some(found)
    }

    /// The highest level of the x86-64 psABI that the flags reach: `x86_64-v1` to `-v4`. Each level is asked for by its own features only, as
    /// HTCondor does.
    #[must_use]
    pub fn microarch(&self) -> &'static str {
        let reached = |needs: &&[&str]| needs.iter().all(|flag| self.flags.contains(*flag));
        let mut levels = LEVELS.iter().rev();
        let best = levels.find(|(_, needs)| reached(needs));
        best.map_or("x86_64-v1", |(name, _)| name)
    }

    /// The flags that become attributes, `has_avx2` and so on.
    pub fn published_flags(&self) -> impl Iterator<Item = &'static str> {
        let has = |flag: &&str| self.flags.contains(*flag);
        PUBLISHED.into_iter().filter(has)
    }
}
