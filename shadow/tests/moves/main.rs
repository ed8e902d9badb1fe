//! Streams that break and are made anew, and sessions that go on from a state.
#![allow(clippy::disallowed_methods)]

mod copies;
mod journals;
#[path = "../support/peer.rs"]
mod peer;

use peer::{Peer, TOKEN};
use shadow::{Allowed, Journals, Limits, Sessions, serve_stream};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{
    Attend, Change, Close, CloseAll, Complete, Hello, Lock, LockMode, LockOwner, MakeDirectory,
    Mark, Offer, OfferedFiles, Open, Others, Place, Read, Reply, Request, Resume, Role, SetAppend,
    Settle, Span, TestLock, What, Write,
};

const EEXIST: u16 = 17;
const ENOLCK: u16 = 37;

struct Home {
    directory: tempfile::TempDir,
    sessions: Arc<Sessions>,
}

impl Home {
    fn new() -> Self {
        Self::with(|allowed, _| Sessions::new(allowed, TOKEN, Limits::default()))
    }

    /// Its sessions are made of what is allowed, and the folder.
    fn with(sessions: impl FnOnce(Allowed, &Path) -> Sessions) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut allowed = Allowed::none();
        let path = directory.path().to_owned();
        allowed.allow(path, true).expect("allowed");
        Home {
            sessions: Arc::new(sessions(allowed, directory.path())),
            directory,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A stream of a session (0: a new one), and which session it is.
    fn peer(&self, session: u64, lane: u64) -> (Peer, u64) {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let sessions = self.sessions.clone();
        std::thread::spawn(move || serve_stream(&mut theirs, &sessions));
        let mut peer = Peer::new(ours);
        let hello = Hello::new(Role::Shim, TOKEN, session, 0).of_lane(lane);
        let session = peer.hello(&hello).expect("is welcome").session;
        (peer, session)
    }

    /// The state of a session, whose checkpoint is given up.
    fn state(&self, session: u64) -> Vec<u8> {
        let (mut peer, _) = self.peer(session, 0);
        let (reply, state) = peer.ask(&Request::Mark(Mark {}), &[]);
        assert_eq!(reply, Reply::Done);
        let settle = Request::Settle(Settle { committed: false });
        assert_eq!(peer.ask(&settle, &[]).0, Reply::Done);
        state
    }

    /// A session that goes on from a state; or why not.
    fn resumed(&self, state: &[u8], others: Others) -> Result<(Peer, u64), String> {
        let (mut peer, session) = self.peer(0, 0);
        peer.tell(&Request::Resume(Resume { others }), state);
        let (head, body, _) = peer.receive();
        match Reply::decode(head.kind, &body).expect("an answer") {
            Reply::Number(_) => Ok((peer, session)),
            Reply::Refused(refusal) => Err(refusal.reason.to_owned()),
            other => panic!("{other:?}"),
        }
    }
}

fn make<'a>(name: &'a [u8]) -> Request<'a> {
    Request::MakeDirectory(MakeDirectory {
        place: Place { at: 0, name },
        mode: 0o755,
    })
}

#[test]
fn what_comes_again_on_a_stream_made_anew_is_not_done_again() {
    let home = Home::new();
    let (mut first, session) = home.peer(0, 7);
    let (mut other, _) = home.peer(session, 8);
    let name = home.at("folder");
    let request = make(name.as_os_str().as_encoded_bytes());
    first.number = 40;
    assert_eq!(first.ask(&request, &[]).0, Reply::Done);
    drop(first);
    let (mut again, _) = home.peer(session, 7);
    again.number = 40;
    assert_eq!(again.ask(&request, &[]).0, Reply::Done, "the kept answer");
    assert_eq!(
        again.ask(&request, &[]).0,
        Reply::Failed(EEXIST),
        "another request"
    );
    other.number = 40;
    assert_eq!(
        other.ask(&request, &[]).0,
        Reply::Failed(EEXIST),
        "another lane"
    );
    // What is appended twice would be there twice.
    let log = home.at("log");
    let handle = again.open(&log).expect("opens");
    let append = SetAppend {
        handle,
        append: true,
    };
    assert_eq!(again.ask(&Request::SetAppend(append), &[]).0, Reply::Done);
    let write = Request::Write(Write { handle, offset: 0 });
    again.number = 90;
    let answer = again.ask(&write, b"once\n").0;
    drop(again);
    let (mut again, _) = home.peer(session, 7);
    again.number = 90;
    assert_eq!(again.ask(&write, b"once\n").0, answer);
    assert_eq!(fs::read(&log).expect("is there"), b"once\n");
}

