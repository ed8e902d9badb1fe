//! What programs ask about as they begin.

use crate::home::{EBADF, O_RDONLY};
use shadow::{Allowed, Limits, Session};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::{
    AllForeseen, Began, Entries, Finding, Foresee, Manner, Open, Packer, Place, Read, Reply,
    Request, Sought,
};

/// Where this user may make a folder, but for /tmp.
pub(crate) const FOLDER: &str = "WF_TEST_FOLDER";

fn open(session: &Session, path: &Path) -> u64 {
    let name = path.as_os_str().as_bytes();
    let request = Request::Open(Open {
        place: Place { at: 0, name },
        flags: O_RDONLY,
        mode: 0,
        first: 0,
    });
    match session.answer(&request, &[], &mut vec![]) {
        Reply::Opened(opened) => opened.handle,
        other => panic!("{other:?}"),
    }
}

fn foreseen(session: &Session, program: u64) -> (Reply<'static>, Vec<u8>) {
    let mut data = vec![];
    let bytes = 1 << 20;
    let reply = session.answer(
        &Request::Foresee(Foresee { program, bytes }),
        &[],
        &mut data,
    );
    (reply, data)
}

/// A folder for folders whose names are learnt, which those below `/tmp` are not.
pub(crate) fn outside() -> PathBuf {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let is_below = ["/tmp", "/var/tmp"].iter().any(|tmp| own.starts_with(tmp));
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match (is_below, nix::unistd::geteuid().is_root(), home) {
        (false, ..) => own.into(),
        (true, false, Some(home)) => home,
        // Where other users may go, too.
        (true, ..) => "/".into(),
    }
}

#[test]
fn what_a_program_has_asked_is_looked_at_for_the_next_one() {
    let outside = std::env::var_os(FOLDER).map_or_else(outside, PathBuf::from);
    let folder = tempfile::tempdir_in(outside).expect("a directory");
    let base = folder.path().canonicalize().expect("is there");
    for name in ["rw", "out"] {
        fs::create_dir(base.join(name)).expect("makes it");
        fs::write(base.join(name).join("file"), name).expect("writes");
    }
    fs::write(base.join("rw/program"), "").expect("writes");
    symlink("file", base.join("rw/link")).expect("links");
    symlink("../out/file", base.join("rw/leads-out")).expect("links");
    let mut allowed = Allowed::none();
    allowed.allow(base.join("rw"), true).expect("allowed");
    let session = Session::new(1, Arc::new(allowed), Limits::default());
    let program = open(&session, &base.join("rw/program"));
    assert_eq!(
        foreseen(&session, program),
        (Reply::Done, vec![]),
        "nothing is known"
    );

    let asked = [
        (Manner::File, "rw/file"),
        (Manner::File, "rw/leads-out"),
        (Manner::File, "out/file"),
        (Manner::Folder, "rw"),
        (Manner::Folder, "rw/file"),
        (Manner::Target, "rw/link"),
        (Manner::Itself, "rw/none"),
        (Manner::Link, "rw/link"),
        (Manner::Link, "rw/file"),
    ];
    let names: Vec<_> = asked
        .iter()
        .map(|(manner, name)| (*manner, base.join(name)))
        .collect();
    let mut room = vec![0; 8192];
    let mut writer = Packer::new(&mut room);
    for (manner, name) in &names {
        let (manner, name) = (*manner, name.as_os_str().as_bytes());
        writer.push(&Sought { manner, name }, &[]).expect("room");
    }
    let len = writer.len();
    let began = Request::Began(Began { program });
    assert_eq!(
        session.answer(&began, &room[..len], &mut vec![]),
        Reply::Done
    );

    let (reply, data) = foreseen(&session, program);
    assert_eq!(reply, Reply::Done);
    let prefix = base.as_os_str().len() + 1;
    let mut told = vec![];
    for (foreseen, behind) in AllForeseen::new(&data) {
        let name = String::from_utf8_lossy(&foreseen.sought.name[prefix..]).into_owned();
        let what = match foreseen.finding {
            Finding::Absent => "nothing".to_owned(),
            Finding::There(found) => format!("{} bytes, {:o}", found.size, found.mode >> 12),
            Finding::Link(target) => String::from_utf8_lossy(target).into_owned(),
            Finding::Open { handle, .. } if foreseen.sought.manner == Manner::Folder => {
                assert!(
                    session.answer(&Request::Close(wire::Close { handle }), &[], &mut vec![])
                        == Reply::Done
                );
                let entries =
                    Entries::new(behind).map(|entry| entry.expect("is one").name.to_vec());
                let has_file = entries.into_iter().any(|name| name == b"file");
                format!("a folder with the file: {has_file}")
            }
            Finding::Open { handle, .. } => {
                let mut contents = vec![];
                let read = Request::Read(Read {
                    handle,
                    offset: 0,
                    len: 10,
                });
                assert_eq!(session.answer(&read, &[], &mut contents), Reply::Done);
                assert_eq!(contents, behind);
                String::from_utf8_lossy(behind).into_owned()
            }
        };
        told.push((name, what));
    }
    let expected = [
        ("rw/file", "rw"),
        ("rw", "a folder with the file: true"),
        // It is told what it is; that it is no folder is for the open to say.
        ("rw/file", "2 bytes, 10"),
        ("rw/link", "2 bytes, 10"),
        ("rw/none", "nothing"),
        ("rw/link", "file"),
        ("rw/file", "2 bytes, 10"),
    ];
    let told: Vec<_> = told
        .iter()
        .map(|(name, what)| (name.as_str(), what.as_str()))
        .collect();
    assert_eq!(told, expected);

    let other = open(&session, &base.join("rw/file"));
    assert_eq!(
        foreseen(&session, other),
        (Reply::Done, vec![]),
        "another program"
    );
    assert_eq!(foreseen(&session, 999).0, Reply::Failed(EBADF));
    let began = Request::Began(Began { program: 999 });
    assert_eq!(
        session.answer(&began, &[], &mut vec![]),
        Reply::Failed(EBADF)
    );
}
