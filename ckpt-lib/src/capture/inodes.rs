//! Everything with a name or with bytes, once: whether its contents are carried, and from where
//! they are read.

use super::CaptureOptions;
use super::contents::{Stamp, hash_file, sample_file};
use crate::shown;
use crate::snapshot::{ContentCheck, InodeId, InodeKind, InodeRecord, KernelPath};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Folders whose files belong to the program's system.
const SYSTEM: [&[u8]; 8] = [
    b"/usr/", b"/lib/", b"/lib64/", b"/lib32/", b"/bin/", b"/sbin/", b"/etc/", b"/opt/",
];

/// How long files are sampled for while the job is stopped, and before; those that are left are compared
/// by their size unless they are not changed until they have been read afterwards.
const SAMPLING_FROZEN: Duration = Duration::from_millis(8);
const SAMPLING_BEFORE: Duration = Duration::from_millis(200);

/// Where the bytes of a carried inode are read.
#[derive(Clone, Debug)]
pub enum InodeBytes {
    /// From this file.
    File(Arc<File>),
    /// From the memory of processes that have it mapped; what no piece covers is zero.
    Memory(Vec<MemoryPiece>),
}

/// A part of an inode in somebody's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPiece {
    /// The process, as the caller counts.
    pub pid: i32,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the inode.
    pub offset: u64,
}

/// The contents of a carried inode.
#[derive(Clone, Debug)]
pub struct InodeSource {
    /// Where they are.
    pub bytes: InodeBytes,
    /// How many bytes.
    pub len: u64,
    /// Where there are any, if it is known; else everywhere.
    pub there: Option<Vec<Range<u64>>>,
    /// The job can still change them: they must be copied before it goes on. All others may be
    /// read afterwards.
    pub while_frozen: bool,
}

/// What is known of an inode while capturing.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) record: InodeRecord,
    /// Readable file, if there is one.
    pub(super) file: Option<Arc<File>>,
    /// Where it is mapped.
    pub(super) pieces: Vec<MemoryPiece>,
    /// Where it has bytes, if it is read there and that is known; in no order.
    pub(super) there: Option<Vec<Range<u64>>>,
    /// Mapped executable, or the program itself.
    pub(super) program: bool,
    /// Mapped at all.
    pub(super) mapped: bool,
    /// Mapped shared, and may be written there: which no time of the file tells.
    pub(super) mapped_written: bool,
    /// Can be changed by no one (a memfd sealed against writing).
    pub(super) sealed: bool,
    /// On a file system that makes its contents up.
    pub(super) made_up: bool,
    /// It begins like a program or library, if that has been looked at.
    elf: Option<bool>,
}

/// All inodes of the job.
#[derive(Debug)]
pub(super) struct Inodes {
    pub(super) drafts: Vec<Draft>,
    by_identity: HashMap<(u64, u64), InodeId>,
    /// Put before a path of the job to get one of ours; empty if it is the same.
    view: PathBuf,
    /// Files opened before the job was stopped.
    opened: OpenedFiles,
}

/// Mapped files by path, opened before the job was stopped: opening takes time that would be frozen.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenedFiles(HashMap<Vec<u8>, OpenedFile>);

#[derive(Clone, Debug)]
struct OpenedFile {
    identity: (u64, u64),
    file: Arc<File>,
    elf: bool,
}

/// What was found at a path of the job.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The file itself.
    Same,
    /// Nothing.
    Gone,
    /// Another file.
    Other,
    /// It cannot be told what is there.
    Unknown(io::Error),
}

impl Lookup {
    pub(super) fn is_same(&self) -> bool {
        matches!(self, Lookup::Same)
    }
}

impl Inodes {
    pub(super) fn new(view: PathBuf, opened: OpenedFiles) -> Self {
        Inodes {
            drafts: vec![],
            by_identity: HashMap::new(),
            view,
            opened,
        }
    }

    /// The mapped files, for the next time.
    pub(super) fn opened(&self) -> OpenedFiles {
        let mut opened = HashMap::new();
        for draft in self.drafts.iter().filter(|draft| draft.mapped) {
            let record = &draft.record;
            if let (InodeKind::Regular, Some(file)) = (&record.kind, &draft.file) {
                let known = OpenedFile {
                    identity: (record.dev, record.ino),
                    file: Arc::clone(file),
                    elf: is_elf(file),
                };
                opened.insert(record.path.0.clone(), known);
            }
        }
        OpenedFiles(opened)
    }