#[test]
fn a_session_goes_on_from_its_state() {
    let home = Home::new();
    let (mut old, session) = home.peer(0, 5);
    let path = home.at("file");
    fs::write(&path, "0123456789").expect("writes");
    let closed = old.open(&home.at("closed")).expect("opens");
    let handle = old.open(&path).expect("opens");
    assert_eq!(
        old.ask(&Request::Close(Close { handle: closed }), &[]).0,
        Reply::Done
    );
    old.number = 60;
    let folder = home.at("folder");
    let request = make(folder.as_os_str().as_encoded_bytes());
    assert_eq!(old.ask(&request, &[]).0, Reply::Done);
    let state = home.state(session);
    drop(old);
    let (mut new, session) = home.resumed(&state, Others::Fail).expect("goes on");
    let read = Request::Read(Read {
        handle,
        offset: 4,
        len: 3,
    });
    assert_eq!(new.ask(&read, &[]), (Reply::Done, b"456".to_vec()));
    let write = Request::Write(Write { handle, offset: 9 });
    assert!(matches!(new.ask(&write, b"new").0, Reply::Written(_)));
    assert!(
        new.open(&home.at("next")).expect("opens") > handle,
        "handles are not used again"
    );
    let (mut lane, _) = home.peer(session, 5);
    lane.number = 60;
    assert_eq!(
        lane.ask(&request, &[]).0,
        Reply::Done,
        "the answer that was kept"
    );
    let twice = home.resumed(&state, Others::Fail).map(|_| ());
    assert!(
        twice
            .expect_err("it was changed")
            .contains("has been changed since")
    );
    home.resumed(&state, Others::Keep)
        .map(|_| ())
        .expect("as it is");
}

#[test]
fn files_that_are_not_what_they_were_are_named_all_at_once() {
    let home = Home::new();
    let (mut old, session) = home.peer(0, 0);
    for name in ["gone", "replaced", "shorter", "same"] {
        fs::write(home.at(name), "old contents").expect("writes");
        old.open(&home.at(name)).expect("opens");
    }
    let state = home.state(session);
    fs::remove_file(home.at("gone")).expect("removes");
    fs::rename(home.at("replaced"), home.at("elsewhere")).expect("renames");
    fs::write(home.at("replaced"), "old contents").expect("writes");
    fs::write(home.at("shorter"), "cut").expect("writes");
    let told = home
        .resumed(&state, Others::Fail)
        .map(|_| ())
        .expect_err("refused");
    for what in [
        "gone cannot be opened",
        "replaced is another file",
        "shorter has been changed",
    ] {
        assert!(told.contains(what), "{what}: {told}");
    }
    assert!(!told.contains("same"), "{told}");
    let told = home
        .resumed(&state, Others::RollBack)
        .map(|_| ())
        .expect_err("refused");
    assert!(told.contains("gone cannot be opened"), "{told}");
}

#[test]
fn what_is_no_state_is_refused_and_harms_nothing() {
    let home = Home::new();
    let (mut old, session) = home.peer(0, 0);
    old.open(&home.at("file")).expect("opens");
    let state = home.state(session);
    let mut cases = vec![vec![], b"nonsense".to_vec(), vec![0xff; 100_000]];
    cases.extend((1..state.len()).step_by(7).map(|len| state[..len].to_vec()));
    for bytes in cases {
        let told = home.resumed(&bytes, Others::Keep).map(|_| ());
        let told = told.expect_err("refused");
        assert!(told.contains("damaged"), "{told}");
    }
    // One that has files open already.
    old.tell(
        &Request::Resume(Resume {
            others: Others::Keep,
        }),
        &state,
    );
    let (head, body, _) = old.receive();
    let reply = Reply::decode(head.kind, &body).expect("an answer");
    assert!(
        matches!(reply, Reply::Refused(refusal) if refusal.reason.contains("expected a new one"))
    );
    assert!(old.open(&home.at("file")).is_ok(), "it goes on");
    for at in 0..state.len() {
        let mut bytes = state.clone();
        bytes[at] ^= 0x20;
        // It may be a state still, of another file or handle.
        let _ = home.resumed(&bytes, Others::Fail);
    }
}

