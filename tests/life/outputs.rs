//! What a job has written is shown while it runs, over its copies, and after its end.

use super::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// Writes lines of which no two copies write the same, until it is let go; none ends the last.
const WRITER: &str = r#"
import os, time
number = 0
os.write(2, b"it begins\n")
while not os.path.exists(os.environ["WF_GO"]):
    os.write(1, b"line %d at %d\n" % (number, time.time_ns()))
    number += 1
    time.sleep(0.005)
os.write(1, b"at last")
"#;

fn writer(label: &str) -> Guest {
    Guest::new(label, "/usr/bin/python3", &["-c", WRITER])
}

/// `wayfarer run` of the guest by a shell that leads its outputs there.
fn start_into(job: &mut Job, outputs: &str, options: &[&str]) -> Result<(), String> {
    let mut wayfarer = job.wayfarer(&["run", "--quiet", "--name", "job"]);
    wayfarer.args(options).arg("--").arg(&job.guest.program);
    wayfarer.args(&job.guest.arguments);
    let mut command = job.in_data(Command::new("/bin/sh"));
    command.args(["-c", &format!("exec \"$@\" {outputs}"), "sh"]);
    command
        .arg(wayfarer.get_program())
        .args(wayfarer.get_args());
    job.equip(&mut command);
    let run = Run::start("the guest, with files", command, User::Ordinary)?;
    job.runs.push(run);
    Ok(())
}

fn written(job: &Job, name: &[u8]) -> Vec<u8> {
    fs::read(job.dir.join("data").join(OsStr::from_bytes(name))).unwrap_or_default()
}

/// Waits until the file is longer than now by more than a line.
fn until_written(job: &Job, name: &[u8]) -> Result<usize, String> {
    let before = written(job, name).len();
    let found = run::poll(STEP, || {
        Some(written(job, name).len()).filter(|len| *len > before + 60)
    });
    found.ok_or("the job does not write".to_owned())
}

/// `wayfarer tail` to its end: what it shows, and what it says.
fn tail(job: &mut Job, words: &[&str]) -> Result<(Vec<u8>, String), String> {
    let command = job.wayfarer(&[&["tail"], words, &["job"]].concat());
    let (status, run) = finish("tail", command, User::Ordinary, STEP)?;
    match status.success() {
        true => Ok((run.out.bytes(), run.err.text())),
        false => Err(run.describe()),
    }
}

fn expect_tail(job: &mut Job, words: &[&str], expected: &[u8]) -> Result<(), String> {
    let (found, said) = tail(job, words)?;
    match found == expected && said.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "tail {words:?}: found {:?}, expected {:?}; said {said:?}",
            String::from_utf8_lossy(&found),
            String::from_utf8_lossy(expected)
        )),
    }
}

/// Begins to follow it; the number of the run.
fn follow(job: &mut Job, words: &[&str]) -> Result<usize, String> {
    let command = job.wayfarer(&[&["tail", "-f"], words, &["job"]].concat());
    let run = Run::start("tail -f", command, User::Ordinary)?;
    job.runs.push(run);
    Ok(job.runs.len() - 1)
}

/// Waits until so many bytes have been shown.
fn until_shown(job: &Job, follower: usize, len: usize) -> Result<(), String> {
    let shown = || job.runs[follower].out.bytes().len();
    let found = run::poll(STEP, || (shown() >= len).then_some(()));
    found.ok_or_else(|| format!("found {} bytes, expected {len}", shown()))
}

/// Waits until its follower says this.
fn until_said(job: &Job, follower: usize, text: &str) -> Result<(), String> {
    let said = || job.runs[follower].err.text();
    let found = run::poll(STEP, || said().contains(text).then_some(()));
    found.ok_or_else(|| format!("found {:?}, expected {text:?}", said()))
}

fn follower_ends(job: &mut Job, follower: usize) -> Result<(Vec<u8>, String), String> {
    let run = &mut job.runs[follower];
    let status = run.wait(STEP)?;
    match status.success() {
        true => Ok((run.out.bytes(), run.err.text())),
        false => Err(run.describe()),
    }
}

