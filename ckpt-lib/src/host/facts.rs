//! What was found, in words: one line of `doctor` each, with what its absence costs.

use super::{Host, OLDEST_KERNEL, Trial};
use serde::{Deserialize, Serialize};

/// How much it matters when something is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is lost; good to know.
    Note,
    /// Only jobs that use it are affected.
    Special,
    /// Everything works, but slower or with a fallback.
    Slower,
    /// Something of a job is not given back, or must be asked for.
    Lossy,
    /// Checkpoints or restarts do not work.
    Fatal,
}

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is there.
    Good,
    /// It is absent or refused: see [`Fact::cost`].
    Absent,
    /// It could not be found out.
    Unknown,
}

/// A line of `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Stable name, that of the field of [`Host`].
    pub name: String,
    /// What it is.
    pub title: String,
    /// Whether it is there.
    pub verdict: Verdict,
    /// What was found, in words.
    pub found: String,
    /// What it costs when absent.
    pub cost: String,
    /// How much that matters.
    pub severity: Severity,
}

impl Trial {
    fn verdict(self) -> Verdict {
        match self {
            Trial::Works => Verdict::Good,
            Trial::Refused { .. } => Verdict::Absent,
            Trial::Untried => Verdict::Unknown,
        }
    }

    fn found(self) -> String {
        match self {
            Trial::Works => "works".to_owned(),
            Trial::Refused { errno } => {
                let error = std::io::Error::from_raw_os_error(errno).to_string();
                let text = error.split(" (os error").next().unwrap_or_default();
                format!("refused: {}", text.to_lowercase())
            }
            Trial::Untried => "could not be tried".to_owned(),
        }
    }
}

/// A trial: title, severity, cost.
type Row = (
    &'static str,
    fn(&Host) -> Trial,
    &'static str,
    Severity,
    &'static str,
);

macro_rules! rows {
    ($($field:ident, $severity:ident, $title:literal, $cost:literal;)*) => {
        &[$((stringify!($field), |host| host.$field, $title, Severity::$severity, $cost)),*]
    };
}

