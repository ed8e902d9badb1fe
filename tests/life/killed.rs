//! Whoever is killed on the way: job, supervisor, starter, machine.

use super::*;

#[test]
fn a_job_that_is_killed_goes_on_from_its_image() {
    with_job(&chain("killed"), |job| {
        start(job, &["--every", "200ms"])?;
        for which in ["root_pid", "supervisor_pid", "root_pid"] {
            let made = status_of(job).map_or(0, |status| status["NumCkpts"].as_u64().unwrap_or(0));
            until_images(job, made + 1)?;
            let restarts = status_of(job)?["NumRestarts"].as_u64();
            let pid = process_of(job, which)?;
            kill(pid, Signal::SIGKILL).map_err(|error| error.to_string())?;
            until(job, "a restart", |status| {
                status["NumRestarts"].as_u64() > restarts && status["State"] == "Running"
            })?;
        }
        ends_well(job)?;
        let said = starter(job)?.err.text();
        match said.matches("was killed, and goes on").count() {
            3 => Ok(()),
            found => Err(format!("{said}\nfound {found} restarts, expected 3")),
        }
    });
}

#[test]
fn a_damaged_image_is_passed_over() {
    with_job(&chain("damaged"), |job| {
        start(job, &["--every", "300ms"])?;
        until_images(job, 2)?;
        ask(job, &["suspend", "job"])?;
        until(job, "two images and no more", |status| {
            status["State"] == "Suspended"
        })?;
        let newest = images(job).pop().ok_or("there is no image")?;
        let middle = fs::metadata(&newest)
            .map_err(|error| error.to_string())?
            .len()
            / 2;
        flip(&newest, middle)?;
        let root = root_of(job)?;
        kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
        expect_end_of_suspension(job)?;
        ends_well(job)?;
        let said = starter(job)?.err.text();
        let name = newest.file_name().unwrap_or_default().to_string_lossy();
        if !said.contains("image passed over: ") || !said.contains(&*name) {
            return Err(format!("{said}\nexpected {name} to be passed over"));
        }
        passing::expect_said(job, &name)
    });
}

/// A job that was suspended stays so over a restart, until it is told to go on.
fn expect_end_of_suspension(job: &mut Job) -> Result<(), String> {
    until(job, "a restart of a suspended job", |status| {
        status["NumRestarts"] == 1 && status["State"] == "Suspended"
    })?;
    ask(job, &["continue", "job"]).map(drop)
}

pub(super) fn flip(path: &Path, at: u64) -> Result<(), String> {
    use std::os::unix::fs::FileExt;
    let changed = || -> std::io::Result<()> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        file.write_all_at(&[byte[0] ^ 1], at)
    };
    changed().map_err(|error| format!("{path:?}: {error}"))
}

/// Whoever has made it: not the one that the job was restarted from, if there is a newer.
#[test]
fn a_job_goes_on_from_the_image_that_its_user_has_made() {
    with_job(&chain("by_user"), |job| {
        start(job, &["--keep", "3"])?;
        until_longer(job)?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        let command = job.wayfarer(&["restart", "job"]);
        let run = Run::start("the guest, restarted", command, User::Ordinary)?;
        job.runs.push(run);
        until(job, "running", |status| status["State"] == "Running")?;
        until_longer(job)?;
        ask(job, &["checkpoint", "job"])?;
        let root = root_of(job)?;
        kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
        until(job, "a restart", |status| {
            status["NumRestarts"] == 2 && status["State"] == "Running"
        })?;
        let record = fs::read_to_string(job.dir.join("state/jobs/job/job.json"));
        let record = record.map_err(|error| error.to_string())?;
        let record: serde_json::Value =
            serde_json::from_str(&record).map_err(|error| error.to_string())?;
        let from = record["restarted_from"].as_str().unwrap_or_default();
        if !from.ends_with("job-2.img") {
            return Err(format!("found {from}, expected job-2.img"));
        }
        ends_well(job)
    });
}

