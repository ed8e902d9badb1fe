//! The processes to be captured, as `/proc` shows them from outside.

use super::CaptureError;
use crate::procfs::{
    IdMap, ProcDir, Stat, Status, parse_id_map, parse_mountinfo, parse_stat, parse_status,
};
use crate::shown;
use crate::snapshot::Identity;
use crate::tracee::{HostPid, lets_go_soon};
use loader::ops::CONFINED_ROOT;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// For how long a restart may take to let go of a job's threads, the first of which run already.
const LETTING_GO: Duration = Duration::from_secs(5);
/// Between two looks at that.
const LETTING_GO_PAUSE: Duration = Duration::from_millis(1);

/// A process of the job.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// By which it is looked at, as we count: its id, or a thread's that lives ([`crate::procfs::living_thread`]).
    pub(super) pid: i32,
    /// Its id, as we count.
    pub(super) tgid: i32,
    pub(super) dir: ProcDir,
    /// Its name, for messages.
    pub(super) program: String,
    pub(super) status: Status,
    pub(super) stat: Stat,
    /// Its threads as we count, that of `pid` first; without a first one that has ended.
    pub(super) threads: Vec<(i32, Status)>,
    /// What its first thread is called, if that has ended.
    pub(super) ended_first: Option<Vec<u8>>,
}

