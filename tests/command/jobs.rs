//! Jobs by name: `ps`, `kill`, `ps --prune`, names that are taken.

use crate::station::{Running, Station, eventually, finish, text};

#[test]
fn a_job_is_listed_while_it_lives_and_after() {
    let station = Station::new();
    let words = ["run", "--name", "night", "--", "sleep", "600"];
    let mut running = Running::start(station.wayfarer(&words));
    eventually("the job is listed as running", || {
        let output = station.output(&["ps", "--json", "night"]);
        text(&output.stdout).contains("\"running\"")
    });
    let job = station.job("night");
    assert_eq!(job["supervisor_pid"], running.pid());
    assert_eq!(job["generation"], 0);
    assert_eq!(job["command"], serde_json::json!(["sleep", "600"]));
    let root = job["root_pid"].as_i64().expect("root");
    let comm = std::fs::read_to_string(format!("/proc/{root}/comm")).expect("comm");
    assert_eq!(comm, "sleep\n");
    assert_eq!(station.json(&["ps", "--json"])["schema_version"], 1);

    assert_eq!(station.output(&["kill", "night"]).status.code(), Some(0));
    assert_eq!(running.wait(), Some(128 + 15));
    assert_eq!(station.job("night")["state"], "ended");
    let output = station.output(&["kill", "night"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("job night has ended"));

    let output = station.output(&["ps", "--prune"]);
    assert!(text(&output.stdout).contains("removed night"));
    assert_eq!(station.output(&["ps", "night"]).status.code(), Some(2));
}

#[test]
fn a_job_is_found_by_the_pids_of_its_supervisor_and_its_root() {
    let station = Station::new();
    let words = ["run", "--name", "night", "--", "sleep", "600"];
    let mut running = Running::start(station.wayfarer(&words));
    eventually("the job runs", || {
        text(&station.output(&["ps", "night"]).stdout).contains("running")
    });
    let root = station.job("night")["root_pid"].to_string();
    assert_eq!(
        station.output(&["kill", &root, "-s", "0"]).status.code(),
        Some(0)
    );
    let supervisor = running.pid().to_string();
    let output = station.output(&["kill", &supervisor, "-s", "KILL"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        running.wait(),
        Some(128 + 9),
        "the root was meant, not the supervisor"
    );
}

#[test]
fn a_checkpoint_with_few_descriptors_does_not_say_that_the_job_has_ended() {
    let station = Station::new();
    let words = ["run", "--name", "night", "--", "sleep", "600"];
    let mut running = Running::start(station.wayfarer(&words));
    eventually("the job runs", || {
        station.output(&["ps", "night"]).status.code() == Some(0)
    });
    let (mut refused, mut last) = (0, String::new());
    for most in 5..40 {
        let command = station.wayfarer(&["checkpoint", "night"]);
        let mut shell = std::process::Command::new("/bin/sh");
        shell
            .args(["-c", &format!("ulimit -n {most} && exec \"$0\" \"$@\"")])
            .arg(command.get_program())
            .args(command.get_args())
            .stderr(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null());
        let output = finish(Running::start_as_is(shell));
        let said = text(&output.stderr);
        assert!(!said.contains("ended"), "{most}: {said}");
        assert!(
            output.status.success() || !said.is_empty(),
            "{most}: said nothing"
        );
        refused += u32::from(!output.status.success());
        last = said;
        assert_eq!(station.job("night")["state"], "running", "{most}");
    }
    assert!((1..35).contains(&refused), "{refused}: {last}");
    assert_eq!(station.output(&["kill", "night"]).status.code(), Some(0));
    assert_eq!(running.wait(), Some(128 + 15));
}

#[test]
fn an_image_that_is_made_but_cannot_be_told_of_is_named() {
    let station = Station::new();
    let words = ["run", "--name", "night", "--", "sleep", "600"];
    let mut running = Running::start(station.wayfarer(&words));
    eventually("the job runs", || {
        station.output(&["ps", "night"]).status.code() == Some(0)
    });
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let image = station
        .state
        .path()
        .join("told.img")
        .to_string_lossy()
        .into_owned();
    let mut command = station.wayfarer(&["checkpoint", "night", "-o", &image]);
    command
        .stdout(full.expect("/dev/full"))
        .stderr(std::process::Stdio::piped());
    let output = finish(Running::start_as_is(command));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("image {image} is made"))
            && said.contains("standard output: No space left"),
        "{said}"
    );
    assert_eq!(station.output(&["verify", &image]).status.code(), Some(0));
    let folder = format!("{image}/");
    let output = station.output(&["checkpoint", "night", "-o", &format!("{folder}new/")]);
    assert!(
        text(&output.stderr).contains("a directory"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(station.output(&["kill", "night"]).status.code(), Some(0));
    assert_eq!(running.wait(), Some(128 + 15));
}

#[test]
fn a_name_in_use_is_refused_and_says_by_whom() {
    let station = Station::new();
    let words = ["run", "--name", "night", "--", "sleep", "600"];
    let running = Running::start(station.wayfarer(&words));
    eventually("the job runs", || {
        station.output(&["ps", "night"]).status.code() == Some(0)
    });
    let output = station.output(&["run", "--name", "night", "--", "true"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("night") && said.contains(&running.pid().to_string()),
        "{said}"
    );
    assert!(said.contains("try:"), "{said}");
}

#[test]
fn jobs_without_a_name_are_numbered() {
    let station = Station::new();
    let start = || Running::start(station.wayfarer(&["run", "--", "sleep", "600"]));
    let _first = start();
    eventually("the first is there", || {
        station.output(&["ps", "sleep-1"]).status.code() == Some(0)
    });
    let _second = start();
    eventually("the second is there", || {
        station.output(&["ps", "sleep-2"]).status.code() == Some(0)
    });
}

#[test]
fn the_death_of_the_supervisor_is_the_jobs() {
    let station = Station::new();
    let words = ["run", "--name", "night", "--", "sleep", "600"];
    let mut running = Running::start(station.wayfarer(&words));
    eventually("the job runs", || {
        text(&station.output(&["ps", "night"]).stdout).contains("running")
    });
    let root = station.job("night")["root_pid"].as_i64().expect("root");
    running.signal(nix::sys::signal::Signal::SIGKILL);
    running.wait();
    eventually("the job is gone", || {
        !std::path::Path::new(&format!("/proc/{root}")).exists()
    });
    assert_eq!(station.job("night")["state"], "ended");
}

/// The copy of a checkpoint that was killed before the copy was said to end with it (docs/adr/0002) is no process of the job's.
#[test]
fn a_checkpoint_waits_for_the_copy_that_a_killed_one_has_left() {
    let station = Station::new();
    let words = ["run", "-q", "--name", "left", "--", "sleep", "600"];
    let running = Running::start(station.wayfarer(&words));
    crate::station::eventually("the job runs", || {
        station.output(&["checkpoint", "left"]).status.success()
    });
    let has_no_descriptor = |pid: &i32| {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
        entries.is_ok_and(|mut entries| entries.next().is_none())
    };
    // It is there after some of its steps only.
    let is_left = (20..400).step_by(3).any(|step| {
        let mut command = station.wayfarer(&["checkpoint", "left"]);
        command.env("WAYFARER_FAULT", format!("ptrace:{step}"));
        let status = finish(Running::start(command)).status;
        assert!(!status.success(), "the checkpoint has no step {step}");
        let below = crate::station::descendants(running.pid());
        below.iter().any(has_no_descriptor)
    });
    assert!(is_left);
    let output = station.output(&["checkpoint", "left"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
