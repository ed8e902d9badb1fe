//! What stands behind each open file description.
//!
//! ```text
//! open_files -> sockets (looks into them: descriptors in flight join open_files)
//!            -> pipes, terminals: within the job, or leading out
//!            -> files and anonymous inodes -> epoll sets (all targets are known now)
//! ```

use super::file_systems::{self, FileSystem};
use super::inodes::{Inodes, record};
use super::open_files::{OpenFile, OpenFiles};
use super::refusal::Refusals;
use super::shim::{self, Shim};
use super::sockets::Sockets;
use super::subject::{JobIds, Subject};
use super::unread_bytes::UnreadBytes;
use super::watches::Watches;
use super::{CaptureError, CaptureOptions, outside::Outside, pipes::Pipes};
use crate::procfs::{ProcDir, parse_fdinfo};
use crate::shown;
use crate::snapshot::{
    Description, DescriptionId, DescriptionKind, Descriptor, EpollEntry, External, InodeId,
    InodeKind, KernelPath, PipeRecord, RecordLock, SocketRecord, Unread,
};
use crate::sys::channels::{unread_len, wake_periodic_timer};
use crate::sys::foreign::is_epoll_target;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use std::os::fd::{AsFd, AsRawFd};

/// Character devices that are the same everywhere (linux/Documentation/admin-guide/devices.txt).
const HARMLESS: [(u32, u32); 6] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0)];
/// A pidfd of a thread, or of a process by its first (Linux 6.9).
const PIDFD_THREAD: u32 = libc::O_EXCL as u32;
/// `F_OWNER_PGRP` (fcntl(2)).
const F_OWNER_PGRP: i32 = 2;

/// The descriptors of a job, as records.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    pub(super) descriptions: Vec<Description>,
    pub(super) pipes: Vec<PipeRecord>,
    pub(super) sockets: Vec<SocketRecord>,
    pub(super) tables: Vec<Vec<Descriptor>>,
    pub(super) record_locks: Vec<Vec<RecordLock>>,
}

/// What is needed to judge descriptors.
pub(super) struct Survey<'a> {
    pub(super) subjects: &'a [Subject],
    pub(super) ids: &'a JobIds,
    pub(super) options: &'a CaptureOptions,
    /// The job is stopped: contents of pipes and sockets are taken, too.
    pub(super) stopped: bool,
    pub(super) unread: UnreadBytes,
}

/// Reads the descriptors of all processes. What cannot be carried is refused, and stands in the
/// result as a placeholder.
pub(super) fn survey(
    job: &Survey<'_>,
    inodes: &mut Inodes,
    watches: &mut Watches,
    refusals: &mut Refusals,
) -> Result<Descriptors, CaptureError> {
    let mut open = OpenFiles::collect(job.subjects, refusals)?;
    if open.strange_locks {
        // To open such a file, as is done below, would break its lease, of which its holder is told by a signal (fcntl(2)).
        std::mem::take(refusals)
            .into_result()
            .map_err(CaptureError::Refused)?;
    }
    for number in &job.options.inherit_fds {
        let mut all = open.tables.iter().flatten();
        if !all.any(|entry| u32::try_from(entry.fd) == Ok(*number)) {
            let reason = "no process of the job has it open";
            let object = format!("--inherit-fd {number}");
            refusals.add(job.subjects[0].who(), object, reason);
        }
    }
    let shim = Shim::find(&open);
    let mut sockets = Sockets::look_into(job, shim.as_ref(), &mut open, refusals)?;
    let outside = Outside::new(job, &open);
    let nodes = shim.as_ref().and_then(|_| Shim::nodes(&open));
    let mut pipes = Pipes::new(&open, nodes, sockets.unseen);
    let mut descriptions = vec![];
    for index in 0..open.files.len() {
        let found = Kinds {
            job,
            open: &open,
            outside: &outside,
            shim: shim.as_ref(),
            inodes,
            watches,
        }
        .kind(index, &mut pipes, &mut sockets);
        let file = &open.files[index];
        let subject = &job.subjects[file.process];
        let mut refuse = |reason: String| {
            refusals.add(subject.who(), file.label.as_str(), reason);
        };
        let kind = found.unwrap_or_else(|reason| {
            refuse(reason);
            DescriptionKind::Epoll { entries: vec![] }
        });
        let owner = match file.owner() {
            Ok(owner)
                if file.holders.is_empty()
                    && (owner.is_some() || file.flags() & libc::O_ASYNC as u32 != 0) =>
            {
                refuse(
                    "it has an owner or a signal (F_SETOWN, F_SETSIG, O_ASYNC), which cannot be carried where it is in flight only"
                        .into(),
                );
                None
            }
            Ok(Some(mut owner)) if owner.id != 0 => {
                let inside = match owner.kind {
                    F_OWNER_PGRP => Some(job.ids.group(owner.id)).filter(|id| *id != 0),
                    _ => job.ids.task(owner.id),
                };
                match inside {
                    Some(id) => owner.id = id.cast_signed(),
                    None => refuse(format!(
                        "its signals (F_SETOWN) go to {}, which is not of the job",
                        owner.id
                    )),
                }
                Some(owner)
            }
            Ok(owner) => owner,
            Err(error) => {
                refuse(format!("its owner (F_GETOWN_EX) cannot be read ({error})"));
                None
            }
        };
        descriptions.push(Description {
            flags: file.flags(),
            offset: u64::try_from(file.info.pos).unwrap_or(0),
            owner,
            kind,
            locks: file.locks(),
        });
    }
    let record_locks = open
        .record_locks
        .iter()
        .map(|locks| record_locks(locks, &descriptions))
        .collect();
    Ok(Descriptors {
        descriptions,
        pipes: pipes.records,
        sockets: sockets.records(),
        tables: std::mem::take(&mut open.tables),
        record_locks,
    })
}

