//! What happens to a job on another machine is in its event log, read back by HTCondor's own reader.

use super::away::Site;
use super::{DEADLINE, output};
use crate::support::htcondor;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Each event's number, and what is to be looked at.
const SCRIPT: &str = r#"
import htcondor2, json, sys
names = ["NumberOfPIDs", "Message", "Reason", "SlotName", "ExecuteHost"]
found = []
for event in htcondor2.JobEventLog(sys.argv[1]).events(stop_after=0):
    found.append([int(event.type), {name: event[name] for name in names if name in event}])
print(json.dumps(found))
"#;

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
    site.told(&["continue", "job"]);
    site.until_lines(site.lines() + 5);
    let log = site.submit.dir.join("own/jobs/job/events.log");
    site.told(&["kill", "-s", "KILL", "job"]);
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.signal(), Some(9), "{}", site.story());
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120"]).arg(python);
    command.args(["-c", SCRIPT]).arg(&log);
    command.env("CONDOR_CONFIG", "/dev/null");
    let (read, complained, status) = output("the reader", command);
    assert_eq!(status, Some(0), "{complained}");
    let read: Vec<(u32, Value)> = serde_json::from_str(&read).expect("JSON");
    let numbers: Vec<u32> = read.iter().map(|(number, _)| *number).collect();
    let expected = [0, 1, 10, 11, 10, 11, 10, 6, 3, 7, 1, 10, 11, 9];
    assert_eq!(numbers, expected, "{read:?}\n{}", site.story());
    let of = |number: u32| {
        let found = read.iter().find(|(one, _)| *one == number);
        found.map_or(Value::Null, |(_, event)| event.clone())
    };
    assert_eq!(of(10)["NumberOfPIDs"], json!(1), "{read:?}");
    let message = "the process that kept the copy on 127.0.0.1 was killed by somebody";
    assert_eq!(of(7)["Message"], json!(message), "{read:?}");
    assert_eq!(of(9)["Reason"], json!("killed by its owner"), "{read:?}");
}
