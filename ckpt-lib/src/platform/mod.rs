//! CheckpointPlatform: what an image needs of a machine, and what a machine offers.
//!
//! ```text
//! this machine --of_this_machine--> Platform (offers) --+
//! snapshot ------needed_by--------> Platform (needs) ---+--missing--> [] or what is missing, in words
//! ```
//! `LINUX X86_64 v3 +aes,+pclmulqdq xsave=0x7 page=4096 va=47 hard=inf,nofile:4096` is made from
//! what the job may have used, never from the kernel's release. `docs/PLATFORM.md` explains it
//! word by word.
//!
//! # What callers may rely on
//! Needs and offers are the same type and the same text; parsing what was displayed gives the same
//! value. A feature name that this version does not know is kept, and is missing on every machine
//! that does not offer it; a key that it does not know is an error.
//!
//! # What it does not do
//! It does not look at files, descriptors or free ids: those are seen when the restart meets them.

mod machine;
mod needs;
mod text;

pub use loader::processor::Level;
pub(crate) use machine::component_place;
pub use text::ParsePlatformError;

use loader::processor::{self, SAVED_BY_LINKER};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Names of the resource limits, indexed by RLIMIT_*.
pub const LIMIT_NAMES: [&str; 16] = [
    "cpu",
    "fsize",
    "data",
    "stack",
    "core",
    "rss",
    "nproc",
    "nofile",
    "memlock",
    "as",
    "locks",
    "sigpending",
    "msgqueue",
    "nice",
    "rtprio",
    "rttime",
];

/// What a machine offers, or what an image needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    /// Processor features, by the names of `docs/PLATFORM.md`.
    pub features: BTreeSet<String>,
    /// XSAVE components switched on (XCR0), or needed.
    pub xsave: u64,
    /// Byte offset of XSAVE components above 2 in the standard format: processors differ.
    pub layout: BTreeMap<u32, u32>,
    /// Needs: XSAVE components that the dynamic linker found when it measured how much room they take,
    /// if it saves them in a way that fills that room with whatever is switched on (plain XSAVE).
    pub within: Option<u64>,
    /// Page size, bytes.
    pub page: u64,
    /// Bits of a user address.
    pub va: u32,
    /// Offers: bytes of a signal frame. Needs: bytes that the job's alternate stacks have for one.
    pub sigframe: Option<u64>,
    /// CPUs that may be used, or that a thread is bound to.
    pub cpus: BTreeSet<u32>,
    /// Hard limits.
    pub hard: Limits,
    /// Free huge pages, or needed ones, by log2 of their size.
    pub huge: BTreeMap<u32, u64>,
    /// Highest process id that can be given, or that is needed.
    pub max_id: u64,
    /// Kernel features and rights, by name.
    pub kernel: BTreeSet<String>,
    /// The lesser processor that the job was asked to be content with (`run --baseline`). Unless that is
    /// [proven](Platform::proven), the features are those of the whole processor.
    pub requested: Option<Level>,
    /// It could see no other one from its first instruction on.
    pub proven: bool,
}

/// Hard resource limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// What is not listed is unlimited (else: nothing is said about it).
    pub unlimited: bool,
    /// By name; `u64::MAX` is unlimited.
    pub listed: BTreeMap<String, u64>,
}

impl Limits {
    /// The limit called `name`, if anything is said about it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let implied = self.unlimited.then_some(u64::MAX);
        self.listed.get(name).copied().or(implied)
    }
}

/// Something that an image needs and a machine does not offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Missing {
    /// Processor features.
    Features {
        /// Their names.
        names: Vec<String>,
        /// Highest level that the machine has, "v2".
        offered_level: String,
    },
    /// Register state that the machine's kernel or processor does not keep.
    RegisterState {
        /// Names of the components.
        components: Vec<String>,
    },
    /// A register state component lies elsewhere in the XSAVE area.
    RegisterLayout {
        /// Its name.
        component: String,
        /// Offset needed.
        needed: u32,
        /// Offset on the machine.
        offered: u32,
    },
    /// Register state that the job's dynamic linker would save where it has no room for it.
    RoomForState {
        /// Names of the components.
        components: Vec<String>,
    },
    /// Another page size.
    PageSize {
        /// Bytes needed.
        needed: u64,
        /// Bytes offered.
        offered: u64,
    },
    /// Addresses of fewer bits.
    Addresses {
        /// Bits needed.
        needed: u32,
        /// Bits offered.
        offered: u32,
    },
    /// A signal frame of this machine would not fit on the job's alternate signal stacks.
    SignalFrame {
        /// Bytes that the job has for one.
        room: u64,
        /// Bytes that a frame takes.
        frame: u64,
    },
    /// CPUs that a thread of the job is bound to.
    Cpus {
        /// Their numbers.
        numbers: Vec<u32>,
    },
    /// A hard limit that is lower than the job's.
    HardLimit {
        /// Its name, as in `ulimit`.
        name: String,
        /// Needed; `u64::MAX` is unlimited.
        needed: u64,
        /// Offered.
        offered: u64,
    },
    /// Huge pages.
    HugePages {
        /// Bytes of one.
        size: u64,
        /// How many are needed.
        needed: u64,
        /// How many are free.
        offered: u64,
    },
    /// Process ids as high as the job's.
    Ids {
        /// The highest needed.
        needed: u64,
        /// The highest that the machine gives.
        offered: u64,
    },
    /// A feature of the kernel, or a right.
    Kernel {
        /// Its name.
        name: String,
    },
}