#[test]
fn a_job_that_is_killed_again_and_again_is_held() {
    with_job(&chain("killed_again"), |job| {
        start(job, &["--keep", "1"])?;
        until_longer(job)?;
        ask(job, &["checkpoint", "job"])?;
        for restarts in 1..=4 {
            let root = root_of(job)?;
            kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
            if restarts < 4 {
                until(job, "a restart", |status| {
                    status["NumRestarts"] == restarts && status["State"] == "Running"
                })?;
            }
        }
        expect_end(job, 1)?;
        let status = status_of(job)?;
        let reason = status["HoldReason"].as_str().unwrap_or_default();
        if status["State"] != "Held" || !reason.contains("killed 4 times") {
            return Err(format!("found {status}, expected a job that is held"));
        }
        // Each copy has left once.
        let counts = ["000", "001", "004", "012"].map(|number| count_events(job, number));
        if counts != [1, 4, 4, 1] {
            return Err(format!("found {counts:?}, expected 1, 4, 4, 1"));
        }
        start(job, &["--resume"])?;
        expect_end(job, 1)?;
        ask(job, &["release", "job"])?;
        goes_on_to_its_end(job, &[])
    });
}

/// How often it is in the job's event log, whose events are all of one job.
pub(super) fn count_events(job: &Job, number: &str) -> usize {
    let log = fs::read_to_string(job.dir.join("state/jobs/job/events.log")).unwrap_or_default();
    let heads: Vec<&str> = log
        .lines()
        .filter(|line| line.get(3..5) == Some(" ("))
        .collect();
    let jobs: std::collections::HashSet<_> =
        heads.iter().filter_map(|head| head.get(4..9)).collect();
    assert_eq!(jobs.len(), 1, "{log}");
    heads.iter().filter(|head| head.starts_with(number)).count()
}

#[test]
fn nothing_is_left_of_a_job_whose_starter_is_killed() {
    with_job(&chain("starter_killed"), |job| {
        start(job, &["--every", "200ms"])?;
        until_images(job, 1)?;
        signal_starter(job, Signal::SIGKILL)?;
        expect_end(job, 128 + 9)?;
        let status = status_of(job)?;
        if status["State"] != "Idle" || status["HasStarter"] != false {
            return Err(format!("found {status}, expected one that can go on"));
        }
        goes_on_to_its_end(job, &[])
    });
}

/// It changes one file in place, again and again: only a journal can take that back.
pub(super) const IN_PLACE: &str = r#"
import os, sys, time
table = os.open("table", os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(table, bytes(4000), 0)
number = 0
while not os.path.exists(os.environ["WF_GO"]):
    number += 1
    at = number * 37 % 4000
    byte = os.pread(table, 1, at)[0]
    os.pwrite(table, bytes([(byte + number) % 256]), at)
    rest = sum(os.pread(table, 4000, 0)) % 251
    os.pwrite(table, bytes([rest]), number * 53 % 4000)
    time.sleep(0.02)
time.sleep(float(os.environ.get("WF_LINGER", "0")))
print(number, flush=True)
"#;

/// The same changes, in memory.
const IN_MEMORY: &str = r#"
import sys
table = bytearray(4000)
for number in range(1, int(sys.argv[1]) + 1):
    at = number * 37 % 4000
    table[at] = (table[at] + number) % 256
    table[number * 53 % 4000] = sum(table) % 251
assert open("table", "rb").read() == table
"#;

#[test]
fn files_go_back_with_a_job_that_is_killed() {
    let guest = Guest::new("in_place", "/usr/bin/python3", &["-c", IN_PLACE]);
    with_job(&guest, |job| {
        start(job, &["--journal", "--every", "300ms"])?;
        for which in ["root_pid", "supervisor_pid"] {
            let made = status_of(job).map_or(0, |status| status["NumCkpts"].as_u64().unwrap_or(0));
            until_images(job, made + 1)?;
            let restarts = status_of(job)?["NumRestarts"].as_u64();
            // It is changed after the image, too.
            std::thread::sleep(Duration::from_millis(100));
            let pid = process_of(job, which)?;
            kill(pid, Signal::SIGKILL).map_err(|error| error.to_string())?;
            until(job, "a restart", |status| {
                status["NumRestarts"].as_u64() > restarts && status["State"] == "Running"
            })?;
        }
        job.let_go();
        expect_end(job, 0)?;
        check_in_place(job)
    });
}

/// The table is what so many steps make of it, as the job has said last.
pub(super) fn check_in_place(job: &Job) -> Result<(), String> {
    check_table(job, said_last(job).lines().last().unwrap_or_default())
}

pub(super) fn check_table(job: &Job, steps: &str) -> Result<(), String> {
    let mut command = run::clean_command("/usr/bin/python3");
    command.args(["-c", IN_MEMORY, steps]);
    command.current_dir(job.dir.join("data"));
    let (status, check) = finish("the check", command, User::Ordinary, WHOLE)?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{steps:?}: {}", check.describe())),
    }
}