impl Subject {
    /// Reads a process and all its threads. `None` if it, or the thread that stands for it, has ended.
    pub(super) fn read(pid: i32) -> Result<Option<Self>, CaptureError> {
        match Self::read_living(pid) {
            Ok(subject) if matches!(subject.status.state, b'Z' | b'X') => Ok(None),
            Ok(subject) => Ok(Some(subject)),
            Err(CaptureError::Procfs(error)) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads those of these processes that have not ended. Until they are stopped, a restart that has not let go of
    /// all their threads yet is waited for, and then they are read again.
    pub(super) fn read_all(pids: &[HostPid], stopped: bool) -> Result<Vec<Self>, CaptureError> {
        let deadline = Instant::now() + LETTING_GO;
        loop {
            let mut subjects = vec![];
            for pid in pids {
                subjects.extend(Self::read(pid.0)?);
            }
            let is_held = !stopped && subjects.iter().flat_map(Self::tracers).any(lets_go_soon);
            if !is_held || Instant::now() >= deadline {
                return Ok(subjects);
            }
            std::thread::sleep(LETTING_GO_PAUSE);
        }
    }

    fn tracers(&self) -> impl Iterator<Item = i32> {
        let tracers = self.threads.iter().map(|(_, status)| status.tracer_pid);
        tracers.filter(|tracer| *tracer != 0)
    }

    fn read_living(pid: i32) -> Result<Self, CaptureError> {
        let dir = ProcDir::of(pid);
        let status = dir.parsed("status", parse_status)?;
        let tgid = status.tgid;
        let mut ended_first = None;
        let mut threads = vec![(pid, status.clone())];
        for tid in dir.threads()? {
            if tid == pid {
                continue;
            }
            if tid == tgid {
                let stat = dir.thread(tid).parsed("stat", parse_stat)?;
                ended_first = Some(stat.name);
                continue;
            }
            match dir.thread(tid).parsed("status", parse_status) {
                Ok(status) => threads.push((tid, status)),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let name = ended_first.as_ref().unwrap_or(&status.name);
        Ok(Subject {
            pid,
            program: shown::bytes(name),
            tgid,
            stat: dir.parsed("stat", parse_stat)?,
            status,
            threads,
            ended_first,
            dir,
        })
    }

    /// Who it is, for a refusal.
    pub(super) fn who(&self) -> (i32, &str) {
        (self.tgid, &self.program)
    }
}

/// Ids as we count them → as the job itself sees them.
#[derive(Debug, Default)]
pub(super) struct JobIds {
    tasks: HashMap<i32, u32>,
    groups: HashMap<i32, u32>,
    sessions: HashMap<i32, u32>,
    users: Option<(IdMap, IdMap)>,
    /// Pids of the job's processes, as it sees them.
    own: Vec<u32>,
}

/// What an id shows as that a user namespace does not know (`/proc/sys/kernel/overflowuid`).
const UNMAPPED: u32 = 65534;

impl JobIds {
    /// Reads what is needed to translate.
    pub(super) fn read(subjects: &[Subject]) -> Result<Self, CaptureError> {
        let mut ids = JobIds::default();
        let last = |column: &[i32], else_id: i32| {
            let id = column.last().copied().unwrap_or(else_id);
            u32::try_from(id).unwrap_or(0)
        };
        for subject in subjects {
            let status = &subject.status;
            for (tid, thread) in &subject.threads {
                ids.tasks.insert(*tid, last(&thread.ns_pid, *tid));
            }
            let own = last(&status.ns_tgid, subject.tgid);
            ids.tasks.insert(subject.tgid, own);
            let stat = &subject.stat;
            ids.groups
                .insert(stat.pgrp, last(&status.ns_pgid, stat.pgrp));
            ids.sessions
                .insert(stat.session, last(&status.ns_sid, stat.session));
            ids.own.push(own);
        }
        if let Some(root) = subjects.first()
            && root.dir.link("ns/user")? != ProcDir::of_self().link("ns/user")?
        {
            ids.users = Some((
                root.dir.parsed("uid_map", parse_id_map)?,
                root.dir.parsed("gid_map", parse_id_map)?,
            ));
        }
        Ok(ids)
    }

    /// A process or thread of the job.
    pub(super) fn task(&self, outside: i32) -> Option<u32> {
        self.tasks.get(&outside).copied()
    }

    /// Process group of one of the job's processes; 0 if led from outside the job.
    pub(super) fn group(&self, outside: i32) -> u32 {
        let group = self.groups.get(&outside).copied().unwrap_or(0);
        if self.own.contains(&group) { group } else { 0 }
    }

    /// Session of one of the job's processes; 0 if led from outside the job.
    pub(super) fn session(&self, outside: i32) -> u32 {
        let session = self.sessions.get(&outside).copied().unwrap_or(0);
        if self.own.contains(&session) {
            session
        } else {
            0
        }
    }

    /// A user id.
    pub(super) fn user(&self, outside: u32) -> u32 {
        match &self.users {
            Some((users, _)) => users.inside(outside).unwrap_or(UNMAPPED),
            None => outside,
        }
    }

    /// A group id.
    pub(super) fn group_id(&self, outside: u32) -> u32 {
        match &self.users {
            Some((_, groups)) => groups.inside(outside).unwrap_or(UNMAPPED),
            None => outside,
        }
    }

    /// Who the job is by its own view.
    pub(super) fn identity(&self, root: &Subject, own_pid_namespace: bool) -> Identity {
        let status = &root.status;
        Identity {
            uid: self.user(status.uids[0]),
            gid: self.group_id(status.gids[0]),
            groups: status.groups.iter().map(|id| self.group_id(*id)).collect(),
            own_pid_namespace,
        }
    }
}

/// What to put before a path of the job to get one of ours.
pub(super) fn view_of(root: &Subject) -> Result<PathBuf, CaptureError> {
    let same = root.dir.link("ns/mnt")? == ProcDir::of_self().link("ns/mnt")?;
    if same || root.dir.link("root")? != b"/" {
        return Ok(PathBuf::new());
    }
    Ok(root.dir.file("root"))
}

/// Whether it has a root of its own with nothing of the machine in it, as the loader makes one.
pub(super) fn is_confined(root: &Subject) -> Result<bool, CaptureError> {
    if root.dir.link("ns/mnt")? == ProcDir::of_self().link("ns/mnt")? {
        return Ok(false);
    }
    let mounts = root.dir.parsed("mountinfo", parse_mountinfo)?;
    Ok(mounts
        .iter()
        .any(|mount| mount.mount_point == b"/" && mount.source == CONFINED_ROOT.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_can_be_read_oneself() {
        let pid = std::process::id() as i32;
        let subject = Subject::read(pid).expect("reads").expect("alive");
        assert!(!subject.program.is_empty());
        let ids = JobIds::read(std::slice::from_ref(&subject)).expect("ids");
        assert!(ids.task(pid).is_some());
        assert_eq!(ids.task(-5), None);
        assert_eq!(ids.user(subject.status.uids[0]), subject.status.uids[0]);
    }

    #[test]
    fn a_process_that_ended_is_none() {
        assert!(Subject::read(i32::MAX).expect("no error").is_none());
    }
}
