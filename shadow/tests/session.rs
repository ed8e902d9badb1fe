//! What a session does with requests, held against the file system itself.

#[path = "../../tests/support/skip.rs"]
mod skip;

use proptest::prelude::*;
use shadow::{Allowed, Limits, Session};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::{
    Access, Attribute, Attributes, Change, Close, Copy, Entries, GetXattr, Link, List,
    MakeDirectory, MakeNode, Open, Opened, Place, Read, ReadLink, RemoveName, Rename, Reply,
    Request, Seek, SetXattr, Stamp, SymbolicLink, Sync, What, Write, Written,
};

const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;
const O_DIRECTORY: u32 = 0o200_000;
const O_NOFOLLOW: u32 = 0o400_000;

const EPERM: u16 = 1;
const ENOENT: u16 = 2;
const EBADF: u16 = 9;
const EACCES: u16 = 13;
const EBUSY: u16 = 16;
const EEXIST: u16 = 17;
const ENOTDIR: u16 = 20;
const EISDIR: u16 = 21;
const EINVAL: u16 = 22;
const ENFILE: u16 = 23;
const ENAMETOOLONG: u16 = 36;
const ENOTEMPTY: u16 = 39;
const ELOOP: u16 = 40;

/// A folder `rw` where everything is allowed, `ro` where reading is, and `out` where nothing is.
struct Home {
    _directory: tempfile::TempDir,
    path: PathBuf,
    session: Session,
}

impl Home {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
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

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn ask(&self, request: &Request<'_>, data: &[u8]) -> (Reply<'static>, Vec<u8>) {
        let mut out = vec![1, 2, 3];
        let reply = self.session.answer(request, data, &mut out);
        (reply, out)
    }

