//! Everything with a name or with bytes, once: whether its contents are carried, and from where
//! they are read.

use super::CaptureOptions;
use crate::snapshot::{ContentCheck, InodeId, InodeKind, InodeRecord, KernelPath};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folders whose files belong to the program's system.
const SYSTEM: [&[u8]; 8] = [
    b"/usr/", b"/lib/", b"/lib64/", b"/lib32/", b"/bin/", b"/sbin/", b"/etc/", b"/opt/",
];
/// File systems whose files have no contents of their own (statfs(2)): proc, sysfs, cgroup,
/// cgroup2, debugfs, tracefs, securityfs.
const MADE_UP: [i64; 7] = [
    0x9fa0,
    0x6265_6572,
    0x27_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
];

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
    /// Mapped executable, or the program itself.
    pub(super) program: bool,
    /// Mapped at all.
    pub(super) mapped: bool,
    /// Can be changed by no one (a memfd sealed against writing).
    pub(super) sealed: bool,
    /// On a file system that makes its contents up.
    made_up: bool,
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
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Same,
    Other,
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
            _ => Lookup::Other,
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
        let made_up = file.as_ref().is_some_and(|file| is_made_up(file.as_fd()));
        self.add_real(record, file, made_up)
    }

    fn add_real(&mut self, record: InodeRecord, file: Option<Arc<File>>, made_up: bool) -> InodeId {
        let id = InodeId(self.drafts.len() as u32);
        self.by_identity.insert((record.dev, record.ino), id);
        self.drafts.push(Draft {
            record,
            file,
            pieces: vec![],
            program: false,
            mapped: false,
            sealed: false,
            made_up,
            elf: None,
        });
        id
    }

    /// The regular file, directory or FIFO behind an open descriptor of ours, `name` being what
    /// `/proc` calls it.
    pub(super) fn of_descriptor(
        &mut self,
        fd: BorrowedFd<'_>,
        stat: &libc::stat,
        name: &[u8],
    ) -> InodeId {
        if let Some(id) = self.find(stat.st_dev, stat.st_ino) {
            return id;
        }
        let stripped = name.strip_suffix(b" (deleted)");
        let (path, there) = match stripped {
            // A file may really be called so.
            Some(path) => match self.lookup(name, stat.st_dev, stat.st_ino) {
                Lookup::Same => (name, true),
                Lookup::Other => (path, false),
            },
            None => {
                let found = self.lookup(name, stat.st_dev, stat.st_ino);
                (name, found == Lookup::Same)
            }
        };
        let kind = match stat.st_mode & libc::S_IFMT {
            libc::S_IFDIR => InodeKind::Directory,
            libc::S_IFIFO => InodeKind::Fifo,
            libc::S_IFCHR => InodeKind::Device,
            _ if there => InodeKind::Regular,
            _ => InodeKind::Deleted,
        };
        let readable = matches!(kind, InodeKind::Regular | InodeKind::Deleted);
        let file = if readable { reopen(fd).ok() } else { None };
        let id = self.add(record(stat, kind, path), file);
        if !there && self.get(id).made_up {
            // "/proc/self/..." of a thread that has ended, and the like: the path is all there is.
            self.get_mut(id).record.kind = InodeKind::Regular;
        }
        id
    }

    /// The file at a path of the job, if it is the one with inode number `ino`.
    pub(super) fn of_path(&mut self, path: &[u8], ino: u64) -> Option<InodeId> {
        let ours = self.path(path);
        let found = std::fs::symlink_metadata(&ours).ok()?;
        if found.ino() != ino || !found.is_file() {
            return None;
        }
        if let Some(id) = self.find(found.dev(), ino) {
            return Some(id);
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
        // The kernel maps no file that a file system like proc makes up.
        let id = self.add_real(record, file, false);
        self.get_mut(id).elf = known.map(|known| known.elf);
        Some(id)
    }

    /// Decides what is carried and how files are compared; the last step. Returns the records, the
    /// sources of what is carried, and the files to be hashed once the job goes on.
    pub(super) fn finish(
        self,
        options: &CaptureOptions,
    ) -> (Vec<InodeRecord>, Vec<(InodeId, InodeSource)>, Vec<HashTask>) {
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
                match &draft.file {
                    Some(file) if !draft.record.written => tasks.push(HashTask {
                        inode: id,
                        file: Arc::clone(file),
                    }),
                    // Nobody may read it, or the job is writing it.
                    _ => draft.record.check = ContentCheck::Size,
                }
            }
            records.push(draft.record);
        }
        (records, sources, tasks)
    }
}

/// A file to be hashed once the job goes on.
#[derive(Debug)]
pub(super) struct HashTask {
    pub(super) inode: InodeId,
    pub(super) file: Arc<File>,
}

impl Draft {
    fn decide(&mut self, options: &CaptureOptions) {
        let record = &mut self.record;
        record.carried = match record.kind {
            InodeKind::Deleted | InodeKind::MemFd { .. } | InodeKind::SharedAnonymous => true,
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
            InodeKind::Directory | InodeKind::Device | InodeKind::Fifo => false,
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
            while_frozen: from_memory || (self.record.written && !self.sealed),
        }
    }
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

fn is_made_up(fd: BorrowedFd<'_>) -> bool {
    nix::sys::statfs::fstatfs(fd).is_ok_and(|found| {
        let magic: i64 = found.filesystem_type().0;
        MADE_UP.contains(&magic)
    })
}