impl Platform {
    /// The highest microarchitecture level all of whose features are there.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        let has_all = |level: &Level| {
            let mut needed = level.features();
            needed.all(|name| self.features.contains(name))
        };
        Level::DESCENDING.into_iter().find(has_all)
    }

    /// What `self`, the needs of an image, misses on a machine that offers `offered`.
    #[must_use]
    pub fn missing(&self, offered: &Platform) -> Vec<Missing> {
        let mut missing = vec![];
        self.missing_processor(offered, &mut missing);
        self.missing_grants(offered, &mut missing);
        missing
    }

    /// Whether `what` is missing only if a job that was asked to be content with a lesser processor,
    /// one that `offered` includes, did not obey (`run --baseline`).
    #[must_use]
    pub fn is_beyond_its_request(&self, what: &Missing, offered: &Platform) -> bool {
        let offers = |level: Level| level.features().all(|name| offered.features.contains(name));
        !self.proven
            && self.requested.is_some_and(offers)
            && matches!(
                what,
                Missing::Features { .. } | Missing::RegisterState { .. }
            )
    }

    fn missing_processor(&self, offered: &Platform, missing: &mut Vec<Missing>) {
        let names: Vec<_> = self
            .features
            .difference(&offered.features)
            .cloned()
            .collect();
        if !names.is_empty() {
            let offered_level = offered.level().map_or("none", Level::name).to_owned();
            missing.push(Missing::Features {
                names,
                offered_level,
            });
        }
        let components: Vec<_> = (0..64)
            .filter(|bit| (self.xsave & !offered.xsave) >> bit & 1 != 0)
            .map(component_name)
            .collect();
        if !components.is_empty() {
            missing.push(Missing::RegisterState { components });
        }
        if let Some(within) = self.within {
            let beyond = offered.xsave & SAVED_BY_LINKER & !within;
            let components = (0..64).filter(|bit| beyond >> bit & 1 != 0);
            let components: Vec<_> = components.map(component_name).collect();
            if !components.is_empty() {
                missing.push(Missing::RoomForState { components });
            }
        }
        for (component, needed) in &self.layout {
            if let Some(offered) = offered.layout.get(component).filter(|at| *at != needed) {
                missing.push(Missing::RegisterLayout {
                    component: component_name(*component),
                    needed: *needed,
                    offered: *offered,
                });
            }
        }
        if self.page != offered.page {
            missing.push(Missing::PageSize {
                needed: self.page,
                offered: offered.page,
            });
        }
        if self.va > offered.va {
            missing.push(Missing::Addresses {
                needed: self.va,
                offered: offered.va,
            });
        }
        if let (Some(room), Some(frame)) = (self.sigframe, offered.sigframe)
            && frame > room
        {
            missing.push(Missing::SignalFrame { room, frame });
        }
    }

    fn missing_grants(&self, offered: &Platform, missing: &mut Vec<Missing>) {
        let numbers: Vec<_> = self.cpus.difference(&offered.cpus).copied().collect();
        if !numbers.is_empty() {
            missing.push(Missing::Cpus { numbers });
        }
        let listed = self.hard.listed.keys().map(String::as_str);
        let limits: BTreeSet<_> = LIMIT_NAMES.into_iter().chain(listed).collect();
        for name in limits {
            let (Some(needed), Some(offered)) = (self.hard.get(name), offered.hard.get(name))
            else {
                continue;
            };
            if needed > offered {
                missing.push(Missing::HardLimit {
                    name: name.to_owned(),
                    needed,
                    offered,
                });
            }
        }
        for (shift, needed) in &self.huge {
            let offered = offered.huge.get(shift).copied().unwrap_or(0);
            if *needed > offered {
                missing.push(Missing::HugePages {
                    size: 1u64.checked_shl(*shift).unwrap_or(0),
                    needed: *needed,
                    offered,
                });
            }
        }
        if self.max_id > offered.max_id {
            missing.push(Missing::Ids {
                needed: self.max_id,
                offered: offered.max_id,
            });
        }
        for name in self.kernel.difference(&offered.kernel) {
            missing.push(Missing::Kernel { name: name.clone() });
        }
    }
}

