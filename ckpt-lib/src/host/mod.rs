//! What this machine lets this user do, found out by trying each thing once.
//!
//! ```text
//! Host::probe --children that try, files that tell--> Host --facts--> lines for `doctor`
//! ```
//! # What callers may rely on
//! A probe leaves no process behind, changes nothing in the caller and takes some tens of
//! milliseconds; every wait has a deadline. A [`Trial`] that says `Works` was really carried out.
//!
//! # What it does not do
//! It does not decide anything: the parts of the engine look at the fields they care about.

mod facts;

pub use facts::{Fact, Severity, Verdict};

use crate::sys::probe::Outcome;
use crate::sys::probe::features::{cpuid_faults, kernel_features};
use crate::sys::probe::namespaces::namespaces;
use crate::sys::probe::programs::programs;
use crate::sys::probe::tracing::tracing;
use nix::sys::statvfs::{FsFlags, statvfs};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Oldest kernel that the engine supports.
pub const OLDEST_KERNEL: (u32, u32) = (5, 15);

/// How trying something went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trial {
    /// It worked.
    Works,
    /// The kernel refused.
    Refused {
        /// With this error number.
        errno: i32,
    },
    /// It could not be tried, since something before it failed.
    #[default]
    Untried,
}

impl Trial {
    /// Whether it worked.
    #[must_use]
    pub fn works(self) -> bool {
        self == Trial::Works
    }
}

impl From<Outcome> for Trial {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Works => Trial::Works,
            Outcome::Errno(errno) => Trial::Refused { errno },
            Outcome::Untried => Trial::Untried,
        }
    }
}

/// Everything that was found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `uname -r`.
    pub kernel_release: String,
    /// Its first two numbers.
    pub kernel_version: (u32, u32),
    /// There is a /proc.
    pub proc: bool,
    /// A user namespace of one's own.
    pub user_namespace: Trial,
    /// Mapping one's own user id into it.
    pub uid_map: Trial,
    /// Mapping one's own group id into it.
    pub gid_map: Trial,
    /// A pid namespace inside it.
    pub pid_namespace: Trial,
    /// A mount namespace inside it.
    pub mount_namespace: Trial,
    /// Mounting a /proc of its own.
    pub proc_mount: Trial,
    /// A time namespace inside it.
    pub time_namespace: Trial,
    /// Setting its clocks' offsets.
    pub clock_offsets: Trial,
    /// Creating a process with a chosen id in the pid namespace.
    pub set_tid: Trial,
    /// Setting `/proc/self/exe` in the user namespace.
    pub program_file: Trial,
    /// `PTRACE_SEIZE` of a child.
    pub attach: Trial,
    /// `PTRACE_GET_RSEQ_CONFIGURATION`.
    pub rseq_configuration: Trial,
    /// `PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG`.
    pub syscall_dispatch_configuration: Trial,
    /// `pidfd_getfd` from a child.
    pub pidfd_getfd: Trial,
    /// `kcmp` with a child.
    pub kcmp: Trial,
    /// `process_vm_readv` from a child.
    pub process_vm_readv: Trial,
    /// `process_madvise` on a child.
    pub process_madvise: Trial,
    /// `userfaultfd(UFFD_USER_MODE_ONLY)`.
    pub userfaultfd: Trial,
    /// Write-protecting a child's memory asynchronously through its userfaultfd.
    pub write_protect_async: Trial,
    /// `PAGEMAP_SCAN` of a child.
    pub pagemap_scan: Trial,
    /// Soft-dirty bits of a child.
    pub soft_dirty: Trial,
    /// `prctl(PR_SET_MM, PR_SET_MM_MAP)`.
    pub mm_map: Trial,
    /// `prctl(PR_TIMER_CREATE_RESTORE_IDS)`.
    pub timer_ids: Trial,
    /// CPUID raising SIGSEGV on demand.
    pub cpuid_faults: Trial,
    /// Permission for AMX tiles.
    pub amx_tiles: Trial,
    /// Memory protection keys.
    pub protection_keys: Trial,
    /// Executing a program that lies in a memfd.
    pub memory_program: Trial,
    /// rseq is built in.
    pub rseq: Trial,
    /// membarrier is built in.
    pub membarrier: Trial,
    /// `/proc/PID/sched` tells when a child ran last.
    pub sched_file: Trial,
    /// `/proc/PID/wchan` tells what a child waits in.
    pub wchan: Trial,
    /// Opening a file through `/proc/PID/map_files`.
    pub map_files: Trial,
    /// Yama's `ptrace_scope`; none where there is no Yama.
    pub ptrace_scope: Option<u32>,
    /// `vm.memfd_noexec`; none on kernels without it.
    pub memfd_noexec: Option<u32>,
    /// Transparent huge pages: "always", "madvise" or "never"; none where they are not built in.
    pub transparent_huge_pages: Option<String>,
    /// The tightest memory limit of our control groups, bytes.
    pub memory_limit: Option<u64>,
    /// Bytes in use under that limit.
    pub memory_used: Option<u64>,
    /// Our own seccomp mode: 0 none, 1 strict, 2 filter.
    pub seccomp_mode: u32,
    /// Whether the state directory's file system forbids executing.
    pub state_dir_noexec: Option<bool>,
    /// Effective capabilities.
    pub capabilities: u64,
}