#[test]
fn a_file_that_was_removed_while_open_is_carried_if_it_is_small() {
    let home = Home::new();
    let (mut old, session) = home.peer(0, 0);
    let handle = old.open(&home.at("file")).expect("opens");
    let write = Request::Write(Write { handle, offset: 0 });
    assert!(matches!(old.ask(&write, b"nameless").0, Reply::Written(_)));
    fs::remove_file(home.at("file")).expect("removes");
    let state = home.state(session);
    let (mut new, session) = home.resumed(&state, Others::Fail).expect("goes on");
    let read = Request::Read(Read {
        handle,
        offset: 0,
        len: 100,
    });
    assert_eq!(new.ask(&read, &[]), (Reply::Done, b"nameless".to_vec()));
    assert!(matches!(new.ask(&write, b"N").0, Reply::Written(_)));
    assert!(!home.at("file").exists());
    let large = new.open(&home.at("large")).expect("opens");
    let write = Request::Write(Write {
        handle: large,
        offset: 300_000,
    });
    assert!(matches!(new.ask(&write, b"x").0, Reply::Written(_)));
    fs::remove_file(home.at("large")).expect("removes");
    let (mut peer, _) = home.peer(session, 0);
    peer.tell(&Request::Mark(Mark {}), &[]);
    let (head, body, _) = peer.receive();
    let Ok(Reply::Refused(refusal)) = Reply::decode(head.kind, &body) else {
        panic!("is refused");
    };
    let expected = "large (300001 bytes) has been removed or replaced";
    assert!(refusal.reason.contains(expected), "{}", refusal.reason);
}

#[test]
fn locks_go_on_before_their_processes_are_there_again() {
    let home = Home::new();
    let (mut old, session) = home.peer(0, 0);
    let path = home.at("file");
    let handle = old.open(&path).expect("opens");
    let (mut process, _) = home.peer(session, 0);
    let attend = |number| Request::Attend(Attend { number, pid: 9 });
    let Reply::Number(number) = process.ask(&attend(0), &[]).0 else {
        panic!("has a number");
    };
    let span = Span { first: 2, last: 5 };
    let lock = |number| {
        Request::Lock(Lock {
            handle,
            owner: LockOwner::Process(number),
            mode: Some(LockMode::Exclusive),
            span,
            wait: false,
            watch: 0,
        })
    };
    assert_eq!(old.ask(&lock(number), &[]).0, Reply::Done);
    let state = home.state(session);
    drop((old, process));
    // As soon as the old session has ended, its locks can be had again.
    let (mut new, session) = home.resumed(&state, Others::Fail).expect("goes on");
    let (mut stranger, _) = home.peer(0, 0);
    let theirs = stranger.open(&path).expect("opens");
    let test = |handle| {
        Request::TestLock(TestLock {
            handle,
            owner: LockOwner::Description,
            mode: LockMode::Shared,
            span: Span::ALL,
        })
    };
    assert!(matches!(stranger.ask(&test(theirs), &[]).0, Reply::Held(_)));
    assert!(matches!(new.ask(&test(handle), &[]).0, Reply::Held(held) if held.span == span));
    let (mut wrong, _) = home.peer(session, 0);
    assert_eq!(wrong.ask(&attend(number + 5), &[]).0, Reply::Failed(ENOLCK));
    let (mut process, _) = home.peer(session, 0);
    assert_eq!(process.ask(&attend(number), &[]).0, Reply::Number(number));
    assert_eq!(new.ask(&lock(number), &[]).0, Reply::Done, "it is its own");
    drop(process);
    // Its end is seen.
    let free = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        new.ask(&test(handle), &[]).0 == Reply::Done
    });
    assert!(free);
}

#[test]
fn what_is_open_keeps_its_flags() {
    let home = Home::new();
    let (mut old, session) = home.peer(0, 0);
    fs::write(home.at("file"), "x").expect("writes");
    let name = home.at("file");
    let open = |flags| {
        Request::Open(Open {
            place: Place {
                at: 0,
                name: name.as_os_str().as_encoded_bytes(),
            },
            flags,
            mode: 0,
            first: 0,
        })
    };
    const O_WRONLY_APPEND: u32 = 0o2001;
    let Reply::Opened(opened) = old.ask(&open(O_WRONLY_APPEND), &[]).0 else {
        panic!("opens");
    };
    let state = home.state(session);
    drop(old);
    let (mut new, _) = home.resumed(&state, Others::Fail).expect("goes on");
    let write = Write {
        handle: opened.handle,
        offset: 0,
    };
    let written = new.ask(&Request::Write(write), b"yz").0;
    assert!(
        matches!(written, Reply::Written(written) if written.offset == 1),
        "{written:?}"
    );
    let read = Read {
        handle: opened.handle,
        offset: 0,
        len: 1,
    };
    assert!(matches!(
        new.ask(&Request::Read(read), &[]).0,
        Reply::Failed(_)
    ));
    assert_eq!(fs::read(&name).expect("is there"), b"xyz");
}

