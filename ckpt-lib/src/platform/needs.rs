//! What an image needs of a machine, read out of a snapshot.

use super::{LIMIT_NAMES, Level, Platform};
use crate::snapshot::{
    InodeKind, Mapping, MappingKind, Process, SnapshotV1, Thread, mapping_flags,
};
use loader::processor::{SAVED_BY_LINKER, USUAL_PKRU, component};
use loader::xstate::{IN_USE_AT, XCR0_AT};
use std::collections::BTreeSet;

/// Bit of AMX tile data, for which a process needs permission.
const TILE_DATA: u64 = 1 << 18;
/// What programs see without CPUID: the kernel tells of it in the auxiliary vector.
const NOT_HIDDEN: [&str; 1] = ["fsgsbase"];
const SS_DISABLE: u32 = 2;
/// First address that needs more than 47 bits.
const WIDE: u64 = 1 << 47;
/// Limits whose default is derived from the size of the machine: the restart sets what it can.
const SIZE_OF_MACHINE: [&str; 3] = ["nproc", "sigpending", "memlock"];

impl Platform {
    /// What `snapshot`, taken on this machine, needs of the machine that restarts it.
    #[must_use]
    pub fn needed_by(snapshot: &SnapshotV1) -> Self {
        Platform::needed_on(snapshot, &Platform::without_kernel())
    }

    /// What `snapshot` needs, if it was taken on a machine that offered `taken_on`: every processor
    /// feature that the job could see there, and of the rest what it uses.
    #[must_use]
    pub fn needed_on(snapshot: &SnapshotV1, taken_on: &Platform) -> Self {
        let processes = &snapshot.processes;
        let threads = || processes.iter().flat_map(|process| &process.threads);
        let tiles = processes
            .iter()
            .any(|process| process.xcomp_permitted & TILE_DATA != 0);
        let mut needed = Platform {
            features: taken_on.features.clone(),
            page: taken_on.page,
            va: 47,
            ..Platform::default()
        };
        let used = threads().fold(0, |used, thread| used | live_components(thread));
        let visible = threads().fold(0, |seen, thread| seen | word(&thread.xstate, XCR0_AT));
        needed.xsave = used | (visible & taken_on.xsave) | 3;
        if visible == 0 {
            needed.xsave |= taken_on.xsave;
        }
        if !tiles {
            needed.features.retain(|name| !name.starts_with("amx_"));
            needed.xsave &= !component::AMX;
        }
        let plain_xsave =
            taken_on.features.contains("osxsave") && !taken_on.features.contains("xsavec");
        if plain_xsave && processes.iter().any(is_dynamic) {
            needed.within = Some(taken_on.xsave & SAVED_BY_LINKER);
        }
        needed.layout = taken_on.layout.clone();
        let xsave = needed.xsave;
        needed.layout.retain(|bit, _| xsave >> bit & 1 != 0);
        needed.sigframe = room_for_signal_frames(threads(), taken_on.sigframe);
        needed.cpus = bound_cpus(threads(), &taken_on.cpus);
        for process in processes {
            needed.add_limits(process);
            needed.add_memory(process);
        }
        needed.add_huge_pages(snapshot);
        let ids = threads().map(|thread| thread.tid);
        needed.max_id = ids.max().map_or(0, u64::from);
        needed.kernel = kernel_features(snapshot);
        needed
    }

    /// Notes the lesser processor that the job was asked to be content with. Its dynamic linker then
    /// saves register state with plain XSAVE, whatever the processor has.
    pub fn add_request(&mut self, snapshot: &SnapshotV1, level: Level) {
        self.requested = Some(level);
        let dynamic = snapshot.processes.iter().any(is_dynamic);
        if level != Level::V4 && dynamic && self.features.contains("osxsave") {
            self.within = Some(self.xsave & SAVED_BY_LINKER);
        }
    }

