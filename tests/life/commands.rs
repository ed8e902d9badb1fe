//! What can be asked of a starter, by whom, and what is told of it.

use super::*;

#[test]
fn jobs_are_held_released_killed_and_removed() {
    with_job(&chain("held"), |job| {
        start(job, &["--every", "200ms"])?;
        until_images(job, 1)?;
        ask(job, &["hold", "job", "--reason", "its data are wrong"])?;
        expect_end(job, 1)?;
        start(job, &["--resume"])?;
        expect_end(job, 1)?;
        let said = starter(job)?.err.text();
        if !said.contains("is held: its data are wrong") {
            return Err(said);
        }
        refused(job, &["restart", "job"], "is held: its data are wrong")?;
        refused(job, &["suspend", "job"], "has left, and is held")?;
        is_not_pruned(job, "held")?;
        ask(job, &["release", "job"])?;
        refused(job, &["release", "job"], "is Idle, expected Held")?;
        for verb in ["checkpoint", "suspend", "continue", "vacate", "kill"] {
            refused(job, &[verb, "job"], "has left, and can go on (restart JOB")?;
        }
        is_not_pruned(job, "idle")?;
        start(job, &["--resume", "--every", "200ms"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        refused(
            job,
            &["checkpoint", "job", "--then", "kill"],
            "wayfarer vacate job",
        )?;
        start(job, &["--resume"])?;
        expect_end_of_second(job)?;
        job.runs.pop();
        ask(job, &["kill", "-s", "KILL", "job"])?;
        expect_end(job, 128 + 9)?;
        if status_of(job)?["State"] != "Removed" {
            return Err(status_of(job)?.to_string());
        }
        refused(
            job,
            &["run", "--resume", "--name", "job", "--", "true"],
            "was killed by its owner",
        )?;
        ask(job, &["remove", "job"])?;
        match job.dir.join("state/jobs/job").exists() {
            false => Ok(()),
            true => Err("the job's directory is still there".to_owned()),
        }
    });
}

/// `ps` says how it is, and leaves it alone, named or not.
fn is_not_pruned(job: &mut Job, state: &str) -> Result<(), String> {
    let found = report(job, "ps")?;
    if found["jobs"][0]["state"] != state {
        return Err(format!("found {found}, expected {state}"));
    }
    for words in [&["ps", "--prune"][..], &["ps", "--prune", "job"]] {
        ask(job, words)?;
        if !job.dir.join("state/jobs/job/job.json").exists() {
            return Err(format!("{words:?} has removed a job that is {state}"));
        }
    }
    Ok(())
}

/// Its end happens once; an image file is its user's own affair.
#[test]
fn a_completed_job_is_over() {
    with_job(&chain("over"), |job| {
        start(job, &["--every", "200ms"])?;
        until_images(job, 1)?;
        ends_well(job)?;
        let over = "has ended: it is completed";
        for verb in ["restart", "checkpoint", "suspend", "vacate", "kill"] {
            refused(job, &[verb, "job"], over)?;
        }
        if status_of(job)?["State"] != "Completed" {
            return Err(status_of(job)?.to_string());
        }
        ask(job, &["ps", "--prune"])?;
        match job.dir.join("state/jobs/job").exists() {
            false => Ok(()),
            true => Err("the job's directory is still there".to_owned()),
        }
    });
}

/// A second starter of the same job is refused, while the first one's job works.
fn expect_end_of_second(job: &mut Job) -> Result<(), String> {
    let run = starter(job)?;
    let status = run.wait(STEP)?;
    match status.code() == Some(1) && run.err.text().contains("is there already") {
        true => Ok(()),
        false => Err(run.describe()),
    }
}

/// Another user reaches the socket only if its owner has opened the directory; then he is refused by name.
#[test]
fn commands_are_for_the_jobs_owner() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    if let Some(reason) = User::Root.missing() {
        return support::skip::note("commands_are_for_the_jobs_owner", &reason);
    }
    let mut guest = chain("owner");
    guest.only_root = true;
    with_job(&guest, |job| {
        let mut command = job.wayfarer(&["run", "--quiet", "--name", "job", "--keep", "2", "--"]);
        command.arg(&job.guest.program).args(&job.guest.arguments);
        job.equip(&mut command);
        job.runs
            .push(Run::start("the guest, as root", command, User::Root)?);
        let dir = job.dir.join("state/jobs/job");
        let socket = dir.join("control");
        run::poll(STEP, || socket.exists().then_some(())).ok_or("no socket")?;
        let mode = fs::metadata(&dir).map_err(|error| error.to_string())?;
        if mode.permissions().mode() & 0o77 != 0 {
            return Err(format!("{mode:?}: others may enter the job's directory"));
        }
        for open in [
            &job.dir.join("state"),
            &job.dir.join("state/jobs"),
            &dir,
            &socket,
        ] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o777))
                .map_err(|error| format!("{open:?}: {error}"))?;
        }
        let script = format!(
            "import socket\ns = socket.socket(socket.AF_UNIX)\nimport os\nos.chdir({dir:?})\ns.connect('control')\n\
             print(s.recv(1000).decode())"
        );
        let mut command = run::clean_command("/usr/bin/python3");
        command.args(["-c", &script]);
        let (_, stranger) = finish("a stranger", command, User::Ordinary, STEP)?;
        if !stranger.out.text().contains("belongs to another user") {
            return Err(stranger.describe());
        }
        // The owner is heard.
        let short = format!("/proc/self/fd/{}", {
            use std::os::fd::AsRawFd;
            let folder = fs::File::open(&dir).map_err(|error| error.to_string())?;
            let number = folder.as_raw_fd();
            std::mem::forget(folder);
            number
        });
        let mut stream = std::os::unix::net::UnixStream::connect(format!("{short}/control"))
            .map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream
            .write_all(b"{\"version\":1,\"ask\":\"kill\"}\n")
            .and_then(|()| stream.read_to_string(&mut answer))
            .map_err(|error| error.to_string())?;
        match answer.contains("\"state\":\"Removed\"") {
            true => expect_end(job, 128 + 9),
            false => Err(answer),
        }
    });
}

