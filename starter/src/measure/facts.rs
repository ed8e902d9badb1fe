//! What a machine is, for as long as it runs.

use super::read::{Distribution, Memory, Processors, full_name};
use super::source::{Document, MeasureError, Source, System, understood};

/// An operating system in the words of machine ads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatingSystem {
    /// `LINUX`.
    pub opsys: String,
    /// Which Linux.
    pub distribution: Distribution,
}

/// What a machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `X86_64`.
    pub arch: String,
    /// Its operating system.
    pub operating_system: OperatingSystem,
    /// Its name with the domain, as far as the machine itself knows one.
    pub host: String,
    /// uname(2).
    pub system: System,
    /// Its processors.
    pub processors: Processors,
    /// Its memory, or as much of it as this process' control group may have.
    pub memory_kib: u64,
}

impl Facts {
    /// Asks the machine.
    ///
    /// # Errors
    /// [`MeasureError`] if it does not tell its processors or its memory. What it does not tell about its distribution is `Unknown`.
    pub fn of(source: &dyn Source) -> Result<Self, MeasureError> {
        let system = source.system();
        let may_miss = |document| source.read(document).unwrap_or_default();
        let distribution =
            Distribution::parse(&may_miss(Document::Issue), &may_miss(Document::OsRelease));
        let processors = Document::Processors;
        let memory = understood(source, Document::Memory, "MemTotal", Memory::parse)?;
        let limit = source.memory_limit().map(|bytes| bytes / 1024);
        Ok(Facts {
            arch: arch(&system.machine),
            operating_system: OperatingSystem {
                opsys: system.sysname.to_ascii_uppercase(),
                distribution,
            },
            host: full_name(&may_miss(Document::Hosts), &system.nodename),
            processors: understood(source, processors, "a processor", Processors::parse)?,
            memory_kib: limit.map_or(memory.total_kib, |limit| memory.total_kib.min(limit)),
            system,
        })
    }

    /// All of its memory in MiB, as `DetectedMemory` has it.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        self.memory_kib / 1024
    }
}

/// Names of architectures in Condor's words.
fn arch(machine: &str) -> String {
    let name = match machine {
        "x86_64" | "amd64" => "X86_64",
        "i386" | "i486" | "i586" | "i686" | "i86pc" => "INTEL",
        "alpha" => "ALPHA",
        "ia64" => "IA64",
        "ppc" | "ppc32" => "PPC",
        "ppc64" => "PPC64",
        other => other,
    };
    name.to_owned()
}
