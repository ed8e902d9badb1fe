//! What a job does with its files, as `wayfarer io` tells it.

use super::{DEADLINE, SOON, Submit, cannot_hide, io_report, missing, output};
use crate::support::run::{Run, clean_command};
use crate::support::stage;
use crate::support::user::User;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Every call here is counted by the test.
const JOB: &str = r#"
import os, sys
f = os.open('data', os.O_RDONLY)
for _ in range(100): assert len(os.read(f, 1000)) == 1000
os.lseek(f, 0, os.SEEK_SET); os.pread(f, 50, 10)
g = os.open('result', os.O_WRONLY | os.O_CREAT, 0o644)
if os.fork() == 0:
    for _ in range(7): os.write(g, b'x' * 300)
    os._exit(0)
os.wait(); os.writev(g, [b'a' * 5, b'b' * 5])
print('counted', flush=True); sys.stdin.readline()
"#;

fn wayfarer(submit: &Submit, words: &[&str]) -> Command {
    let mut command = clean_command(stage::wayfarer());
    command
        .arg("--dir")
        .arg(submit.dir.join("state"))
        .args(words);
    command
}

fn number(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[test]
fn what_a_job_does_with_its_files_is_told() {
    let what = "what_a_job_does_with_its_files_is_told";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("usage");
    fs::write(submit.home().join("data"), vec![b'd'; 100_000]).expect("writes");
    let words = ["/usr/bin/python3", "-c", JOB].map(OsStr::new);
    let mut command = clean_command(stage::wayfarer());
    let options = ["--name", "counted"].map(OsStr::new);
    submit.run(&mut command, &options, &words);
    command.current_dir(submit.home()).stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    job.wait_line("counted", DEADLINE).expect("has counted");

    let report = io_report(&submit, "counted");
    let file = |name: &str| {
        let files = report["files"].as_array().expect("files");
        let found = files.iter().find(|file| file["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {report}"))
    };
    let data = file("data");
    let read = [
        "FileOpenCount",
        "FileReadCount",
        "FileReadBytes",
        "FileSeekCount",
        "FileWriteCount",
    ];
    assert_eq!(read.map(|name| number(data, name)), [1, 101, 100_050, 1, 0]);
    // Read ahead: far fewer questions than calls, and the rest are hits.
    let trips = number(data, "RoundTrips");
    assert!((1..30).contains(&trips), "{data}");
    assert!((80..=101).contains(&number(data, "FileReadHits")), "{data}");
    assert!(number(data, "WaitedMicroseconds") > 0, "{data}");
    let result = file("result");
    let written = ["FileReadCount", "FileWriteCount", "FileWriteBytes"];
    assert_eq!(written.map(|name| number(result, name)), [0, 8, 2110]);
    assert!(number(&report["names"], "RoundTrips") > 10, "{report}");
    assert!(
        number(&report["all"], "FileReadBytes") > 100_050,
        "python's own too"
    );

    let (text, _, status) = output("io", wayfarer(&submit, &["io", "counted"]));
    assert!(
        status == Some(0) && text.contains("97.7 KiB") && text.contains("  data\n"),
        "{text}"
    );

    // What is known at a checkpoint is known afterwards.
    let words = ["checkpoint", "counted", "--then", "kill"];
    let (_, errors, status) = output("a checkpoint", wayfarer(&submit, &words));
    assert_eq!(status, Some(0), "{errors}");
    job.wait(SOON).expect("ends");
    let later = io_report(&submit, "counted");
    let (status, _, _) = output(
        "status",
        wayfarer(&submit, &["status", "counted", "--json"]),
    );
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let read = number(&later["all"], "FileReadBytes");
    assert_eq!(number(&status, "FileReadBytes"), read, "{status}");
    assert!(number(&later, "as_of") > 0);
    let both = [&report, &later].map(|report| number(&report["all"], "FileReadBytes"));
    assert_eq!(both[0], both[1]);

    // It counts on.
    let address = super::address(&submit.dir);
    let mut command = wayfarer(&submit, &["restart", "counted", "--shadow", &address]);
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    let mut counted = || {
        let (text, _, _) = output("io", wayfarer(&submit, &["io", "counted", "--json"]));
        let report: Value = serde_json::from_str(&text).ok()?;
        report["as_of"]
            .is_null()
            .then(|| number(&report["all"], "FileReadBytes"))
    };
    let again = crate::support::run::poll(DEADLINE, &mut counted).expect("goes on");
    assert!(again >= both[0], "{again}");
    job.stdin()
        .expect("an input")
        .write_all(b"\n")
        .expect("goes on");
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.code(), Some(0), "{}", job.describe());
}

/// Also of what it has done right before its end, in a process of its own.
#[test]
fn the_event_log_has_the_bytes_of_a_job_that_has_ended() {
    let what = "the_event_log_has_the_bytes_of_a_job_that_has_ended";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("usage-events");
    fs::write(submit.home().join("data"), vec![b'd'; 100_000]).expect("writes");
    let words = ["/usr/bin/python3", "-c", JOB].map(OsStr::new);
    let mut command = clean_command(stage::wayfarer());
    let options = ["--name", "counted", "--every", "1h"].map(OsStr::new);
    submit.run(&mut command, &options, &words);
    command.current_dir(submit.home()).stdin(Stdio::null());
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.code(), Some(0), "{}", job.describe());
    let (status, _, _) = output(
        "status",
        wayfarer(&submit, &["status", "counted", "--json"]),
    );
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let (sent, received) = (number(&status, "BytesSent"), number(&status, "BytesRecvd"));
    assert!((2110..3000).contains(&sent), "{status}");
    assert!(received >= 100_050, "{status}");
    let (log, _, _) = output("log", wayfarer(&submit, &["log", "counted"]));
    for line in [
        format!("\t{sent}  -  Run Bytes Sent By Job\n"),
        format!("\t{received}  -  Run Bytes Received By Job\n"),
        format!("\t{sent}  -  Total Bytes Sent By Job\n"),
    ] {
        assert!(log.contains(&line), "{line}{log}");
    }
}

#[test]
fn a_job_without_remote_files_is_told_apart() {
    let what = "a_job_without_remote_files_is_told_apart";
    if missing(what) {
        return;
    }
    let submit = Submit::new("usage-none");
    let words = [
        "run",
        "-q",
        "--name",
        "plain",
        "--",
        "sh",
        "-c",
        "echo here; cat",
    ];
    let mut command = wayfarer(&submit, &words);
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    job.wait_line("here", SOON).expect("begins");
    let (_, errors, status) = output("io", wayfarer(&submit, &["io", "plain"]));
    assert!(
        errors.contains("has no remote files") && status == Some(1),
        "{errors}"
    );
    drop(job.stdin());
    job.wait(SOON).expect("ends");
    let (_, errors, status) = output("io", wayfarer(&submit, &["io", "plain"]));
    assert!(
        errors.contains("was not written down") && status == Some(1),
        "{errors}"
    );
}