const ROWS: &[Row] = rows! {
    attach, Fatal, "tracing a child (ptrace)",
        "no job can be checkpointed, and none restarted";
    user_namespace, Lossy, "user namespaces for this user",
        "jobs have the machine's process ids, and new ones after a restart: programs whose ids cannot be \
         corrected need --accept-new-ids";
    uid_map, Lossy, "mapping the user id into a namespace",
        "inside its namespace a job sees user id 65534 (--degraded)";
    gid_map, Lossy, "mapping the group id into a namespace",
        "inside its namespace a job sees group id 65534 (--degraded)";
    pid_namespace, Lossy, "pid namespaces",
        "as without user namespaces: ids are those of the machine";
    set_tid, Lossy, "creating a process with a chosen id (clone3 set_tid)",
        "restarted jobs get new ids: only programs whose ids can be corrected restart";
    mount_namespace, Lossy, "mount namespaces",
        "a job in its own pid namespace would see the machine's /proc";
    proc_mount, Lossy, "mounting a /proc for a pid namespace",
        "a job in its own pid namespace sees the machine's /proc: /proc/PID of its own ids is wrong";
    time_namespace, Lossy, "time namespaces",
        "CLOCK_MONOTONIC and CLOCK_BOOTTIME jump to the new machine's at a restart (--degraded)";
    clock_offsets, Lossy, "setting a time namespace's clocks",
        "CLOCK_MONOTONIC and CLOCK_BOOTTIME jump to the new machine's at a restart (--degraded)";
    mm_map, Fatal, "setting the memory layout (PR_SET_MM_MAP)",
        "no restart: brk, arguments and auxiliary vector cannot be put back";
    program_file, Lossy, "setting /proc/self/exe",
        "/proc/PID/exe of a restarted job shows the loader";
    process_vm_readv, Slower, "reading a child's memory (process_vm_readv)",
        "memory is read through /proc/PID/mem";
    userfaultfd, Slower, "userfaultfd for user-mode faults",
        "memory is cleared before a restart fills it; what a job writes to while its move is prepared is found by \
         reading all memory";
    write_protect_async, Slower, "asynchronous write protection (Linux 6.7)",
        "what a job writes to while its move is prepared is found by reading all memory";
    pagemap_scan, Slower, "PAGEMAP_SCAN (Linux 6.7)",
        "pages are looked up one by one in /proc/PID/pagemap: longer freezes with much memory";
    soft_dirty, Note, "soft-dirty page tracking",
        "nothing yet: what has changed is found by reading all memory";
    pidfd_getfd, Fatal, "taking a descriptor from a child (pidfd_getfd)",
        "no job can be checkpointed (restarts work); Docker allows it with --cap-add SYS_PTRACE";
    kcmp, Lossy, "comparing descriptors (kcmp)",
        "jobs with several threads cannot be checkpointed, since whether they share their descriptors \
         cannot be told; Docker allows it with --cap-add SYS_PTRACE";
    process_madvise, Slower, "process_madvise",
        "pages that were written out are not given back early";
    rseq_configuration, Special, "asking for a thread's rseq registration",
        "programs with restartable sequences (glibc 2.35 and later) cannot be checkpointed";
    rseq, Special, "restartable sequences",
        "programs that had registered them elsewhere do not restart here";
    membarrier, Special, "membarrier",
        "programs that had registered with it elsewhere do not restart here";
    syscall_dispatch_configuration, Special, "asking for syscall user dispatch (Linux 6.4)",
        "programs that use it (Wine) cannot be told from others";
    timer_ids, Slower, "creating POSIX timers with chosen ids (Linux 6.15)",
        "timer ids are reached by creating and deleting timers in a loop";
    sched_file, Lossy, "when a thread last ran (/proc/PID/sched)",
        "threads in timed calls sleep their full time again";
    wchan, Lossy, "what a thread waits in (/proc/PID/wchan)",
        "timed calls interrupted before are told apart by their arguments only";
    map_files, Special, "opening mapped files that were deleted (/proc/PID/map_files)",
        "their contents are read from memory instead; parts that are not mapped are lost only if \
         no descriptor leads to them";
    memory_program, Lossy, "executing programs from memory (memfd)",
        "`run` and images with carried programs need a writable directory that allows executing";
    cpuid_faults, Special, "CPUID faulting",
        "--baseline works by glibc's tunables only: images say `requested`, not `proven`";
    amx_tiles, Special, "AMX tiles",
        "images of programs with AMX tiles do not restart here";
    protection_keys, Special, "memory protection keys",
        "images of programs with protection keys do not restart here";
};

impl Host {
    /// Everything found, in words, the gravest first among what is absent.
    #[must_use]
    pub fn facts(&self) -> Vec<Fact> {
        let mut facts: Vec<Fact> = ROWS
            .iter()
            .map(|(name, trial, title, severity, cost)| {
                let trial = trial(self);
                fact(name, title, trial.verdict(), trial.found(), *severity, cost)
            })
            .collect();
        facts.extend(self.settings());
        let absent_first = |fact: &Fact| match fact.verdict {
            Verdict::Good => (1, Severity::Note),
            _ => (0, fact.severity),
        };
        facts.sort_by(|a, b| {
            let (a, b) = (absent_first(a), absent_first(b));
            a.0.cmp(&b.0).then(b.1.cmp(&a.1))
        });
        facts
    }

