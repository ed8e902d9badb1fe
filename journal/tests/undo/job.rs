//! A job with files in a folder of its own, all of whose changes go through a journal: announced, then made.

use journal::{Change, Durability, Epoch, Files, Journal, JournalError, Settings, Undone};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    XattrFlags,
};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum Not {
    /// The call itself fails, or is refused.
    Failed(Errno),
    Journal(JournalError),
}

impl From<Errno> for Not {
    fn from(errno: Errno) -> Self {
        Not::Failed(errno)
    }
}

impl From<JournalError> for Not {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Io { .. } | JournalError::Unsupported { .. } => {
                Not::Failed(error.errno())
            }
            error => Not::Journal(error),
        }
    }
}

pub(crate) type Done<T = ()> = Result<T, Not>;

pub(crate) struct Job {
    _folder: Option<tempfile::TempDir>,
    /// The job's files.
    pub(crate) root: PathBuf,
    /// The journal's.
    pub(crate) dir: PathBuf,
    pub(crate) settings: Settings,
    journal: Option<Journal>,
}

impl Job {
    pub(crate) fn new() -> Self {
        Self::with(Settings {
            durability: Durability::Kill,
            ..Settings::default()
        })
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("is there");
        let (root, dir) = (path.join("files"), path.join("journal"));
        std::fs::create_dir(&root).expect("makes it");
        let mut job = Job {
            _folder: Some(folder),
            root,
            dir,
            settings,
            journal: None,
        };
        job.open().expect("opens");
        job
    }

    /// One that is there.
    pub(crate) fn at(root: PathBuf, dir: PathBuf) -> Self {
        let mut job = Job {
            _folder: None,
            root,
            dir,
            settings: Settings {
                durability: Durability::Kill,
                ..Settings::default()
            },
            journal: None,
        };
        job.open().expect("opens");
        job
    }

    pub(crate) fn remove_journal(&mut self) {
        self.journal
            .take()
            .expect("is open")
            .remove()
            .expect("removes");
    }

    pub(crate) fn open(&mut self) -> Result<(), JournalError> {
        self.journal = None;
        for _ in 0..200 {
            match Journal::open(&self.dir, &self.settings) {
                // A child that another test has just forked holds our lock until it executes its program.
                Err(JournalError::InUse { .. }) => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                opened => {
                    self.journal = Some(opened?);
                    return Ok(());
                }
            }
        }
        Err(JournalError::InUse {
            path: self.dir.clone(),
        })
    }

    /// The process with the journal is gone.
    pub(crate) fn crash(&mut self) {
        self.journal = None;
    }

    pub(crate) fn close(&mut self) -> Result<(), JournalError> {
        self.journal.take().expect("is open").close()
    }

    pub(crate) fn journal(&self) -> &Journal {
        self.journal.as_ref().expect("is open")
    }

    pub(crate) fn mark(&self) -> Epoch {
        self.journal().begin_epoch(b"").expect("begins")
    }

    pub(crate) fn undo(&self, to: Epoch) -> Undone {
        self.journal().undo_to(to, Files::Fail).expect("undoes")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn picture(&self) -> super::picture::Picture {
        super::picture::take(&self.root)
    }

    /// The folder that a name lies in, and the name there.
    fn split(&self, name: &str) -> Result<(OwnedFd, Vec<u8>), Errno> {
        let path = self.path(name);
        let folder = path.parent().expect("has one");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(folder, flags, Mode::empty())?;
        Ok((fd, path.file_name().expect("has one").as_bytes().to_vec()))
    }

    fn handle(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(self.path(name), flags, Mode::empty())
    }

    /// What `openat` with `O_CREAT | O_RDWR` does.
    pub(crate) fn open_file(&self, name: &str) -> Done<OwnedFd> {
        let (folder, last) = self.split(name)?;
        let change = self.journal().before_create(folder.as_fd(), &last)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(0o644);
        let fd = rustix::fs::openat(&folder, &last[..], flags | OFlags::CLOEXEC, mode)?;
        drop(change);
        if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
            return Err(Not::Failed(Errno::ACCESS));
        }
        Ok(fd)
    }

    pub(crate) fn write_fd(&self, fd: &OwnedFd, offset: u64, data: &[u8]) -> Done {
        let len = data.len() as u64;
        let change = self.journal().before_write(fd.as_fd(), offset, len)?;
        assert_eq!(rustix::io::pwrite(fd, data, offset)?, data.len());
        drop(change);
        Ok(())
    }

    pub(crate) fn write(&self, name: &str, offset: u64, data: &[u8]) -> Done {
        self.write_fd(&self.open_file(name)?, offset, data)
    }

    pub(crate) fn append(&self, name: &str, data: &[u8]) -> Done {
        let fd = self.open_file(name)?;
        rustix::fs::fcntl_setfl(&fd, OFlags::APPEND)?;
        let change = self.journal().before_append(fd.as_fd())?;
        assert_eq!(rustix::io::write(&fd, data)?, data.len());
        drop(change);
        Ok(())
    }

    pub(crate) fn truncate(&self, name: &str, size: u64) -> Done {
        let fd = self.open_file(name)?;
        let change = self.journal().before_truncate(fd.as_fd(), size)?;
        rustix::fs::ftruncate(&fd, size)?;
        drop(change);
        Ok(())
    }

