//! What this machine offers.

use super::{LIMIT_NAMES, Limits, Platform};
use crate::sys::cpu;
use crate::sys::probe::Outcome;
use crate::sys::probe::features::{KernelFeatures, asked_for, cpuid_faults, kernel_features};
use crate::sys::probe::namespaces::namespaces;
use loader::processor::{AuxiliaryVector, Processor};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const AT_HWCAP2: u64 = 26;
const AT_MINSIGSTKSZ: u64 = 51;
const OWN_IDS: &str = "own_ids";
const CPUID_FAULTS: &str = "cpuid_faults";

impl Platform {
    /// What this machine offers to the calling user, found out by trying (some milliseconds).
    #[must_use]
    pub fn of_this_machine() -> Self {
        let mut here = Platform::without_kernel();
        here.kernel = kernel_names(|_| true);
        here
    }

    /// As [`Platform::of_this_machine`], but of kernel features only those that `needed` names are
    /// tried: what a restart asks before it begins. `own_ids` is not tried and counts as offered,
    /// since the restart itself tries it at once.
    #[must_use]
    pub fn of_this_machine_for(needed: &Platform) -> Self {
        let mut here = Platform::without_kernel();
        here.kernel = kernel_names(|name| name != OWN_IDS && needed.kernel.contains(name));
        here.kernel.insert(OWN_IDS.to_owned());
        here
    }

    /// Everything but kernel features.
    pub(super) fn without_kernel() -> Self {
        let processor = processor();
        Platform {
            features: processor.features().map(str::to_owned).collect(),
            xsave: processor.xsave(),
            layout: processor.layout().collect(),
            sigframe: processor.signal_frame(),
            page: page_size(),
            va: if cpu::wide_addresses() { 56 } else { 47 },
            cpus: usable_cpus(),
            hard: hard_limits(),
            huge: free_huge_pages(),
            max_id: highest_id(),
            ..Platform::default()
        }
    }
}

/// The highest id that a task of a new pid namespace can have: since Linux 6.14 each namespace has a `pid_max` of its own, which is the
/// highest there is (kernel/pid_namespace.c, `create_pid_namespace`), whatever the machine's own is.
fn highest_id() -> u64 {
    /// PID_MAX_LIMIT (include/linux/threads.h), less one.
    const HIGHEST: u64 = (4 << 20) - 1;
    if crate::host::kernel_version() >= (6, 14) {
        return HIGHEST;
    }
    read_number("/proc/sys/kernel/pid_max").map_or(32768, |max| max - 1)
}

/// Where an XSAVE component is in a register set taken here: offset and bytes.
pub(crate) fn component_place(bit: u32) -> Option<(usize, usize)> {
    processor().component_place(bit)
}

/// The processor that runs this.
fn processor() -> Processor {
    Processor::here(AuxiliaryVector {
        hwcap2: cpu::auxv(AT_HWCAP2),
        minsigstksz: cpu::auxv(AT_MINSIGSTKSZ),
    })
}

fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    let size = size
        .ok()
        .flatten()
        .and_then(|size| u64::try_from(size).ok());
    size.unwrap_or(4096)
}

fn usable_cpus() -> BTreeSet<u32> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else {
        return BTreeSet::new();
    };
    (0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect()
}

fn hard_limits() -> Limits {
    let mut limits = Limits {
        unlimited: true,
        listed: BTreeMap::new(),
    };
    // "Max open files            1024                 4096                 files"
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if text.is_empty() {
        return Limits::default();
    }
    for (line, name) in text.lines().skip(1).zip(LIMIT_NAMES) {
        let columns = line.get(26..).unwrap_or("");
        if let Some(hard) = columns.split_ascii_whitespace().nth(1)
            && let Ok(hard) = hard.parse()
        {
            limits.listed.insert(name.to_owned(), hard);
        }
    }
    limits
}

fn free_huge_pages() -> BTreeMap<u32, u64> {
    let mut free = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/sys/kernel/mm/hugepages") else {
        return free;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let size_kib = name
            .to_str()
            .and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB"))
            .and_then(|size| size.parse::<u64>().ok());
        let count = fs::read_to_string(entry.path().join("free_hugepages"));
        let count = count.ok().and_then(|text| text.trim().parse::<u64>().ok());
        if let (Some(size_kib), Some(count)) = (size_kib, count)
            && size_kib.is_power_of_two()
            && count > 0
        {
            free.insert(size_kib.trailing_zeros() + 10, count);
        }
    }
    free
}

fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The kernel features that work, among those that are `wanted`.
fn kernel_names(wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    type Find = fn(&KernelFeatures) -> Outcome;
    let table: [(&str, Find); 6] = [
        ("thp", |tried| tried.transparent_huge_pages),
        ("ksm", |tried| tried.same_page_merging),
        ("anon_names", |tried| tried.names_of_memory),
        ("syscall_dispatch", |tried| tried.syscall_dispatch),
        ("realtime", |tried| tried.realtime),
        ("raise_priority", |tried| tried.raise_priority),
    ];
    let asked_for = asked_for();
    let known = [
        ("rseq", asked_for.rseq),
        ("membarrier", asked_for.membarrier),
        ("mm_map", asked_for.mm_map_known),
    ];
    let known = known.into_iter();
    let works = known.filter(|(name, outcome)| wanted(name) && outcome.works());
    let mut found: BTreeSet<String> = works.map(|(name, _)| name.to_owned()).collect();
    let mut rows = table
        .into_iter()
        .filter(|(name, _)| wanted(name))
        .peekable();
    if rows.peek().is_some() {
        let tried = kernel_features();
        let works = rows.filter(|(_, find)| find(&tried).works());
        found.extend(works.map(|(name, _)| name.to_owned()));
    }
    if wanted(CPUID_FAULTS) && cpuid_faults().works() {
        found.insert(CPUID_FAULTS.to_owned());
    }
    if wanted(OWN_IDS) && namespaces().set_tid.works() {
        found.insert(OWN_IDS.to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{Level, Missing};
    use loader::processor::Lacking;
    use proptest::prelude::*;

    proptest! {
        /// The loader judges the text, the command what was read from it.
        #[test]
        fn loader_and_command_judge_alike(
            unknown in proptest::option::of("[a-z]{9}"),
            without in proptest::collection::vec(any::<prop::sample::Index>(), 0..9),
            state in any::<u64>(),
            within in proptest::option::of(0u64..0x400),
            moved in 0u32..2,
            sigframe in proptest::option::of(0u64..9000),
        ) {
            let here = Platform::without_kernel();
            let mut needed = here.clone();
            for index in without {
                if let Some(name) = needed.features.iter().nth(index.index(here.features.len())).cloned() {
                    needed.features.remove(&name);
                }
            }
            needed.features.extend(unknown);
            needed.xsave &= state;
            needed.xsave |= state & (1 << 50);
            needed.within = within;
            needed.layout.values_mut().for_each(|at| *at += moved);
            needed.sigframe = sigframe;
            let expected = needed.missing(&here);
            let text = needed.to_string();
            let mut found = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), 0, 0);
            processor()
                .lacking(&text, &mut |what| match what {
                    Lacking::Feature(name) => drop(found.0.insert(name.to_owned())),
                    Lacking::State(bit) => drop(found.1.insert(bit)),
                    Lacking::Room(bit) => drop(found.2.insert(bit)),
                    Lacking::Layout { .. } => found.3 += 1,
                    Lacking::SignalFrame { .. } => found.4 += 1,
                })
                .expect("what was displayed can be read");
            let mut wanted = (BTreeSet::new(), 0, 0, 0, 0);
            for what in expected {
                match what {
                    Missing::Features { names, .. } => wanted.0.extend(names),
                    Missing::RegisterState { components } => wanted.1 = components.len(),
                    Missing::RoomForState { components } => wanted.2 = components.len(),
                    Missing::RegisterLayout { .. } => wanted.3 += 1,
                    Missing::SignalFrame { .. } => wanted.4 += 1,
                    other => prop_assert!(false, "{}", other),
                }
            }
            prop_assert_eq!((found.0, found.1.len(), found.2.len(), found.3, found.4), wanted);
        }
    }

    #[test]
    fn this_machine_is_what_the_kernel_says_it_is() {
        let here = Platform::of_this_machine();
        assert_eq!(here.page, 4096);
        assert!(here.level() >= Some(Level::V1), "{here}");
        // /proc/cpuinfo comes from the kernel's own reading of CPUID.
        let info = fs::read_to_string("/proc/cpuinfo").expect("cpuinfo");
        let flags: BTreeSet<&str> = info
            .lines()
            .find_map(|line| line.strip_prefix("flags\t\t: "))
            .expect("flags")
            .split(' ')
            .collect();
        for name in [
            "ssse3",
            "popcnt",
            "aes",
            "avx",
            "avx2",
            "bmi2",
            "avx512f",
            "avx512_vnni",
            "gfni",
            "vaes",
            "sse4a",
            "rdpid",
            "adx",
            "amx_tile",
            "avx512_bf16",
            "xsavec",
            "clzero",
            "fsgsbase",
        ] {
            let found = here.features.contains(name);
            assert_eq!(found, flags.contains(name), "{name}");
        }
        assert_eq!(here.missing(&here), vec![]);
        let asked = Platform::of_this_machine_for(&here);
        assert!(here.kernel.is_subset(&asked.kernel));
        let nothing = Platform::of_this_machine_for(&Platform::default());
        assert_eq!(nothing.kernel, [OWN_IDS.to_owned()].into());
        assert!(!here.cpus.is_empty() && here.max_id >= 300);
        assert!(here.hard.get("nofile").is_some());
    }
}
