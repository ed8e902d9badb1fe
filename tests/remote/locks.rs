//! Locks of remote files: between processes of a job, between jobs, and with programs of the submit machine.

use super::{DEADLINE, SOON, Submit, missing, output, same_here_and_there};
use crate::support::run::{Run, clean_command, poll};
use crate::support::skip;
use crate::support::user::User;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long nothing must happen: that nobody gets a lock which another has is no event that could be awaited.
const SILENCE: Duration = Duration::from_millis(200);

#[test]
fn every_lock_does_what_it_does_here() {
    let what = "every_lock_does_what_it_does_here";
    same_here_and_there(what, "remote_locks", 250);
}

fn words<'a>(all: &[&'a str]) -> Vec<&'a OsStr> {
    all.iter().map(|word| OsStr::new(*word)).collect()
}

/// A program of the submit machine, beside the jobs' files.
fn local(submit: &Submit, all: &[&str]) -> Command {
    let mut command = clean_command(all[0]);
    command.args(&all[1..]).current_dir(submit.home());
    command
}

/// Whether a program of the submit machine ends well.
fn succeeds(submit: &Submit, all: &[&str]) -> bool {
    let (_, error, status) = output(all[0], local(submit, all));
    assert!(matches!(status, Some(0 | 1)), "{all:?}: {status:?} {error}");
    status == Some(0)
}

fn appears(name: &Path) {
    poll(SOON, || name.exists().then_some(())).unwrap_or_else(|| panic!("no {}", name.display()));
}

fn make(submit: &Submit, name: &str) {
    let name = submit.home().join(name);
    fs::write(&name, "").expect("writes");
    User::Ordinary.own(&name);
}

/// Takes a lock of `$1` by fcntl(2) or flock(2), says so, keeps it.
const HOLD: &str = "
import fcntl, sys, time
file = open(sys.argv[2], 'r+')
(fcntl.lockf if sys.argv[1] == 'record' else fcntl.flock)(file, fcntl.LOCK_EX)
print('held', flush=True)
time.sleep(60)
";
/// Fails with 1 if it cannot be had.
const TRY: &str = "
import fcntl, sys
file = open(sys.argv[2], 'r+')
try:
    (fcntl.lockf if sys.argv[1] == 'record' else fcntl.flock)(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(1)
";
/// Waits for it, but not for long: the signal's handler is an error.
const WAIT: &str = "
import fcntl, signal, sys, time
def late(*_): raise InterruptedError
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[3]))
file = open(sys.argv[2], 'r+')
begin = time.monotonic()
try:
    (fcntl.lockf if sys.argv[1] == 'record' else fcntl.flock)(file, fcntl.LOCK_EX)
    print('had')
except InterruptedError:
    print('interrupted', time.monotonic() - begin < float(sys.argv[3]) + 5)
";
const KINDS: [&str; 2] = ["record", "whole"];