    /// The job could see no other processor than that: the requirement shrinks to it and to what registers
    /// hold. To be called after [`Platform::add_request`].
    pub fn add_proof(&mut self, snapshot: &SnapshotV1, level: Level) {
        let of_level: BTreeSet<_> = level.features().collect();
        let threads = || {
            snapshot
                .processes
                .iter()
                .flat_map(|process| &process.threads)
        };
        let dynamic = snapshot.processes.iter().any(is_dynamic);
        self.proven = true;
        // Without XSAVEC, which is hidden, it saves what there is.
        self.within = (level >= Level::V3 && dynamic).then_some(self.xsave & SAVED_BY_LINKER);
        self.features
            .retain(|name| of_level.contains(name.as_str()) || NOT_HIDDEN.contains(&name.as_str()));
        let mut used = threads().fold(0, |used, thread| used | live_components(thread));
        let pkru_at = snapshot.enforcement.pkru_at as usize;
        let usual = |thread: &Thread| {
            let pkru = thread.xstate.get(pkru_at..pkru_at + 4);
            pkru == Some(&USUAL_PKRU.to_le_bytes()[..])
        };
        if pkru_at != 0 && threads().all(usual) {
            used &= !component::PKRU;
        }
        self.xsave = used | self.xsave & level.xsave();
        // Where PKRU is must be true also where it is not needed.
        let placed = self.xsave | component::PKRU;
        self.layout.retain(|bit, _| placed >> bit & 1 != 0);
        // Where CPUID does not fault the job goes on, and sees that processor.
        self.kernel.remove("cpuid_faults");
    }

    fn add_limits(&mut self, process: &Process) {
        for (name, (_, hard)) in LIMIT_NAMES.iter().zip(&process.rlimits) {
            if SIZE_OF_MACHINE.contains(name) || *hard == 0 {
                continue;
            }
            let listed = self.hard.listed.entry((*name).to_owned()).or_default();
            *listed = (*listed).max(*hard);
        }
    }

    fn add_memory(&mut self, process: &Process) {
        let mappings = &process.memory.mappings;
        if mappings.iter().any(|mapping| mapping.end > WIDE) {
            self.va = 56;
        }
        let locked = mappings
            .iter()
            .filter(|mapping| mapping.has(mapping_flags::LOCKED))
            .fold(0u64, |sum, mapping| sum.saturating_add(mapping.len()));
        if locked > 0 {
            let limit = self.hard.listed.entry("memlock".to_owned()).or_default();
            *limit = (*limit).max(locked);
        }
    }

    fn add_huge_pages(&mut self, snapshot: &SnapshotV1) {
        let mut add = |shift: u32, bytes: u64| {
            let pages = bytes.div_ceil(1u64.checked_shl(shift).unwrap_or(u64::MAX));
            let count = self.huge.entry(shift).or_default();
            *count = count.saturating_add(pages);
        };
        for mapping in all_mappings(snapshot) {
            if let MappingKind::Anonymous { huge_shift } = mapping.kind
                && huge_shift != 0
            {
                add(huge_shift, mapping.len());
            }
        }
        for inode in &snapshot.inodes {
            if let InodeKind::MemFd { huge_shift, .. } = inode.kind
                && huge_shift != 0
            {
                add(huge_shift, inode.size);
            }
        }
    }
}

fn all_mappings(snapshot: &SnapshotV1) -> impl Iterator<Item = &Mapping> {
    let spaces = snapshot.processes.iter().map(|process| &process.memory);
    spaces.flat_map(|memory| &memory.mappings)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let raw = bytes.get(at..at + 8).and_then(|raw| raw.try_into().ok());
    raw.map_or(0, u64::from_le_bytes)
}

fn live_components(thread: &Thread) -> u64 {
    word(&thread.xstate, IN_USE_AT)
}