    fn settings(&self) -> Vec<Fact> {
        let verdict = |good: bool| if good { Verdict::Good } else { Verdict::Absent };
        let (major, minor) = OLDEST_KERNEL;
        let scope = match self.ptrace_scope {
            None => "no Yama: processes of the same user".to_owned(),
            Some(0) => "0: processes of the same user".to_owned(),
            Some(1) => "1: descendants only".to_owned(),
            Some(other) => format!("{other}: administrators only"),
        };
        let memory = match (self.memory_limit, self.memory_used) {
            (Some(limit), Some(used)) => {
                format!("{} MiB, {} MiB in use", limit >> 20, used >> 20)
            }
            _ => "no limit".to_owned(),
        };
        let noexec = match self.state_dir_noexec {
            None => (Verdict::Unknown, "could not be found out"),
            Some(false) => (Verdict::Good, "allows executing"),
            Some(true) => (Verdict::Absent, "mounted noexec"),
        };
        let seccomp = match self.seccomp_mode {
            0 => "none".to_owned(),
            1 => "strict".to_owned(),
            mode => format!("filter (mode {mode})"),
        };
        let huge = self.transparent_huge_pages.clone();
        let noexec_memory = self
            .memfd_noexec
            .map_or("not restricted".to_owned(), |v| v.to_string());
        vec![
            fact(
                "kernel_version",
                "kernel",
                verdict(self.kernel_version >= OLDEST_KERNEL),
                self.kernel_release.clone(),
                Severity::Fatal,
                &format!("kernels before {major}.{minor} lack calls that everything is built on"),
            ),
            fact(
                "proc",
                "/proc",
                verdict(self.proc),
                if self.proc {
                    "mounted"
                } else {
                    "not mounted in this root"
                }
                .to_owned(),
                Severity::Fatal,
                "no job can be run or checkpointed; images restart with --degraded only: user and group ids show as 65534, and the clocks are this machine's",
            ),
            fact(
                "ptrace_scope",
                "who may trace (Yama ptrace_scope)",
                verdict(self.ptrace_scope.unwrap_or(0) == 0),
                scope,
                Severity::Special,
                "processes that wayfarer did not start cannot be checkpointed; jobs of `wayfarer run` can",
            ),
            fact(
                "memfd_noexec",
                "executing from memory (vm.memfd_noexec)",
                verdict(self.memfd_noexec.unwrap_or(0) < 2),
                noexec_memory,
                Severity::Lossy,
                "programs carried in images cannot be executed from memory",
            ),
            fact(
                "transparent_huge_pages",
                "transparent huge pages",
                verdict(huge.as_deref().is_some_and(|mode| mode != "never")),
                huge.unwrap_or_else(|| "not built in".to_owned()),
                Severity::Slower,
                "restarts fault in memory page by page",
            ),
            fact(
                "memory_limit",
                "memory limit of the control group",
                verdict(self.memory_limit.is_none()),
                memory,
                Severity::Slower,
                "jobs that use more than half of it are copied while they stand still",
            ),
            fact(
                "seccomp_mode",
                "seccomp filter on ourselves",
                verdict(self.seccomp_mode == 0),
                seccomp,
                Severity::Note,
                "what it forbids shows in the other lines",
            ),
            fact(
                "state_dir_noexec",
                "file system of the state directory",
                noexec.0,
                noexec.1.to_owned(),
                Severity::Special,
                "images there do not start by themselves; `wayfarer restart IMAGE` works",
            ),
        ]
    }
}

fn fact(
    name: &str,
    title: &str,
    verdict: Verdict,
    found: String,
    severity: Severity,
    cost: &str,
) -> Fact {
    Fact {
        name: name.to_owned(),
        title: title.to_owned(),
        verdict,
        found,
        cost: cost.to_owned(),
        severity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_comes_first_with_its_cost() {
        let mut host = Host {
            set_tid: Trial::Refused { errno: libc::EPERM },
            kernel_version: OLDEST_KERNEL,
            ..Host::default()
        };
        host.attach = Trial::Works;
        let facts = host.facts();
        let absent = facts
            .iter()
            .find(|fact| fact.name == "set_tid")
            .expect("fact");
        assert_eq!(absent.verdict, Verdict::Absent);
        assert!(absent.found.contains("not permitted"), "{}", absent.found);
        assert!(absent.cost.contains("new ids"));
        let good = facts.iter().position(|fact| fact.verdict == Verdict::Good);
        let bad = facts.iter().rposition(|fact| fact.verdict != Verdict::Good);
        assert!(good > bad);
        assert_eq!(facts[0].severity, Severity::Fatal);
    }
}