/// Its event log tells it all, in order.
#[test]
fn what_happens_is_in_the_event_log() {
    with_job(&chain("event_log"), |job| {
        start(job, &["--every", "200ms"])?;
        until_images(job, 1)?;
        ask(job, &["suspend", "job"])?;
        ask(job, &["continue", "job"])?;
        let root = root_of(job)?;
        kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
        until(job, "a restart", |status| {
            status["NumRestarts"] == 1 && status["State"] == "Running"
        })?;
        ask(job, &["hold", "job", "--reason", "why not"])?;
        expect_end(job, 1)?;
        ask(job, &["release", "job"])?;
        goes_on_to_its_end(job, &[])?;
        let log = ask(job, &["log", "job"])?;
        let headers = log.lines().filter(|line| line.get(3..5) == Some(" ("));
        let mut numbers: Vec<&str> = headers.filter_map(|line| line.get(..3)).collect();
        // Images are made as often as there is time for.
        numbers.retain(|number| !matches!(*number, "003" | "006"));
        let expected = [
            "000", "001", "010", "011", "004", "001", "004", "012", "013", "001", "005",
        ];
        if numbers != expected || !log.contains("why not") || !log.contains("return value 0") {
            return Err(format!("found {numbers:?}, expected {expected:?}:\n{log}"));
        }
        Ok(())
    });
}

/// Each process writes on until there is `end`.
const TWO: &str = r#"
import os, sys, time
child = os.fork()
with open("root" if child else "child", "ab", buffering=0) as out:
    while not os.path.exists("end"):
        out.write(b"x")
        time.sleep(0.01)
if child:
    sys.exit(os.waitpid(child, 0)[1])
"#;

/// Whoever is let go by somebody else does not keep the others still.
#[test]
fn all_processes_of_a_job_that_is_continued_go_on() {
    let guest = Guest::new("two", "/usr/bin/python3", &["-c", TWO]);
    with_job(&guest, |job| {
        start(job, &["--every", "600s"])?;
        let data = job.dir.join("data");
        let works = |name: &str| {
            let len = || fs::metadata(data.join(name)).map_or(0, |found| found.len());
            let before = len();
            let more = run::poll(STEP, || (len() > before).then_some(()));
            more.ok_or_else(|| format!("{name} stands still"))
        };
        for name in ["root", "child"] {
            works(name)?;
        }
        for is_let_go in [false, true] {
            ask(job, &["suspend", "job"])?;
            until(job, "suspended", |status| status["State"] == "Suspended")?;
            if is_let_go {
                ask(job, &["kill", "-s", "CONT", "job"])?;
                works("root")?;
            }
            ask(job, &["continue", "job"])?;
            for name in ["root", "child"] {
                works(name)?;
            }
        }
        fs::write(data.join("end"), "").map_err(|error| error.to_string())?;
        expect_end(job, 0)
    });
}

#[test]
fn what_root_does_with_a_users_job_leaves_that_the_users() {
    use std::os::unix::fs::MetadataExt;
    if let Some(reason) = User::Root.missing() {
        let what = "what_root_does_with_a_users_job_leaves_that_the_users";
        return support::skip::note(what, &reason);
    }
    with_job(&chain("of_the_user"), |job| {
        start(job, &["--keep", "2"])?;
        until(job, "a copy", |status| status["State"] == "Running")?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        let record = job.dir.join("state/jobs/job/life.json");
        let owner = || fs::metadata(&record).map(|found| (found.uid(), found.gid()));
        let before = owner().map_err(|error| error.to_string())?;
        for (verb, state) in [("hold", "Held"), ("release", "Idle")] {
            let command = job.wayfarer(&[verb, "job"]);
            let (status, run) = finish("root", command, User::Root, STEP)?;
            let after = owner().map_err(|error| error.to_string())?;
            let found = status_of(job)?;
            if status.code() != Some(0) || after != before || found["State"] != state {
                return Err(format!(
                    "{}: {before:?}, {after:?}, {found}",
                    run.describe()
                ));
            }
        }
        goes_on_to_its_end(job, &[])
    });
}