/// Bytes of the smallest alternate stack, but never less than a frame took on the old machine:
/// a stack smaller than that did not work there either.
fn room_for_signal_frames<'a>(
    threads: impl Iterator<Item = &'a Thread>,
    frame_there: Option<u64>,
) -> Option<u64> {
    let stacks = threads.map(|thread| thread.alternate_stack);
    let enabled = stacks.filter(|stack| stack.flags & SS_DISABLE == 0 && stack.size != 0);
    let smallest = enabled.map(|stack| stack.size).min()?;
    Some(smallest.max(frame_there.unwrap_or(0)))
}

/// CPUs that threads are bound to, leaving out threads that may run on every CPU of the machine.
fn bound_cpus<'a>(
    threads: impl Iterator<Item = &'a Thread>,
    there: &BTreeSet<u32>,
) -> BTreeSet<u32> {
    let mut bound = BTreeSet::new();
    for thread in threads {
        let allowed: BTreeSet<u32> = (0u32..)
            .zip(&thread.affinity)
            .flat_map(|(index, byte)| {
                let bits = (0..8u32).filter(move |bit| byte >> bit & 1 != 0);
                bits.map(move |bit| index * 8 + bit)
            })
            .collect();
        if !there.is_subset(&allowed) {
            bound.extend(allowed);
        }
    }
    bound
}

fn kernel_features(snapshot: &SnapshotV1) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut need = |name: &str, needed: bool| {
        if needed {
            names.insert(name.to_owned());
        }
    };
    let processes = &snapshot.processes;
    let any_thread = |test: &dyn Fn(&Thread) -> bool| {
        let mut threads = processes.iter().flat_map(|process| &process.threads);
        threads.any(test)
    };
    let any_mapping = |flag: u32| all_mappings(snapshot).any(|mapping| mapping.has(flag));
    let named = |mapping: &Mapping| !mapping.name.0.is_empty();
    need("own_ids", !crate::plan::ids_may_change(snapshot));
    need("mm_map", !processes.is_empty());
    need("rseq", any_thread(&|thread| thread.rseq.is_some()));
    need("membarrier", processes.iter().any(|p| p.membarrier != 0));
    let huge = mapping_flags::HUGEPAGE | mapping_flags::NOHUGEPAGE;
    need("thp", any_mapping(huge));
    need("ksm", any_mapping(mapping_flags::MERGEABLE));
    need("anon_names", all_mappings(snapshot).any(named));
    let dispatch = |thread: &Thread| thread.syscall_dispatch.is_some();
    need("syscall_dispatch", any_thread(&dispatch));
    need("cpuid_faults", any_thread(&|thread| thread.cpuid_faults));
    let realtime = |thread: &Thread| matches!(thread.scheduling.policy, 1 | 2 | 6);
    need("realtime", any_thread(&realtime));
    need(
        "raise_priority",
        any_thread(&|thread| thread.scheduling.nice < 0),
    );
    names
}

/// A kernel feature in words.
pub(super) fn kernel_feature_text(name: &str) -> String {
    let text = match name {
        "own_ids" => {
            "process ids of the job's own (user and pid namespaces and clone3 with set_tid)"
        }
        "mm_map" => "prctl PR_SET_MM_MAP (CONFIG_CHECKPOINT_RESTORE)",
        "rseq" => "restartable sequences (CONFIG_RSEQ)",
        "membarrier" => "the membarrier call",
        "thp" => "transparent huge pages",
        "ksm" => "merging of equal pages (CONFIG_KSM)",
        "anon_names" => "names of anonymous memory (CONFIG_ANON_VMA_NAME)",
        "syscall_dispatch" => "syscall user dispatch",
        "cpuid_faults" => "CPUID faulting",
        "realtime" => "the right to real-time scheduling",
        "raise_priority" => "the right to negative nice values",
        other => return format!("kernel feature {other}"),
    };
    text.to_owned()
}

