//! Lines: what a starter carries is served as if it came by itself, and whoever breaks the rules harms only itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

#[path = "support/peer.rs"]
mod peer;

use line::{
    Acceptor, Connector, FRAME_HEAD, Frame, Keys, Line, MOST_FRAME, MOST_STREAMS, Preface, Purpose,
    WINDOW, answer_preface,
};
use peer::{DEADLINE, Peer, TOKEN};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shadow::{Allowed, CarryError, Limits, SecureServer, Sessions, Taker, carry, introduce};
use starter::{CarrierError, Door, End};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};
use wire::{MOST_DATA, Read, Reply, Request, Write};

struct Home {
    directory: tempfile::TempDir,
    sessions: Arc<Sessions>,
}

type Served = JoinHandle<Result<(), CarryError>>;
type Carries = JoinHandle<Result<End, CarrierError>>;

fn both_end_well(carries: Carries, served: Served) {
    let end = carries.join().expect("no panic").expect("ends");
    assert_eq!(end, End { status: None });
    served.join().expect("no panic").expect("ends");
}

fn sessions(directory: &tempfile::TempDir) -> Sessions {
    let mut allowed = Allowed::none();
    let root = directory.path().to_owned();
    allowed.allow(root, true).expect("allowed");
    Sessions::new(allowed, TOKEN, Limits::default())
}

fn introduced(
    mut line: Line,
    sessions: &Arc<Sessions>,
    taker: &Arc<Taker>,
) -> Result<(), CarryError> {
    introduce(&mut line, &PREFACE)?;
    carry(line, sessions, taker)
}

fn plain(stream: UnixStream) -> Line {
    let again = stream.try_clone().expect("a descriptor");
    Line::plain(OwnedFd::from(stream), OwnedFd::from(again)).expect("a line")
}

const PREFACE: Preface = Preface {
    token: TOKEN,
    environment: None,
};

fn nobody() -> Arc<Taker> {
    Arc::new(|_, _| {})
}

impl Home {
    fn new() -> Self {
        // Many sockets are open at once, more than a process may have at first.
        let limit = getrlimit(Resource::Nofile);
        let most = Rlimit {
            current: limit.maximum,
            ..limit
        };
        setrlimit(Resource::Nofile, most).expect("is allowed");
        let directory = tempfile::tempdir().expect("a directory");
        Home {
            sessions: Arc::new(sessions(&directory)),
            directory,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A line that the test itself speaks on.
    fn line(&self) -> (Raw, Served) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let sessions = self.sessions.clone();
        let served = spawn(move || introduced(plain(theirs), &sessions, &nobody()));
        ours.set_read_timeout(Some(DEADLINE)).expect("sets");
        ours.set_write_timeout(Some(DEADLINE)).expect("sets");
        let mut raw = Raw(ours);
        assert_eq!(Preface::read(&mut raw.0).expect("is said"), PREFACE);
        answer_preface(&mut raw.0, b"").expect("is said");
        (raw, served)
    }

    /// A line with a starter.
    fn started(&self) -> (Door, Carries, Served) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let sessions = self.sessions.clone();
        let served = spawn(move || told(introduced(plain(theirs), &sessions, &nobody())));
        let (door, carries) = self.starter(plain(ours));
        (door, carries, served)
    }

    fn starter(&self, mut line: Line) -> (Door, Carries) {
        Preface::read(&mut *line.input).expect("is said");
        answer_preface(&mut *line.output, b"").expect("is said");
        let places = [self.directory.path().to_owned()];
        let (door, listener) = Door::make(&places).expect("a door");
        (
            door,
            spawn(move || told(starter::carry(listener, line, None, None))),
        )
    }
}

/// The same; an error is said at once, since a test that fails because of it may never ask for it.
fn told<T, E: std::error::Error>(result: Result<T, E>) -> Result<T, E> {
    result.inspect_err(|error| {
        let causes = std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source());
        eprintln!(
            "a line has ended: {}",
            causes
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(": ")
        );
    })
}

/// One who makes frames as it likes.
struct Raw(UnixStream);

