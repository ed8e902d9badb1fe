//! Each kind of change.

use crate::picture;
use crate::site::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use wire::{Allocate, Copy, Link, Place, RemoveXattr, Request, SetXattr, Stamp, What};

/// A tree with something of everything.
fn furnished() -> Site {
    let site = Site::new();
    let root = site.root();
    fs::write(root.join("file"), vec![b'f'; 100_000]).expect("writes");
    fs::write(root.join("other"), "other").expect("writes");
    fs::create_dir(root.join("folder")).expect("makes");
    fs::write(root.join("folder/in"), "in").expect("writes");
    fs::create_dir(root.join("empty")).expect("makes");
    fs::hard_link(root.join("file"), root.join("folder/second")).expect("links");
    std::os::unix::fs::symlink("file", root.join("soft")).expect("links");
    site
}

/// The change is made, seen, and undone.
fn undone(change: impl FnOnce(&Site)) {
    let site = furnished();
    let before = site.picture();
    let mark = site.mark();
    change(&site);
    assert!(
        picture::compare(&site.picture(), &before).is_err(),
        "nothing has changed"
    );
    site.undo(mark);
    picture::assert_same(&site.picture(), &before, "after the undo");
}

#[test]
fn writes_are_undone() {
    undone(|site| {
        site.write("file", O_RDWR, 70_000, b"new bytes")
            .expect("writes")
    });
    undone(|site| {
        site.write("file", O_RDWR, 99_990, &[1; 5000])
            .expect("writes")
    });
    undone(|site| {
        site.write("other", O_WRONLY | O_APPEND, 0, b"more")
            .expect("appends")
    });
    undone(|site| site.write("soft", O_RDWR, 5, b"by a link").expect("writes"));
}

#[test]
fn files_that_are_cut_are_whole_again() {
    undone(|site| site.change("file", What::Size(10)).expect("cuts"));
    undone(|site| {
        site.change("file", What::Size(1_000_000))
            .expect("lengthens")
    });
    undone(|site| {
        let handle = site.handle("file", O_WRONLY | O_TRUNC).expect("opens");
        site.write_to(handle, 0, b"anew").expect("writes");
    });
    // Linux cuts a file that is opened for reading, too.
    undone(|site| {
        site.handle("file", O_RDONLY | O_TRUNC).expect("opens");
        assert_eq!(fs::metadata(site.path("file")).expect("is there").len(), 0);
    });
    undone(|site| {
        let handle = site.handle("file", O_RDONLY).expect("opens");
        let again = wire::Open {
            place: wire::Place {
                at: handle,
                name: b"",
            },
            flags: O_RDWR | O_TRUNC | O_CREAT,
            mode: 0,
            first: 0,
        };
        site.ask(Request::Open(again), &[]).expect("opens");
        assert_eq!(fs::metadata(site.path("file")).expect("is there").len(), 0);
    });
}

#[test]
fn what_was_made_is_gone() {
    undone(|site| site.write("new", O_RDWR | O_CREAT, 0, b"x").expect("makes"));
    undone(|site| {
        site.write("new", O_WRONLY | O_CREAT | O_EXCL, 0, b"x")
            .expect("makes")
    });
    undone(|site| {
        site.write("new", O_WRONLY | O_CREAT | O_TRUNC, 0, b"x")
            .expect("makes")
    });
    undone(|site| {
        site.make_folder("a").expect("makes");
        site.make_folder("a/b").expect("makes");
        site.write("a/b/c", O_RDWR | O_CREAT, 0, &[5; 70_000])
            .expect("makes");
    });
    undone(|site| site.make_link("link", "nowhere").expect("makes"));
    undone(|site| site.make_fifo("fifo").expect("makes"));
    undone(|site| site.link("file", "empty/third").expect("links"));
    undone(|site| {
        let nameless = 0o20_200_000;
        let at = site.open("", O_RDWR | nameless).expect("makes").handle;
        site.write_to(at, 0, &[7; 70_000]).expect("writes");
        for name in ["named", "empty/again"] {
            let to = site.path(name);
            let link = Link {
                from: Place { at, name: b"" },
                to: place(&to),
                follow: true,
            };
            site.ask(Request::Link(link), &[]).expect("gets a name");
            site.write_to(at, 70_000, b"more").expect("writes");
            assert_eq!(site.link("file", name), Err(EEXIST));
        }
    });
    undone(|site| {
        // Where a link leads that leads nowhere yet.
        site.make_link("ahead", "empty/later").expect("makes");
        site.write("ahead", O_RDWR | O_CREAT, 0, b"x")
            .expect("makes");
        assert!(site.path("empty/later").exists());
    });
}

#[test]
fn what_was_removed_or_moved_is_back() {
    undone(|site| site.remove("file", false).expect("removes"));
    undone(|site| {
        site.remove("file", false).expect("removes");
        site.remove("folder/second", false).expect("removes");
    });
    undone(|site| site.remove("soft", false).expect("removes"));
    undone(|site| site.remove("empty", true).expect("removes"));
    undone(|site| site.rename("file", "moved", 0).expect("moves"));
    undone(|site| site.rename("other", "file", 0).expect("moves"));
    undone(|site| site.rename("folder", "empty", 0).expect("moves"));
    undone(|site| {
        site.rename("other", "moved", 1)
            .expect("moves to a new name")
    });
    undone(|site| site.rename("file", "folder", 2).expect("exchanges"));
}