fn component_name(bit: u32) -> String {
    let name = processor::component_name(bit);
    name.map_or_else(|| format!("component-{bit}"), str::to_owned)
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Features {
                names,
                offered_level,
            } => write!(
                f,
                "processor features {} (this processor is {offered_level})",
                names.join(", ")
            ),
            Missing::RegisterState { components } => {
                write!(f, "register state {}", components.join(", "))
            }
            Missing::RegisterLayout {
                component,
                needed,
                offered,
            } => write!(
                f,
                "register state {component} lies at offset {offered} on this processor, expected {needed}"
            ),
            Missing::RoomForState { components } => write!(
                f,
                "this processor has more register state ({}) than the job's dynamic linker has room for, since it saves \
                 it without XSAVEC (start such jobs with LD_BIND_NOW=1)",
                components.join(", ")
            ),
            Missing::PageSize { needed, offered } => {
                write!(f, "pages are {offered} bytes, expected {needed}")
            }
            Missing::Addresses { needed, offered } => {
                write!(f, "addresses have {offered} bits, expected {needed}")
            }
            Missing::SignalFrame { room, frame } => write!(
                f,
                "a signal frame takes {frame} bytes, the job's alternate signal stacks have room for {room}"
            ),
            Missing::Cpus { numbers } => {
                let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
                write!(f, "CPUs {} that threads are bound to", numbers.join(", "))
            }
            Missing::HardLimit {
                name,
                needed,
                offered,
            } => write!(
                f,
                "hard limit {name} is {}, expected at least {}",
                text::limit(*offered),
                text::limit(*needed)
            ),
            Missing::HugePages {
                size,
                needed,
                offered,
            } => write!(
                f,
                "{offered} free huge pages of {} KiB, expected {needed}",
                size / 1024
            ),
            Missing::Ids { needed, offered } => {
                write!(
                    f,
                    "process ids go up to {offered}, expected at least {needed}"
                )
            }
            Missing::Kernel { name } => write!(f, "{}", needs::kernel_feature_text(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(level: Level) -> Platform {
        Platform {
            features: level.features().map(str::to_owned).collect(),
            xsave: level.xsave(),
            page: 4096,
            va: 47,
            hard: Limits {
                unlimited: true,
                listed: [("nofile".to_owned(), 4096)].into(),
            },
            max_id: 32768,
            ..Platform::default()
        }
    }

    #[test]
    fn a_machine_may_run_what_a_lesser_one_ran_but_not_the_reverse() {
        let (old, new) = (machine(Level::V3), machine(Level::V4));
        assert_eq!(old.missing(&new), vec![]);
        let missing = new.missing(&old);
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].to_string().contains("avx512f"));
        assert!(missing[0].to_string().contains("v3"));
        assert!(missing[1].to_string().contains("avx512-opmask"));
    }

    #[test]
    fn each_thing_that_is_missing_is_named() {
        let offered = machine(Level::V3);
        let mut needed = machine(Level::V3);
        needed.features.insert("sha".into());
        needed.cpus.insert(7);
        needed.hard.listed.insert("nofile".into(), u64::MAX);
        needed.huge.insert(21, 3);
        needed.max_id = 40000;
        needed.va = 56;
        needed.kernel.insert("rseq".into());
        needed.sigframe = Some(2048);
        let mut offered_frame = offered.clone();
        offered_frame.sigframe = Some(3632);
        let words: Vec<_> = needed
            .missing(&offered_frame)
            .iter()
            .map(Missing::to_string)
            .collect();
        let expected = [
            "sha",
            "56",
            "3632",
            "CPUs 7",
            "nofile is 4096, expected at least unlimited",
            "2048 KiB, expected 3",
            "40000",
            "restartable",
        ];
        assert_eq!(words.len(), expected.len(), "{words:?}");
        for (word, expected) in words.iter().zip(expected) {
            assert!(word.contains(expected), "{word}: {expected}");
        }
    }

    #[test]
    fn a_moved_component_is_missing_and_the_kernel_release_is_nowhere() {
        let mut needed = machine(Level::V4);
        needed.layout.insert(5, 1088);
        let mut offered = machine(Level::V4);
        offered.layout.insert(5, 832);
        assert_eq!(needed.missing(&offered).len(), 1);
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("release");
        let here = Platform::of_this_machine().to_string();
        assert!(!here.contains(release.trim()), "{here}");
    }
}