impl Raw {
    /// Waits for the end of the line.
    fn end(&mut self) {
        let mut rest = vec![];
        if let Err(error) = self.0.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
}

fn knock(door: &Door) -> UnixStream {
    UnixStream::connect(door.socket()).expect("is there")
}

fn read_all(handle: u64) -> Request<'static> {
    Request::Read(Read {
        handle,
        offset: 0,
        len: MOST_DATA as u32,
    })
}

#[test]
fn streams_of_a_line_are_served_as_if_they_came_by_themselves() {
    let home = Home::new();
    let (door, carries, served) = home.started();
    let (first, session) = Peer::greeted(knock(&door));
    std::thread::scope(|scope| {
        for number in 0..20u8 {
            let (home, door) = (&home, &door);
            scope.spawn(move || {
                let mut peer = Peer::new(knock(door));
                let hello = wire::Hello::new(wire::Role::Shim, TOKEN, session, 0);
                peer.hello(&hello).expect("joins");
                let handle = peer.open(&home.at(&format!("{number}"))).expect("opens");
                let data = vec![number; MOST_DATA];
                for _ in 0..5 {
                    let write = Request::Write(Write { handle, offset: 0 });
                    let (reply, _) = peer.ask(&write, &data);
                    assert!(
                        matches!(reply, Reply::Written(written) if written.len == MOST_DATA as u64)
                    );
                    assert!(peer.ask(&read_all(handle), &[]).1 == data);
                }
            });
        }
    });
    drop(first);
    both_end_well(carries, served);
}

#[test]
fn streams_that_end_as_soon_as_they_have_read_disturb_no_other() {
    let home = Home::new();
    let (door, carries, served) = home.started();
    let (mut first, session) = Peer::greeted(knock(&door));
    let handle = first.open(&home.at("file")).expect("opens");
    let data = vec![7; MOST_DATA];
    let (reply, _) = first.ask(&Request::Write(Write { handle, offset: 0 }), &data);
    assert!(matches!(reply, Reply::Written(_)));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..40 {
                    let mut peer = Peer::new(knock(&door));
                    let hello = wire::Hello::new(wire::Role::Shim, TOKEN, session, 0);
                    peer.hello(&hello).expect("joins");
                    assert!(peer.ask(&read_all(handle), &[]).1 == data);
                }
            });
        }
    });
    drop(first);
    both_end_well(carries, served);
}

#[test]
fn a_stream_that_is_refused_ends_and_no_other() {
    let home = Home::new();
    let (door, _carries, _served) = home.started();
    let (mut first, _) = Peer::greeted(knock(&door));
    let mut stranger = Peer::new(knock(&door));
    stranger.send(99, &[], &[]);
    assert_eq!(
        stranger.end().as_deref(),
        Some("unknown kind of message 99")
    );
    assert!(first.open(&home.at("file")).is_ok());
}

#[test]
fn readers_that_stall_hold_up_nobody_and_cost_little() {
    let home = Home::new();
    fs::write(home.at("big"), vec![1; 4 << 20]).expect("writes");
    let (door, _carries, _served) = home.started();
    let before = resident_kib();
    let mut stalled = vec![];
    for _ in 0..50 {
        let (mut peer, _) = Peer::greeted(knock(&door));
        let handle = peer.open(&home.at("big")).expect("opens");
        let request = read_all(handle);
        let mut room = [0; 100];
        let len = request.encode(&mut room).expect("fits");
        for _ in 0..20 {
            peer.send(request.kind(), &room[..len], &[]);
        }
        stalled.push(peer);
    }
    let begun = Instant::now();
    let (mut peer, _) = Peer::greeted(knock(&door));
    let handle = peer.open(&home.at("big")).expect("opens");
    assert_eq!(peer.ask(&read_all(handle), &[]).1.len(), MOST_DATA);
    assert!(begun.elapsed() < DEADLINE);
    // The shadow's answer, and the starter's window.
    let grown = resident_kib().saturating_sub(before);
    let most = 50 * (1200 + u64::from(WINDOW) / 1024) + 30_000;
    assert!(
        grown < most,
        "{grown} KiB for 50 streams, expected {most} at most"
    );
}

