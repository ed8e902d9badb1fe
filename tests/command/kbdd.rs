//! `wayfarer kbdd` beside a real X server without a screen (Xvfb), whose keys are pressed by the test (XTEST).

use crate::skip;
use crate::station::{Station, text};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{KEY_PRESS_EVENT, KEY_RELEASE_EVENT};
use x11rb::protocol::xtest::ConnectionExt;
use x11rb::rust_connection::RustConnection;

const DEADLINE: Duration = Duration::from_secs(30);

/// An X server of its own; ended with the test.
struct Server {
    process: Child,
    display: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn server() -> Option<Server> {
    let mut command = Command::new("Xvfb");
    // It chooses a number that is free, and tells it when it can be reached.
    command.args([
        "-displayfd",
        "1",
        "-nolisten",
        "tcp",
        "-screen",
        "0",
        "64x64x8",
    ]);
    command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::piped());
    let mut process = command.spawn().ok()?;
    let out = process.stdout.take().expect("its output");
    let mut number = String::new();
    BufReader::new(out)
        .read_line(&mut number)
        .expect("the number of its display");
    let display = format!(":{}", number.trim());
    Some(Server { process, display })
}

fn modified(stamp: &Path) -> Option<SystemTime> {
    fs::metadata(stamp).and_then(|found| found.modified()).ok()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_key_at_an_x_session_touches_the_stamp() {
    let Some(mut server) = server() else {
        return skip::note(
            "a_key_at_an_x_session_touches_the_stamp",
            "no Xvfb; run scripts/setup",
        );
    };
    let station = Station::new();
    let stamp = station.state.path().join("stamp");
    let mut command = station.wayfarer(&["kbdd", "--every", "50ms", "--display", &server.display]);
    command
        .arg(&stamp)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut kbdd = command.spawn().expect("starts");
    wait_until("the stamp is there", || modified(&stamp).is_some());
    // Nobody is there: it grows old.
    let before = SystemTime::now();
    std::thread::sleep(Duration::from_millis(300));
    assert!(modified(&stamp).expect("a stamp") < before + Duration::from_millis(100));
    let pressed = SystemTime::now();
    let (session, _) = RustConnection::connect(Some(&server.display)).expect("a session");
    for kind in [KEY_PRESS_EVENT, KEY_RELEASE_EVENT] {
        let sent = session.xtest_fake_input(kind, 38, 0, x11rb::NONE, 0, 0, 0);
        sent.expect("sent").check().expect("pressed");
    }
    session.flush().expect("sent");
    let second = Duration::from_secs(1);
    wait_until("the key is told", || {
        modified(&stamp).is_some_and(|time| time + second > pressed)
    });
    assert!(modified(&stamp).expect("a stamp") < SystemTime::now() + second);
    // With the session it ends.
    server.process.kill().expect("ended");
    wait_until("kbdd has ended", || {
        kbdd.try_wait().expect("waited").is_some()
    });
    let ended = kbdd.wait_with_output().expect("its end");
    let said = text(&ended.stderr);
    assert!(
        ended.status.success() && said.contains("has ended"),
        "{said}"
    );
}

#[test]
fn a_session_that_is_not_there_and_a_stamp_that_is_no_file_are_named() {
    let station = Station::new();
    let stamp = station.state.path().join("stamp");
    let at = stamp.display().to_string();
    let none = station.output(&["kbdd", "--display", ":73999", &at]);
    let said = text(&none.stderr);
    assert_eq!(none.status.code(), Some(3), "{said}");
    assert!(said.contains("X session :73999"), "{said}");
    let mut command = station.wayfarer(&["kbdd", &at]);
    let none = command.env_remove("DISPLAY").output().expect("runs");
    let said = text(&none.stderr);
    assert_eq!(none.status.code(), Some(2), "{said}");
    assert!(said.contains("--display"), "{said}");
    let Some(server) = server() else {
        return skip::note("a stamp that is no file", "no Xvfb; run scripts/setup");
    };
    fs::create_dir(&stamp).expect("a folder");
    let none = station.output(&["kbdd", "--display", &server.display, &at]);
    let said = text(&none.stderr);
    assert!(!none.status.success() && said.contains(&at), "{said}");
}
