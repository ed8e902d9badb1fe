//! Checkpoint and restart through the command: names, images, output, what is
//! refused. What is carried is tested by the guests.

use crate::station::{Running, Station, eventually, finish, text};
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Counts to `end`, a number every 10 ms; each number is written at once.
fn counter(end: u32) -> [String; 3] {
    let script =
        "$| = 1; for my $i (1 .. $ARGV[0]) { print \"$i\\n\"; select undef, undef, undef, 0.01 }";
    ["-e".to_owned(), script.to_owned(), end.to_string()]
}

fn run_counter(station: &Station, name: &str, end: u32) -> Command {
    let mut command = station.wayfarer(&["run", "--name", name, "--", "perl"]);
    command.args(counter(end));
    command
}

fn numbers(text: &str) -> Vec<u32> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn images(station: &Station, name: &str) -> Vec<PathBuf> {
    let dir = station.state.path().join("jobs").join(name).join("images");
    let entries = fs::read_dir(dir).expect("images");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("entry").path()).collect();
    paths.sort();
    paths
}

fn checkpoint(station: &Station, words: &[&str]) -> serde_json::Value {
    station.json(&[&["checkpoint", "--json"], words].concat())
}

#[test]
fn a_killed_job_goes_on_where_it_was_and_writes_every_line_once() {
    let station = Station::new();
    let output = station.state.path().join("numbers");
    let mut command = run_counter(&station, "night", 300);
    command
        .stdout(File::create(&output).expect("create"))
        .stderr(Stdio::piped());
    let mut running = Running::start_as_is(command);
    let read = || numbers(&fs::read_to_string(&output).expect("read"));
    eventually("the job counts", || read().len() >= 20);

    let report = checkpoint(&station, &["night", "--then", "kill"]);
    assert_eq!(
        (&report["generation"], &report["killed"]),
        (&1.into(), &true.into())
    );
    assert_eq!(
        (&report["job"], &report["threads"]),
        (&"night".into(), &1.into())
    );
    assert_eq!(running.wait(), Some(128 + 9));
    let job = station.job("night");
    assert_eq!(
        (&job["state"], &job["generation"]),
        (&"ended".into(), &1.into())
    );
    assert_eq!(job["image"], report["image"]);
    let before = read().len();
    assert!(before < 300, "the job had ended already");

    let restarted = station.output(&["restart", "night"]);
    assert_eq!(
        restarted.status.code(),
        Some(0),
        "{}",
        text(&restarted.stderr)
    );
    assert_eq!(read(), (1..=300).collect::<Vec<_>>());
    assert_eq!(station.job("night")["generation"], 1);
}

#[test]
fn a_job_runs_on_after_its_checkpoint_and_the_image_too_on_another_stdout() {
    let station = Station::new();
    let mut running = Running::start(run_counter(&station, "night", 300));
    let mut seen = running.wait_for("20\n");
    let image = station.state.path().join("x.img");
    let image = image.display().to_string();
    checkpoint(&station, &["night", "-o", &image]);
    let mode = fs::metadata(&image).expect("image").permissions().mode();
    assert_eq!(mode & 0o077, 0, "others may read {image}: {mode:o}");
    assert_eq!(station.json(&["verify", "--json", &image])["good"], true);
    seen.push_str(&text(&finish(running).stdout));
    assert_eq!(
        numbers(&seen),
        (1..=300).collect::<Vec<_>>(),
        "the job itself"
    );

    for words in [
        vec!["restart", &image],
        vec!["restart", "--pids", "host", "--accept-new-ids", &image],
    ] {
        let restarted = station.output(&words);
        let said = text(&restarted.stderr);
        assert_eq!(restarted.status.code(), Some(0), "{words:?}: {said}");
        let rest = numbers(&text(&restarted.stdout));
        let first = rest.first().copied().unwrap_or(0);
        assert!(first > 20, "{rest:?}");
        assert_eq!(rest, (first..=300).collect::<Vec<_>>(), "{words:?}");
    }
    // By itself, without wayfarer.
    let alone = finish(Running::start(Command::new(&image)));
    assert_eq!(alone.status.code(), Some(0), "{}", text(&alone.stderr));
    assert_eq!(numbers(&text(&alone.stdout)).last(), Some(&300));
}