    /// What a shell's `>` does.
    pub(crate) fn rewrite(&self, name: &str, data: &[u8]) -> Done {
        self.truncate(name, 0)?;
        self.write(name, 0, data)
    }

    pub(crate) fn allocate(&self, name: &str, mode: FallocateFlags, at: u64, len: u64) -> Done {
        let fd = self.open_file(name)?;
        let change = self.journal().before_allocate(fd.as_fd(), mode, at, len)?;
        rustix::fs::fallocate(&fd, mode, at, len)?;
        drop(change);
        Ok(())
    }

    fn make(&self, name: &str, act: impl FnOnce(&OwnedFd, &[u8]) -> Result<(), Errno>) -> Done {
        let (folder, last) = self.split(name)?;
        let change = self.journal().before_create(folder.as_fd(), &last)?;
        act(&folder, &last)?;
        drop(change);
        Ok(())
    }

    pub(crate) fn make_folder(&self, name: &str) -> Done {
        self.make(name, |folder, last| {
            rustix::fs::mkdirat(folder, last, Mode::from_raw_mode(0o755))
        })
    }

    pub(crate) fn make_link(&self, name: &str, target: &str) -> Done {
        self.make(name, |folder, last| {
            rustix::fs::symlinkat(target, folder, last)
        })
    }

    pub(crate) fn make_fifo(&self, name: &str) -> Done {
        self.make(name, |folder, last| {
            rustix::fs::mknodat(folder, last, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        })
    }

    pub(crate) fn remove(&self, name: &str) -> Done {
        let (folder, last) = self.split(name)?;
        let change = self.journal().before_remove(folder.as_fd(), &last)?;
        match rustix::fs::unlinkat(&folder, &last[..], AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                rustix::fs::unlinkat(&folder, &last[..], AtFlags::REMOVEDIR)?;
            }
            removed => removed?,
        }
        drop(change);
        Ok(())
    }

    pub(crate) fn remove_tree(&self, name: &str) -> Done {
        let kind =
            rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(self.handle(name)?)?.st_mode);
        if kind == FileType::Directory {
            let entries = std::fs::read_dir(self.path(name));
            for entry in
                entries.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?
            {
                let inner = entry.expect("reads").file_name();
                let inner = Path::new(name).join(inner);
                self.remove_tree(inner.to_str().expect("is text"))?;
            }
        }
        self.remove(name)
    }

    pub(crate) fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done {
        let ((one, old), (other, new)) = (self.split(from)?, self.split(to)?);
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let names = ((one.as_fd(), &old[..]), (other.as_fd(), &new[..]));
        let change = self.journal().before_rename(names.0, names.1, exchange)?;
        rustix::fs::renameat_with(&one, &old[..], &other, &new[..], flags)?;
        drop(change);
        Ok(())
    }

    pub(crate) fn move_to(&self, from: &str, to: &str) -> Done {
        self.rename(from, to, RenameFlags::empty())
    }

    pub(crate) fn link(&self, from: &str, to: &str) -> Done {
        let source = self.handle(from)?;
        let ((one, old), (other, new)) = (self.split(from)?, self.split(to)?);
        let change = self
            .journal()
            .before_link(source.as_fd(), other.as_fd(), &new)?;
        rustix::fs::linkat(&one, &old[..], &other, &new[..], AtFlags::empty())?;
        drop(change);
        Ok(())
    }

    fn attributes<'a>(&'a self, fd: &'a OwnedFd) -> Result<(Change<'a>, String), JournalError> {
        use std::os::fd::AsRawFd;
        let change = self.journal().before_attributes(fd.as_fd())?;
        Ok((change, format!("/proc/self/fd/{}", fd.as_raw_fd())))
    }

    pub(crate) fn set_mode(&self, name: &str, mode: u32) -> Done {
        let fd = self.handle(name)?;
        let (_change, path) = self.attributes(&fd)?;
        Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
    }

    pub(crate) fn set_owner(&self, name: &str, uid: u32, gid: u32) -> Done {
        let fd = self.handle(name)?;
        let (_change, _) = self.attributes(&fd)?;
        let uid = Some(rustix::fs::Uid::from_raw(uid));
        let gid = Some(rustix::fs::Gid::from_raw(gid));
        Ok(rustix::fs::chownat(
            &fd,
            c"",
            uid,
            gid,
            AtFlags::EMPTY_PATH,
        )?)
    }

    pub(crate) fn set_times(&self, name: &str, seconds: i64, nanoseconds: i64) -> Done {
        let fd = self.handle(name)?;
        let (_change, path) = self.attributes(&fd)?;
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
    }

    pub(crate) fn set_xattr(&self, name: &str, key: &str, value: &[u8]) -> Done {
        let fd = self.handle(name)?;
        let (_change, path) = self.attributes(&fd)?;
        Ok(rustix::fs::setxattr(path, key, value, XattrFlags::empty())?)
    }

    pub(crate) fn remove_xattr(&self, name: &str, key: &str) -> Done {
        let fd = self.handle(name)?;
        let (_change, path) = self.attributes(&fd)?;
        Ok(rustix::fs::removexattr(path, key)?)
    }
}
