//! The event log: whole events whatever happens to those who write, read back by HTCondor's own reader.

mod foreign;
mod kinds;
mod readback;
mod reader;
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod writers;

use starter::events::{Event, EventLog, JobNumber};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where a child finds the log.
const LOG: &str = "WF_TEST_EVENT_LOG";

/// The job of that number.
fn job(cluster: u32) -> JobNumber {
    JobNumber {
        cluster,
        process: 0,
        subprocess: 0,
    }
}

/// A time in winter; half a year later is summer.
fn winter() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_225_600)
}

/// The log that this process was started for.
fn given() -> EventLog {
    let path = std::env::var_os(LOG).expect("set by who starts this");
    EventLog::open(Path::new(&path)).expect("opens")
}

/// A test of this program, to be run by itself on this log, for 120 s at most, after these shell commands.
fn child(test: &str, log: &Path, before: &str) -> Command {
    let own = std::env::current_exe().expect("is known");
    let mut command = Command::new("timeout");
    command
        .args(["--signal=KILL", "120", "sh", "-c"])
        .arg(format!(
            "{before}\nexec \"$0\" --exact --ignored --nocapture {test}"
        ))
        .arg(own)
        .env(LOG, log);
    command
}

/// It must pass.
fn passed(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{}: {said}{complained}",
        output.status
    );
}

/// The events of a log, without their ends; each begins with a header.
fn events(log: &str) -> Vec<&str> {
    let mut events = log.split_inclusive("\n...\n").collect::<Vec<_>>();
    if let Some(last) = events.last() {
        assert!(last.ends_with("\n...\n"), "torn: {last:?}");
    }
    for event in &mut events {
        let header = event.split(' ').take(4).collect::<Vec<_>>().join(" ");
        let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
        let shape = header.chars().map(digits).collect::<String>();
        assert_eq!(
            shape, "000 (000.000.000) 0000-00-00 00:00:00",
            "no header: {event:?}"
        );
        *event = &event[..event.len() - "...\n".len()];
    }
    events
}

/// Appends, which must not fail.
fn append(log: &EventLog, cluster: u32, event: &Event) {
    log.append(job(cluster), winter(), event)
        .expect("is written");
}
