//! The snapshot: a stopped process tree as plain records.
//!
//! ```text
//! Snapshot
//!  |- inodes        what has bytes or a name: files, memfds, shared memory, directories, devices
//!  |- pipes, sockets, epolls ...   inside Description
//!  |- descriptions  open file descriptions: flags, offset, kind; shared by dup and fork
//!  `- processes     address space, descriptor table, signals, timers, threads
//! ```
//! # What callers may rely on
//! Records hold no live handle, only numbers, bytes and indices into the
//! snapshot's own tables; they can be stored, compared and made up in tests.
//! Contents of memory and files are not here but in extents (see `image`).
//! Every id is the one the job itself sees (inside its pid namespace).
//!
//! # What it does not do
//! It does not know how it was captured (`capture`) or how it is restored (`plan`).

mod descriptions;
mod memory;
mod process;
mod settings;
mod thread;
mod unread;

pub use descriptions::*;
pub use memory::*;
pub use process::*;
pub use settings::*;
pub use thread::*;
pub use unread::*;

use serde::{Deserialize, Serialize};

/// A path or name as the kernel has it: bytes, not necessarily UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelPath(pub Vec<u8>);

/// For people ([`loader::visible`]).
impl std::fmt::Display for KernelPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        loader::visible::Visible(&self.0).fmt(f)
    }
}

impl From<&[u8]> for KernelPath {
    fn from(bytes: &[u8]) -> Self {
        KernelPath(bytes.to_vec())
    }
}

/// A whole job, stopped at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SnapshotV1 {
    /// Where and when it was taken.
    pub taken: Taken,
    /// Clocks as the job saw them.
    pub clocks: Clocks,
    /// User and group ids as the job saw them.
    pub identity: Identity,
    /// The CheckpointPlatform string (`platform`), also in its own section.
    pub platform: String,
    /// Everything with a name or with bytes.
    pub inodes: Vec<InodeRecord>,
    /// Open file descriptions.
    pub descriptions: Vec<Description>,
    /// Pipes that live within the job.
    pub pipes: Vec<PipeRecord>,
    /// Sockets that live within the job.
    pub sockets: Vec<SocketRecord>,
    /// The processes, parents before children; the first is the job's root.
    pub processes: Vec<Process>,
    /// What the job was called. Behind all else in the image, where older ones have nothing.
    #[serde(skip)]
    pub job: JobLabel,
    /// How CPUID was answered. Behind the label, where older images have nothing.
    #[serde(skip)]
    pub enforcement: Enforcement,
    /// It saw nothing of the machine (`--confine`), and goes on only so. Behind all else, where older images have nothing.
    #[serde(skip)]
    pub confined: bool,
}

/// Whether the job could see more than a lesser processor (`run --baseline`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// The pages that answer CPUID in its processes, if they do; else empty.
    pub pages: Vec<u8>,
    /// Where PKRU is in the threads' register sets; 0 if it is not.
    pub pkru_at: u32,
    /// If it was asked for and is not so: why.
    pub missing: String,
}

/// What a job was called, so that a restart from the image alone can call it so again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLabel {
    /// Its name; empty if it was no job of wayfarer's.
    pub name: String,
    /// Program and arguments as the user gave them; empty if that is not known.
    pub command: Vec<KernelPath>,
}

/// Circumstances of a checkpoint, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Seconds since 1970.
    pub unix_seconds: u64,
    /// Host name.
    pub host: String,
    /// `uname -r`; never compared.
    pub kernel: String,
    /// Version of wayfarer.
    pub wayfarer: String,
    /// 1 for the first checkpoint of a job, and so on over restarts.
    pub generation: u64,
}

/// Clocks as the job saw them (its time namespace's offsets included).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub monotonic_ns: u64,
    /// CLOCK_MONOTONIC_RAW, nanoseconds.
    pub monotonic_raw_ns: u64,
    /// CLOCK_BOOTTIME, nanoseconds.
    pub boottime_ns: u64,
    /// CLOCK_REALTIME, nanoseconds since 1970.
    pub realtime_ns: u64,
}

/// Who the job was, by its own view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Real user id (effective and saved must be the same).
    pub uid: u32,
    /// Real group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// It lived in a pid namespace of its own, whose pid 1 was ours.
    pub own_pid_namespace: bool,
}
