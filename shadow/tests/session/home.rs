//! What the tests stand on: folders that are allowed or not, a session, and its answers.

use shadow::{Allowed, Limits, Session};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::{
    Attribute, Attributes, Entries, List, Open, Opened, Place, Read, Reply, Request, Write, Written,
};

pub(crate) const O_RDONLY: u32 = 0;
pub(crate) const O_WRONLY: u32 = 1;
pub(crate) const O_RDWR: u32 = 2;
pub(crate) const O_CREAT: u32 = 0o100;
pub(crate) const O_EXCL: u32 = 0o200;
pub(crate) const O_TRUNC: u32 = 0o1000;
pub(crate) const O_APPEND: u32 = 0o2000;
pub(crate) const O_DIRECTORY: u32 = 0o200_000;
pub(crate) const O_NOFOLLOW: u32 = 0o400_000;

pub(crate) const EPERM: u16 = 1;
pub(crate) const ENOENT: u16 = 2;
pub(crate) const ENXIO: u16 = 6;
pub(crate) const EBADF: u16 = 9;
pub(crate) const EACCES: u16 = 13;
pub(crate) const EBUSY: u16 = 16;
pub(crate) const EEXIST: u16 = 17;
pub(crate) const ENOTDIR: u16 = 20;
pub(crate) const EISDIR: u16 = 21;
pub(crate) const EINVAL: u16 = 22;
pub(crate) const ENFILE: u16 = 23;
pub(crate) const ENAMETOOLONG: u16 = 36;
pub(crate) const ENOTEMPTY: u16 = 39;
pub(crate) const ELOOP: u16 = 40;

/// A folder `rw` where everything is allowed, `ro` where reading is, and `out` where nothing is.
pub(crate) struct Home {
    _directory: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) session: Session,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().canonicalize().expect("is there");
        for name in ["rw", "ro", "out"] {
            fs::create_dir(path.join(name)).expect("makes it");
            fs::write(path.join(name).join("file"), name).expect("writes it");
        }
        let mut allowed = Allowed::none();
        allowed.allow(path.join("rw"), true).expect("allowed");
        allowed.allow(path.join("ro"), false).expect("allowed");
        Home {
            _directory: directory,
            session: Session::new(1, Arc::new(allowed), limits),
            path,
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn ask(&self, request: &Request<'_>, data: &[u8]) -> (Reply<'static>, Vec<u8>) {
        let mut out = vec![1, 2, 3];
        let reply = self.session.answer(request, data, &mut out);
        (reply, out)
    }

    pub(crate) fn reply(&self, request: Request<'_>) -> Reply<'static> {
        self.ask(&request, &[]).0
    }

    pub(crate) fn open(&self, name: &str, flags: u32) -> Result<(Opened, Vec<u8>), u16> {
        let path = self.at(name);
        let request = Request::Open(Open {
            place: place(&path),
            flags,
            mode: 0o640,
            first: 100,
        });
        match self.ask(&request, &[]) {
            (Reply::Opened(opened), first) => Ok((opened, first)),
            (Reply::Failed(errno), _) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn handle(&self, name: &str, flags: u32) -> u64 {
        self.open(name, flags).expect("opens").0.handle
    }

    pub(crate) fn read(&self, handle: u64, offset: u64, len: u32) -> Result<Vec<u8>, u16> {
        let request = Request::Read(Read {
            handle,
            offset,
            len,
        });
        match self.ask(&request, &[]) {
            (Reply::Done, data) => Ok(data),
            (Reply::Failed(errno), _) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Result<Written, u16> {
        match self.ask(&Request::Write(Write { handle, offset }), data).0 {
            Reply::Written(written) => Ok(written),
            Reply::Failed(errno) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn attributes(&self, name: &str, follow: bool) -> Result<Attributes, u16> {
        let path = self.at(name);
        let place = place(&path);
        match self.reply(Request::Attribute(Attribute { place, follow })) {
            Reply::Attributes(attributes) => Ok(attributes),
            Reply::Failed(errno) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn list(
        &self,
        handle: u64,
        len: u32,
        attributes: bool,
    ) -> Vec<(String, Option<Attributes>)> {
        let mut from = 0;
        let mut names = vec![];
        loop {
            let request = Request::List(List {
                handle,
                from,
                len,
                attributes,
            });
            let (reply, data) = self.ask(&request, &[]);
            assert_eq!(reply, Reply::Done);
            assert!(data.len() <= len as usize);
            if data.is_empty() {
                return names;
            }
            for entry in Entries::new(&data) {
                let entry = entry.expect("is whole");
                from = entry.next;
                let name = String::from_utf8(entry.name.to_vec()).expect("is text");
                names.push((name, entry.attributes));
            }
        }
    }
}

pub(crate) fn place(path: &Path) -> Place<'_> {
    Place {
        at: 0,
        name: path.as_os_str().as_bytes(),
    }
}

pub(crate) fn same(attributes: &Attributes, metadata: &fs::Metadata) {
    let told = (
        attributes.device,
        attributes.inode,
        attributes.mode,
        attributes.links,
        (attributes.uid, attributes.gid),
        (attributes.size, attributes.blocks),
        u64::from(attributes.block_size),
        attributes.special,
    );
    let there = (
        metadata.dev(),
        metadata.ino(),
        metadata.mode(),
        metadata.nlink(),
        (metadata.uid(), metadata.gid()),
        (metadata.size(), metadata.blocks()),
        metadata.blksize(),
        metadata.rdev(),
    );
    assert_eq!(told, there);
    let stamps = [attributes.modified, attributes.changed];
    let there = [
        (metadata.mtime(), metadata.mtime_nsec()),
        (metadata.ctime(), metadata.ctime_nsec()),
    ];
    let told = stamps.map(|stamp| (stamp.seconds, i64::from(stamp.nanoseconds)));
    assert_eq!(told, there);
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").expect("is there").uid() == 0
}
