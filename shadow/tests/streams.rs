//! Streams, and peers that mean no good.
#![allow(clippy::disallowed_methods)]

#[path = "support/peer.rs"]
mod peer;
#[path = "../../tests/support/skip.rs"]
mod skip;

use peer::{DEADLINE, Peer, TOKEN};
use shadow::{Allowed, Limits, Server, Sessions, StreamError, serve_stream};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use wire::{HEAD_LEN, Head, Hello, MOST_DATA, Read, Reply, Request, Role, Write};

const ENFILE: u16 = 23;

/// A served folder, and streams into it.
struct Home {
    directory: tempfile::TempDir,
    sessions: Arc<Sessions>,
}

impl Home {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut allowed = Allowed::none();
        allowed
            .allow(directory.path().to_owned(), true)
            .expect("allowed");
        Home {
            sessions: Arc::new(Sessions::new(allowed, TOKEN, limits)),
            directory,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn stream(&self) -> (UnixStream, JoinHandle<Result<(), StreamError>>) {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let sessions = self.sessions.clone();
        let served = std::thread::spawn(move || serve_stream(&mut theirs, &sessions));
        (ours, served)
    }
}

fn error(served: JoinHandle<Result<(), StreamError>>) -> String {
    let ended = served.join().expect("no panic");
    ended.expect_err("an error").to_string()
}

#[test]
fn streams_of_one_session_share_what_is_open() {
    let home = Home::new();
    let (stream, served) = home.stream();
    let (mut one, session) = Peer::greeted(stream);
    let handle = one.open(&home.at("file")).expect("opens");
    let (stream, other_served) = home.stream();
    let mut two = Peer::new(stream);
    two.hello(&Hello::new(Role::Shim, TOKEN, session, 0))
        .expect("joins");
    let mebibyte = vec![5; MOST_DATA];
    let write = Request::Write(Write { handle, offset: 0 });
    let (reply, _) = two.ask(&write, &mebibyte);
    assert!(matches!(reply, Reply::Written(written) if written.len == MOST_DATA as u64));
    let read = Request::Read(Read {
        handle,
        offset: 0,
        len: MOST_DATA as u32,
    });
    assert!(one.ask(&read, &[]).1 == mebibyte);
    drop(two);
    assert!(other_served.join().expect("no panic").is_ok());
    let (stream, _stranger) = home.stream();
    let (mut stranger, _) = Peer::greeted(stream);
    let (reply, _) = stranger.ask(&read, &[]);
    assert_eq!(reply, Reply::Failed(9), "another session's handle");
    drop(one);
    assert!(served.join().expect("no panic").is_ok());
}

#[test]
fn whoever_is_not_of_the_job_is_refused_and_told() {
    let home = Home::new();
    let (stream, served) = home.stream();
    let reason = Peer::new(stream).hello(&Hello::new(Role::Shim, [8; 32], 0, 0));
    assert_eq!(reason, Err("the token is not this job's".to_owned()));
    assert!(error(served).contains("not this job's"));

    let (stream, served) = home.stream();
    let mut hello = Hello::new(Role::Shim, TOKEN, 0, 0);
    hello.versions = (7, 9);
    let reason = Peer::new(stream).hello(&hello);
    let expected = "versions 7 to 9 are spoken there, 2 to 5 here";
    assert_eq!(reason, Err(expected.to_owned()));
    assert!(error(served).contains(expected));

    let (stream, served) = home.stream();
    let mut hello = Hello::new(Role::Shim, TOKEN, 0, 0);
    hello.versions = (1, 2);
    assert!(
        Peer::new(stream).hello(&hello).is_ok(),
        "the version before"
    );
    drop(served);

    let (stream, served) = home.stream();
    let reason = Peer::new(stream).hello(&Hello::new(Role::Shim, TOKEN, 77, 0));
    assert_eq!(reason, Err("there is no such session".to_owned()));
    drop(served);

    let (stream, served) = home.stream();
    let mut peer = Peer::new(stream);
    peer.send(12, &[], &[]);
    assert_eq!(peer.end().as_deref(), Some("unknown kind of message 12"));
    drop(served);
}

#[test]
fn what_is_no_message_ends_the_stream_with_a_reason() {
    let home = Home::new();
    let head = |body_len, data_len, kind| Head {
        body_len,
        data_len,
        number: 1,
        kind,
        flags: 0,
    };
    let cases: [(&str, Vec<u8>); 5] = [
        (
            "a body of 4294967295 bytes, expected at most 16384",
            head(u32::MAX, 0, 10).to_bytes().to_vec(),
        ),
        (
            "data of 1048577 bytes, expected at most 1048576",
            head(0, MOST_DATA as u32 + 1, 13).to_bytes().to_vec(),
        ),
        (
            "unknown kind of message 99",
            head(0, 0, 99).to_bytes().to_vec(),
        ),
        (
            "a damaged message of kind 10",
            [&head(4, 0, 10).to_bytes()[..], &[255; 4]].concat(),
        ),
        (
            "1 bytes behind a message of kind 11",
            [&head(2, 0, 11).to_bytes()[..], &[1, 1]].concat(),
        ),
    ];
    for (expected, bytes) in cases {
        let (stream, served) = home.stream();
        let (mut peer, _) = Peer::greeted(stream);
        peer.stream.write_all(&bytes).expect("sends");
        assert_eq!(peer.end().as_deref(), Some(expected));
        assert_eq!(error(served), "the peer sent what is no message");
    }
}

#[test]
fn half_a_message_is_none() {
    let home = Home::new();
    for len in [1, HEAD_LEN - 1, HEAD_LEN, HEAD_LEN + 3] {
        let (stream, served) = home.stream();
        let (mut peer, _) = Peer::greeted(stream);
        let head = Head {
            body_len: 4,
            data_len: 5,
            number: 1,
            kind: 13,
            flags: 0,
        };
        let bytes = [&head.to_bytes()[..], &[0; 9]].concat();
        peer.stream.write_all(&bytes[..len]).expect("sends");
        drop(peer);
        assert!(error(served).contains("before the end of a message"));
    }
}

#[test]
fn ten_thousand_opens_are_bounded_and_disturb_nobody() {
    let home = Home::with(Limits {
        open_files: 200,
        ..Limits::default()
    });
    let (stream, _served) = home.stream();
    let (mut greedy, _) = Peer::greeted(stream);
    let results: Vec<_> = (0..10_000).map(|_| greedy.open(&home.at("file"))).collect();
    let refused = results.iter().filter(|result| **result == Err(ENFILE));
    assert_eq!(refused.count(), 9_800);
    let (stream, _other) = home.stream();
    let (mut other, _) = Peer::greeted(stream);
    assert!(other.open(&home.at("file")).is_ok());
}

/// Streams on a socket, each with a request whose answer nobody reads.
#[test]
fn stalled_readers_disturb_nobody_and_cost_little() {
    let home = Home::new();
    fs::write(home.at("big"), vec![1; 4 << 20]).expect("writes");
    let socket = home.at("socket");
    let mut allowed = Allowed::none();
    allowed
        .allow(home.directory.path().to_owned(), true)
        .expect("allowed");
    let server = Server::bind(&socket, Sessions::new(allowed, TOKEN, Limits::default()));
    let server = Arc::new(server.expect("listens"));
    let mode = fs::metadata(&socket)
        .expect("is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let serving = server.clone();
    std::thread::spawn(move || serving.run());
    let before = resident_kib();
    let mut stalled = vec![];
    for _ in 0..50 {
        let stream = UnixStream::connect(&socket).expect("connects");
        let (mut peer, _) = Peer::greeted(stream);
        let handle = peer.open(&home.at("big")).expect("opens");
        let read = Request::Read(Read {
            handle,
            offset: 0,
            len: MOST_DATA as u32,
        });
        let mut room = [0; 100];
        let len = read.encode(&mut room).expect("fits");
        for _ in 0..20 {
            peer.send(read.kind(), &room[..len], &[]);
        }
        stalled.push(peer);
    }
    let stream = UnixStream::connect(&socket).expect("connects");
    let begun = Instant::now();
    let (mut peer, _) = Peer::greeted(stream);
    assert!(peer.open(&home.at("big")).is_ok());
    assert!(begun.elapsed() < DEADLINE);
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 50 * 1500 + 20_000, "{grown} KiB for 50 streams");
    let second = Server::bind(
        &socket,
        Sessions::new(Allowed::none(), TOKEN, Limits::default()),
    );
    let error = second.expect_err("is taken");
    assert_eq!(
        error.to_string(),
        format!("cannot listen on {}", socket.display())
    );
}

/// Jobs that are begun at once: more than may be there without having said who they are.
#[test]
fn many_that_come_at_once_are_all_served() {
    const MANY: usize = 150;
    let home = Home::new();
    let socket = home.at("socket");
    let sessions = Sessions::new(Allowed::none(), TOKEN, Limits::default());
    let server = Server::bind(&socket, sessions).expect("listens");
    std::thread::spawn(move || server.run());
    // None says anything before the last is there.
    let connect = |_| UnixStream::connect(&socket).expect("connects");
    let streams: Vec<UnixStream> = (0..MANY).map(connect).collect();
    let served = std::thread::scope(|scope| {
        let greet = |stream| scope.spawn(|| Peer::greeted(stream).1);
        let greeted: Vec<_> = streams.into_iter().map(greet).collect();
        let sessions = greeted
            .into_iter()
            .map(|one| one.join().expect("is served"));
        sessions.collect::<std::collections::HashSet<u64>>()
    });
    assert_eq!(served.len(), MANY);
}

#[test]
fn what_a_killed_shadow_leaves_is_replaced_and_nothing_else() {
    let home = Home::new();
    let sessions = || Sessions::new(Allowed::none(), TOKEN, Limits::default());
    let socket = home.at("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("listens"));
    let server = Server::bind(&socket, sessions()).expect("is replaced");
    assert!(Server::bind(&socket, sessions()).is_err(), "is in use");
    server.remove_socket();
    assert!(!socket.exists());
    fs::write(&socket, "a file").expect("writes");
    assert!(Server::bind(&socket, sessions()).is_err(), "is a file");
    assert_eq!(fs::read(&socket).expect("is there"), b"a file");
}

#[test]
fn processes_of_other_users_are_not_served() {
    if uid() != 0 {
        return skip::note("processes_of_other_users_are_not_served", "not root");
    }
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("sets");
    let socket = directory.path().join("socket");
    let sessions = Sessions::new(Allowed::none(), TOKEN, Limits::default());
    let server = Server::bind(&socket, sessions).expect("listens");
    std::thread::spawn(move || server.run());
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).expect("sets");
    let script = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
sys.exit(0 if s.recv(1) == b'' else 1)";
    let status = Command::new("setpriv")
        .args(["--reuid=wftest", "--regid=wftest", "--clear-groups"])
        .args(["/usr/bin/python3", "-c", script])
        .arg(&socket)
        .status()
        .expect("setpriv starts");
    assert!(status.success(), "the stream was not closed");
}

fn status_line(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("is there");
    let line = status.lines().find(|line| line.starts_with(name));
    let word = line.and_then(|line| line.split_whitespace().nth(1));
    word.and_then(|word| word.parse().ok()).expect("a number")
}

fn resident_kib() -> u64 {
    status_line("RssAnon:")
}

fn uid() -> u64 {
    status_line("Uid:")
}
