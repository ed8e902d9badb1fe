//! Those who write: many at a time, killed, and with a full disk.

use crate::{append, child, events, given, job, passed, winter};
use starter::events::{Event, EventError, EventLog, ReasonCode};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::thread;

const EACH: u32 = 200;
const PROCESSES: u32 = 4;
const THREADS: u32 = 2;
/// Which of the processes it is.
const WHICH: &str = "WF_TEST_WRITER";

/// One that takes more than a block of 512 bytes.
fn long() -> Event {
    Event::Held {
        reason: Some("full ".repeat(150)),
        code: ReasonCode {
            code: 1,
            subcode: 2,
        },
    }
}

fn directory() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    (dir, log)
}

fn text(log: &Path) -> String {
    fs::read_to_string(log).expect("reads")
}

#[test]
fn writers_at_the_same_time_tear_nothing() {
    let (_dir, log) = directory();
    let writers = (0..PROCESSES).map(|which| {
        let mut writer = child("writers::writes", &log, "");
        writer.env(WHICH, which.to_string());
        thread::spawn(move || writer.output().expect("runs"))
    });
    for writer in writers.collect::<Vec<_>>() {
        passed(&writer.join().expect("no panic"));
    }
    let text = text(&log);
    let mut counts = BTreeMap::<String, Vec<usize>>::new();
    let expected = long();
    let Event::Held { reason, .. } = &expected else {
        unreachable!()
    };
    let body = format!(
        "Job was held.\n\t{}\n\tCode 1 Subcode 2\n",
        reason.as_deref().unwrap_or_default().trim()
    );
    for (at, event) in events(&text).into_iter().enumerate() {
        assert!(event.ends_with(&body), "{event:?}");
        let (number, _) = event.split_once(')').expect("a header");
        counts.entry(number.to_owned()).or_default().push(at);
    }
    assert_eq!(counts.len(), (PROCESSES * THREADS) as usize);
    for (writer, events) in counts {
        assert_eq!(events.len(), EACH as usize, "{writer}");
    }
}

#[test]
#[ignore = "one of several, for the test above"]
fn writes() {
    let which = std::env::var(WHICH).expect("set by who starts this");
    let which = which.parse::<u32>().expect("a number");
    let (log, event) = (given(), long());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, event) = (&log, &event);
            scope.spawn(move || {
                for _ in 0..EACH {
                    append(log, which * THREADS + thread, event);
                }
            });
        }
    });
}

/// A limit on file sizes makes a write come back short and kills with the next one.
#[test]
fn an_event_that_a_writer_was_killed_in_is_ended_by_the_next() {
    let (_dir, log) = directory();
    let mut writer = child(
        "writers::writes_until_the_end",
        &log,
        "ulimit -c 0; ulimit -f 8",
    );
    let output = writer.output().expect("runs");
    assert_eq!(output.status.signal(), Some(25), "{output:?}");
    let torn = text(&log);
    assert_eq!(torn.len(), 8 * 512);
    assert!(!torn.ends_with("...\n"));

    let log_file = EventLog::open(&log).expect("opens");
    append(&log_file, 2, &Event::Unsuspended);
    append(&log_file, 3, &Event::Unsuspended);
    let ended = text(&log);
    let after = ended.strip_prefix(&torn).expect("nothing is taken away");
    let events = after.split_inclusive("...\n").collect::<Vec<_>>();
    assert_eq!(events.len(), 3, "{after}");
    assert_eq!(events[0], "\n \n...\n");
    assert!(events[1].starts_with("011 (002."), "{after}");
    assert!(events[2].starts_with("011 (003."), "{after}");
}

#[test]
#[ignore = "is killed, by the test above"]
fn writes_until_the_end() {
    let (log, event) = (given(), long());
    for _ in 0..100 {
        append(&log, 1, &event);
    }
}

#[test]
fn a_full_disk_leaves_no_half_event() {
    let (_dir, log) = directory();
    let before = "trap '' XFSZ; ulimit -f 8";
    passed(
        &child("writers::fills_up", &log, before)
            .output()
            .expect("runs"),
    );
    let text = text(&log);
    let events = events(&text);
    let (last, others) = events.split_last().expect("some");
    assert!(others.len() > 3, "{text}");
    assert!(
        others.iter().all(|event| event.contains("Job was held.")),
        "{text}"
    );
    assert!(last.contains("Job was unsuspended."), "{text}");
}

#[test]
#[ignore = "runs under a limit, by the test above"]
fn fills_up() {
    let (log, event) = (given(), long());
    let path = std::env::var_os(crate::LOG).expect("is set");
    let path = Path::new(&path);
    for _ in 0..100 {
        let before = fs::read(path).expect("reads");
        let Err(error) = log.append(job(1), winter(), &event) else {
            continue;
        };
        let said = error.to_string();
        assert!(said.contains(&path.display().to_string()), "{said}");
        let EventError::Write { source, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(source.kind(), ErrorKind::FileTooLarge);
        assert_eq!(fs::read(path).expect("reads"), before);
        // A smaller one may go in.
        append(&log, 2, &Event::Unsuspended);
        return;
    }
    panic!("there is no limit");
}

#[test]
fn the_umask_says_who_may_read_it() {
    for (umask, mode) in [("000", 0o644), ("027", 0o640), ("077", 0o600)] {
        let (_dir, log) = directory();
        let before = format!("umask {umask}");
        passed(
            &child("writers::opens", &log, &before)
                .output()
                .expect("runs"),
        );
        let metadata = fs::metadata(&log).expect("is there");
        assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{umask}");
        assert_eq!(metadata.len(), 0);
    }
}

#[test]
#[ignore = "runs with a umask, by the test above"]
fn opens() {
    given();
}