#[test]
fn a_damaged_image_is_named_and_the_one_before_it_used() {
    let station = Station::new();
    let mut running = Running::start(run_counter(&station, "night", 100_000));
    running.wait_for("5\n");
    for generation in 1..=3 {
        assert_eq!(checkpoint(&station, &["night"])["generation"], generation);
    }
    let stored = images(&station, "night");
    let names: Vec<_> = stored
        .iter()
        .filter_map(|path| path.file_name()?.to_str())
        .collect();
    assert_eq!(
        names,
        ["night-2.img", "night-3.img"],
        "the last two are kept"
    );

    let refused = station.output(&["restart", "night"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("job night is running"));
    station.output(&["kill", "night", "-s", "KILL"]);
    assert_eq!(running.wait(), Some(128 + 9));

    let newest = File::options().write(true).open(&stored[1]).expect("open");
    let len = newest.metadata().expect("metadata").len();
    newest.write_all_at(b"damage", len / 2).expect("write");
    let mut restarted = Running::start(station.wayfarer(&["restart", "night"]));
    restarted.wait_for("\n");
    let job = station.job("night");
    assert_eq!(
        (&job["state"], &job["generation"]),
        (&"running".into(), &2.into())
    );
    assert_eq!(
        checkpoint(&station, &["night"])["generation"],
        4,
        "no number is used twice"
    );
    restarted.signal(Signal::SIGTERM);
    let said = text(&finish(restarted).stderr);
    assert!(
        said.contains("night-3.img") && said.contains("damaged"),
        "{said}"
    );

    for path in images(&station, "night") {
        fs::write(path, "soup").expect("write");
    }
    assert_eq!(station.output(&["restart", "night"]).status.code(), Some(4));
}

#[test]
fn an_image_of_a_living_job_restarts_under_another_name() {
    let station = Station::new();
    let mut running = Running::start(run_counter(&station, "night", 100_000));
    running.wait_for("5\n");
    let report = checkpoint(&station, &["night"]);
    let image = report["image"].as_str().expect("image").to_owned();
    let mut copies: Vec<_> = (0..3)
        .map(|_| Running::start(station.wayfarer(&["restart", &image])))
        .collect();
    for copy in &mut copies {
        copy.wait_for("\n");
    }
    let jobs = station.json(&["ps", "--json"]);
    let jobs = jobs["jobs"].as_array().expect("jobs").clone();
    let names: Vec<_> = jobs.iter().filter_map(|job| job["name"].as_str()).collect();
    assert_eq!(names, ["night", "night-1", "night-2", "night-3"]);
    let inside: Vec<_> = jobs
        .iter()
        .map(|job| job["root_pid_in_job"].clone())
        .collect();
    assert!(
        inside.iter().all(|pid| *pid == inside[0]),
        "the same id for all: {inside:?}"
    );
    assert!(jobs.iter().all(|job| job["state"] == "running"), "{jobs:?}");
}

#[test]
fn an_image_is_never_overwritten_and_the_job_does_not_notice() {
    let station = Station::new();
    let mut running = Running::start(run_counter(&station, "night", 300));
    let mut seen = running.wait_for("5\n");
    let file = station.state.path().join("precious");
    fs::write(&file, "words").expect("write");
    let output = station.output(&["checkpoint", "night", "-o", &file.display().to_string()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("precious exists already") && said.contains("runs on"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&file).expect("read"), "words");
    seen.push_str(&text(&finish(running).stdout));
    assert_eq!(numbers(&seen), (1..=300).collect::<Vec<_>>());
}

#[test]
fn a_process_that_wayfarer_did_not_start_is_carried_too() {
    let station = Station::new();
    let mut command = Command::new("perl");
    command.args(counter(300)).stdin(Stdio::null());
    let mut running = Running::start(command);
    let mut seen = running.wait_for("20\n");
    let mut wayfarer = station.wayfarer(&["checkpoint", &running.pid().to_string()]);
    wayfarer.current_dir(station.state.path());
    let output = finish(Running::start(wayfarer));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let image = station
        .state
        .path()
        .join(format!("perl-{}.img", running.pid()));
    seen.push_str(&text(&finish(running).stdout));
    assert_eq!(numbers(&seen), (1..=300).collect::<Vec<_>>());
    let restarted = station.output(&["restart", &image.display().to_string()]);
    assert_eq!(
        restarted.status.code(),
        Some(0),
        "{}",
        text(&restarted.stderr)
    );
    assert_eq!(numbers(&text(&restarted.stdout)).last(), Some(&300));
    let words: Vec<_> = std::iter::once("perl".to_owned())
        .chain(counter(300))
        .collect();
    let jobs = station.json(&["ps", "--json"]);
    assert_eq!(
        jobs["jobs"][0]["command"],
        serde_json::json!(words),
        "{jobs}"
    );
}

#[test]
fn a_descriptor_that_leads_outside_is_refused_with_what_to_do() {
    let station = Station::new();
    let wayfarer = env!("CARGO_BIN_EXE_wayfarer");
    let state = station.state.path().display();
    let script = format!(
        "exec 5>&1 >/dev/null; exec {wayfarer} --dir {state} run --name night -- perl -e 'sleep 600'"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let mut running = Running::start(command);
    eventually("the job runs", || {
        station.output(&["ps", "night"]).status.code() == Some(0)
    });
    let output = station.output(&["checkpoint", "night"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for expected in ["descriptor 5", "(perl)", "runs on", "try: --inherit-fd 5"] {
        assert!(said.contains(expected), "no {expected:?} in {said}");
    }
    assert_eq!(station.job("night")["state"], "running");
    assert!(images_are_absent(&station, "night"));
    checkpoint(&station, &["night", "--inherit-fd", "5"]);
    station.output(&["kill", "night"]);
    running.wait();
}

fn images_are_absent(station: &Station, name: &str) -> bool {
    let dir = station.state.path().join("jobs").join(name).join("images");
    !Path::new(&dir).exists() || images(station, name).is_empty()
}