    fn reply(&self, request: Request<'_>) -> Reply<'static> {
        self.ask(&request, &[]).0
    }

    fn open(&self, name: &str, flags: u32) -> Result<(Opened, Vec<u8>), u16> {
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

    fn handle(&self, name: &str, flags: u32) -> u64 {
        self.open(name, flags).expect("opens").0.handle
    }

    fn read(&self, handle: u64, offset: u64, len: u32) -> Result<Vec<u8>, u16> {
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

    fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Result<Written, u16> {
        match self.ask(&Request::Write(Write { handle, offset }), data).0 {
            Reply::Written(written) => Ok(written),
            Reply::Failed(errno) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    fn attributes(&self, name: &str, follow: bool) -> Result<Attributes, u16> {
        let path = self.at(name);
        let place = place(&path);
        match self.reply(Request::Attribute(Attribute { place, follow })) {
            Reply::Attributes(attributes) => Ok(attributes),
            Reply::Failed(errno) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    fn list(&self, handle: u64, len: u32, attributes: bool) -> Vec<(String, Option<Attributes>)> {
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

fn place(path: &Path) -> Place<'_> {
    Place {
        at: 0,
        name: path.as_os_str().as_bytes(),
    }
}

fn same(attributes: &Attributes, metadata: &fs::Metadata) {
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

#[test]
fn opening_brings_attributes_and_first_bytes() {
    let home = Home::new();
    fs::write(home.at("rw/long"), [7; 5000]).expect("writes");
    let (opened, first) = home.open("rw/long", O_RDONLY).expect("opens");
    assert_eq!(first, [7; 100]);
    same(
        &opened.attributes,
        &fs::metadata(home.at("rw/long")).expect("is there"),
    );
    let (_, first) = home.open("rw/file", O_RDWR).expect("opens");
    assert_eq!(first, b"rw");
    let (_, first) = home.open("rw/file", O_WRONLY).expect("opens");
    assert!(first.is_empty(), "what is not open for reading is not read");
    let (opened, _) = home.open("rw/new", O_RDWR | O_CREAT).expect("is made");
    assert_eq!(opened.attributes.mode, 0o100_640);
    assert_eq!(home.open("rw/new", O_RDWR | O_CREAT | O_EXCL), Err(EEXIST));
    assert_eq!(home.open("rw/none", O_RDWR), Err(ENOENT));
    assert_eq!(home.open("rw/file/x", O_RDWR), Err(ENOTDIR));
    assert_eq!(home.open("rw", O_RDWR), Err(EISDIR));
    assert_eq!(home.open("rw/file", O_DIRECTORY), Err(ENOTDIR));
}

#[test]
fn bytes_are_read_and_written_where_they_are_asked_for() {
    let home = Home::new();
    let handle = home.handle("rw/data", O_RDWR | O_CREAT);
    let written = home.write(handle, 3, b"abc");
    assert_eq!(
        written,
        Ok(Written {
            len: 3,
            offset: 3,
            size: 6
        })
    );
    assert_eq!(home.read(handle, 0, 100), Ok(b"\0\0\0abc".to_vec()));
    assert_eq!(home.read(handle, 4, 1), Ok(b"b".to_vec()));
    assert_eq!(home.read(handle, 6, 10), Ok(vec![]));
    assert_eq!(home.read(handle, u64::MAX, 10), Err(EINVAL));
    let reading = home.handle("rw/data", O_RDONLY);
    assert_eq!(home.write(reading, 0, b"x"), Err(EBADF));
    let sync = Request::Sync(Sync {
        handle,
        data_only: true,
    });
    assert_eq!(home.reply(sync), Reply::Done);
    let hole = Request::Seek(Seek {
        handle,
        offset: 0,
        hole: true,
    });
    assert_eq!(home.reply(hole), Reply::Number(6));
    assert_eq!(home.reply(Request::Close(Close { handle })), Reply::Done);
    assert_eq!(home.read(handle, 0, 1), Err(EBADF));
}

#[test]
fn appends_say_where_they_have_come_to_lie() {
    let home = Home::new();
    let one = home.handle("rw/log", O_WRONLY | O_CREAT | O_APPEND);
    let two = home.handle("rw/log", O_WRONLY | O_APPEND);
    assert_eq!(home.write(one, 99, b"aa").expect("appends").offset, 0);
    assert_eq!(home.write(two, 0, b"bbb").expect("appends").offset, 2);
    let last = home.write(one, 0, b"c").expect("appends");
    assert_eq!((last.offset, last.size), (5, 6));
    assert_eq!(fs::read(home.at("rw/log")).expect("reads"), b"aabbbc");
}

#[test]
fn attributes_are_those_of_the_file_system_and_can_be_changed() {
    let home = Home::new();
    symlink("file", home.at("rw/link")).expect("links");
    for name in ["rw/file", "rw", "ro/file"] {
        let attributes = home.attributes(name, true).expect("is there");
        same(&attributes, &fs::metadata(home.at(name)).expect("is there"));
    }
    let link = home.attributes("rw/link", false).expect("is there");
    same(
        &link,
        &fs::symlink_metadata(home.at("rw/link")).expect("is there"),
    );
    let through = home.attributes("rw/link", true).expect("is there");
    same(
        &through,
        &fs::metadata(home.at("rw/file")).expect("is there"),
    );

    let path = home.at("rw/link");
    let stamp = Stamp {
        seconds: 1_000_000_000,
        nanoseconds: 5,
    };
    for (what, follow) in [
        (What::Mode(0o600), true),
        (What::Times(None, Some(Some(stamp))), true),
        (What::Size(1), true),
        (What::Owner(u32::MAX, u32::MAX), false),
        (What::Times(Some(None), Some(Some(stamp))), false),
    ] {
        let change = Request::Change(Change {
            place: place(&path),
            follow,
            what,
        });
        assert!(
            matches!(home.reply(change), Reply::Attributes(_)),
            "{what:?}"
        );
    }
    let file = fs::metadata(home.at("rw/file")).expect("is there");
    assert_eq!((file.mode(), file.size()), (0o100_600, 1));
    assert!(file.mtime() > 1_000_000_000, "the size was changed last");
    let link = fs::symlink_metadata(&path).expect("is there");
    assert_eq!((link.mtime(), link.mtime_nsec()), (1_000_000_000, 5));
    assert!(link.is_symlink(), "the link itself was changed");
}

#[test]
fn names_are_made_moved_and_removed() {
    let home = Home::new();
    let [dir, inner, moved, link, fifo] =
        ["rw/dir", "rw/dir/in", "rw/moved", "rw/dir/link", "rw/fifo"].map(|name| home.at(name));
    let make = |path: &Path| {
        home.reply(Request::MakeDirectory(MakeDirectory {
            place: place(path),
            mode: 0o700,
        }))
    };
    let remove = |path: &Path, directory| {
        home.reply(Request::RemoveName(RemoveName {
            place: place(path),
            directory,
        }))
    };
    assert_eq!(make(&dir), Reply::Done);
    assert_eq!(make(&dir), Reply::Failed(EEXIST));
    assert_eq!(make(&inner), Reply::Done);
    assert_eq!(remove(&dir, true), Reply::Failed(ENOTEMPTY));
    assert_eq!(remove(&dir, false), Reply::Failed(EISDIR));
    assert_eq!(remove(&inner, true), Reply::Done);
    let symbolic = Request::SymbolicLink(SymbolicLink {
        target: b"../file",
        place: place(&link),
    });
    assert_eq!(home.reply(symbolic), Reply::Done);
    let read = Request::ReadLink(ReadLink {
        place: place(&link),
    });
    assert_eq!(home.ask(&read, &[]), (Reply::Done, b"../file".to_vec()));
    let rename = Request::Rename(Rename {
        from: place(&dir),
        to: place(&moved),
        flags: 0,
    });
    assert_eq!(home.reply(rename), Reply::Done);
    assert_eq!(fs::read(moved.join("link")).expect("leads on"), b"rw");
    let (file, second) = (home.at("rw/file"), home.at("rw/second"));
    let hard = Request::Link(Link {
        from: place(&file),
        to: place(&second),
        follow: false,
    });
    assert_eq!(home.reply(hard), Reply::Done);
    assert_eq!(fs::metadata(&second).expect("is there").nlink(), 2);
    let node = |mode| {
        home.reply(Request::MakeNode(MakeNode {
            place: place(&fifo),
            mode,
        }))
    };
    assert_eq!(node(0o020_600), Reply::Failed(EPERM), "no devices");
    assert_eq!(node(0o010_600), Reply::Done);
    assert_eq!(home.open("rw/fifo", O_RDONLY), Err(EACCES), "does not wait");
    assert_eq!(remove(&fifo, false), Reply::Done);
    assert_eq!(remove(&home.at("rw"), true), Reply::Failed(EBUSY));
    let not_a_link = Request::ReadLink(ReadLink {
        place: place(&file),
    });
    assert_eq!(home.reply(not_a_link), Reply::Failed(EINVAL));
}

#[test]
fn a_listing_is_whole_however_little_room_there_is() {
    let home = Home::new();
    let mut expected = vec![".".to_owned(), "..".to_owned()];
    for number in 0..300 {
        let name = format!("a-name-{number}");
        fs::write(home.at("rw").join(&name), &name).expect("writes");
        expected.push(name);
    }
    expected.push("file".to_owned());
    expected.sort();
    let handle = home.handle("rw", O_DIRECTORY);
    for (len, attributes) in [(300, false), (300, true), (1 << 20, true)] {
        let mut found = home.list(handle, len, attributes);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let names: Vec<_> = found.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, expected);
        for (name, told) in found.iter().filter(|_| attributes) {
            match told {
                Some(told) => same(
                    told,
                    &fs::symlink_metadata(home.at("rw").join(name)).expect("is there"),
                ),
                None => assert_eq!(name, ".."),
            }
        }
    }
    let (reply, _) = home.ask(
        &Request::List(List {
            handle,
            from: 0,
            len: 5,
            attributes: false,
        }),
        &[],
    );
    assert_eq!(reply, Reply::Failed(EINVAL), "room for not even one");
}

#[test]
fn names_may_begin_at_an_open_directory() {
    let home = Home::new();
    fs::create_dir(home.at("rw/sub")).expect("makes");
    let handle = home.handle("rw/sub", O_DIRECTORY);
    let open = |name: &str, flags| {
        home.reply(Request::Open(Open {
            place: Place {
                at: handle,
                name: name.as_bytes(),
            },
            flags,
            mode: 0o600,
            first: 0,
        }))
    };
    assert!(matches!(open("new", O_WRONLY | O_CREAT), Reply::Opened(_)));
    assert!(home.at("rw/sub/new").exists());
    assert!(matches!(open("../file", O_RDONLY), Reply::Opened(_)));
    assert_eq!(open("../../out/file", O_RDONLY), Reply::Failed(EACCES));
    assert_eq!(open("../../ro/file", O_RDWR), Reply::Failed(EACCES));
    assert!(matches!(open("", O_RDONLY), Reply::Opened(_)), "itself");
    fs::rename(home.at("rw/sub"), home.at("rw/renamed")).expect("renames");
    assert!(matches!(open("new", O_RDONLY), Reply::Opened(_)));
    fs::remove_file(home.at("rw/renamed/new")).expect("removes");
    fs::remove_dir(home.at("rw/renamed")).expect("removes");
    assert_eq!(open("new", O_WRONLY | O_CREAT), Reply::Failed(ENOENT));
    let attributes = Request::Attribute(Attribute {
        place: Place {
            at: handle,
            name: b"",
        },
        follow: true,
    });
    assert!(matches!(home.reply(attributes), Reply::Attributes(_)));
}

#[test]
fn what_is_open_can_be_opened_again_with_other_flags() {
    let home = Home::new();
    let reading = home.handle("rw/file", O_RDONLY);
    let again = |at, flags| {
        home.reply(Request::Open(Open {
            place: Place { at, name: b"" },
            flags,
            mode: 0,
            first: 0,
        }))
    };
    fs::remove_file(home.at("rw/file")).expect("removes");
    let Reply::Opened(opened) = again(reading, O_RDWR) else {
        panic!("not opened")
    };
    assert!(home.write(opened.handle, 0, b"RW").is_ok());
    assert_eq!(home.read(reading, 0, 9), Ok(b"RW".to_vec()));
    let outside = home.handle("ro/file", O_RDONLY);
    assert_eq!(again(outside, O_RDWR), Reply::Failed(EACCES));
    assert_eq!(again(outside, O_TRUNC), Reply::Failed(EACCES));
    assert!(matches!(again(outside, O_RDONLY), Reply::Opened(_)));
    assert_eq!(again(0, O_RDONLY), Reply::Failed(ENOENT));
    assert_eq!(again(99, O_RDONLY), Reply::Failed(EBADF));
}

#[test]
fn no_name_leads_out() {
    let home = Home::new();
    symlink("/etc/passwd", home.at("rw/absolute")).expect("links");
    symlink("../out/file", home.at("rw/relative")).expect("links");
    symlink("../out", home.at("rw/folder")).expect("links");
    symlink("../ro", home.at("rw/to-ro")).expect("links");
    symlink("/proc/self/cwd", home.at("rw/magic")).expect("links");
    symlink("round", home.at("rw/round")).expect("links");
    for name in [
        "out/file",
        "rw/../out/file",
        "rw/absolute",
        "rw/relative",
        "rw/folder/file",
        "rw/magic",
        "rw/magic/x",
        "rw/folder/../out/file",
        "ro/../out/file",
        "rw/./../rw//../out/file",
        "../../../../../../etc/passwd",
    ] {
        assert_eq!(home.open(name, O_RDONLY), Err(EACCES), "{name}");
        assert_eq!(home.attributes(name, true), Err(EACCES), "{name}");
    }
    for name in ["rw/to-ro/file", "rw/to-ro/../rw/to-ro/file", "ro/file"] {
        let (_, first) = home.open(name, O_RDONLY).expect("may be read");
        assert_eq!(first, b"ro");
        for flags in [O_RDWR, O_WRONLY, O_TRUNC] {
            assert_eq!(home.open(name, flags), Err(EACCES), "{name}");
        }
    }
    assert_eq!(home.open("rw/round", O_RDONLY), Err(ELOOP));
    assert_eq!(home.open("rw/relative", O_RDONLY | O_NOFOLLOW), Err(ELOOP));
    assert_eq!(fs::read(home.at("ro/file")).expect("reads"), b"ro");
    let long = "x/".repeat(3000);
    assert_eq!(home.open(&long, O_RDONLY), Err(ENAMETOOLONG));
    assert_eq!(home.open("rw/a\0b", O_RDONLY), Err(EINVAL));
}

#[test]
fn what_holds_a_root_keeps_its_name() {
    let home = Home::new();
    fs::create_dir_all(home.at("rw/data/kept")).expect("makes");
    let mut allowed = Allowed::none();
    allowed.allow(home.at("rw"), true).expect("allowed");
    let kept = home.at("rw/data/kept");
    allowed.allow(kept.clone(), false).expect("allowed");
    let session = Session::new(2, Arc::new(allowed), Limits::default());
    let (new, data, other) = (home.at("rw/new"), home.at("rw/data"), home.at("rw/file"));
    for (from, to, flags) in [(&data, &new, 0), (&kept, &new, 0), (&other, &data, 2)] {
        let rename = Request::Rename(Rename {
            from: place(from),
            to: place(to),
            flags,
        });
        let reply = session.answer(&rename, &[], &mut vec![]);
        let refused = [Reply::Failed(EBUSY), Reply::Failed(EACCES)];
        assert!(refused.contains(&reply), "{from:?}: {reply:?}");
    }
    assert!(kept.exists());
}

#[test]
fn dots_are_no_names_to_make_move_or_remove() {
    let home = Home::new();
    fs::create_dir_all(home.at("rw/a/b")).expect("makes");
    let new = home.at("rw/new");
    for (name, removed) in [
        ("rw/a/b/.", EINVAL),
        ("rw/a/b/..", ENOTEMPTY),
        ("rw/a/b/./", EINVAL),
    ] {
        let path = home.path.as_os_str().as_bytes();
        let whole = [path, b"/", name.as_bytes()].concat();
        let dots = Place {
            at: 0,
            name: &whole,
        };
        let remove = Request::RemoveName(RemoveName {
            place: dots,
            directory: true,
        });
        assert_eq!(home.reply(remove), Reply::Failed(removed), "{name}");
        let rename = Request::Rename(Rename {
            from: dots,
            to: place(&new),
            flags: 0,
        });
        assert_eq!(home.reply(rename), Reply::Failed(EBUSY), "{name}");
        let make = Request::MakeDirectory(MakeDirectory {
            place: dots,
            mode: 0o700,
        });
        assert_eq!(home.reply(make), Reply::Failed(EEXIST), "{name}");
    }
    let missing = [home.path.as_os_str().as_bytes(), b"/rw/none/."].concat();
    let make = Request::MakeDirectory(MakeDirectory {
        place: Place {
            at: 0,
            name: &missing,
        },
        mode: 0o700,
    });
    assert_eq!(home.reply(make), Reply::Failed(ENOENT));
    assert!(home.at("rw/a/b").exists() && !home.at("rw/none").exists());
}

#[test]
fn where_only_reading_is_allowed_nothing_changes() {
    let home = Home::new();
    let (file, new) = (home.at("ro/file"), home.at("ro/new"));
    let inside = home.at("rw/file");
    let (file_place, new_place) = (place(&file), place(&new));
    let refused = [
        Request::MakeDirectory(MakeDirectory {
            place: new_place,
            mode: 0o700,
        }),
        Request::MakeNode(MakeNode {
            place: new_place,
            mode: 0o600,
        }),
        Request::SymbolicLink(SymbolicLink {
            target: b"x",
            place: new_place,
        }),
        Request::RemoveName(RemoveName {
            place: file_place,
            directory: false,
        }),
        Request::Rename(Rename {
            from: file_place,
            to: place(&inside),
            flags: 0,
        }),
        Request::Rename(Rename {
            from: place(&inside),
            to: new_place,
            flags: 0,
        }),
        Request::Link(Link {
            from: file_place,
            to: place(&inside),
            follow: false,
        }),
        Request::Change(Change {
            place: file_place,
            follow: true,
            what: What::Mode(0o777),
        }),
        Request::Change(Change {
            place: file_place,
            follow: true,
            what: What::Size(0),
        }),
        Request::Access(Access {
            place: file_place,
            mode: 2,
            follow: true,
            effective: true,
        }),
        Request::SetXattr(SetXattr {
            place: file_place,
            follow: true,
            name: b"user.x",
            flags: 0,
        }),
    ];
    let before = fs::metadata(&file).expect("is there");
    for request in refused {
        assert_eq!(home.reply(request), Reply::Failed(EACCES), "{request:?}");
    }
    assert_eq!(home.open("ro/new", O_RDONLY | O_CREAT), Err(EACCES));
    assert!(home.open("ro/file", O_RDONLY | O_CREAT).is_ok());
    let exclusive = O_RDONLY | O_CREAT | O_EXCL;
    assert_eq!(home.open("ro/file", exclusive), Err(EEXIST));
    let there = Request::MakeDirectory(MakeDirectory {
        place: file_place,
        mode: 0o700,
    });
    assert_eq!(home.reply(there), Reply::Failed(EEXIST));
    let handle = home.handle("ro/file", O_RDONLY);
    let by_handle = Request::Change(Change {
        place: Place {
            at: handle,
            name: b"",
        },
        follow: true,
        what: What::Mode(0o777),
    });
    assert_eq!(home.reply(by_handle), Reply::Failed(EACCES));
    let copy = Request::Copy(Copy {
        from: home.handle("rw/file", O_RDONLY),
        from_offset: 0,
        to: handle,
        to_offset: 0,
        len: 1,
    });
    assert_eq!(home.reply(copy), Reply::Failed(EACCES));
    let after = fs::metadata(&file).expect("is there");
    assert_eq!(
        (after.ctime(), after.ctime_nsec(), after.nlink()),
        (before.ctime(), before.ctime_nsec(), 1)
    );
    assert_eq!(fs::read_dir(home.at("ro")).expect("lists").count(), 1);
}

#[test]
fn folders_on_the_way_to_a_root_are_seen_and_no_more() {
    let home = Home::new();
    let metadata = fs::metadata(&home.path).expect("is there");
    same(&home.attributes("", true).expect("is above"), &metadata);
    let above = place(&home.path);
    let link = Request::ReadLink(ReadLink { place: above });
    assert_eq!(home.reply(link), Reply::Failed(EINVAL));
    let make = Request::MakeDirectory(MakeDirectory {
        place: above,
        mode: 0o700,
    });
    assert_eq!(home.reply(make), Reply::Failed(EEXIST));
    assert_eq!(home.open("", O_DIRECTORY), Err(EACCES), "not listed");
}

#[test]
fn extended_attributes_are_kept() {
    let home = Home::new();
    let path = home.at("rw/file");
    let set = Request::SetXattr(SetXattr {
        place: place(&path),
        follow: true,
        name: b"user.colour",
        flags: 0,
    });
    assert_eq!(home.ask(&set, b"blue").0, Reply::Done);
    let get = Request::GetXattr(GetXattr {
        place: place(&path),
        follow: true,
        name: b"user.colour",
    });
    assert_eq!(home.ask(&get, &[]), (Reply::Done, b"blue".to_vec()));
}

#[test]
fn open_files_are_limited() {
    let home = Home::with(Limits {
        open_files: 10,
        ..Limits::default()
    });
    let handles: Vec<_> = (0..10).map(|_| home.handle("rw/file", O_RDONLY)).collect();
    assert_eq!(home.open("rw/file", O_RDONLY), Err(ENFILE));
    home.reply(Request::Close(Close { handle: handles[3] }));
    assert!(home.open("rw/file", O_RDONLY).is_ok());
}

#[test]
fn a_root_that_is_given_by_a_link_is_found_by_both_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let real = directory.path().canonicalize().expect("is there");
    fs::create_dir(real.join("real")).expect("makes");
    fs::write(real.join("real/file"), "x").expect("writes");
    symlink("real", real.join("link")).expect("links");
    let mut allowed = Allowed::none();
    allowed.allow(real.join("link"), true).expect("allowed");
    let session = Session::new(1, Arc::new(allowed), Limits::default());
    for name in ["link/file", "real/file"] {
        let path = real.join(name);
        let request = Request::Attribute(Attribute {
            place: place(&path),
            follow: true,
        });
        let reply = session.answer(&request, &[], &mut vec![]);
        assert!(matches!(reply, Reply::Attributes(_)), "{name}: {reply:?}");
    }
}

#[test]
fn permissions_of_the_owner_hold() {
    let home = Home::new();
    fs::set_permissions(home.at("rw/file"), fs::Permissions::from_mode(0o000)).expect("sets");
    // Root may.
    let expected = if is_root() { None } else { Some(EACCES) };
    assert_eq!(home.open("rw/file", O_RDONLY).err(), expected);
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("is there").uid() == 0
}

#[test]
fn a_name_that_changes_under_way_leads_out_never() {
    let home = Home::new();
    fs::create_dir(home.at("rw/real")).expect("makes");
    fs::write(home.at("rw/real/file"), "inside").expect("writes");
    let (turning, link, swap) = (
        home.at("rw/turning"),
        home.at("rw/link"),
        home.at("rw/swap"),
    );
    symlink("../out", &link).expect("links");
    fs::rename(home.at("rw/real"), &turning).expect("renames");
    let over = AtomicBool::new(false);
    let (mut inside, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::rename(&turning, &swap).expect("renames");
                fs::rename(&link, &turning).expect("renames");
                fs::rename(&turning, &link).expect("renames");
                fs::rename(&swap, &turning).expect("renames");
            }
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        while (inside < 200 || refused < 200) && Instant::now() < deadline {
            match home.open("rw/turning/file", O_RDONLY) {
                Ok((opened, first)) => {
                    let handle = opened.handle;
                    home.reply(Request::Close(Close { handle }));
                    assert_eq!(first, b"inside");
                    inside += 1;
                }
                Err(EACCES) => refused += 1,
                Err(ENOENT | ELOOP) => {}
                Err(errno) => panic!("{errno}"),
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(inside >= 200 && refused >= 200, "{inside} and {refused}");
}

/// Root passes over permissions; the owner of a job does not.
#[test]
fn all_of_this_holds_for_an_ordinary_user() {
    if !is_root() {
        return skip::note(
            "all_of_this_holds_for_an_ordinary_user",
            "it does run as one",
        );
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("session");
    fs::copy(std::env::current_exe().expect("is known"), &program).expect("copies");
    for path in [directory.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("sets");
    }
    let user = ["--reuid=wftest", "--regid=wftest", "--init-groups"];
    let output = Command::new("setpriv")
        .args(user)
        .arg(&program)
        .current_dir("/")
        .output()
        .expect("setpriv starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{error}");
    assert!(
        text.contains("permissions_of_the_owner_hold ... ok"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Any name made of these parts: what is found is what the kernel finds, if that lies in a root, else nothing.
    #[test]
    fn any_name_is_resolved_as_by_the_kernel_or_refused(
        parts in prop::collection::vec(
            prop::sample::select(vec!["rw", "ro", "out", "file", "..", ".", "", "up", "across", "deep", "none", "top"]),
            1..9
        ),
        slash: bool,
    ) {
        let home = Home::new();
        fs::create_dir_all(home.at("rw/deep/deep")).expect("makes");
        symlink("..", home.at("rw/up")).expect("links");
        symlink("../../ro", home.at("rw/deep/across")).expect("links");
        symlink("../rw/deep", home.at("ro/across")).expect("links");
        symlink("/", home.at("rw/deep/deep/top")).expect("links");
        symlink(home.at("out"), home.at("ro/top")).expect("links");
        let mut name = format!("rw/{}", parts.join("/"));
        if slash {
            name.push('/');
        }
        let told = home.attributes(&name, true);
        let real = home.at(&name).canonicalize();
        match (told, real) {
            (Ok(attributes), Ok(real)) => {
                let inside = ["rw", "ro"].iter().any(|root| real.starts_with(home.at(root)));
                let above = home.path.starts_with(&real);
                prop_assert!(inside || above, "{} leads to {}", name, real.display());
                prop_assert_eq!(attributes.inode, fs::metadata(real).expect("is there").ino());
            }
            (Ok(_), Err(error)) => prop_assert!(false, "{}: {}", name, error),
            (Err(errno), Ok(real)) => {
                let inside = ["rw", "ro"].iter().any(|root| real.starts_with(home.at(root)));
                prop_assert!(!inside, "{} is {}, but: {}", name, real.display(), errno);
            }
            (Err(errno), Err(error)) => {
                let kernels = error.raw_os_error().map(|errno| errno as u16);
                prop_assert!(Some(errno) == kernels || errno == EACCES, "{}: {} not {}", name, errno, error);
            }
        }
    }
}