    /// A path of the job as one of ours.
    pub(super) fn path(&self, path: &[u8]) -> PathBuf {
        let mut ours = self.view.as_os_str().as_bytes().to_vec();
        ours.extend(path);
        PathBuf::from(std::ffi::OsStr::from_bytes(&ours))
    }

    /// Whether a path of the job leads to the file with this identity.
    pub(super) fn lookup(&self, path: &[u8], dev: u64, ino: u64) -> Lookup {
        match std::fs::symlink_metadata(self.path(path)) {
            Ok(found) if (found.dev(), found.ino()) == (dev, ino) => Lookup::Same,
            Ok(_) => Lookup::Other,
            Err(error) if is_gone(&error) => Lookup::Gone,
            Err(error) => Lookup::Unknown(error),
        }
    }

    /// The path by which a restart finds an open file again, and whether it leads there now: if
    /// not, the file has been deleted. `name` is what `/proc` calls it.
    ///
    /// Taking a file for deleted that is not would let the job write into a copy that nobody
    /// sees, so whatever is in doubt is an error.
    fn place<'a>(&self, stat: &libc::stat, name: &'a [u8]) -> Result<(&'a [u8], bool), String> {
        let stripped = name.strip_suffix(b" (deleted)");
        let shown = shown::bytes(name);
        match (self.lookup(name, stat.st_dev, stat.st_ino), stripped) {
            // With the suffix: a file may really be called so.
            (Lookup::Same, _) => Ok((name, true)),
            (_, stripped) if stat.st_nlink == 0 => Ok((stripped.unwrap_or(name), false)),
            (Lookup::Unknown(error), _) => Err(format!(
                "{shown} cannot be reached by this path any more ({error}), so a restart could not open it again"
            )),
            (Lookup::Gone | Lookup::Other, Some(path)) => Ok((path, false)),
            (found, None) => {
                let found = match found {
                    Lookup::Gone => "nothing",
                    _ => "another file",
                };
                Err(format!(
                    "{shown} has not been deleted, but {found} is found at this path, so a restart could not open it again"
                ))
            }
        }
    }

    pub(super) fn get(&self, id: InodeId) -> &Draft {
        &self.drafts[id.0 as usize]
    }

    pub(super) fn get_mut(&mut self, id: InodeId) -> &mut Draft {
        &mut self.drafts[id.0 as usize]
    }

    pub(super) fn find(&self, dev: u64, ino: u64) -> Option<InodeId> {
        self.by_identity.get(&(dev, ino)).copied()
    }

    /// Adds an inode that is not yet there.
    pub(super) fn add(&mut self, record: InodeRecord, file: Option<Arc<File>>) -> InodeId {
        let id = InodeId(self.drafts.len() as u32);
        self.by_identity.insert((record.dev, record.ino), id);
        self.drafts.push(Draft {
            record,
            file,
            pieces: vec![],
            there: None,
            program: false,
            mapped: false,
            mapped_written: false,
            sealed: false,
            made_up: false,
            elf: None,
        });
        id
    }

    /// Adds what lies unread in the job's pipes and sockets: so many bytes, in a file of ours.
    pub(super) fn add_unread(&mut self, file: Arc<File>, len: u64) {
        let record = InodeRecord {
            kind: InodeKind::Unread,
            path: KernelPath::default(),
            size: len,
            mode: 0,
            dev: 0,
            ino: 0,
            rdev: 0,
            mtime_ns: 0,
            check: ContentCheck::None,
            carried: true,
            written: false,
        };
        self.add(record, Some(file));
    }

    /// The regular file, directory or FIFO behind an open descriptor of ours, `name` being what
    /// `/proc` calls it.
    ///
    /// # Errors
    /// It has not been deleted, but its path does not lead to it.
    pub(super) fn of_descriptor(
        &mut self,
        fd: BorrowedFd<'_>,
        stat: &libc::stat,
        name: &[u8],
    ) -> Result<InodeId, String> {
        if let Some(id) = self.find(stat.st_dev, stat.st_ino) {
            return Ok(id);
        }
        let (path, there) = self.place(stat, name)?;
        let folder_or_device = matches!(stat.st_mode & libc::S_IFMT, libc::S_IFDIR | libc::S_IFCHR);
        if !there && folder_or_device {
            let path = shown::bytes(path);
            return Err(format!("{path}, which has been deleted, cannot be carried"));
        }
        Ok(self.add_descriptor(fd, stat, path, there))
    }

    /// The job's program: where its path does not lead to it, its contents serve as well as those of
    /// a deleted file, for nobody can write to it.
    pub(super) fn of_program(
        &mut self,
        fd: BorrowedFd<'_>,
        stat: &libc::stat,
        name: &[u8],
    ) -> InodeId {
        if let Some(id) = self.find(stat.st_dev, stat.st_ino) {
            return id;
        }
        let bare = name.strip_suffix(b" (deleted)").unwrap_or(name);
        let (path, there) = self.place(stat, name).unwrap_or((bare, false));
        self.add_descriptor(fd, stat, path, there)
    }

    fn add_descriptor(
        &mut self,
        fd: BorrowedFd<'_>,
        stat: &libc::stat,
        path: &[u8],
        there: bool,
    ) -> InodeId {
        let kind = match stat.st_mode & libc::S_IFMT {
            libc::S_IFDIR => InodeKind::Directory,
            libc::S_IFIFO => InodeKind::Fifo,
            libc::S_IFCHR => InodeKind::Device,
            _ if there => InodeKind::Regular,
            _ => InodeKind::Deleted,
        };
        let readable = matches!(kind, InodeKind::Regular | InodeKind::Deleted);
        let file = if readable { reopen(fd).ok() } else { None };
        self.add(record(stat, kind, path), file)
    }

    /// A file or directory that is made up when it is read (of `/proc`, `/sys`): its path is all there
    /// is to it.
    ///
    /// # Errors
    /// The path does not lead to it any more.
    pub(super) fn of_made_up(
        &mut self,
        stat: &libc::stat,
        name: &[u8],
        kind: InodeKind,
    ) -> Result<InodeId, String> {
        if let Some(id) = self.find(stat.st_dev, stat.st_ino) {
            return Ok(id);
        }
        if !self.lookup(name, stat.st_dev, stat.st_ino).is_same() {
            return Err(format!(
                "{} does not lead to it any more",
                shown::bytes(name)
            ));
        }
        let id = self.add(record(stat, kind, name), None);
        self.get_mut(id).made_up = true;
        Ok(id)
    }

    /// The file at a path of the job, if it is the one with inode number `ino`.
    ///
    /// # Errors
    /// It cannot be told what is there.
    pub(super) fn of_path(&mut self, path: &[u8], ino: u64) -> io::Result<Option<InodeId>> {
        let ours = self.path(path);
        let found = match std::fs::symlink_metadata(&ours) {
            Ok(found) => found,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if found.ino() != ino || !found.is_file() {
            return Ok(None);
        }
        if let Some(id) = self.find(found.dev(), ino) {
            return Ok(Some(id));
        }
        let identity = (found.dev(), ino);
        let known = self.opened.0.get(path);
        let known = known.filter(|known| known.identity == identity).cloned();
        let file = match &known {
            Some(known) => Some(Arc::clone(&known.file)),
            // What was opened must be what was asked for.
            None => open(&ours).ok().map(Arc::new).filter(|file| {
                file.metadata()
                    .is_ok_and(|own| (own.dev(), own.ino()) == identity)
            }),
        };
        let record = InodeRecord {
            kind: InodeKind::Regular,
            path: path.into(),
            size: found.size(),
            mode: found.mode(),
            dev: found.dev(),
            ino,
            rdev: 0,
            mtime_ns: found.mtime() * 1_000_000_000 + found.mtime_nsec(),
            check: ContentCheck::None,
            carried: false,
            written: false,
        };
        let id = self.add(record, file);
        self.get_mut(id).elf = known.map(|known| known.elf);
        Ok(Some(id))
    }

    /// Decides what is carried and how files are compared; the last step. Returns the records, the
    /// sources of what is carried, and the files to be hashed once the job goes on.
    pub(super) fn finish(
        self,
        options: &CaptureOptions,
    ) -> (Vec<InodeRecord>, Vec<(InodeId, InodeSource)>, Vec<HashTask>) {
        let deadline = Instant::now() + SAMPLING_FROZEN;
        let mut records = vec![];
        let mut sources = vec![];
        let mut tasks = vec![];
        for (index, mut draft) in self.drafts.into_iter().enumerate() {
            let id = InodeId(index as u32);
            draft.decide(options);
            if draft.record.carried {
                sources.push((id, draft.source()));
            }
            if draft.record.kind == InodeKind::Regular && !draft.made_up {
                // Stays if nobody may read it.
                draft.record.check = ContentCheck::Size;
                tasks.extend(HashTask::begin(id, &mut draft, deadline));
            }
            records.push(draft.record);
        }
        (records, sources, tasks)
    }

    /// Reads what will be sampled while the job is stopped, so that it need not be fetched from a disk
    /// then.
    pub(super) fn warm(&self) {
        let deadline = Instant::now() + SAMPLING_BEFORE;
        for draft in self.drafts.iter().filter(|draft| draft.record.written) {
            if let (InodeKind::Regular, Some(file)) = (&draft.record.kind, &draft.file)
                && Instant::now() < deadline
            {
                let _ = sample_file(file, draft.record.size);
            }
        }
    }
}