/// Whether the process was started by a dynamic linker: AT_BASE says where that is.
fn is_dynamic(process: &Process) -> bool {
    const AT_BASE: u64 = 7;
    let words = process.memory.auxv.as_chunks::<8>().0;
    let mut entries = words.as_chunks::<2>().0.iter();
    entries.any(|[key, value]| u64::from_le_bytes(*key) == AT_BASE && *value != [0; 8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Missing;
    use crate::snapshot::{AddressSpace, AlternateStack};

    fn machine() -> Platform {
        let text = "LINUX X86_64 v4 +aes,+amx_tile xsave=0x602e7 layout=5@832,6@896,7@1408,9@2432 \
            page=4096 va=56 sigframe=3632 cpus=0-7 hard=inf,nofile:4096 maxid=32767 \
            kernel=mm_map,own_ids";
        text.parse().expect("platform")
    }

    fn thread(tid: u32) -> Thread {
        let mut xstate = vec![0; 2440];
        xstate[XCR0_AT..XCR0_AT + 8].copy_from_slice(&0x602e7u64.to_le_bytes());
        Thread {
            tid,
            affinity: vec![0xff],
            xstate,
            ..Thread::default()
        }
    }

    fn snapshot(threads: Vec<Thread>) -> SnapshotV1 {
        SnapshotV1 {
            processes: vec![Process {
                threads,
                ..Process::default()
            }],
            ..SnapshotV1::default()
        }
    }

    #[test]
    fn a_plain_job_needs_the_processor_it_saw_but_not_tiles_it_may_not_use() {
        let needed = Platform::needed_on(&snapshot(vec![thread(40)]), &machine());
        assert_eq!(needed.missing(&machine()), vec![]);
        assert!(needed.features.contains("aes") && !needed.features.contains("amx_tile"));
        assert_eq!(needed.xsave, 0x2e7);
        assert_eq!((needed.va, needed.max_id, needed.sigframe), (47, 40, None));
        assert!(needed.cpus.is_empty(), "a thread bound to nothing");
        let mut with_tiles = snapshot(vec![thread(40)]);
        with_tiles.processes[0].xcomp_permitted = 0x602e7;
        let needed = Platform::needed_on(&with_tiles, &machine());
        assert_eq!(needed.xsave, 0x602e7);
        assert!(needed.features.contains("amx_tile"));
    }

    #[test]
    fn a_dynamic_job_that_saves_state_with_plain_xsave_needs_a_machine_with_no_more_of_it() {
        let mut lesser = machine();
        lesser
            .features
            .retain(|name| !name.starts_with("avx512") && name != "xsavec");
        lesser.features.insert("osxsave".to_owned());
        lesser.xsave = 7;
        let mut job = snapshot(vec![thread(40)]);
        let needed = Platform::needed_on(&job, &lesser);
        assert_eq!(needed.within, None, "a static program");
        let word = |value: u64| value.to_le_bytes();
        job.processes[0].memory.auxv =
            [word(6), word(4096), word(7), word(0x7f00_0000_0000)].concat();
        let needed = Platform::needed_on(&job, &lesser);
        assert_eq!(needed.within, Some(6));
        assert_eq!(needed.missing(&lesser), vec![]);
        let components = ["avx512-opmask", "avx512-zmm-high", "avx512-zmm16-31"];
        let components = components.map(str::to_owned).to_vec();
        assert!(
            needed
                .missing(&machine())
                .contains(&Missing::RoomForState { components })
        );
        lesser.features.insert("xsavec".to_owned());
        let mut needed = Platform::needed_on(&job, &lesser);
        assert_eq!(needed.within, None);
        needed.add_request(&job, Level::V3);
        assert_eq!(needed.within, Some(6));
    }

    #[test]
    fn a_proof_shrinks_the_requirement_to_the_level_and_what_registers_hold() {
        let mut there = machine();
        there.features = Level::V4.features().map(str::to_owned).collect();
        there
            .features
            .extend(["aes", "fsgsbase", "xsavec"].map(str::to_owned));
        there.xsave = 0x2e7;
        there.layout = [(5, 1088), (6, 1152), (9, 2688)].into();
        let with = |in_use: u64, pkru: u32| {
            let mut thread = thread(10);
            thread.cpuid_faults = true;
            thread.xstate = vec![0; 2696];
            thread.xstate[XCR0_AT..XCR0_AT + 8].copy_from_slice(&0x2e7u64.to_le_bytes());
            thread.xstate[IN_USE_AT..IN_USE_AT + 8].copy_from_slice(&in_use.to_le_bytes());
            thread.xstate[2688..2692].copy_from_slice(&pkru.to_le_bytes());
            let mut snapshot = snapshot(vec![thread]);
            snapshot.enforcement.pkru_at = 2688;
            let mut needed = Platform::needed_on(&snapshot, &there);
            needed.add_request(&snapshot, Level::V3);
            needed.add_proof(&snapshot, Level::V3);
            needed
        };
        let needed = with(0x203, USUAL_PKRU);
        assert_eq!(needed.level(), Some(Level::V3));
        assert!(!needed.features.contains("aes") && needed.features.contains("fsgsbase"));
        assert_eq!(needed.xsave, 7);
        // Where PKRU lies elsewhere it cannot be given back.
        assert_eq!(needed.layout, [(9, 2688)].into());
        assert!(!needed.kernel.contains("cpuid_faults"));
        assert!(needed.to_string().ends_with("baseline=v3,proven"));
        // Registers of AVX-512 hold something all the same, or a key was opened.
        assert_eq!(with(0x243, USUAL_PKRU).xsave, 0x47);
        assert_eq!(with(0x203, 0).xsave, 0x207);
        let lesser = Platform {
            features: Level::V3
                .features()
                .chain(["fsgsbase"])
                .map(str::to_owned)
                .collect(),
            xsave: 7,
            ..machine()
        };
        let missing = needed.missing(&lesser);
        assert!(
            !missing
                .iter()
                .any(|what| matches!(what, super::super::Missing::Features { .. })),
            "{missing:?}"
        );
        assert!(
            !missing
                .iter()
                .any(|what| needed.is_beyond_its_request(what, &lesser))
        );
    }

    #[test]
    fn bound_threads_limits_locks_and_alternate_stacks_become_needs() {
        let mut bound = thread(41);
        bound.affinity = vec![0b1001];
        bound.alternate_stack = AlternateStack {
            address: 0x1000,
            flags: 0,
            size: 8192,
        };
        bound.scheduling.nice = -3;
        let mut job = snapshot(vec![thread(40), bound]);
        let process = &mut job.processes[0];
        process.rlimits = vec![(u64::MAX, u64::MAX); 16];
        process.rlimits[7] = (1024, 5000);
        process.memory = AddressSpace {
            mappings: vec![Mapping {
                start: 0x7000_0000,
                end: 0x7040_0000,
                prot: 3,
                kind: MappingKind::Anonymous { huge_shift: 21 },
                flags: mapping_flags::LOCKED,
                pkey: 0,
                name: Default::default(),
            }],
            ..AddressSpace::default()
        };
        let needed = Platform::needed_on(&job, &machine());
        assert_eq!(needed.cpus, [0, 3].into());
        assert_eq!(needed.sigframe, Some(8192));
        assert_eq!(needed.hard.get("nofile"), Some(5000));
        assert_eq!(needed.hard.get("nproc"), None);
        assert_eq!(needed.hard.get("memlock"), Some(0x40_0000));
        assert_eq!(needed.huge, [(21, 2)].into());
        assert!(needed.kernel.contains("raise_priority"));
        let words: Vec<_> = needed
            .missing(&machine())
            .iter()
            .map(|m| m.to_string())
            .collect();
        assert!(
            words.iter().any(|word| word.contains("nofile")),
            "{words:?}"
        );
    }
}