#[test]
fn jobs_and_local_programs_keep_each_other_out() {
    if missing("jobs_and_local_programs_keep_each_other_out") {
        return;
    }
    // Two sessions of one shadow, and one of another that serves the same folder.
    let submit = Submit::new("remote-locks-others");
    let second = Submit::allowing(
        "remote-locks-second",
        &[
            "--allow",
            "/:ro",
            "--allow",
            &submit.home().display().to_string(),
        ],
    );
    make(&submit, "file");
    let python = |script, kind, more: &[&'static str]| {
        [&["python3", "-c", script, kind, "file"], more].concat()
    };
    for kind in KINDS {
        let try_it = python(TRY, kind, &[]);
        let wait_short = python(WAIT, kind, &["0.3"]);
        let wait_long = python(WAIT, kind, &["30"]);
        let from_second = |all: &[&str]| {
            let mut command = second.remote(&words(all));
            command.current_dir(submit.home());
            command
        };
        let holders = [
            submit.remote(&words(&python(HOLD, kind, &[]))),
            local(&submit, &python(HOLD, kind, &[])),
        ];
        for (number, holder) in holders.into_iter().enumerate() {
            let mut holder = Run::start("who has it", holder, User::Ordinary).expect("starts");
            holder.wait_line("held", SOON).expect("has it");
            let from = |all: &[&str]| {
                let others = [
                    submit.remote(&words(all)),
                    from_second(all),
                    local(&submit, all),
                ];
                others.map(|other| output("another", other))
            };
            for (_, error, status) in from(&try_it) {
                assert_eq!(status, Some(1), "{kind} {number}: {error}");
            }
            for (out, error, _) in from(&wait_short) {
                assert_eq!(out, "interrupted True\n", "{kind} {number}: {error}");
            }
            // They wait until it is killed; each gives it up by its end.
            let waiting = [
                submit.remote(&words(&wait_long)),
                from_second(&wait_long),
                local(&submit, &wait_long),
            ];
            let waiting = waiting
                .map(|command| Run::start("who waits", command, User::Ordinary).expect("starts"));
            std::thread::sleep(SILENCE);
            for waiter in &waiting {
                assert_eq!(waiter.out.text(), "", "{kind} {number}");
            }
            let pid = nix::unistd::Pid::from_raw(holder.pid() as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("is there");
            holder.wait(SOON).expect("ends");
            for mut waiter in waiting {
                waiter.wait(SOON).expect("has it at last");
                assert_eq!(waiter.out.text(), "had\n", "{}", waiter.describe());
            }
        }
    }
}

#[test]
fn a_killed_process_has_no_locks_though_its_job_goes_on() {
    if missing("a_killed_process_has_no_locks_though_its_job_goes_on") {
        return;
    }
    let submit = Submit::new("remote-locks-killed");
    make(&submit, "file");
    for kind in KINDS {
        // The shell does nothing after that but wait for a line, which is no call on a remote file.
        let script = "python3 -c \"$0\" $1 file & pid=$!; read -r line; kill -9 $pid; echo killed; read -r line; wait";
        let job = ["bash", "-c", script, HOLD, kind];
        let mut command = submit.remote(&words(&job));
        command.stdin(Stdio::piped());
        let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
        let mut input = job.stdin().expect("was asked for");
        job.wait_line("held", SOON).expect("has it");
        let try_it = ["python3", "-c", TRY, kind, "file"];
        assert!(!succeeds(&submit, &try_it), "{kind} is held");
        std::io::Write::write_all(&mut input, b"\n").expect("is read");
        job.wait_line("killed", SOON).expect("kills");
        let freed = poll(SOON, || succeeds(&submit, &try_it).then_some(()));
        assert!(freed.is_some(), "{kind} is still held");
        assert!(job.ended().is_none(), "the job goes on");
        drop(input);
        job.wait(SOON).expect("ends");
    }
}

#[test]
fn flock_runs_one_command_at_a_time() {
    let what = "flock_runs_one_command_at_a_time";
    if missing(what) {
        return;
    }
    if !Path::new("/usr/bin/flock").exists() {
        skip::note(what, "no flock (util-linux)");
        return;
    }
    let submit = Submit::new("remote-flock");
    let home = submit.home();
    // It waits for a name to be there, then ends.
    let script = "flock lock sh -c 'echo > in-$0; until [ -e go-$0 ]; do sleep 0.02; done; echo $0 >> log' $0";
    let job = submit.remote(&words(&["sh", "-c", script, "job"]));
    let mut job = Run::start("flock in a job", job, User::Ordinary).expect("starts");
    appears(&home.join("in-job"));
    assert!(!succeeds(&submit, &["flock", "-n", "lock", "true"]));
    assert!(!succeeds(&submit, &["flock", "-w", "0.2", "lock", "true"]));
    let here = local(&submit, &["sh", "-c", script, "here"]);
    let mut here = Run::start("flock here", here, User::Ordinary).expect("starts");
    std::thread::sleep(SILENCE);
    assert!(!home.join("in-here").exists(), "both have it");
    make(&submit, "go-job");
    assert_eq!(job.wait(SOON).expect("ends").code(), Some(0));
    appears(&home.join("in-here"));
    let remote = |all: &[&str]| output(all[0], submit.remote(&words(all))).2;
    assert_eq!(remote(&["flock", "-n", "lock", "true"]), Some(1));
    assert_eq!(remote(&["flock", "-w", "0.2", "lock", "true"]), Some(1));
    make(&submit, "go-here");
    assert_eq!(remote(&["flock", "-w", "10", "lock", "true"]), Some(0));
    assert_eq!(here.wait(SOON).expect("ends").code(), Some(0));
    let log = fs::read_to_string(home.join("log")).expect("is there");
    assert_eq!(log, "job\nhere\n");
}

/// Rows that each writer adds, one transaction each.
const ROWS: usize = 150;

#[test]
fn databases_are_written_by_two_jobs_and_a_local_program_at_once() {
    let what = "databases_are_written_by_two_jobs_and_a_local_program_at_once";
    if missing(what) {
        return;
    }
    if !Path::new("/usr/bin/sqlite3").exists() {
        skip::note(what, "no sqlite3");
        return;
    }
    let submit = Submit::new("remote-sqlite");
    let sqlite = |sql: &str| {
        let wait = ".timeout 60000";
        ["sqlite3", "-batch", "-cmd", wait, "data.db", sql].map(str::to_owned)
    };
    let remote = |sql: &str| {
        let all = sqlite(sql);
        submit.remote(&all.each_ref().map(OsStr::new))
    };
    let made = output(
        "makes the database",
        remote("pragma journal_mode = delete; create table t (who text, n int, total int);"),
    );
    assert_eq!(made, ("delete\n".to_owned(), String::new(), Some(0)));
    // Each row counts those before it: a transaction that did not see the one before is found.
    let rows = |who: &str| {
        let row = |n| format!("insert into t select '{who}', {n}, count(*) from t;");
        (0..ROWS).map(row).collect::<String>()
    };
    let here = sqlite(&rows("here"));
    let writers = [
        remote(&rows("one")),
        remote(&rows("two")),
        local(&submit, &here.each_ref().map(|word| word.as_str())),
    ];
    let writers =
        writers.map(|command| Run::start("adds rows", command, User::Ordinary).expect("starts"));
    for mut writer in writers {
        let status = writer.wait(DEADLINE).expect("ends");
        let said = (status.code(), writer.out.text(), writer.err.text());
        assert_eq!(said, (Some(0), String::new(), String::new()));
    }
    let question = "pragma integrity_check; select who, count(*), sum(n) from t group by who; \
                    select count(*), count(distinct total), min(total), max(total) from t;";
    let all = 3 * ROWS;
    let sum = ROWS * (ROWS - 1) / 2;
    let expected = format!(
        "ok\nhere|{ROWS}|{sum}\none|{ROWS}|{sum}\ntwo|{ROWS}|{sum}\n{all}|{all}|0|{}\n",
        all - 1
    );
    let question_here = sqlite(question);
    for asks in [
        remote(question),
        local(&submit, &question_here.each_ref().map(|word| word.as_str())),
    ] {
        assert_eq!(
            output("asks", asks),
            (expected.clone(), String::new(), Some(0))
        );
    }
    assert!(!submit.home().join("data.db-journal").exists());
}
