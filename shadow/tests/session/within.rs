//! openat2(2): names that may not lead everywhere lead no further than they may, and never out of what is allowed.

use crate::home::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::{
    Close, FlagsOf, Link, Open, OpenWithin, Place, Reply, Request, Span, SyncAll, TestOwn, WriteAs,
};

const EAGAIN: u16 = 11;
const EXDEV: u16 = 18;
const O_PATH: u32 = 0o10_000_000;
const O_TMPFILE: u32 = 0o20_200_000;
const NO_XDEV: u32 = 1;
const NO_SYMLINKS: u32 = 4;
const BENEATH: u32 = 8;
const IN_ROOT: u32 = 0x10;

/// The first bytes of what is open then.
fn within(home: &Home, at: u64, name: &str, flags: u32, resolve: u32) -> Result<String, u16> {
    let open = Open {
        place: Place {
            at,
            name: name.as_bytes(),
        },
        flags,
        mode: 0o640,
        first: 100,
    };
    match home.ask(&Request::OpenWithin(OpenWithin { open, resolve }), &[]) {
        (Reply::Opened(opened), first) => {
            let handle = opened.handle;
            assert_eq!(home.reply(Request::Close(Close { handle })), Reply::Done);
            Ok(String::from_utf8(first).expect("is text"))
        }
        (Reply::Failed(errno), _) => Err(errno),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_lead_no_further_than_they_may() {
    let home = Home::new();
    fs::create_dir(home.at("rw/sub")).expect("makes");
    for (name, target) in [
        ("out", "../out"),
        ("ro", "../ro"),
        ("away", "/etc/passwd"),
        ("rooted", "/file"),
        ("inside", "sub/../file"),
        ("proc", "/proc/self/status"),
        ("round", "round"),
    ] {
        symlink(target, home.at("rw").join(name)).expect("links");
    }
    let at = home.handle("rw", O_PATH | O_DIRECTORY);
    let own = |text: &str| Ok(text.to_owned());
    for (name, resolve, expected) in [
        ("file", BENEATH, own("rw")),
        ("inside", BENEATH, own("rw")),
        ("inside", BENEATH | NO_SYMLINKS, Err(ELOOP)),
        ("sub/../file", BENEATH | NO_SYMLINKS | NO_XDEV, own("rw")),
        ("out/file", BENEATH, Err(EXDEV)),
        ("out/file", NO_XDEV, Err(EACCES)),
        // It leads to itself there.
        ("out/file", IN_ROOT, Err(ELOOP)),
        ("ro/file", BENEATH, Err(EXDEV)),
        ("ro/file", NO_XDEV, own("ro")),
        ("ro/file", NO_SYMLINKS, Err(ELOOP)),
        ("../ro/file", NO_SYMLINKS, own("ro")),
        ("../out/file", NO_SYMLINKS, Err(EACCES)),
        ("../rw/file", BENEATH, Err(EXDEV)),
        ("../../../file", IN_ROOT, own("rw")),
        ("away", BENEATH, Err(EXDEV)),
        ("away", IN_ROOT, Err(ENOENT)),
        ("rooted", IN_ROOT, own("rw")),
        ("rooted", NO_XDEV, Err(EXDEV)),
        ("proc", BENEATH, Err(EXDEV)),
        ("proc", NO_SYMLINKS, Err(ELOOP)),
        ("round", BENEATH, Err(ELOOP)),
        ("file/..", BENEATH, Err(ENOTDIR)),
        ("none", BENEATH, Err(ENOENT)),
    ] {
        let found = within(&home, at, name, O_RDONLY, resolve);
        assert_eq!(found, expected, "{name} by {resolve:x}");
    }
    assert_eq!(within(&home, at, "ro/file", O_RDWR, NO_XDEV), Err(EACCES));
    assert_eq!(within(&home, at, "new", O_RDWR | O_CREAT, BENEATH), own(""));
    assert!(home.at("rw/new").exists());
    assert_eq!(
        within(&home, at, "../ro/new", O_RDWR | O_CREAT, NO_SYMLINKS),
        Err(EACCES)
    );
    assert_eq!(within(&home, at, "file", O_RDONLY, 0x40), Err(EINVAL));
    assert_eq!(within(&home, 99, "file", O_RDONLY, BENEATH), Err(EBADF));
    let absolute = home.at("rw/file");
    let absolute = absolute.to_str().expect("is text");
    assert_eq!(
        within(&home, at, absolute, O_RDONLY, NO_SYMLINKS),
        own("rw")
    );
}

/// A folder is a link to another one in turns.
#[test]
fn what_changes_meanwhile_leads_nowhere_else() {
    let home = Home::new();
    fs::create_dir(home.at("rw/real")).expect("makes");
    fs::write(home.at("rw/real/file"), "real").expect("writes");
    symlink("../ro", home.at("rw/link")).expect("links");
    fs::rename(home.at("rw/real"), home.at("rw/d")).expect("renames");
    let at = home.handle("rw", O_PATH | O_DIRECTORY);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let rename =
                    |from: &str, to: &str| fs::rename(home.at(from), home.at(to)).expect("renames");
                rename("rw/d", "rw/real");
                rename("rw/link", "rw/d");
                rename("rw/d", "rw/link");
                rename("rw/real", "rw/d");
            }
        });
        let (soon, late) = (Duration::from_millis(300), Duration::from_secs(10));
        let begin = Instant::now();
        let (mut opened, mut wrong) = (0, vec![]);
        while begin.elapsed() < soon || opened == 0 && begin.elapsed() < late {
            match within(&home, at, "d/file", O_RDONLY, BENEATH) {
                Ok(text) if text == "real" => opened += 1,
                Err(ENOENT | EXDEV | EAGAIN) => {}
                other => wrong.push(other),
            }
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(wrong, []);
        assert!(opened > 0);
    });
}