/// Whether this root has a /proc.
#[must_use]
pub fn has_proc() -> bool {
    Path::new("/proc/self/stat").exists()
}

impl Host {
    /// Tries everything. `state_dir` is where images and job records live (it need not exist yet).
    #[must_use]
    pub fn probe(state_dir: &Path) -> Self {
        let spaces = namespaces();
        let trace = tracing();
        let kernel = kernel_features();
        let program = programs();
        let release = nix::sys::utsname::uname()
            .map(|names| names.release().to_string_lossy().into_owned())
            .unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let group = crate::procfs::memory_room(std::process::id().cast_signed());
        Host {
            kernel_version: version_numbers(&release),
            kernel_release: release,
            proc: has_proc(),
            user_namespace: spaces.user.into(),
            uid_map: spaces.uid_map.into(),
            gid_map: spaces.gid_map.into(),
            pid_namespace: spaces.pid.into(),
            mount_namespace: spaces.mount.into(),
            proc_mount: spaces.proc_mount.into(),
            time_namespace: spaces.time.into(),
            clock_offsets: spaces.clock_offsets.into(),
            set_tid: spaces.set_tid.into(),
            program_file: spaces.program_file.into(),
            attach: trace.attach.into(),
            rseq_configuration: trace.rseq_configuration.into(),
            syscall_dispatch_configuration: trace.syscall_dispatch_configuration.into(),
            pidfd_getfd: trace.pidfd_getfd.into(),
            kcmp: trace.kcmp.into(),
            process_vm_readv: trace.process_vm_readv.into(),
            process_madvise: trace.process_madvise.into(),
            userfaultfd: trace.userfaultfd.into(),
            write_protect_async: trace.write_protect_async.into(),
            pagemap_scan: trace.pagemap_scan.into(),
            soft_dirty: trace.soft_dirty.into(),
            mm_map: program.mm_map.into(),
            timer_ids: kernel.timer_ids.into(),
            cpuid_faults: cpuid_faults().into(),
            amx_tiles: kernel.tiles.into(),
            protection_keys: kernel.protection_keys.into(),
            memory_program: program.memory_program.into(),
            rseq: kernel.asked_for.rseq.into(),
            membarrier: kernel.asked_for.membarrier.into(),
            sched_file: trace.sched_file.into(),
            wchan: trace.wchan.into(),
            map_files: trace.map_files.into(),
            ptrace_scope: read_number("/proc/sys/kernel/yama/ptrace_scope"),
            memfd_noexec: read_number("/proc/sys/vm/memfd_noexec"),
            transparent_huge_pages: chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
            memory_limit: group.map(|room| room.limit),
            memory_used: group.map(|room| room.used),
            seccomp_mode: status_field(&status, "Seccomp:", 10).unwrap_or(0) as u32,
            state_dir_noexec: noexec(state_dir),
            capabilities: status_field(&status, "CapEff:", 16).unwrap_or(0),
        }
    }
}

/// Version and patch level of the kernel that runs this; (0, 0) if it says nothing that looks so.
pub(crate) fn kernel_version() -> (u32, u32) {
    let names = nix::sys::utsname::uname();
    names.map_or((0, 0), |names| {
        version_numbers(&names.release().to_string_lossy())
    })
}

fn version_numbers(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn read_number(path: &str) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// "always [madvise] never" says madvise.
fn chosen(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn status_field(status: &str, name: &str, radix: u32) -> Option<u64> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(value.trim(), radix).ok()
}

/// Whether the file system of `path`, or of its nearest ancestor that exists, is mounted noexec.
fn noexec(path: &Path) -> Option<bool> {
    let found = path.ancestors().find_map(|place| statvfs(place).ok())?;
    Some(found.flags().contains(FsFlags::ST_NOEXEC))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn probing_is_quick_and_leaves_no_child() {
        let begun = Instant::now();
        let host = Host::probe(Path::new("/nonexistent/wayfarer"));
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
        assert!(host.kernel_version >= OLDEST_KERNEL);
        assert_eq!(host.attach, Trial::Works);
        assert_eq!(host.mm_map, Trial::Works);
        assert_eq!(host.state_dir_noexec, noexec(Path::new("/")));
        assert_eq!(
            host.facts().len(),
            host.facts()
                .iter()
                .map(|fact| &fact.name)
                .collect::<std::collections::BTreeSet<_>>()
                .len()
        );
    }

    #[test]
    fn texts_of_the_kernel_are_read() {
        assert_eq!(version_numbers("6.18.44-fc-v669"), (6, 18));
        assert_eq!(version_numbers("5.15.0"), (5, 15));
        assert_eq!(version_numbers(""), (0, 0));
        let status = "Name:\tx\nSeccomp:\t2\nCapEff:\t000001ffffffffff\n";
        assert_eq!(status_field(status, "Seccomp:", 10), Some(2));
        assert_eq!(status_field(status, "CapEff:", 16), Some(0x1ff_ffff_ffff));
    }
}