/// A file to be hashed once the job goes on.
#[derive(Debug)]
pub(super) struct HashTask {
    pub(super) inode: InodeId,
    file: Arc<File>,
    /// What it was like while the job was stopped.
    stamp: Option<Stamp>,
    /// A change since then shows in its stamp.
    tells: bool,
}

impl HashTask {
    /// Samples the file if the job can write to it.
    fn begin(inode: InodeId, draft: &mut Draft, deadline: Instant) -> Option<Self> {
        let file = Arc::clone(draft.file.as_ref()?);
        let stamp = Stamp::of(&file).ok();
        let settled = stamp.is_some_and(|stamp| stamp.is_settled(SystemTime::now()));
        let record = &mut draft.record;
        if record.written
            && Instant::now() < deadline
            && let Ok(check) = sample_file(&file, record.size)
        {
            record.check = check;
        }
        Some(HashTask {
            inode,
            file,
            stamp,
            tells: !record.written || (settled && !draft.mapped_written),
        })
    }

    /// Hashes the file as a whole, if it is still as it was. `still`: the job has not gone on.
    pub(super) fn finish(&self, record: &mut InodeRecord, still: bool) -> io::Result<()> {
        let done = record.written && matches!(record.check, ContentCheck::Full(_));
        if done || !(still || self.tells) {
            return Ok(());
        }
        let hashed = hash_file(&self.file, record.size);
        if self.stamp.is_none() || self.stamp != Stamp::of(&self.file).ok() {
            return Ok(());
        }
        record.check = hashed?;
        Ok(())
    }
}

