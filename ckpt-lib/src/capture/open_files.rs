//! Open file descriptions: every descriptor of every process duplicated to us, equal ones found.
//!
//! ```text
//! /proc/PID/fd --pidfd_getfd--> duplicate --kcmp among duplicates--> OpenFile
//! messages in sockets --MSG_PEEK--> duplicate ----------'
//! ```
//! # What callers may rely on
//! Two descriptors are one [`OpenFile`] if and only if they share an open file description.
//! Duplicates are closed when this is dropped, which must be before the job goes on: an end of a
//! pipe that we hold would keep its reader waiting.

use super::CaptureError;
use super::refusal::{Refusals, TOO_LONG, where_filters_are};
use super::subject::Subject;
use crate::procfs::{FdInfo, LockKind, ProcDir, ProcfsError, parse_fdinfo};
use crate::snapshot::{DescriptionId, DescriptionLock, Descriptor, FileOwner, LockRange};
use crate::sys::foreign::{Compare, is_same_open_file, kcmp, pidfd_getfd, pidfd_open};
use nix::sys::stat::fstat;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

const CLOEXEC: u32 = libc::O_CLOEXEC as u32;

/// An open file description.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) duplicate: OwnedFd,
    pub(super) info: FdInfo,
    /// What `/proc` calls it: a path, "pipe:[123]", "anon_inode:[eventfd]".
    pub(super) name: Vec<u8>,
    pub(super) stat: libc::stat,
    /// Descriptors that refer to it: index of the process, number.
    pub(super) holders: Vec<(usize, RawFd)>,
    /// Index of the process to be named in messages.
    pub(super) process: usize,
    /// How it is called in messages: "descriptor 5".
    pub(super) label: String,
}

impl OpenFile {
    /// Access mode and status flags, without O_CLOEXEC.
    pub(super) fn flags(&self) -> u32 {
        self.info.flags & !CLOEXEC
    }

    pub(super) fn reads(&self) -> bool {
        self.flags() & libc::O_ACCMODE as u32 != libc::O_WRONLY as u32
    }

    pub(super) fn writes(&self) -> bool {
        self.flags() & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32
    }

    /// What is behind it can be changed through it.
    pub(super) fn changes(&self) -> bool {
        self.writes() && !self.is_path_only()
    }

    pub(super) fn is_path_only(&self) -> bool {
        self.flags() & libc::O_PATH as u32 != 0
    }

    pub(super) fn is_socket(&self) -> bool {
        self.stat.st_mode & libc::S_IFMT == libc::S_IFSOCK && !self.is_path_only()
    }

    /// Locks that belong to the description.
    pub(super) fn locks(&self) -> Vec<DescriptionLock> {
        let locks = self.info.locks.iter();
        locks
            .filter_map(|lock| match lock.kind {
                LockKind::Flock => Some(DescriptionLock::Flock {
                    exclusive: lock.exclusive,
                }),
                LockKind::Ofd => Some(DescriptionLock::Ofd(range(lock))),
                LockKind::Posix => None,
            })
            .collect()
    }

    /// Who gets its signals, ids as we count.
    pub(super) fn owner(&self) -> io::Result<Option<FileOwner>> {
        if self.is_path_only() {
            return Ok(None);
        }
        crate::sys::foreign::file_owner(self.duplicate.as_fd()).map(|(kind, id, signal)| {
            (id != 0 || signal != 0).then_some(FileOwner { kind, id, signal })
        })
    }
}

/// The range of a lock.
pub(super) fn range(lock: &crate::procfs::LockLine) -> LockRange {
    LockRange {
        exclusive: lock.exclusive,
        start: lock.start,
        len: lock
            .last
            .map_or(0, |last| last.saturating_sub(lock.start).saturating_add(1)),
    }
}

/// What tells descriptions apart cheaply.
type Bucket = (u64, u64, u32, Vec<u8>);

