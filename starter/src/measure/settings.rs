//! What the configuration says about measuring: plain values, so that whoever reads the configuration language fills them in.

use super::busy::BusyTime;
use super::custom::Custom;
use super::facts::Facts;
use super::idle::Watched;
use classad::Expr;
use classad::config::Dialect;
use std::path::PathBuf;
use std::sync::Arc;

/// How many slots notice the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// SLOTS_CONNECTED_TO_CONSOLE (6.x: VIRTUAL_MACHINES_CONNECTED_TO_CONSOLE, CONSOLE_CPUS).
    pub consoles: u32,
    /// SLOTS_CONNECTED_TO_KEYBOARD (6.x: VIRTUAL_MACHINES_CONNECTED_TO_KEYBOARD, KEYBOARD_CPUS).
    pub keyboards: u32,
    /// DISCONNECTED_KEYBOARD_IDLE_BOOST.
    pub boost_s: i64,
}

impl Connected {
    /// Every slot notices everything, as a desktop is configured.
    pub const ALL: Connected = Connected {
        consoles: u32::MAX,
        keyboards: u32::MAX,
        boost_s: 1200,
    };

    /// What is so where nothing is configured.
    #[must_use]
    pub fn default_of(dialect: Dialect, cpus: u32) -> Self {
        let (consoles, keyboards) = match dialect {
            Dialect::V6_1 | Dialect::V6_8 => (cpus, 1),
            Dialect::V25 => (0, 0),
        };
        Connected {
            consoles,
            keyboards,
            boost_s: 1200,
        }
    }
}

/// What the configuration says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The era.
    pub dialect: Dialect,
    /// STARTD_NAME, instead of the host's name.
    pub name: Option<String>,
    /// FULL_HOSTNAME, instead of what the machine says.
    pub host: Option<String>,
    /// FILESYSTEM_DOMAIN; the host's name if there is none.
    pub file_system_domain: Option<String>,
    /// UID_DOMAIN; the host's name if there is none.
    pub uid_domain: Option<String>,
    /// NUM_CPUS; what was detected if there is none.
    pub cpus: Option<u32>,
    /// COUNT_HYPERTHREAD_CPUS.
    pub counts_threads: bool,
    /// MEMORY, MiB; what was detected if there is none.
    pub memory_mib: Option<u64>,
    /// RESERVED_MEMORY, MiB.
    pub reserved_memory_mib: u64,
    /// EXECUTE: where jobs have their files.
    pub execute: PathBuf,
    /// RESERVED_DISK, MiB.
    pub reserved_disk_mib: u64,
    /// CONSOLE_DEVICES, STARTD_HAS_BAD_UTMP and the like.
    pub watched: Watched,
    /// How many slots notice the owner.
    pub connected: Connected,
    /// What `CpuBusyTime` means.
    pub busy_time: BusyTime,
    /// RANK; 0.0 if there is none.
    pub rank: Option<Arc<Expr>>,
    /// The expression CpuBusy itself, which others may see.
    pub cpu_busy: Option<Arc<Expr>>,
    /// MAXJOBRETIREMENTTIME; 0 if there is none.
    pub max_job_retirement_time: Option<Arc<Expr>>,
    /// MachineMaxVacateTime.
    pub machine_max_vacate_time: Option<Arc<Expr>>,
    /// What an image needs of this machine, and this machine offers (docs/PLATFORM.md).
    pub checkpoint_platform: Option<String>,
    /// Whether jobs can have namespaces of their own, if that was tried.
    pub has_user_namespaces: Option<bool>,
    /// `<host:port>`, where there is somebody to talk to.
    pub address: Option<String>,
    /// STARTD_ATTRS.
    pub custom: Custom,
    /// STARTD_SLOT_ATTRS (6.x: STARTD_VM_EXPRS): what each slot shows of all.
    pub shared: Vec<String>,
}

impl Settings {
    /// Nothing is configured.
    #[must_use]
    pub fn default_of(dialect: Dialect, cpus: u32) -> Self {
        Settings {
            dialect,
            name: None,
            host: None,
            file_system_domain: None,
            uid_domain: None,
            cpus: None,
            counts_threads: true,
            memory_mib: None,
            reserved_memory_mib: 0,
            execute: std::env::temp_dir(),
            reserved_disk_mib: 0,
            watched: Watched::default(),
            connected: Connected::default_of(dialect, cpus),
            busy_time: match dialect {
                Dialect::V6_1 | Dialect::V6_8 => BusyTime::Seconds,
                Dialect::V25 => BusyTime::Moment,
            },
            rank: None,
            cpu_busy: None,
            max_job_retirement_time: None,
            machine_max_vacate_time: None,
            checkpoint_platform: None,
            has_user_namespaces: None,
            address: None,
            custom: Custom::default(),
            shared: vec![],
        }
    }

    /// `DetectedCpus`: as many as the machine has.
    #[must_use]
    pub fn detected(&self, facts: &Facts) -> u32 {
        match self.counts_threads {
            true => facts.processors.threads,
            false => facts.processors.cores,
        }
    }

    /// `TotalCpus`: as many as are offered.
    #[must_use]
    pub fn cpus_of(&self, facts: &Facts) -> u32 {
        self.cpus.unwrap_or_else(|| self.detected(facts))
    }

    /// `TotalMemory`, MiB: what is offered, less what is reserved.
    #[must_use]
    pub fn memory_mib_of(&self, facts: &Facts) -> u64 {
        let all = self.memory_mib.unwrap_or_else(|| facts.memory_mib());
        all.saturating_sub(self.reserved_memory_mib)
    }
}
