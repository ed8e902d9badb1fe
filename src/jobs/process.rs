//! Processes, as `/proc` shows them: who they are, whose children they are,
//! and which of a supervisor's descendants is the job.
//!
//! ```text
//! supervisor (P0, what `run` or `restart` became)
//!  `- pid 1 of the job's namespace        only if it has one
//!      `- root, the job's first process
//!          `- ...
//! ```
//! A pid says little: it is used again. A pid and its start time name one
//! process until the next boot.

use crate::sys::Usage;
use ckpt_lib::procfs::{ProcDir, by_living_thread};
use loader::layout::{HEADER_OFFSET, MAGIC};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A process of this machine's present boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessName {
    /// Its id.
    pub(crate) pid: i32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub(crate) start_ticks: u64,
}

/// What `/proc/PID/stat` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) name: ProcessName,
    pub(crate) comm: String,
    /// R, S, D, T (stopped), t (traced), Z (zombie), X.
    pub(crate) state: char,
    pub(crate) parent: i32,
    /// -20 to 19.
    pub(crate) nice: i32,
    /// Processor time of it, and of those of its children that it has waited for.
    pub(crate) used: Usage,
}

/// The processes under a supervisor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobProcesses {
    /// Pid 1 of the job's namespace, if it has one.
    pub(crate) init: Option<i32>,
    /// The process of ours that the job's orphans are given to.
    pub(crate) reaper: Option<i32>,
    /// The job's first process.
    pub(crate) root: Option<i32>,
    /// All processes of the job, the root first.
    pub(crate) all: Vec<i32>,
}

/// The state of a process (`R`, `T`, `Z` ..., proc(5)), by a thread of it that lives. A process that is gone is [`io::ErrorKind::NotFound`].
pub(crate) fn state(pid: i32) -> io::Result<char> {
    by_living_thread(pid, |thread| Ok(read_stat(thread)?.state))
}

/// Reads `/proc/PID/stat`. A process that is gone is [`io::ErrorKind::NotFound`].
pub(crate) fn read_stat(pid: i32) -> io::Result<ProcessStat> {
    let text =
        fs::read(format!("/proc/{pid}/stat")).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => io::ErrorKind::NotFound.into(),
            _ => error,
        })?;
    parse_stat(&String::from_utf8_lossy(&text)).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("/proc/{pid}/stat makes no sense"),
        )
    })
}

/// Whether this signal waits for the process or its first thread (`SigPnd`, `ShdPnd` of `/proc/PID/status`); not of one that is gone.
pub(crate) fn has_pending(pid: i32, signal: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut masks = text.lines().filter_map(|line| {
        let mask = line
            .strip_prefix("SigPnd:")
            .or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.any(|mask| mask >> (signal - 1) & 1 == 1)
}

fn parse_stat(text: &str) -> Option<ProcessStat> {
    // The name stands in parentheses and may itself contain some.
    let (head, tail) = text.rsplit_once(')')?;
    let (pid, comm) = head.split_once(" (")?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse().ok();
    Some(ProcessStat {
        name: ProcessName {
            pid: pid.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
        },
        comm: comm.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        nice: fields.get(16)?.parse().ok()?,
        used: Usage {
            user: of_ticks(ticks(11)?, ticks(13)?),
            system: of_ticks(ticks(12)?, ticks(14)?),
        },
    })
}

/// Of proc(5): a hundredth of a second, on this architecture.
fn of_ticks(own: u64, of_children: u64) -> Duration {
    Duration::from_millis(own.saturating_add(of_children).saturating_mul(10))
}

impl ProcessName {
    /// The name of this very process.
    pub(crate) fn of_self() -> io::Result<Self> {
        Ok(read_stat(nix::unistd::getpid().as_raw())?.name)
    }

    /// Whether this process still lives (a zombie does not, unless only its first thread has ended).
    pub(crate) fn is_alive(self) -> bool {
        let stat = read_stat(self.pid).ok().filter(|stat| stat.name == self);
        stat.is_some_and(|stat| {
            !"ZX".contains(stat.state) || !ckpt_lib::procfs::has_ended(self.pid)
        })
    }
}

/// All processes that /proc shows.
///
/// # Errors
/// It cannot be listed.
pub(crate) fn all() -> io::Result<impl Iterator<Item = i32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The children of all threads of a process, oldest first; none if it has ended.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    ProcDir::of(pid).children().unwrap_or_default()
}

/// The threads of a process; none if it has ended.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    ProcDir::of(pid).threads().unwrap_or_default()
}

