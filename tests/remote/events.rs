//! What happens to a job on another machine is in its event log, read back by HTCondor's own reader.

use super::away::Site;
use super::{DEADLINE, output};
use crate::support::htcondor;
use crate::support::run::poll;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each event's number, and what is to be looked at.
const SCRIPT: &str = r#"
import htcondor2, json, sys
names = ["NumberOfPIDs", "Message", "Reason", "SlotName", "ExecuteHost", "SentBytes", "ReceivedBytes", "TotalSentBytes", "TotalReceivedBytes"]
found = []
for event in htcondor2.JobEventLog(sys.argv[1]).events(stop_after=0):
    found.append([int(event.type), {name: event[name] for name in names if name in event}])
print(json.dumps(found))
"#;

/// The events of this log.
fn events(python: PathBuf, log: &Path) -> Vec<(u32, Value)> {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120"]).arg(python);
    command.args(["-c", SCRIPT]).arg(log);
    command.env("CONDOR_CONFIG", "/dev/null");
    let (read, complained, status) = output("the reader", command);
    assert_eq!(status, Some(0), "{complained}");
    serde_json::from_str(&read).expect("JSON")
}

/// The first of this number.
fn one_of(read: &[(u32, Value)], number: u32) -> Value {
    let found = read.iter().find(|(one, _)| *one == number);
    found.map_or(Value::Null, |(_, event)| event.clone())
}

#[test]
fn what_happens_to_a_job_elsewhere_is_read_by_condors_reader() {
    let what = "what_happens_to_a_job_elsewhere_is_read_by_condors_reader";
    let Some(python) = htcondor::reader(what, "htcondor2") else {
        return;
    };
    let Some(site) = Site::new(what, "away-events") else {
        return;
    };
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--every", "1h"]));
    site.until("Running", 1);
    site.until_lines(5);
    for _ in 0..2 {
        site.told(&["suspend", "job"]);
        site.told(&["continue", "job"]);
    }
    // Suspended when its keeper is lost: the next copy stands still as soon as it runs.
    site.told(&["suspend", "job"]);
    site.told(&["checkpoint", "job"]);
    kill(site.keeper(), Signal::SIGKILL).expect("is there");
    site.until("Suspended", 2);
    // It was not suspended once more.
    assert_eq!(site.status()["TotalSuspensions"], json!(3));
    site.told(&["continue", "job"]);
    site.until_lines(site.lines() + 5);
    let log = site.submit.dir.join("own/jobs/job/events.log");
    site.told(&["kill", "-s", "KILL", "job"]);
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.signal(), Some(9), "{}", site.story());
    let read = events(python, &log);
    let numbers: Vec<u32> = read.iter().map(|(number, _)| *number).collect();
    let expected = [0, 1, 10, 11, 10, 11, 10, 6, 3, 7, 1, 10, 11, 9];
    assert_eq!(numbers, expected, "{read:?}\n{}", site.story());
    let of = |number| one_of(&read, number);
    assert_eq!(of(10)["NumberOfPIDs"], json!(1), "{read:?}");
    let message = "the process that kept the copy on 127.0.0.1 was killed by somebody";
    assert_eq!(of(7)["Message"], json!(message), "{read:?}");
    assert_eq!(of(9)["Reason"], json!("killed by its owner"), "{read:?}");
}

/// Works, reads, writes, and stands still by itself.
const STOPS: &str = "\
import os, signal, time
f = os.open('data', os.O_RDONLY)
for _ in range(100): assert len(os.read(f, 1000)) == 1000
with open('result', 'wb') as g: g.write(b'x' * 54321)
until = time.process_time() + 1.5
while time.process_time() < until: pass
os.kill(os.getpid(), signal.SIGSTOP)
print('goes on', flush=True)
";

#[test]
fn what_a_job_elsewhere_has_done_is_known_also_when_it_is_lost() {
    let what = "what_a_job_elsewhere_has_done_is_known_also_when_it_is_lost";
    let Some(python) = htcondor::reader(what, "htcondor2") else {
        return;
    };
    let Some(site) = Site::new(what, "away-done") else {
        return;
    };
    let home = site.submit.home();
    fs::write(home.join("data"), vec![b'd'; 100_000]).expect("writes");
    fs::write(home.join("stops.py"), STOPS).expect("writes");
    let all = ["python3", "stops.py"].map(OsStr::new);
    let all: Vec<&OsStr> = all.iter().map(|word| &**word).collect();
    let mut job = site.with_files(site.submitted(&["127.0.0.1"], &["--every", "1h"], &all));
    site.until("Suspended", 1);
    kill(site.keeper(), Signal::SIGKILL).expect("is there");
    site.until("Suspended", 2);
    let status = site.status();
    let number = |name: &str| status[name].as_f64().unwrap_or(-1.0);
    let used = number("RemoteUserCpu") + number("RemoteSysCpu");
    assert!(used >= 1.4, "{used}: {status}");
    assert!(number("BytesSent") >= 54321.0, "{status}");
    assert!(number("BytesRecvd") >= 100_000.0, "{status}");
    assert_eq!(status["TotalSuspensions"], json!(2), "{status}");
    site.told(&["continue", "job"]);
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.code(), Some(0), "{}", site.story());
    let log = site.submit.dir.join("own/jobs/job/events.log");
    let read = events(python, &log);
    let numbers: Vec<u32> = read.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 10, 7, 1, 10, 11, 5], "{read:?}");
    let bytes = |number: u32, name: &str| one_of(&read, number)[name].as_f64().unwrap_or(-1.0);
    for (sent, received) in [
        (bytes(7, "SentBytes"), bytes(7, "ReceivedBytes")),
        (bytes(5, "SentBytes"), bytes(5, "ReceivedBytes")),
        (
            bytes(5, "TotalSentBytes") / 2.0,
            bytes(5, "TotalReceivedBytes") / 2.0,
        ),
    ] {
        assert!((54321.0..60000.0).contains(&sent), "{sent}: {read:?}");
        assert!(received >= 100_000.0, "{received}: {read:?}");
    }
}

/// Ends by its own will when it is asked to, having said so.
const HEEDS: &str = "\
import signal, sys, time
def heard(number, frame): print('heard', number, flush=True)
signal.signal(signal.SIGUSR1, heard)
print('begun', flush=True)
while True: time.sleep(0.05)
";

#[test]
fn a_job_elsewhere_gets_the_signals_that_it_is_sent() {
    let what = "a_job_elsewhere_gets_the_signals_that_it_is_sent";
    let Some(site) = Site::new(what, "away-signals") else {
        return;
    };
    let home = site.submit.home();
    fs::write(home.join("heeds.py"), HEEDS).expect("writes");
    let all = ["python3", "heeds.py"].map(OsStr::new);
    let all: Vec<&OsStr> = all.iter().map(|word| &**word).collect();
    let mut job = site.with_files(site.submitted(&["127.0.0.1"], &["--every", "1h"], &all));
    site.until("Running", 1);
    let until_said = |line: &str| {
        let said = || fs::read_to_string(home.join("out")).unwrap_or_default();
        let there = poll(DEADLINE, || said().contains(line).then_some(()));
        assert!(there.is_some(), "{}: {}", said(), site.story());
    };
    until_said("begun\n");
    site.told(&["kill", "-s", "USR1", "job"]);
    until_said("heard 10\n");
    site.told(&["kill", "-s", "STOP", "job"]);
    site.until("Suspended", 1);
    site.told(&["kill", "-s", "CONT", "job"]);
    site.until("Running", 1);
    site.told(&["kill", "job"]);
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.signal(), Some(15), "{}", site.story());
}