impl Draft {
    fn decide(&mut self, options: &CaptureOptions) {
        let record = &mut self.record;
        record.carried = match record.kind {
            InodeKind::Deleted
            | InodeKind::MemFd { .. }
            | InodeKind::SharedAnonymous
            | InodeKind::Unread => true,
            InodeKind::Regular if self.made_up || self.file.is_none() => false,
            InodeKind::Regular if options.carry_files => true,
            InodeKind::Regular => {
                let system = || SYSTEM.iter().any(|place| record.path.0.starts_with(place));
                let looks = || self.file.as_deref().is_some_and(is_elf);
                let code = || self.mapped && self.elf.unwrap_or_else(looks);
                !record.written
                    && record.size <= options.carry_max
                    && (self.program || system() || code())
            }
            InodeKind::Directory | InodeKind::Device | InodeKind::Fifo | InodeKind::OfProcess => {
                false
            }
        };
    }

    fn source(&mut self) -> InodeSource {
        let bytes = match &self.file {
            Some(file) => InodeBytes::File(Arc::clone(file)),
            None => InodeBytes::Memory(std::mem::take(&mut self.pieces)),
        };
        let from_memory = matches!(bytes, InodeBytes::Memory(_));
        InodeSource {
            bytes,
            len: self.record.size,
            there: self.there.take().map(merged),
            while_frozen: from_memory || (self.record.written && !self.sealed),
        }
    }
}

/// The same ranges in order, none of which touch.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = vec![];
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// What `stat` says, as a record.
pub(super) fn record(stat: &libc::stat, kind: InodeKind, path: &[u8]) -> InodeRecord {
    InodeRecord {
        kind,
        path: KernelPath::from(path),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode,
        dev: stat.st_dev,
        ino: stat.st_ino,
        rdev: stat.st_rdev,
        mtime_ns: stat.st_mtime * 1_000_000_000 + stat.st_mtime_nsec,
        check: ContentCheck::None,
        carried: false,
        written: false,
    }
}

/// Another description of the same file, for reading: the job's own must not be kept alive by us
/// when it goes on.
pub(super) fn reopen(fd: BorrowedFd<'_>) -> io::Result<Arc<File>> {
    open(Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd()))).map(Arc::new)
}

fn open(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
}

fn is_elf(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF"
}

/// Nothing is there, for certain.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}
