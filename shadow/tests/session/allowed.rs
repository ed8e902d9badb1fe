//! What is allowed, and that no name leads out of it.

use crate::home::*;
use proptest::prelude::*;
use shadow::{Allowed, Limits, Session};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::{
    Access, Attribute, Change, Close, Copy, Link, MakeDirectory, MakeNode, Place, ReadLink,
    RemoveName, Rename, Reply, Request, SetXattr, SymbolicLink, What,
};

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
        "rw/folder/../out/file",
        "ro/../out/file",
        "rw/./../rw//../out/file",
        "../../../../../../etc/passwd",
    ] {
        assert_eq!(home.open(name, O_RDONLY), Err(EACCES), "{name}");
        assert_eq!(home.attributes(name, true), Err(EACCES), "{name}");
    }
    for name in [
        "rw/magic",
        "rw/magic/x",
        "/proc/self/environ",
        "/dev/mem",
        "/sys/kernel",
        "rw/../../../../../../../proc/self/mem",
    ] {
        assert_eq!(home.open(name, O_RDONLY), Err(wire::ELSEWHERE), "{name}");
        assert_eq!(home.attributes(name, true), Err(wire::ELSEWHERE), "{name}");
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
        return crate::skip::note(
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
    let folder = tempfile::tempdir_in(crate::foreseen::outside()).expect("a directory");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("sets");
    let user = ["--reuid=wftest", "--regid=wftest", "--init-groups"];
    let output = Command::new("setpriv")
        .args(user)
        .arg(&program)
        .current_dir("/")
        .env(crate::foreseen::FOLDER, folder.path())
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
    /// Any name made of these parts: what is found is what the kernel finds, if that lies in a root and the way there does
    /// not lead through what is not allowed, else nothing.
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
                let inside = |place: &Path| {
                    ["rw", "ro"].iter().any(|root| place.starts_with(home.at(root)))
                };
                let through = home.at(&name);
                let strays = through.ancestors().filter_map(|place| place.canonicalize().ok()).any(
                    |place| !inside(&place) && !home.path.starts_with(&place),
                );
                let refused = errno == EACCES && strays;
                prop_assert!(!inside(&real) || refused, "{} is {}, but: {}", name, real.display(), errno);
            }
            (Err(errno), Err(error)) => {
                let kernels = error.raw_os_error().map(|errno| errno as u16);
                prop_assert!(Some(errno) == kernels || errno == EACCES, "{}: {} not {}", name, errno, error);
            }
        }
    }
}