#[test]
fn a_program_that_was_replaced_is_borne_if_that_is_asked_for() {
    let home = Home::new();
    let (mut old, session) = home.peer(0, 0);
    let name = home.at("program");
    fs::write(&name, "old").expect("writes");
    let open = Request::Open(Open {
        place: Place {
            at: 0,
            name: name.as_os_str().as_encoded_bytes(),
        },
        flags: 0,
        mode: 0,
        first: 0,
    });
    let Reply::Opened(opened) = old.ask(&open, &[]).0 else {
        panic!("opens");
    };
    let state = home.state(session);
    fs::write(home.at("new"), "new").expect("writes");
    fs::rename(home.at("new"), &name).expect("renames");
    for others in [Others::Fail, Others::RollBack] {
        let told = home.resumed(&state, others).map(|_| ());
        assert!(told.expect_err("refused").contains("is another file"));
    }
    let (mut new, _) = home.resumed(&state, Others::Keep).expect("goes on");
    let read = Request::Read(Read {
        handle: opened.handle,
        offset: 0,
        len: 9,
    });
    assert_eq!(new.ask(&read, &[]), (Reply::Done, b"new".to_vec()));
}

/// What the job has closed, or has never opened, must not keep it from going on.
#[test]
fn a_state_has_only_what_the_job_has_open() {
    const EBADF: u16 = 9;
    let home = Home::new();
    let folder = home.at("folder");
    fs::create_dir(&folder).expect("makes it");
    for name in ["a", "b", "c", "d", "e"] {
        fs::write(folder.join(name), name.repeat(10)).expect("writes");
    }
    let (mut peer, session) = home.peer(0, 3);
    let listed = fs::read_dir(&folder).expect("lists").map(|entry| {
        let name = entry.expect("an entry").file_name();
        name.into_encoded_bytes()
    });
    let listed: Vec<_> = listed.collect();
    let path = |name: &[u8]| folder.join(std::str::from_utf8(name).expect("text"));
    let closed = peer.open(&path(&listed[0])).expect("opens");
    let offer = |after| {
        Request::Offer(Offer {
            folder: Place {
                at: 0,
                name: folder.as_os_str().as_encoded_bytes(),
            },
            before: b"",
            after,
            files: 10,
            bytes: 10_000,
        })
    };
    let (reply, data) = peer.ask(&offer(&listed[0]), &[]);
    assert_eq!(reply, Reply::Done);
    let offered: Vec<_> = OfferedFiles::new(&data).collect();
    let handle = |name: &[u8]| {
        let found = offered.iter().find(|(file, _)| file.name == name);
        let (file, contents) = found.expect("was offered");
        assert_eq!(*contents, name.repeat(10));
        file.handle
    };
    let (taken, left) = (handle(&listed[1]), handle(&listed[4]));
    let (reply, none) = peer.ask(&offer(b"nothing"), &[]);
    assert_eq!((reply, none.as_slice()), (Reply::Done, &b""[..]));
    let words = [1, closed, taken].into_iter();
    let untold: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let (mut marking, _) = home.peer(session, 0);
    let (reply, state) = marking.ask(&Request::Mark(Mark {}), &untold);
    assert_eq!(reply, Reply::Done);
    drop((peer, marking));
    // Neither of these was open.
    fs::remove_file(path(&listed[0])).expect("is there");
    fs::write(path(&listed[4]), "changed").expect("writes");
    let (mut peer, _) = home.resumed(&state, Others::Fail).expect("goes on");
    let mut read = |handle| {
        let read = Read {
            handle,
            offset: 0,
            len: 100,
        };
        peer.ask(&Request::Read(read), &[])
    };
    assert_eq!(read(taken), (Reply::Done, listed[1].repeat(10)));
    assert_eq!(read(left).0, Reply::Failed(EBADF));
    assert_eq!(read(closed).0, Reply::Failed(EBADF));
    let both: Vec<u8> = [taken, closed]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    let closes = Request::CloseAll(CloseAll {});
    assert_eq!(peer.ask(&closes, &both).0, Reply::Done);
    assert_eq!(peer.ask(&closes, &both).0, Reply::Done, "once more");
}

/// A program is known by its first bytes: without them it would not be one.
#[test]
fn an_open_that_comes_again_brings_the_first_bytes_again() {
    let home = Home::new();
    let (mut first, session) = home.peer(0, 7);
    // A session ends with its last stream.
    let _other = home.peer(session, 8);
    let path = home.at("file");
    fs::write(&path, "0123456789").expect("writes");
    let open = Request::Open(Open {
        place: Place {
            at: 0,
            name: path.as_os_str().as_encoded_bytes(),
        },
        flags: 0,
        mode: 0,
        first: 4,
    });
    first.number = 40;
    let answer = first.ask(&open, &[]);
    assert_eq!(answer.1, b"0123");
    drop(first);
    let (mut again, _) = home.peer(session, 7);
    again.number = 40;
    assert_eq!(again.ask(&open, &[]), answer);
}