fn record_locks(
    locks: &[(usize, crate::snapshot::LockRange)],
    descriptions: &[Description],
) -> Vec<RecordLock> {
    let locked = locks.iter();
    locked
        .filter_map(|(file, range)| match descriptions[*file].kind {
            DescriptionKind::Inode(inode) => Some(RecordLock {
                inode,
                range: *range,
            }),
            _ => None,
        })
        .collect()
}

struct Kinds<'a> {
    job: &'a Survey<'a>,
    open: &'a OpenFiles,
    outside: &'a Outside,
    shim: Option<&'a Shim>,
    inodes: &'a mut Inodes,
    watches: &'a mut Watches,
}

impl Kinds<'_> {
    /// What description `index` is, or why it cannot be carried.
    fn kind(
        &mut self,
        index: usize,
        pipes: &mut Pipes,
        sockets: &mut Sockets,
    ) -> Result<DescriptionKind, String> {
        let file = &self.open.files[index];
        if let Some(kind) = self.shim.and_then(|shim| shim.kind(file)) {
            return Ok(kind);
        }
        if let Some(name) = file.name.strip_prefix(b"anon_inode:") {
            return self.anonymous(index, name);
        }
        if file.info.pid.is_some() {
            return self.pidfd(index);
        }
        match file.stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => self.regular(index),
            libc::S_IFDIR => self.directory(index),
            libc::S_IFCHR => self.character_device(index),
            libc::S_IFIFO => pipes.kind(index, self.job, self.open, self.outside, self.inodes),
            libc::S_IFSOCK => sockets.kind(index, self.job, self.open, self.outside),
            libc::S_IFBLK => Err("a block device cannot be carried".into()),
            libc::S_IFLNK => Err("a symbolic link opened with O_PATH cannot be carried".into()),
            other => Err(format!(
                "{} is of an unknown type {other:o}",
                shown::bytes(&file.name)
            )),
        }
    }

    fn regular(&mut self, index: usize) -> Result<DescriptionKind, String> {
        let file = &self.open.files[index];
        let name = file.name.as_slice();
        if name.starts_with(b"/SYSV") && name.ends_with(b" (deleted)") {
            return Err("System V shared memory cannot be carried".into());
        }
        if let Some(seals) = seals(file.duplicate.as_fd())
            && name.starts_with(b"/memfd:")
        {
            let id = self.memfd(index, seals);
            self.inodes.get_mut(id).record.written |= file.changes();
            return Ok(DescriptionKind::Inode(id));
        }
        if self.shim.is_some() && shim::is_placeholder(file) {
            return Ok(DescriptionKind::Inode(self.memfd(index, 0)));
        }
        let system = file_systems::of(&file.duplicate);
        match system {
            FileSystem::Proc | FileSystem::MadeUp => return self.made_up(index, system),
            FileSystem::Strange(what) => return Err(format!("{what} cannot be carried")),
            FileSystem::Data | FileSystem::Unknown(_) => {}
        }
        let id = self
            .inodes
            .of_descriptor(file.duplicate.as_fd(), &file.stat, name)?;
        let draft = self.inodes.get_mut(id);
        draft.record.written |= file.changes();
        if draft.record.kind == InodeKind::Deleted {
            if let FileSystem::Unknown(number) = system {
                return Err(format!(
                    "a deleted file on a file system of the unknown type {number:#x}"
                ));
            }
            if draft.file.is_none() {
                let reason = "a deleted file that cannot be read, so its contents would be lost";
                return Err(reason.into());
            }
            if file.changes() && file.stat.st_nlink > 0 {
                let path = &draft.record.path;
                return Err(format!(
                    "{path} has been deleted, but the file has another name, which cannot be found: what is written would be lost to it"
                ));
            }
        } else {
            self.can_be_opened(index)?;
        }
        Ok(DescriptionKind::Inode(id))
    }

    /// A restart opens the path again, as the same user.
    fn can_be_opened(&self, index: usize) -> Result<(), String> {
        let file = &self.open.files[index];
        if file.is_path_only() {
            return Ok(());
        }
        let wanted = [
            (file.reads(), AccessFlags::R_OK, "reading"),
            (file.writes(), AccessFlags::W_OK, "writing"),
        ];
        for (_, mode, what) in wanted.into_iter().filter(|(wanted, ..)| *wanted) {
            let path = self.inodes.path(&file.name);
            if let Err(error) = faccessat(AT_FDCWD, &path, mode, AtFlags::AT_EACCESS) {
                let shown = shown::bytes(&file.name);
                return Err(format!(
                    "{shown} may not be opened for {what} ({}), so a restart could not open it again",
                    std::io::Error::from(error)
                ));
            }
        }
        Ok(())
    }

    /// A file or directory of `/proc` or `/sys`: opened again by its path, if it is only read.
    fn made_up(&mut self, index: usize, system: FileSystem) -> Result<DescriptionKind, String> {
        let file = &self.open.files[index];
        let shown = shown::bytes(&file.name);
        if file.changes() {
            return Err(format!(
                "{shown} is open for writing; of such files only what is read can be carried"
            ));
        }
        if !file.locks().is_empty() || !file.info.locks.is_empty() {
            return Err(format!("a lock on {shown} cannot be carried"));
        }
        let about = file.name.strip_prefix(b"/proc/").unwrap_or_default();
        let mut parts = about.split(|byte| *byte == b'/');
        let first = parts.next().and_then(id_of);
        let kind = match (system, first) {
            (FileSystem::Proc, Some(id)) => {
                self.about_own_process(index, id, parts)?;
                InodeKind::OfProcess
            }
            _ if file.stat.st_mode & libc::S_IFMT == libc::S_IFDIR => InodeKind::Directory,
            _ => InodeKind::Regular,
        };
        let id = self.inodes.of_made_up(&file.stat, &file.name, kind)?;
        Ok(DescriptionKind::Inode(id))
    }

    /// Refuses what is about another process than the one that has it open: it need not exist yet, or
    /// not at all, when that one is brought back.
    fn about_own_process<'b>(
        &self,
        index: usize,
        id: u32,
        mut below: impl Iterator<Item = &'b [u8]>,
    ) -> Result<(), String> {
        let file = &self.open.files[index];
        let shown = shown::bytes(&file.name);
        let holder = file.holders.first().map(|(process, _)| *process);
        let own = holder.and_then(|holder| self.job.ids.task(self.job.subjects[holder].tgid));
        let shared = file.holders.iter().any(|(other, _)| Some(*other) != holder);
        if own != Some(id) || shared {
            return Err(format!(
                "{shown} is about another process, or shared with one, and cannot be carried"
            ));
        }
        if below.next() == Some(b"task")
            && let Some(thread) = below.next()
            && id_of(thread) != own
        {
            return Err(format!(
                "{shown} is about a thread other than the first and cannot be carried"
            ));
        }
        Ok(())
    }

    fn memfd(&mut self, index: usize, seals: u32) -> InodeId {
        let file = &self.open.files[index];
        if let Some(id) = self.inodes.find(file.stat.st_dev, file.stat.st_ino) {
            return id;
        }
        let name = file.name.strip_prefix(b"/memfd:").unwrap_or_default();
        let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
        let huge_shift = if file_systems::is_huge(&file.duplicate) {
            u64::try_from(file.stat.st_blksize).map_or(0, u64::trailing_zeros)
        } else {
            0
        };
        let kind = InodeKind::MemFd {
            name: KernelPath::from(name),
            seals,
            huge_shift,
        };
        let readable = super::inodes::reopen(file.duplicate.as_fd()).ok();
        let id = self.inodes.add(record(&file.stat, kind, b""), readable);
        const F_SEAL_WRITE: u32 = 8;
        self.inodes.get_mut(id).sealed = seals & F_SEAL_WRITE != 0;
        id
    }

    fn directory(&mut self, index: usize) -> Result<DescriptionKind, String> {
        let file = &self.open.files[index];
        if file.stat.st_nlink == 0 {
            return Err("a deleted directory cannot be carried".into());
        }
        match file_systems::of(&file.duplicate) {
            system @ (FileSystem::Proc | FileSystem::MadeUp) => return self.made_up(index, system),
            FileSystem::Strange(what) => return Err(format!("{what} cannot be carried")),
            FileSystem::Data | FileSystem::Unknown(_) => {}
        }
        let id = self
            .inodes
            .of_descriptor(file.duplicate.as_fd(), &file.stat, &file.name)?;
        self.can_be_opened(index)?;
        Ok(DescriptionKind::Inode(id))
    }

    fn character_device(&mut self, index: usize) -> Result<DescriptionKind, String> {
        let file = &self.open.files[index];
        if let Some(external) = self.outside.terminal(index, self.job, self.open) {
            return Ok(DescriptionKind::External(external));
        }
        let number = (
            nix::sys::stat::major(file.stat.st_rdev) as u32,
            nix::sys::stat::minor(file.stat.st_rdev) as u32,
        );
        let name = shown::bytes(&file.name);
        if HARMLESS.contains(&number) {
            let id = self
                .inodes
                .of_descriptor(file.duplicate.as_fd(), &file.stat, &file.name)?;
            return Ok(DescriptionKind::Inode(id));
        }
        if crate::sys::channels::termios2(file.duplicate.as_fd()).is_ok() {
            return Err(format!(
                "terminal {name} is none of those that are carried (descriptors 0 to 2, and those named by --inherit-fd)"
            ));
        }
        let (major, minor) = number;
        Err(format!("device {name} ({major}:{minor}) cannot be carried"))
    }

    fn anonymous(&mut self, index: usize, name: &[u8]) -> Result<DescriptionKind, String> {
        let file = &self.open.files[index];
        let info = &file.info;
        let missing = || {
            format!(
                "{} of which the kernel does not tell the state",
                shown::bytes(name)
            )
        };
        match name {
            b"[eventfd]" => {
                let event = info.eventfd.ok_or_else(missing)?;
                Ok(DescriptionKind::EventFd {
                    count: event.count,
                    // Kernels before 6.5 do not tell; next to nobody uses semaphores.
                    semaphore: event.semaphore.unwrap_or(false),
                })
            }
            b"[signalfd]" => Ok(DescriptionKind::SignalFd {
                mask: info.sigmask.ok_or_else(missing)?,
            }),
            b"[timerfd]" => {
                let mut timer = info.timerfd.ok_or_else(missing)?;
                if timer.value_ns == 0 && timer.interval_ns != 0 {
                    // It has expired and nobody has read it: the kernel counts on when it is asked.
                    let fd = file.duplicate.as_fd();
                    wake_periodic_timer(fd).map_err(|error| error.to_string())?;
                    let own = format!("fdinfo/{}", fd.as_raw_fd());
                    let again = ProcDir::of_self().parsed(&own, parse_fdinfo);
                    let again = again.map_err(|error| error.to_string())?;
                    timer = again.timerfd.ok_or_else(missing)?;
                }
                Ok(DescriptionKind::TimerFd {
                    clock: timer.clock,
                    ticks: timer.ticks,
                    settime_flags: timer.settime_flags,
                    value_ns: timer.value_ns,
                    interval_ns: timer.interval_ns,
                })
            }
            b"[eventpoll]" => self.epoll(index),
            b"[pidfd]" => self.pidfd(index),
            b"inotify" => {
                let unread = unread_len(file.duplicate.as_fd()).map_err(|e| e.to_string())?;
                if unread > 0 {
                    return Err("inotify events wait unread in it, which cannot be carried".into());
                }
                let watches = self
                    .watches
                    .find(&info.inotify, self.job.subjects, self.inodes)?;
                Ok(DescriptionKind::Inotify { watches })
            }
            other => Err(format!(
                "{} cannot be carried",
                match other {
                    b"[io_uring]" => "an io_uring".into(),
                    b"[perf_event]" => "a perf event".into(),
                    b"[userfaultfd]" => "a userfaultfd".into(),
                    b"[fanotify]" => "a fanotify group".into(),
                    b"seccomp notify" => "a seccomp listener".into(),
                    _ if other.starts_with(b"bpf") => "a BPF object".into(),
                    _ => format!("anon_inode:{}", shown::bytes(other)),
                }
            )),
        }
    }

    fn pidfd(&self, index: usize) -> Result<DescriptionKind, String> {
        let file = &self.open.files[index];
        let of_thread = file.flags() & PIDFD_THREAD != 0;
        match file.info.pid {
            Some(tid) if of_thread && !self.job.subjects.iter().any(|other| other.tgid == tid) => {
                Err(format!(
                    "a pidfd of thread {tid} (PIDFD_THREAD), which cannot be carried"
                ))
            }
            Some(pid @ 1..) => match self.job.ids.task(pid) {
                Some(pid) => Ok(DescriptionKind::PidFd { pid }),
                None => Err(format!("a pidfd of process {pid}, which is not of the job")),
            },
            _ => Err("a pidfd of a process that has ended or is out of sight".into()),
        }
    }

    /// Whether the target of an epoll set can be added to it again under its number: it has that number, or another one
    /// and this is free.
    fn reachable(&self, epoll: &OpenFile, fd: i32, target: usize) -> Result<(), String> {
        let holder = epoll.holders.first();
        let table = holder.and_then(|(process, _)| self.open.tables.get(*process));
        let of_target = |entry: &&Descriptor| entry.description.0 as usize == target;
        let entries = table.map_or(&[][..], Vec::as_slice);
        let at_number = entries.iter().find(|entry| entry.fd == fd);
        match at_number {
            Some(entry) if of_target(&entry) => Ok(()),
            None if entries.iter().any(|entry| of_target(&entry)) => Ok(()),
            _ => Err(format!(
                "an epoll set that still watches what was descriptor {fd}, which is another's by now, or of which no descriptor is left"
            )),
        }
    }

    fn epoll(&self, index: usize) -> Result<DescriptionKind, String> {
        let epoll = &self.open.files[index];
        if epoll.holders.is_empty() && !epoll.info.epoll.is_empty() {
            return Err("an epoll set with members of which the job has no descriptor but one in flight cannot be carried".into());
        }
        let own = std::process::id().cast_signed();
        let mut entries: Vec<EpollEntry> = vec![];
        for line in &epoll.info.epoll {
            // Several targets may have been added under one number, one after another.
            let repeat = entries.iter().filter(|entry| entry.fd == line.fd).count() as u32;
            let is_it = |candidate: usize| {
                let duplicate = self.open.files[candidate].duplicate.as_raw_fd();
                let set = epoll.duplicate.as_raw_fd();
                is_epoll_target((own, duplicate), own, set, line.fd, repeat)
            };
            let likely = epoll.holders.iter().flat_map(|(process, _)| {
                let table = self.open.tables.get(*process).into_iter().flatten();
                table
                    .filter(|entry| entry.fd == line.fd)
                    .map(|entry| entry.description.0 as usize)
            });
            let same_inode = (0..self.open.files.len())
                .filter(|candidate| self.open.files[*candidate].stat.st_ino == line.inode);
            let mut target = None;
            for candidate in likely.chain(same_inode) {
                match is_it(candidate) {
                    Ok(true) => {
                        target = Some(candidate);
                        break;
                    }
                    Ok(false) => {}
                    Err(error) => {
                        return Err(format!(
                            "an epoll set whose target under number {} cannot be told ({error})",
                            line.fd
                        ));
                    }
                }
            }
            let Some(target) = target else {
                return Err(format!(
                    "an epoll set that still watches what was descriptor {}, which is closed here",
                    line.fd
                ));
            };
            self.reachable(epoll, line.fd, target)?;
            entries.push(EpollEntry {
                fd: line.fd,
                target: DescriptionId(target as u32),
                events: line.events,
                data: line.data,
            });
        }
        Ok(DescriptionKind::Epoll { entries })
    }
}

/// An id, if that is what it is.
fn id_of(part: &[u8]) -> Option<u32> {
    std::str::from_utf8(part).ok()?.parse().ok()
}

fn seals(fd: std::os::fd::BorrowedFd<'_>) -> Option<u32> {
    let seals = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GET_SEALS).ok()?;
    u32::try_from(seals).ok()
}

/// A file of which only the name matters, for messages and comparison.
pub(super) fn external(inherit: u32, name: &[u8]) -> External {
    External {
        inherit,
        was: KernelPath::from(name),
        unread: Unread::default(),
        terminal: None,
    }
}