/// All that is in the file at last was shown; between, what was cut off again.
fn expect_all_of(shown: &[u8], all: &[u8]) -> Result<(), String> {
    let pairs = shown.iter().zip(all);
    let common = pairs.take_while(|(shown, found)| shown == found).count();
    let line = all[..common].iter().rposition(|byte| *byte == b'\n');
    match shown.ends_with(&all[line.map_or(0, |end| end + 1)..]) {
        true => Ok(()),
        false => Err(format!(
            "found {}\nexpected {}",
            String::from_utf8_lossy(shown),
            String::from_utf8_lossy(all)
        )),
    }
}

fn last_lines(bytes: &[u8], count: usize) -> Vec<u8> {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    lines[lines.len().saturating_sub(count)..].concat()
}

#[test]
fn a_job_that_goes_back_is_followed_to_its_end() {
    with_job(&writer("followed"), |job| {
        start_into(job, ">> out 2>> errors", &["--keep", "2"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        let follower = follow(job, &["-n", "all"])?;
        until_written(job, b"out")?;
        ask(job, &["checkpoint", "job"])?;
        let len = until_written(job, b"out")?;
        until_shown(job, follower, len)?;
        let root = root_of(job)?;
        kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
        until(job, "a restart", |status| {
            status["NumRestarts"] == 1 && status["State"] == "Running"
        })?;
        until_said(job, follower, "its job has gone back")?;
        job.let_go();
        expect_end(job, 0)?;
        let (shown, _) = follower_ends(job, follower)?;
        let all = written(job, b"out");
        expect_all_of(&shown, &all)?;
        expect_tail(job, &[], &last_lines(&all, 10))?;
        expect_tail(job, &["-n", "2"], &last_lines(&all, 2))?;
        expect_tail(job, &["--lines", "all"], &all)?;
        expect_tail(job, &["--errors"], b"it begins\n")?;
        // Nobody writes any more.
        expect_tail(job, &["-f", "-n", "0"], b"")
    });
}

#[test]
fn the_output_of_a_job_that_has_left_is_known_and_goes_on() {
    with_job(&writer("left"), |job| {
        start_into(job, "> out 2> errors", &["--resume"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        until_written(job, b"out")?;
        let follower = follow(job, &["-n", "all"])?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        let all = written(job, b"out");
        if follower_ends(job, follower)? != (all.clone(), String::new()) {
            return Err(job.runs[follower].describe());
        }
        expect_tail(job, &[], &last_lines(&all, 10))?;
        // Its output is the image's, wherever that of its new starter goes.
        start(job, &["--resume"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        let follower = follow(job, &["-n", "1"])?;
        until_shown(job, follower, 61)?;
        job.let_go();
        expect_end(job, 0)?;
        let (shown, said) = follower_ends(job, follower)?;
        let all = written(job, b"out");
        match all.ends_with(&shown) && shown.len() > 60 && said.is_empty() {
            true => Ok(()),
            false => Err(format!("{}\n{said}", String::from_utf8_lossy(&shown))),
        }
    });
}

/// Somebody puts a copy in the file's place, and the job is restarted with that.
#[test]
fn a_job_that_goes_on_with_another_file_is_followed_there() {
    with_job(&writer("goes_elsewhere"), |job| {
        start_into(job, "> out 2> errors", &["--keep", "2"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        let before = follow(job, &["-n", "0"])?;
        until_shown(job, before, 1)?;
        ask(job, &["checkpoint", "job"])?;
        let mut command = job.in_data(Command::new("/bin/sh"));
        command.args(["-c", "cp -p out copy && mv out old && mv copy out"]);
        let (status, run) = finish("a shell", command, User::Ordinary, STEP)?;
        if !status.success() {
            return Err(run.describe());
        }
        let behind = follow(job, &["-n", "0"])?;
        until_said(
            job,
            behind,
            "another file than the one that the job was given",
        )?;
        let root = root_of(job)?;
        kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
        until_said(job, before, "job job writes to ")?;
        until_shown(job, behind, 1)?;
        job.let_go();
        expect_end(job, 0)?;
        for follower in [before, behind] {
            let (shown, _) = follower_ends(job, follower)?;
            let all = written(job, b"out");
            // Where the first line that was shown stands.
            let end = shown.iter().position(|byte| *byte == b'\n');
            let first = &shown[..end.ok_or("it has shown no line")?];
            let at = all.windows(first.len()).position(|line| line == first);
            expect_all_of(&shown, &all[at.unwrap_or(0)..])?;
        }
        Ok(())
    });
}

/// Without a starter; in a directory whose name is no text.
#[test]
fn a_file_that_is_another_now_is_told() {
    let name = b"d\xff/out";
    with_job(&writer("another_file"), |job| {
        let outputs = "> \"$(printf 'd\\377')/out\" 2> /dev/null";
        let folder = job.dir.join("data").join(OsStr::from_bytes(b"d\xff"));
        fs::create_dir(&folder).map_err(|error| error.to_string())?;
        User::Ordinary.own(&folder);
        start_into(job, outputs, &[])?;
        until_written(job, name)?;
        let follower = follow(job, &[])?;
        until_written(job, name)?;
        job.let_go();
        expect_end(job, 0)?;
        let (shown, said) = follower_ends(job, follower)?;
        let all = written(job, name);
        if !all.ends_with(&shown) || !shown.ends_with(b"at last") || !said.is_empty() {
            return Err(format!("{}\n{said}", String::from_utf8_lossy(&shown)));
        }
        let path = job.dir.join("data").join(OsStr::from_bytes(name));
        fs::rename(&path, path.with_extension("old")).map_err(|error| error.to_string())?;
        refused(job, &["tail", "job"], "No such file or directory")?;
        fs::write(&path, "").map_err(|error| error.to_string())?;
        let (shown, said) = tail(job, &["-n", "all"])?;
        if !shown.is_empty() || !said.contains("d\\xff/out: this is another file") {
            return Err(format!("found {shown:?}, {said:?}"));
        }
        fs::remove_file(&path).map_err(|error| error.to_string())?;
        fs::create_dir(&path).map_err(|error| error.to_string())?;
        refused(job, &["tail", "job"], "it is no regular file any more")?;
        refused(
            job,
            &["tail", "--errors", "job"],
            "standard error of job job is a device (/dev/null)",
        )
    });
}

#[test]
fn an_output_that_is_no_file_is_named() {
    with_job(&writer("no_file"), |job| {
        start(job, &["--keep", "1"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        refused(
            job,
            &["tail", "job"],
            "standard output of job job is a pipe (pipe:[",
        )?;
        job.let_go();
        expect_end(job, 0)?;
        refused(
            job,
            &["tail", "--errors", "job"],
            "standard error of job job is a pipe",
        )?;
        refused(job, &["tail", "nobody"], "no job nobody")?;
        refused(
            job,
            &["tail", "-n", "few", "job"],
            "expected a number of lines, or all",
        )?;
        // On a terminal.
        let wayfarer = job.wayfarer(&["run", "--quiet", "--name", "on-a-terminal", "--", "true"]);
        let mut command = job.in_data(Command::new("/usr/bin/python3"));
        command.args(["-c", "import pty, sys; pty.spawn(sys.argv[1:])"]);
        command
            .arg(wayfarer.get_program())
            .args(wayfarer.get_args());
        let (status, run) = finish("on a terminal", command, User::Ordinary, STEP)?;
        if !status.success() {
            return Err(run.describe());
        }
        refused(
            job,
            &["tail", "on-a-terminal"],
            "standard output of job on-a-terminal is a terminal (/dev/pts/",
        )
    });
}

/// Who reads no more ends it, though nothing is written.
#[test]
fn nobody_is_followed_for_a_reader_who_has_gone() {
    let guest = Guest::new("quiet", "/bin/sleep", &["600"]);
    with_job(&guest, |job| {
        start_into(job, "> out 2> errors", &["--keep", "1"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        let wayfarer = job.wayfarer(&["tail", "-f", "job"]);
        let mut command = job.in_data(Command::new("/bin/bash"));
        command.args(["-c", "\"$@\" > >(exec true); echo ended $?", "bash"]);
        command
            .arg(wayfarer.get_program())
            .args(wayfarer.get_args());
        let (_, run) = finish("a shell", command, User::Ordinary, STEP)?;
        if run.out.text() != "ended 0\n" {
            return Err(run.describe());
        }
        ask(job, &["kill", "-s", "KILL", "job"])?;
        expect_end(job, 128 + 9)
    });
}
