//! What cannot be journalled is not done, and calls fail as they would without a journal.

use crate::picture;
use crate::site::*;
use std::fs;
use wire::{Allocate, Request};

#[test]
fn where_there_is_no_room_nothing_is_changed() {
    let site = Site::with(|journals| journals.limited(50_000));
    fs::write(site.path("file"), vec![1; 200_000]).expect("writes");
    fs::write(site.path("small"), "small").expect("writes");
    let before = site.picture();
    assert_eq!(site.open("file", O_RDWR | O_TRUNC).err(), Some(EDQUOT));
    assert_eq!(site.write("file", O_RDWR, 0, &[2; 100_000]), Err(EDQUOT));
    assert_eq!(site.remove("file", false), Err(EDQUOT));
    assert_eq!(site.rename("small", "file", 0), Err(EDQUOT));
    picture::assert_same(&site.picture(), &before, "after refusals");
    site.write("small", O_RDWR, 0, b"room for this")
        .expect("writes");
}

#[test]
fn what_could_not_be_undone_is_refused() {
    let site = Site::new();
    fs::write(site.path("file"), "x").expect("writes");
    let whiteout = 4;
    assert_eq!(site.rename("file", "new", whiteout), Err(EOPNOTSUPP));
    let handle = site.handle("file", O_RDWR).expect("opens");
    let unknown = Allocate {
        handle,
        mode: 0x80,
        offset: 0,
        len: 4096,
    };
    assert_eq!(site.ask(Request::Allocate(unknown), &[]), Err(EOPNOTSUPP));
}

/// The journal's folder is gone: nothing can be kept any more.
#[test]
fn a_journal_that_fails_lets_nothing_be_changed() {
    let site = Site::new();
    fs::create_dir(site.path("folder")).expect("makes it");
    fs::write(site.path("file"), "x").expect("writes");
    let before = site.picture();
    fs::remove_dir_all(site.path("../journals")).expect("removes");
    assert_eq!(site.remove("file", false), Err(EIO));
    picture::assert_same(&site.picture(), &before, "after a refusal");
}

#[test]
fn wrong_calls_fail_as_ever_and_keep_nothing() {
    let site = Site::new();
    fs::create_dir(site.path("folder")).expect("makes it");
    fs::write(site.path("folder/file"), "x").expect("writes");
    fs::write(site.path("file"), "x").expect("writes");
    let before = site.picture();
    let create = O_RDWR | O_CREAT;
    assert_eq!(site.open("file", create | O_EXCL).err(), Some(EEXIST));
    assert_eq!(site.open("folder", create).err(), Some(EISDIR));
    assert_eq!(site.open("folder", O_RDONLY | O_TRUNC).err(), Some(EISDIR));
    assert_eq!(site.open("new/", create).err(), Some(EISDIR));
    assert_eq!(site.open("none/new", create).err(), Some(ENOENT));
    assert_eq!(site.make_folder("file"), Err(EEXIST));
    assert_eq!(site.remove("none", false), Err(ENOENT));
    assert_eq!(site.remove("folder", false), Err(EISDIR));
    assert_eq!(site.remove("folder", true), Err(39));
    assert_eq!(site.remove("file", true), Err(20));
    assert_eq!(site.rename("none", "file", 0), Err(ENOENT));
    assert_eq!(site.rename("file", "folder/file", 1), Err(EEXIST));
    assert_eq!(site.rename("file", "none", 2), Err(ENOENT));
    assert_eq!(site.rename("folder", "file", 0), Err(20));
    assert_eq!(site.link("file", "folder/file"), Err(EEXIST));
    assert_eq!(site.link("folder", "hard"), Err(1));
    let handle = site.handle("file", O_RDONLY).expect("opens");
    assert_eq!(site.write_to(handle, 0, b"x"), Err(9));
    picture::assert_same(&site.picture(), &before, "after errors");
}