#[test]
fn whoever_breaks_a_rule_loses_the_line() {
    let home = Home::new();
    let open = |number| Frame::Open(number, Purpose::Calls).to_bytes().to_vec();
    let full = |number| {
        [
            &Frame::Data(number, MOST_FRAME as u32).to_bytes()[..],
            &[0; MOST_FRAME],
        ]
        .concat()
    };
    let mut greedy = open(1);
    for _ in 0..=WINDOW as usize / MOST_FRAME {
        greedy.extend(full(1));
    }
    let mut many = vec![];
    for number in 0..10_000 {
        many.extend(open(number));
    }
    let credit = Frame::Credit(1, 0xff_ffff).to_bytes();
    let mut rich = open(1);
    (0..300).for_each(|_| rich.extend(credit));
    let close = Frame::Close(1).to_bytes();
    let cases: [(&str, Vec<u8>); 9] = [
        ("no frame: unknown kind of frame 84", b"GET / HT".to_vec()),
        (
            "no frame: a frame of 65537 bytes",
            vec![0, 0, 0, 0, 1, 0, 1, 2],
        ),
        (
            "stream 7: it is not open",
            Frame::Data(7, 1)
                .to_bytes()
                .iter()
                .copied()
                .chain([0])
                .collect(),
        ),
        (
            "stream 7: it is not open",
            Frame::Close(7).to_bytes().to_vec(),
        ),
        ("stream 1: it is open already", [open(1), open(1)].concat()),
        // The other end may have closed it, too, by then.
        (
            "stream 1: it has been closed|stream 1: it is not open",
            [&open(1)[..], &close, &full(1)].concat(),
        ),
        ("stream 1: it has no credit", greedy),
        ("stream 1024: it is one too many", many),
        ("stream 1: it has too much credit", rich),
    ];
    for (expected, bytes) in cases {
        let (mut raw, served) = home.line();
        let _ = raw.0.write_all(&bytes);
        raw.end();
        let error = served.join().expect("no panic").expect_err("is refused");
        let message = format!(
            "{error}: {}",
            std::error::Error::source(&error).map_or(String::new(), ToString::to_string)
        );
        let as_expected = expected.split('|').any(|words| message.contains(words));
        assert!(as_expected, "{message}, expected {expected}");
    }
    const { assert!(MOST_STREAMS == 1024) };
    let (door, _carries, _served) = home.started();
    let (mut other, _) = Peer::greeted(knock(&door));
    assert!(other.open(&home.at("file")).is_ok());
}

#[test]
fn half_a_frame_and_half_a_stream_end_with_the_line() {
    let home = Home::new();
    let mut bytes = Frame::Open(1, Purpose::Calls).to_bytes().to_vec();
    bytes.extend(Frame::Data(1, 100).to_bytes());
    bytes.extend([0; 50]);
    for len in [1, FRAME_HEAD, FRAME_HEAD + 3, bytes.len()] {
        let (mut raw, served) = home.line();
        raw.0.write_all(&bytes[..len]).expect("sends");
        drop(raw);
        let result = served.join().expect("no panic");
        assert_eq!(result.is_err(), len >= FRAME_HEAD, "{len}: {result:?}");
    }
}

/// What waits to be read is bounded by not reading the line.
#[test]
fn what_nobody_reads_at_the_shadow_is_bounded() {
    let home = Home::new();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let sessions = home.sessions.clone();
    let (held, holds) = std::sync::mpsc::channel::<()>();
    let holds = std::sync::Mutex::new(holds);
    let taker: Arc<Taker> = Arc::new(move |_, stream| {
        // Until the test is over.
        let _ = holds.lock().map(|holds| holds.recv());
        drop(stream);
    });
    let served = spawn(move || introduced(plain(theirs), &sessions, &taker));
    let mut raw = Raw(ours);
    Preface::read(&mut raw.0).expect("is said");
    answer_preface(&mut raw.0, b"").expect("is said");
    raw.0
        .set_write_timeout(Some(Duration::from_secs(2)))
        .expect("sets");
    let before = resident_kib();
    let mut sent = 0usize;
    'all: for number in 0..900 {
        let open = Frame::Open(number, Purpose::Control).to_bytes();
        if raw.0.write_all(&open).is_err() {
            break;
        }
        for _ in 0..WINDOW as usize / MOST_FRAME {
            let frame = Frame::Data(number, MOST_FRAME as u32).to_bytes();
            if raw
                .0
                .write_all(&[&frame[..], &[7; MOST_FRAME]].concat())
                .is_err()
            {
                break 'all;
            }
            sent += MOST_FRAME;
        }
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(
        sent > 64 << 20 && sent < 200 << 20,
        "{sent} bytes were taken"
    );
    assert!(grown < 200 << 10, "{grown} KiB");
    drop(held);
    drop(raw);
    assert!(served.join().expect("no panic").is_err());
}

