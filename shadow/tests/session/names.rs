//! Names and listings.

use crate::home::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use wire::{
    Attribute, Link, List, MakeDirectory, MakeNode, Open, Place, ReadLink, RemoveName, Rename,
    Reply, Request, SymbolicLink,
};

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
    for flags in [O_RDONLY, O_WRONLY, O_RDWR, O_WRONLY | O_CREAT | O_TRUNC] {
        let answer = home.open("rw/fifo", flags);
        assert_eq!(answer, Err(wire::FIFO), "{flags:o}: does not wait");
    }
    let exclusive = O_WRONLY | O_CREAT | O_EXCL;
    assert_eq!(home.open("rw/fifo", exclusive), Err(EEXIST));
    let execute = Open::EXECUTE;
    assert_eq!(home.open("rw/fifo", execute), Err(EACCES));
    assert_eq!(remove(&fifo, false), Reply::Done);
    assert_eq!(node(0o140_700), Reply::Done);
    assert_eq!(home.open("rw/fifo", O_RDONLY), Err(ENXIO), "a socket");
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
