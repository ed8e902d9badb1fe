//! Whether a process is under the seccomp filters that wayfarer is under itself, and no others.
//!
//! A filter cannot be read without privileges, and a call that it does not like may kill the process
//! that calls were made for. Filters are inherited and never taken away: a process that has as many as we
//! have, and so has the nearest ancestor that we share, has ours.

use crate::procfs::{ProcDir, Status, parse_stat, parse_status};

/// Seccomp mode and number of filters of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filters {
    /// 0: none, 1: strict, 2: filters (prctl(2), PR_SET_SECCOMP).
    pub mode: u32,
    /// How many.
    pub count: u32,
}

impl Filters {
    /// Those of a thread.
    pub(crate) fn of(status: &Status) -> Self {
        Filters {
            mode: status.seccomp,
            count: status.seccomp_filters,
        }
    }

    /// Whether a thread of process `pid`, under the filters `found`, is under these only; else why no
    /// calls can be made in it.
    pub(crate) fn are_those_of(&self, pid: i32, found: Filters) -> Result<(), String> {
        match (found.mode, found.count) {
            (0, _) => Ok(()),
            (1, _) => Err(
                "it runs in strict seccomp mode, in which no call can be made for it".to_owned(),
            ),
            (_, count) if count == self.count + 1 && self.asks_an_ancestor(pid) => Ok(()),
            (_, count) if found != *self => Err(format!(
                "it has {} seccomp filters of its own, which may kill it for a call made for it",
                count.saturating_sub(self.count)
            )),
            _ if self.shared_with(pid) => Ok(()),
            (_, count) => Err(format!(
                "it has as many seccomp filters as wayfarer ({count}), but not from the same process: they may kill it \
                 for a call made for it"
            )),
        }
    }

    /// Whether one filter more is that of a job whose CPUID is answered (docs/adr/0007): it asks an ancestor of
    /// `pid` that has the filters that we have and is pid 1 of its job (P1), and lets every call be made. A filter of the program's own would be
    /// one more still.
    fn asks_an_ancestor(&self, pid: i32) -> bool {
        line_of(pid).into_iter().skip(1).any(|ancestor| {
            let status = ProcDir::of(ancestor).parsed("status", parse_status);
            let may_be_asked = |status: Status| {
                Filters::of(&status).count == self.count && status.ns_pid.last() == Some(&1)
            };
            status.is_ok_and(may_be_asked) && has_listener(ancestor)
        })
    }

    /// Whether the nearest process that both we and `pid` descend from has these filters.
    fn shared_with(&self, pid: i32) -> bool {
        let ours = line_of(std::process::id().cast_signed());
        let shared = line_of(pid).into_iter().find(|pid| ours.contains(pid));
        let status = shared.map(|pid| ProcDir::of(pid).parsed("status", parse_status));
        status.is_some_and(|status| status.is_ok_and(|status| Filters::of(&status) == *self))
    }
}

/// Whether a process is asked about others' calls.
fn has_listener(pid: i32) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = entries.into_iter().flatten().flatten();
    let mut targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.any(|target| target.as_os_str() == "anon_inode:seccomp notify")
}

/// A process and its ancestors, the nearest first.
fn line_of(pid: i32) -> Vec<i32> {
    let mut line = vec![pid];
    while let Some(Ok(stat)) = line
        .last()
        .map(|pid| ProcDir::of(*pid).parsed("stat", parse_stat))
        && stat.ppid > 0
        && !line.contains(&stat.ppid)
    {
        line.push(stat.ppid);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_filters_of_a_shared_ancestor_are_ours() {
        let own = ProcDir::of_self()
            .parsed("status", parse_status)
            .expect("own status");
        let me = std::process::id().cast_signed();
        let (own, filters) = (Filters::of(&own), |mode, count| Filters { mode, count });
        assert_eq!(own.are_those_of(me, own), Ok(()));
        let none = filters(0, 0);
        assert_eq!(none.are_those_of(1, none), Ok(()));
        let strict = none.are_those_of(me, filters(1, 0)).expect_err("refused");
        assert!(strict.contains("strict"), "{strict}");
        let more = none.are_those_of(me, filters(2, 1)).expect_err("refused");
        assert!(more.contains("1 seccomp filters of its own"), "{more}");
        // As many as we are said to have, but the ancestor that we share has others.
        let other = filters(2, own.count + 3);
        let foreign = other.are_those_of(1, other);
        assert!(
            foreign
                .expect_err("refused")
                .contains("not from the same process")
        );
    }
}