/// A shadow with a port, and the keys for it.
fn secure(home: &Home) -> (SocketAddr, Keys, Vec<u8>) {
    let (ours, theirs) = (Keys::make().expect("keys"), Keys::make().expect("keys"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("a port");
    let acceptor = Acceptor::new(&ours, &theirs.certificate).expect("usable");
    let server = SecureServer::new(listener, acceptor, TOKEN, sessions(&home.directory));
    spawn(move || server.run());
    (address, theirs, ours.certificate)
}

#[test]
fn a_line_through_tls_is_for_the_one_that_has_its_key() {
    let home = Home::new();
    let (address, keys, shadow) = secure(&home);
    let connect = |keys: &Keys, shadow: &[u8]| {
        let socket = TcpStream::connect(address).expect("is there");
        let line = Connector::new(keys, shadow)
            .expect("usable")
            .connect(socket);
        let mut line = line.map_err(|error| error.to_string())?;
        Preface::read(&mut *line.input).map_err(|error| error.to_string())
    };
    let stranger = Keys::make().expect("keys");
    assert_eq!(
        connect(&keys, &stranger.certificate),
        Err("the other side is not who it should be".to_owned())
    );
    assert_eq!(
        connect(&stranger, &shadow),
        Err("the other side has not said who it is".to_owned())
    );
    // The right certificate, without its key.
    let forged = Keys {
        certificate: keys.certificate.clone(),
        private: stranger.private.clone(),
    };
    assert!(Connector::new(&forged, &shadow).is_err() || connect(&forged, &shadow).is_err());
    let socket = TcpStream::connect(address).expect("is there");
    let connector = Connector::new(&keys, &shadow).expect("usable");
    let line = connector.connect(socket).expect("is the one");
    let (door, carries) = home.starter(line);
    let (mut peer, _) = Peer::greeted(knock(&door));
    let handle = peer.open(&home.at("file")).expect("opens");
    let data: Vec<u8> = (0..MOST_DATA).map(|n| (n % 251) as u8).collect();
    for _ in 0..20 {
        peer.ask(&Request::Write(Write { handle, offset: 0 }), &data);
        assert!(peer.ask(&read_all(handle), &[]).1 == data);
    }
    drop(peer);
    carries.join().expect("no panic").expect("ends");
}

#[test]
fn connections_that_say_nothing_or_nonsense_are_closed() {
    let home = Home::new();
    let (address, keys, shadow) = secure(&home);
    let mut silent = vec![];
    for said in [
        &b""[..],
        b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x16; 3000],
    ] {
        let mut socket = TcpStream::connect(address).expect("is there");
        socket.set_read_timeout(Some(DEADLINE)).expect("sets");
        socket.write_all(said).expect("sends");
        silent.push(socket);
    }
    // Meanwhile others are served.
    let socket = TcpStream::connect(address).expect("is there");
    let mut line = Connector::new(&keys, &shadow)
        .expect("usable")
        .connect(socket)
        .expect("is the one");
    assert_eq!(Preface::read(&mut *line.input).expect("is said"), PREFACE);
    for mut socket in silent {
        let mut rest = vec![];
        // An alert, perhaps, and the end.
        let end = socket.read_to_end(&mut rest);
        let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(end.is_ok() || end.as_ref().is_err_and(reset), "{end:?}");
    }
}

#[test]
fn a_starter_trusts_no_shadow() {
    let home = Home::new();
    let open = Frame::Open(1, Purpose::Calls).to_bytes();
    let full = [
        &Frame::Data(1, MOST_FRAME as u32).to_bytes()[..],
        &[0; MOST_FRAME],
    ]
    .concat();
    let greedy: Vec<u8> = (0..=WINDOW as usize / MOST_FRAME)
        .flat_map(|_| full.clone())
        .collect();
    let close = Frame::Close(1).to_bytes();
    for (expected, bytes) in [
        ("only a starter opens streams", open.to_vec()),
        (
            "stream 9: it is not open",
            Frame::Close(9).to_bytes().to_vec(),
        ),
        ("stream 1: it has no credit", greedy),
        ("what is no frame", vec![255; 8]),
        ("it has been closed", [&close[..], &full].concat()),
    ] {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let shadow = spawn(move || {
            let mut raw = Raw(ours);
            PREFACE
                .exchange(&mut raw.0.try_clone().expect("clones"), &mut raw.0)
                .expect("is said");
            let mut head = [0; FRAME_HEAD];
            raw.0.read_exact(&mut head).expect("is opened");
            assert_eq!(Frame::read(head), Ok(Frame::Open(1, Purpose::Calls)));
            let _ = raw.0.write_all(&bytes);
            raw.end();
        });
        let (door, carries) = home.starter(plain(theirs));
        // Reads nothing.
        let peer = knock(&door);
        let error = carries.join().expect("no panic").expect_err("is refused");
        let message = error.to_string();
        let also_unknown = expected == "it has been closed" && message.contains("it is not open");
        assert!(
            message.contains(expected) || also_unknown,
            "{message}, expected {expected}"
        );
        drop(peer);
        shadow.join().expect("no panic");
    }
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("is there");
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let word = line.and_then(|line| line.split_whitespace().nth(1));
    word.and_then(|word| word.parse().ok()).expect("a number")
}

/// A process that has seen another end must find it ended at the shadow, too; even if nothing got through meanwhile.
#[test]
fn an_end_is_told_before_anything_that_is_sent_after_it() {
    // A socket keeps some 270 messages of a byte.
    const ROUNDS: usize = 100;
    let home = Home::new();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let (opened, opens) = std::sync::mpsc::channel();
    let (go, goes) = std::sync::mpsc::channel();
    let shadow = spawn(move || {
        let mut raw = Raw(ours);
        let mut out = raw.0.try_clone().expect("clones");
        PREFACE.exchange(&mut out, &mut raw.0).expect("is said");
        let mut pieces = line::Pieces::default();
        let mut portion = vec![0; 64 << 10];
        let (mut begun, mut ended, mut told) = (0, 0, 0);
        while told < 2 * ROUNDS {
            let len = raw.0.read(&mut portion).expect("reads");
            assert_ne!(len, 0, "the line has ended");
            let mut rest = &portion[..len];
            while let Some(piece) = pieces.next(&mut rest).expect("sound") {
                match piece {
                    line::Piece::Open(..) => begun += 1,
                    line::Piece::Close(_) => ended += 1,
                    // The lane is the first.
                    line::Piece::Data(1, bytes) => {
                        told += bytes.len();
                        // The first byte of each round is sent before its end, the second after it.
                        assert!(ended >= told / 2, "{told} bytes, {ended} ends");
                    }
                    _ => {}
                }
            }
            if begun == ROUNDS + 2 && opened.send(()).is_ok() {
                begun = 0;
                goes.recv_timeout(DEADLINE).expect("goes on");
            }
        }
    });
    let (door, _carries) = home.starter(plain(theirs));
    let mut lane = knock(&door);
    let mut others: Vec<_> = (0..=ROUNDS).map(|_| knock(&door)).collect();
    opens.recv_timeout(DEADLINE).expect("are opened");
    // Nobody reads the line: it fills up, and with it the starter, until this one waits.
    let mut filler = others.pop().expect("is one");
    filler
        .set_write_timeout(Some(Duration::from_millis(300)))
        .expect("sets");
    while filler.write_all(&[0; 4096]).is_ok() {}
    for other in others {
        lane.write_all(&[1]).expect("sends");
        drop(other);
        lane.write_all(&[2]).expect("sends");
    }
    go.send(()).expect("goes on");
    shadow.join().expect("in order");
}