pub(super) fn journals(job: &Job) -> usize {
    fs::read_dir(job.dir.join("state/journals")).map_or(0, Iterator::count)
}

/// A job under a journal whose starter dies at this step of its end.
fn ends_but(job: &mut Job, step: &str) -> Result<(), String> {
    let mut command = starting(job, &["--journal", "--every", "300ms"]);
    command.env("WAYFARER_FAULT", format!("life:{step}:1"));
    let run = Run::start(THE_GUEST, command, User::Ordinary)?;
    job.runs.push(run);
    until_images(job, 1)?;
    // It is changed after the image, too.
    std::thread::sleep(Duration::from_millis(100));
    job.let_go();
    expect_end(job, 128 + 9)
}

/// Killed between the job's end and the record of it: it has not happened, files go back, and it happens again.
#[test]
fn an_end_that_is_not_written_down_happens_again() {
    let guest = Guest::new("uncommitted", "/usr/bin/python3", &["-c", IN_PLACE]);
    with_job(&guest, |job| {
        ends_but(job, "ended")?;
        let status = status_of(job)?;
        if status["State"] != "Idle" || journals(job) != 1 {
            let found = journals(job);
            return Err(format!("{status}: {found} journals, expected Idle and 1"));
        }
        start(job, &["--journal", "--resume"])?;
        expect_end(job, 0)?;
        let status = status_of(job)?;
        let found = (&status["State"], &status["NumRestarts"], journals(job));
        if found != (&"Completed".into(), &1.into(), 0) {
            return Err(format!(
                "found {found:?}, expected Completed, 1 restart, no journal"
            ));
        }
        check_in_place(job)
    });
}

/// It happens again, as it was, and once; without a journal, too.
#[test]
fn an_end_that_is_not_written_down_happens_again_with_its_status() {
    let program = format!("{CHAIN}sys.exit(3)\n");
    let guest = Guest::new("uncommitted_status", "/usr/bin/python3", &["-c", &program]);
    with_job(&guest, |job| {
        let mut command = starting(job, &["--every", "300ms"]);
        command.env("WAYFARER_FAULT", "life:ended:1");
        let run = Run::start(THE_GUEST, command, User::Ordinary)?;
        job.runs.push(run);
        until_images(job, 1)?;
        job.let_go();
        expect_end(job, 128 + 9)?;
        let status = status_of(job)?;
        if status["State"] != "Idle" || !status["ExitCode"].is_null() {
            return Err(format!("found {status}, expected Idle and no status"));
        }
        start(job, &["--resume"])?;
        expect_end(job, 3)?;
        let status = status_of(job)?;
        let found = (
            &status["State"],
            &status["ExitCode"],
            &status["NumRestarts"],
        );
        if found != (&"Completed".into(), &3.into(), &1.into()) {
            return Err(format!(
                "found {found:?}, expected Completed by 3, 1 restart"
            ));
        }
        start(job, &["--resume"])?;
        expect_end(job, 3)?;
        job.runs.pop();
        check_chain(job)
    });
}

/// Nobody knows whether all that it wrote is where it belongs: it goes on from its image, as often as any job that is killed.
#[test]
fn an_end_of_which_something_may_be_lost_happens_again() {
    let guest = Guest::new("keeper_killed", "/usr/bin/python3", &["-c", IN_PLACE]);
    with_job(&guest, |job| {
        let mut command = starting(job, &["--journal", "--every", "1h"]);
        // Of each copy. One that ends before its keeper has found it would end well: it stays for a while.
        command.env("WAYFARER_FAULT", "keeper:ended:1");
        command.env("WF_LINGER", "1");
        let run = Run::start(THE_GUEST, command, User::Ordinary)?;
        job.runs.push(run);
        until(job, "a job that runs", |status| {
            status["State"] == "Running"
        })?;
        ask(job, &["checkpoint", "job"])?;
        until_images(job, 1)?;
        job.let_go();
        expect_end(job, 1)?;
        let status = status_of(job)?;
        let reason = status["HoldReason"].as_str().unwrap_or_default();
        if status["State"] != "Held" || !reason.contains("killed 4 times") {
            return Err(format!("found {status}, expected a job that is held"));
        }
        ask(job, &["release", "job"])?;
        start(job, &["--journal", "--resume"])?;
        expect_end(job, 0)?;
        check_in_place(job)
    });
}

