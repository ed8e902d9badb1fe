//! `/proc/meminfo` (proc(5)).

/// Sizes in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::measure) struct Memory {
    pub(in crate::measure) total_kib: u64,
    pub(in crate::measure) free_swap_kib: u64,
}

impl Memory {
    /// None without a total; a machine without swap has none that is free.
    pub(in crate::measure) fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let named = |wanted: &str| {
            let fields = || text.lines().filter_map(super::field);
            let (_, value) = fields().find(|(name, _)| *name == wanted)?;
            value.strip_suffix("kB")?.trim().parse::<u64>().ok()
        };
        Some(Memory {
            total_kib: named("MemTotal")?,
            free_swap_kib: named("SwapFree").unwrap_or(0),
        })
    }
}