/// A file that had no name is given one where names may be made, and nowhere else.
#[test]
fn what_has_no_name_gets_one_where_it_may() {
    let home = Home::new();
    assert_eq!(home.open("ro", O_TMPFILE | O_RDWR), Err(EACCES));
    let file = home.handle("rw", O_TMPFILE | O_RDWR);
    home.write(file, 0, b"nameless").expect("writes");
    let link = |at: u64, to: &str| {
        let to = home.at(to);
        home.reply(Request::Link(Link {
            from: Place { at, name: b"" },
            to: place(&to),
            follow: true,
        }))
    };
    assert_eq!(link(file, "ro/named"), Reply::Failed(EACCES));
    assert_eq!(link(file, "out/named"), Reply::Failed(EACCES));
    assert_eq!(link(file, "rw/file"), Reply::Failed(EEXIST));
    assert_eq!(link(file, "rw/named"), Reply::Done);
    assert_eq!(fs::read(home.at("rw/named")).expect("reads"), b"nameless");
    let read_only = home.handle("ro/file", O_RDONLY);
    assert_eq!(link(read_only, "rw/writable"), Reply::Failed(EACCES));
    let folder = home.handle("rw", O_PATH | O_DIRECTORY);
    assert_eq!(link(folder, "rw/again"), Reply::Failed(EPERM));
}

#[test]
fn bytes_are_written_where_it_is_said() {
    let home = Home::new();
    let (plain, adds) = (
        home.handle("rw/file", O_RDWR),
        home.handle("rw/file", O_WRONLY | O_APPEND),
    );
    let write = |handle, append| {
        let write = Request::WriteAs(WriteAs {
            handle,
            offset: 1,
            append,
        });
        match home.ask(&write, b"xy").0 {
            Reply::Written(written) => (written.offset, written.len, written.size),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(write(plain, true), (2, 2, 4));
    assert_eq!(write(adds, true), (4, 2, 6));
    assert_eq!(write(plain, false), (1, 2, 6));
    // Linux 6.9.
    assert_eq!(write(adds, false), (1, 2, 6));
    assert_eq!(fs::read(home.at("rw/file")).expect("reads"), b"rxyyxy");
    assert_eq!(
        home.reply(Request::SyncAll(SyncAll { handle: plain })),
        Reply::Done
    );
    let flags = home.reply(Request::FlagsOf(FlagsOf { handle: plain }));
    assert!(
        matches!(flags, Reply::Number(_) | Reply::Failed(25 | 95)),
        "{flags:?}"
    );
    let span = Span::ALL;
    assert_eq!(
        home.reply(Request::TestOwn(TestOwn {
            handle: plain,
            span
        })),
        Reply::Done
    );
}