/// Killed behind the record: it has happened, and does not happen again.
#[test]
fn an_end_that_is_written_down_is_final() {
    let guest = Guest::new("committed", "/usr/bin/python3", &["-c", IN_PLACE]);
    with_job(&guest, |job| {
        ends_but(job, "committed")?;
        check_in_place(job)?;
        let status = status_of(job)?;
        if status["State"] != "Completed" || status["ExitCode"] != 0 {
            return Err(format!("found {status}, expected Completed"));
        }
        start(job, &["--journal", "--resume"])?;
        expect_end(job, 0)?;
        if !starter(job)?.err.text().contains("was completed before") {
            return Err(starter(job)?.describe());
        }
        Ok(())
    });
}

#[test]
fn a_damaged_record_loses_no_image() {
    with_job(&chain("damaged_record"), |job| {
        start(job, &["--every", "200ms"])?;
        until_images(job, 1)?;
        signal_starter(job, Signal::SIGTERM)?;
        expect_end(job, 85)?;
        let record = job.dir.join("state/jobs/job/life.json");
        fs::write(&record, "").map_err(|error| error.to_string())?;
        goes_on_to_its_end(job, &[])?;
        let said = starter(job)?.err.text();
        match said.contains("life.json is damaged") {
            true => Ok(()),
            false => Err(said),
        }
    });
}

/// As if the job's directory were seen by another machine: there, the records are of a host that is not this one.
fn seen_elsewhere(job: &Job) -> Result<(), String> {
    for name in ["life.json", "job.json"] {
        let path = job.dir.join("state/jobs/job").join(name);
        let edit = || -> std::io::Result<()> {
            let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
            record["place"]["host"] = "another".into();
            record["place"]["boot_id"] = "another".into();
            fs::write(&path, record.to_string())
        };
        edit().map_err(|error| format!("{path:?}: {error}"))?;
    }
    Ok(())
}

#[test]
fn another_machine_takes_a_job_over_that_gives_no_sign() {
    with_job(&chain("no_sign"), |job| {
        // The lease is four of these.
        start(job, &["--every", "200ms", "--pulse", "2s"])?;
        until_images(job, 1)?;
        signal_starter(job, Signal::SIGKILL)?;
        expect_end(job, 128 + 9)?;
        seen_elsewhere(job)?;
        start(job, &["--resume"])?;
        expect_end(job, 1)?;
        let said = starter(job)?.err.text();
        if !said.contains("job job is on host another") || !said.contains("if that machine is gone")
        {
            return Err(said);
        }
        let goes_on = run::poll(STEP, || {
            start(job, &["--resume"]).ok()?;
            // It is refused, or goes on.
            let runs = run::poll(STEP, || {
                if starter(job).ok()?.ended().is_some() {
                    return Some(false);
                }
                let status = status_of(job).ok()?;
                let runs = status["HasStarter"] == true && status["State"] == "Running";
                runs.then_some(true)
            });
            (runs == Some(true)).then_some(())
        });
        goes_on.ok_or("it never goes on")?;
        ends_well(job)
    });
}

#[test]
fn a_starter_that_has_lost_its_job_ends_its_copy_and_writes_nothing() {
    with_job(&chain("fenced"), |job| {
        start(job, &["--every", "200ms", "--pulse", "300ms"])?;
        until_images(job, 1)?;
        // A save that is under way takes its place: again until the starter has seen it.
        let mut edited = Ok(());
        run::poll(WHOLE, || {
            let run = starter(job).ok()?;
            if run.ended().is_some() || run.err.text().contains("another starter has it") {
                return Some(());
            }
            edited = seen_elsewhere(job);
            std::thread::sleep(Duration::from_millis(100));
            edited.is_err().then_some(())
        });
        edited?;
        expect_end(job, 5)?;
        let said = starter(job)?.err.text();
        if !said.contains("another starter has it") {
            return Err(said);
        }
        let record = fs::read_to_string(job.dir.join("state/jobs/job/life.json"));
        let record = record.map_err(|error| error.to_string())?;
        match record.contains("\"host\":\"another\"") {
            true => Ok(()),
            false => Err(format!("it has written {record}")),
        }
    });
}