/// All descriptions of a job, and its descriptor tables.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    pub(super) files: Vec<OpenFile>,
    /// Of each process.
    pub(super) tables: Vec<Vec<Descriptor>>,
    /// POSIX locks of each process: on which file, which lock.
    pub(super) record_locks: Vec<Vec<(usize, LockRange)>>,
    /// There are locks of unknown kinds, or leases.
    pub(super) strange_locks: bool,
    /// Inode of each socket → which file.
    pub(super) sockets: HashMap<u64, usize>,
    buckets: HashMap<Bucket, Vec<usize>>,
}

impl OpenFiles {
    /// Duplicates and groups the descriptors of all processes.
    pub(super) fn collect(
        subjects: &[Subject],
        refusals: &mut Refusals,
    ) -> Result<Self, CaptureError> {
        raise_descriptor_limit();
        let mut all = OpenFiles::default();
        for (index, subject) in subjects.iter().enumerate() {
            let (table, locks) = all.process(index, subject, refusals)?;
            all.tables.push(table);
            all.record_locks.push(locks);
        }
        Ok(all)
    }

    #[allow(clippy::type_complexity)]
    fn process(
        &mut self,
        index: usize,
        subject: &Subject,
        refusals: &mut Refusals,
    ) -> Result<(Vec<Descriptor>, Vec<(usize, LockRange)>), CaptureError> {
        let wrong = |what| {
            move |source| CaptureError::Kernel {
                pid: subject.pid,
                what,
                source,
            }
        };
        let process = match pidfd_open(subject.pid) {
            Err(error) if subject.ended_first.is_some() => {
                let reason = format!(
                    "its first thread has ended (pthread_exit in main), and before Linux 6.9 none of the others gives them ({error})"
                );
                refusals.add(subject.who(), "descriptors", reason);
                return Ok((vec![], vec![]));
            }
            process => process.map_err(wrong("its pidfd"))?,
        };
        let mut table = vec![];
        let mut locks: Vec<(usize, LockRange)> = vec![];
        for fd in subject.dir.numbers("fd")? {
            let label = format!("descriptor {fd}");
            let duplicate = match pidfd_getfd(process.as_fd(), fd) {
                Ok(duplicate) => duplicate,
                // Closed since the listing (only possible while the job runs).
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => continue,
                // Nothing about this descriptor: the call itself is not to be had.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                    let reason = format!(
                        "pidfd_getfd says {error}, so none can be looked at{}",
                        where_filters_are(&error)
                    );
                    refusals.add(subject.who(), "descriptors", reason);
                    break;
                }
                Err(error) => {
                    let reason = format!("it cannot be duplicated for a look at it ({error})");
                    refusals.add(subject.who(), label, reason);
                    continue;
                }
            };
            let read = subject
                .dir
                .parsed(&format!("fdinfo/{fd}"), parse_fdinfo)
                .and_then(|info| Ok((info, subject.dir.link(&format!("fd/{fd}"))?)));
            let (info, name) = match read {
                Ok(read) => read,
                Err(error) if error.is_gone() => continue,
                Err(error) if error.is_too_long() => {
                    refusals.add(subject.who(), label, TOO_LONG);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for lock in &info.unknown_locks {
                self.strange_locks = true;
                let reason = format!("a lease or an unknown kind of lock: {lock}");
                refusals.add(subject.who(), label.as_str(), reason);
            }
            let close_on_exec = info.flags & CLOEXEC != 0;
            let posix: Vec<LockRange> = info
                .locks
                .iter()
                .filter(|lock| lock.kind == LockKind::Posix)
                .map(range)
                .collect();
            let file = match self.add(duplicate, info, name, index, label.clone()) {
                Ok(file) => file,
                Err(error) => {
                    let reason = format!(
                        "cannot tell which descriptors share an open file with it ({error})"
                    );
                    refusals.add(subject.who(), label, reason);
                    continue;
                }
            };
            self.files[file].holders.push((index, fd));
            let stat = &self.files[file].stat;
            let identity = (stat.st_dev, stat.st_ino);
            for lock in posix {
                let known = locks.iter().any(|(other, range)| {
                    let other = &self.files[*other].stat;
                    (other.st_dev, other.st_ino) == identity && *range == lock
                });
                if !known {
                    locks.push((file, lock));
                }
            }
            table.push(Descriptor {
                fd,
                description: DescriptionId(file as u32),
                close_on_exec,
            });
        }
        Ok((table, locks))
    }