/// A process's ids from our pid namespace inwards to its own (`NSpid`).
pub(crate) fn namespace_pids(pid: i32) -> Vec<i32> {
    status_field(pid, "NSpid:")
}

/// The process that traces this one, 0 if there is none.
pub(crate) fn tracer(pid: i32) -> i32 {
    status_field(pid, "TracerPid:")
        .first()
        .copied()
        .unwrap_or(0)
}

/// The process that a thread belongs to; itself, if it is a process.
pub(crate) fn process_of_thread(tid: i32) -> Option<i32> {
    status_field(tid, "Tgid:").first().copied()
}

/// The real user id of a process.
pub(crate) fn user(pid: i32) -> Option<i32> {
    status_field(pid, "Uid:").first().copied()
}

fn status_field(pid: i32, key: &str) -> Vec<i32> {
    let Ok(status) = fs::read(format!("/proc/{pid}/status")) else {
        return vec![];
    };
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let words = line.into_iter().flat_map(str::split_ascii_whitespace);
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The supervisor of the job that this process is, or supervises, or is pid 1 of: the outermost
/// of it, its parent and its parent's parent that executes the loader of an image.
pub(crate) fn supervisor_of(pid: i32) -> Option<i32> {
    let mut line = ancestors(pid);
    line.truncate(2);
    line.reverse();
    line.push(pid);
    line.into_iter().find(|pid| is_loader(*pid))
}

/// Whether the program that a process executes is an image.
fn is_loader(pid: i32) -> bool {
    let mut magic = [0; MAGIC.len()];
    let program = fs::File::open(format!("/proc/{pid}/exe"));
    program.is_ok_and(|file| file.read_exact_at(&mut magic, HEADER_OFFSET).is_ok())
        && magic == MAGIC
}

/// Finds the job under its supervisor.
pub(crate) fn find_job(supervisor: i32) -> JobProcesses {
    // Whoever became the supervisor by executing it may have had children before.
    let known = namespace_pids(supervisor).len();
    let is_init = |pid: &i32| {
        let ids = namespace_pids(*pid);
        ids.len() > known && ids.last() == Some(&1)
    };
    let below = children(supervisor);
    let init = below.iter().copied().find(is_init);
    let root = match init {
        Some(init) => children(init).first().copied(),
        None => below.first().copied(),
    };
    if init.or(root).is_none() {
        return JobProcesses::default();
    }
    let mut all = vec![];
    let mut next: Vec<i32> = children(init.unwrap_or(supervisor));
    while let Some(pid) = next.pop() {
        if !all.contains(&pid) {
            all.push(pid);
            next.extend(children(pid));
        }
    }
    all.sort_by_key(|pid| (Some(*pid) != root, *pid));
    JobProcesses {
        init,
        reaper: Some(init.unwrap_or(supervisor)),
        root,
        all,
    }
}

/// The ancestors of a process, its parent first.
pub(crate) fn ancestors(pid: i32) -> Vec<i32> {
    let mut line = vec![];
    let mut at = pid;
    while let Ok(stat) = read_stat(at) {
        if stat.parent <= 0 || line.contains(&stat.parent) {
            break;
        }
        line.push(stat.parent);
        at = stat.parent;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let mut text = "42 (a) S (b)) T 7".to_owned();
        for field in 5..=21 {
            text.push_str(&format!(" {field}"));
        }
        text.push_str(" 777 0 0\n");
        let stat = parse_stat(&text).expect("parses");
        assert_eq!((stat.name.pid, stat.name.start_ticks), (42, 777));
        assert_eq!(
            (stat.comm.as_str(), stat.state, stat.parent, stat.nice),
            ("a) S (b)", 'T', 7, 19)
        );
        assert_eq!(parse_stat("42 (x) T"), None);
    }

    #[test]
    fn this_process_is_alive_and_another_start_time_is_not() {
        let me = ProcessName::of_self().expect("self");
        assert!(me.is_alive());
        let other = ProcessName {
            start_ticks: me.start_ticks + 1,
            ..me
        };
        assert!(!other.is_alive());
    }

    #[test]
    fn a_child_is_found() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let (me, pid) = (std::process::id() as i32, child.id() as i32);
        assert!(children(me).contains(&pid));
        assert_eq!(ancestors(pid).first(), Some(&me));
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
}