#[test]
fn attributes_are_as_they_were() {
    undone(|site| site.change("file", What::Mode(0o600)).expect("changes"));
    undone(|site| site.change("folder", What::Mode(0o700)).expect("changes"));
    undone(|site| {
        let stamp = Stamp {
            seconds: 1_000_000,
            nanoseconds: 5,
        };
        let times = What::Times(None, Some(Some(stamp)));
        site.change("file", times).expect("changes");
    });
    undone(|site| {
        let handle = site.handle("file", O_RDONLY).expect("opens");
        let place = wire::Place {
            at: handle,
            name: b"",
        };
        let set = SetXattr {
            place,
            follow: true,
            name: b"user.key",
            flags: 0,
        };
        site.ask(Request::SetXattr(set), b"value").expect("sets");
    });
    let site = furnished();
    let path = site.path("file");
    rustix::fs::setxattr(&path, "user.key", b"old", rustix::fs::XattrFlags::empty()).expect("sets");
    let (before, mark) = (site.picture(), site.mark());
    let remove = RemoveXattr {
        place: place(&path),
        follow: true,
        name: b"user.key",
    };
    site.ask(Request::RemoveXattr(remove), &[])
        .expect("removes");
    site.undo(mark);
    picture::assert_same(&site.picture(), &before, "after the undo");
}

#[test]
fn owners_are_as_they_were() {
    let root = rustix::process::geteuid().is_root();
    let site = furnished();
    let (before, mark) = (site.picture(), site.mark());
    let uid = if root { 1234 } else { u32::MAX };
    let gid = if root {
        1234
    } else {
        rustix::process::getegid().as_raw()
    };
    fs::set_permissions(site.path("other"), fs::Permissions::from_mode(0o644)).expect("sets");
    site.change("file", What::Owner(uid, gid)).expect("changes");
    site.undo(mark);
    picture::assert_same(&site.picture(), &before, "after the undo");
}

#[test]
fn space_that_was_made_punched_or_moved_is_as_it_was() {
    let allocate = |site: &Site, mode, offset, len| {
        let handle = site.handle("file", O_RDWR).expect("opens");
        let request = Allocate {
            handle,
            mode,
            offset,
            len,
        };
        site.ask(Request::Allocate(request), &[])
    };
    undone(|site| {
        allocate(site, 0, 90_000, 50_000)
            .map(|_| ())
            .expect("lengthens")
    });
    undone(|site| {
        allocate(site, 3, 5000, 50_000)
            .map(|_| ())
            .expect("punches")
    });
    undone(|site| {
        allocate(site, 0x10, 5000, 500_000)
            .map(|_| ())
            .expect("zeroes")
    });
    let moving = [(0x8, "collapses"), (0x20, "inserts")];
    for (mode, what) in moving {
        let site = furnished();
        let (before, mark) = (site.picture(), site.mark());
        match allocate(&site, mode, 4096, 8192) {
            // Not every file system can.
            Err(EOPNOTSUPP) => continue,
            done => done.map(|_| ()).expect(what),
        }
        site.undo(mark);
        picture::assert_same(&site.picture(), &before, what);
    }
}

#[test]
fn copies_between_files_are_undone() {
    undone(|site| {
        let from = site.handle("file", O_RDONLY).expect("opens");
        let to = site.handle("other", O_RDWR).expect("opens");
        let copy = Copy {
            from,
            from_offset: 1000,
            to,
            to_offset: 2,
            len: u64::MAX,
        };
        let reply = site.ask(Request::Copy(copy), &[]).expect("copies");
        let wire::Reply::Written(written) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(written.len, 99_000);
    });
}

#[test]
fn several_marks_are_gone_back_to_one_by_one_and_one_is_given_up() {
    let site = furnished();
    let mut marks = vec![];
    for round in 0..4_u8 {
        marks.push((site.mark(), site.picture()));
        site.write("file", O_RDWR, u64::from(round) * 10, &[round; 30_000])
            .expect("writes");
        site.write(&format!("new{round}"), O_RDWR | O_CREAT, 0, b"x")
            .expect("makes");
        if round > 0 {
            site.remove(&format!("new{}", round - 1), false)
                .expect("removes");
        }
    }
    // As if the last but one had not been: what was done then belongs to the one before.
    let (given_up, _) = marks.remove(2);
    site.session.abort(given_up).expect("gives up");
    for (mark, then) in marks.into_iter().rev() {
        site.undo(mark);
        picture::assert_same(&site.picture(), &then, "after an undo");
    }
}

#[test]
fn what_is_open_stays_open() {
    let site = furnished();
    let handle = site.handle("file", O_RDWR).expect("opens");
    let (mark, before) = (site.mark(), site.picture());
    site.write_to(handle, 0, b"one").expect("writes");
    site.undo(mark);
    picture::assert_same(&site.picture(), &before, "after the first undo");
    site.write_to(handle, 5, b"two").expect("writes");
    site.remove("file", false).expect("removes");
    site.write_to(handle, 9, b"three").expect("writes");
    site.undo(mark);
    picture::assert_same(&site.picture(), &before, "after the second undo");
    site.write_to(handle, 0, b"back").expect("writes");
    assert_eq!(
        fs::read(site.path("file")).expect("is there")[..4],
        *b"back"
    );
}

#[test]
fn answers_go_back_with_the_files() {
    let site = furnished();
    site.session.remember(1, b"one").expect("remembers");
    let mark = site.mark();
    site.session.remember(2, b"two").expect("remembers");
    assert_eq!(site.session.answer_to(2).as_deref(), Some(&b"two"[..]));
    site.undo(mark);
    assert_eq!(site.session.answer_to(1).as_deref(), Some(&b"one"[..]));
    assert_eq!(site.session.answer_to(2), None);
}
