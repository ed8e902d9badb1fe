//! Bytes and attributes of what is open or named.

use crate::home::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use wire::{
    Change, Close, GetXattr, Open, Place, Reply, Request, Seek, SetXattr, Stamp, Sync, What,
    Written,
};

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