    /// Adds a descriptor found in a message.
    pub(super) fn add_in_flight(
        &mut self,
        duplicate: OwnedFd,
        process: usize,
        label: String,
    ) -> Result<io::Result<usize>, ProcfsError> {
        let own = ProcDir::of_self();
        let number = duplicate.as_raw_fd();
        let mut info = own.parsed(&format!("fdinfo/{number}"), parse_fdinfo)?;
        info.flags &= !CLOEXEC;
        let name = own.link(&format!("fd/{number}"))?;
        Ok(self.add(duplicate, info, name, process, label))
    }

    fn add(
        &mut self,
        duplicate: OwnedFd,
        info: FdInfo,
        name: Vec<u8>,
        process: usize,
        label: String,
    ) -> io::Result<usize> {
        let stat = fstat(&duplicate).map_err(io::Error::from)?;
        let key = (
            stat.st_dev,
            stat.st_ino,
            info.flags & !CLOEXEC,
            name.clone(),
        );
        let bucket = self.buckets.entry(key).or_default();
        let at = match place(bucket, &self.files, duplicate.as_raw_fd())? {
            Ok(same) => {
                let known = bucket[same];
                // Locks show under each process that holds the description.
                let locks = &mut self.files[known].info.locks;
                for lock in info.locks {
                    if !locks.contains(&lock) {
                        locks.push(lock);
                    }
                }
                return Ok(known);
            }
            Err(at) => at,
        };
        let index = self.files.len();
        bucket.insert(at, index);
        let file = OpenFile {
            duplicate,
            info,
            name,
            stat,
            holders: vec![],
            process,
            label,
        };
        if file.is_socket() {
            self.sockets.insert(stat.st_ino, index);
        }
        self.files.push(file);
        Ok(index)
    }

    /// The socket with this inode, if the job has it.
    pub(super) fn socket(&self, inode: u64) -> Option<&OpenFile> {
        self.sockets.get(&inode).map(|index| &self.files[*index])
    }
}

/// Where in a bucket (sorted as `kcmp` sorts) a description is, or would be.
fn place(bucket: &[usize], files: &[OpenFile], fd: RawFd) -> io::Result<Result<usize, usize>> {
    let own = std::process::id().cast_signed();
    let raw = |index: usize| files[bucket[index]].duplicate.as_raw_fd();
    let (mut low, mut high) = (0, bucket.len());
    while low < high {
        let middle = low.midpoint(high);
        match kcmp((own, fd), (own, raw(middle)), Compare::File) {
            Ok(0) => return Ok(Ok(middle)),
            Ok(1) => high = middle,
            Ok(_) => low = middle + 1,
            // No kcmp here: newer kernels answer the question, without order, in another way.
            Err(_) => {
                for index in 0..bucket.len() {
                    if is_same_open_file(fd, raw(index))? {
                        return Ok(Ok(index));
                    }
                }
                return Ok(Err(bucket.len()));
            }
        }
    }
    Ok(Err(low))
}

/// We need a descriptor for each description and file of the job.
fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // If this fails, the limit shows as an error where it hurts.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn duplicates_are_one_and_others_are_not() {
        let file = File::open("/dev/null").expect("open");
        let twin = file.try_clone().expect("dup");
        let other = File::open("/dev/null").expect("open");
        let pid = std::process::id().cast_signed();
        let subject = Subject::read(pid).expect("reads").expect("alive");
        let mut refusals = Refusals::default();
        let all = OpenFiles::collect(&[subject], &mut refusals).expect("collects");
        assert!(refusals.is_empty());
        let of = |fd: RawFd| {
            let found = all.tables[0].iter().find(|entry| entry.fd == fd);
            found.expect("in the table").description
        };
        assert_eq!(of(file.as_raw_fd()), of(twin.as_raw_fd()));
        assert_ne!(of(file.as_raw_fd()), of(other.as_raw_fd()));
    }
}
