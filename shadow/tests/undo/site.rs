//! A folder whose files a session with a journal changes, request by request.

use crate::picture::{self, Picture};
use shadow::{Allowed, Durability, Epoch, Files, JobId, Journals, Limits, Session, UndoError};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::{
    Attribute, Attributes, Change, Entries, Link, List, MakeDirectory, MakeNode, Open, Opened,
    Place, RemoveName, Rename, Reply, Request, SymbolicLink, What, Write,
};

pub(crate) const O_RDONLY: u32 = 0;
pub(crate) const O_WRONLY: u32 = 1;
pub(crate) const O_RDWR: u32 = 2;
pub(crate) const O_CREAT: u32 = 0o100;
pub(crate) const O_EXCL: u32 = 0o200;
pub(crate) const O_TRUNC: u32 = 0o1000;
pub(crate) const O_APPEND: u32 = 0o2000;

pub(crate) const ENOENT: u16 = 2;
pub(crate) const EIO: u16 = 5;
pub(crate) const EEXIST: u16 = 17;
pub(crate) const EISDIR: u16 = 21;
pub(crate) const ENOSPC: u16 = 28;
pub(crate) const EDQUOT: u16 = 122;
pub(crate) const EOPNOTSUPP: u16 = 95;

pub(crate) type Done<T = ()> = Result<T, u16>;

/// `files`, which the session may change, beside `journals`.
pub(crate) struct Site {
    folder: tempfile::TempDir,
    pub(crate) session: Session,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with(|journals| journals)
    }

    pub(crate) fn with(settings: impl FnOnce(Journals) -> Journals) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("is there");
        fs::create_dir(path.join("files")).expect("makes it");
        let journals = Journals::new(&path.join("journals"), Durability::Kill).expect("makes it");
        let journal = settings(journals).open(JobId([7; 16])).expect("begins");
        let mut allowed = Allowed::none();
        allowed.allow(path.clone(), false).expect("is there");
        allowed.allow(path.join("files"), true).expect("is there");
        allowed.hide(&path.join("journals")).expect("is there");
        let session = Session::new(1, Arc::new(allowed), Limits::default());
        Site {
            session: session.with_journal(Arc::new(journal)),
            folder,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        let path = self.folder.path().canonicalize().expect("is there");
        path.join("files")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn picture(&self) -> Picture {
        picture::take(&self.root())
    }

    pub(crate) fn mark(&self) -> Epoch {
        self.session.mark(b"a mark").expect("marks").epoch
    }

    pub(crate) fn undo(&self, to: Epoch) {
        let undone = self.session.undo_to(to, Files::Fail).expect("undoes");
        assert_eq!(undone.differences, []);
    }

    pub(crate) fn try_undo(&self, to: Epoch) -> Result<(), UndoError> {
        self.session.undo_to(to, Files::Fail).map(|_| ())
    }

    pub(crate) fn ask(&self, request: Request<'_>, data: &[u8]) -> Done<Reply<'static>> {
        match self.session.answer(&request, data, &mut vec![]) {
            Reply::Failed(errno) => Err(errno),
            reply => Ok(reply),
        }
    }

    pub(crate) fn open(&self, name: &str, flags: u32) -> Done<Opened> {
        let path = self.path(name);
        let request = Request::Open(Open {
            place: place(&path),
            flags,
            mode: 0o644,
            first: 0,
        });
        match self.ask(request, &[])? {
            Reply::Opened(opened) => Ok(opened),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn handle(&self, name: &str, flags: u32) -> Done<u64> {
        self.open(name, flags).map(|opened| opened.handle)
    }

    pub(crate) fn close(&self, handle: u64) {
        let _ = self.ask(Request::Close(wire::Close { handle }), &[]);
    }

    pub(crate) fn write_to(&self, handle: u64, offset: u64, data: &[u8]) -> Done {
        match self.ask(Request::Write(Write { handle, offset }), data)? {
            Reply::Written(written) => assert_eq!(written.len, data.len() as u64),
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    /// Opens, writes and closes.
    pub(crate) fn write(&self, name: &str, flags: u32, offset: u64, data: &[u8]) -> Done {
        let handle = self.handle(name, flags)?;
        let done = self.write_to(handle, offset, data);
        self.close(handle);
        done
    }

    pub(crate) fn change(&self, name: &str, what: What) -> Done {
        let path = self.path(name);
        let follow = false;
        let request = Change {
            place: place(&path),
            follow: follow || matches!(what, What::Size(_)),
            what,
        };
        self.ask(Request::Change(request), &[]).map(|_| ())
    }

    pub(crate) fn make_folder(&self, name: &str) -> Done {
        let path = self.path(name);
        let request = MakeDirectory {
            place: place(&path),
            mode: 0o755,
        };
        self.ask(Request::MakeDirectory(request), &[]).map(|_| ())
    }

    pub(crate) fn make_fifo(&self, name: &str) -> Done {
        let path = self.path(name);
        let request = MakeNode {
            place: place(&path),
            mode: 0o010_600,
        };
        self.ask(Request::MakeNode(request), &[]).map(|_| ())
    }

    pub(crate) fn make_link(&self, name: &str, target: &str) -> Done {
        let path = self.path(name);
        let request = SymbolicLink {
            target: target.as_bytes(),
            place: place(&path),
        };
        self.ask(Request::SymbolicLink(request), &[]).map(|_| ())
    }

    pub(crate) fn remove(&self, name: &str, directory: bool) -> Done {
        let path = self.path(name);
        let request = RemoveName {
            place: place(&path),
            directory,
        };
        self.ask(Request::RemoveName(request), &[]).map(|_| ())
    }

    pub(crate) fn rename(&self, from: &str, to: &str, flags: u32) -> Done {
        let (from, to) = (self.path(from), self.path(to));
        let request = Rename {
            from: place(&from),
            to: place(&to),
            flags,
        };
        self.ask(Request::Rename(request), &[]).map(|_| ())
    }

    pub(crate) fn link(&self, from: &str, to: &str) -> Done {
        let (from, to) = (self.path(from), self.path(to));
        let request = Link {
            from: place(&from),
            to: place(&to),
            follow: false,
        };
        self.ask(Request::Link(request), &[]).map(|_| ())
    }

    pub(crate) fn attributes(&self, name: &str) -> Done<Attributes> {
        let path = self.path(name);
        let request = Attribute {
            place: place(&path),
            follow: false,
        };
        match self.ask(Request::Attribute(request), &[])? {
            Reply::Attributes(attributes) => Ok(attributes),
            other => panic!("{other:?}"),
        }
    }

    /// All names in a folder, but `.` and `..`, with their numbers of links.
    pub(crate) fn list(&self, name: &str) -> Vec<(String, u64)> {
        let handle = self.handle(name, O_RDONLY).expect("opens");
        let request = Request::List(List {
            handle,
            from: 0,
            len: 64 << 10,
            attributes: true,
        });
        let mut out = vec![];
        assert_eq!(self.session.answer(&request, &[], &mut out), Reply::Done);
        self.close(handle);
        let entries = Entries::new(&out).map(|entry| entry.expect("is whole"));
        let mut names: Vec<_> = entries
            .map(|entry| {
                let name = String::from_utf8(entry.name.to_vec()).expect("is text");
                (name, entry.attributes.map_or(0, |it| it.links))
            })
            .filter(|(name, _)| name != "." && name != "..")
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn place(path: &Path) -> Place<'_> {
    Place {
        at: 0,
        name: path.as_os_str().as_bytes(),
    }
}
