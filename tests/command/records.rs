//! The records of jobs and their images: what a name, a path or a damaged file may do to them.

use crate::station::{Running, Station, eventually, finish, text};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A name that no text can be.
fn odd(prefix: &str) -> OsString {
    let mut name = prefix.as_bytes().to_vec();
    name.push(0xff);
    OsStr::from_bytes(&name).to_owned()
}

/// A job of this name that sleeps, once it runs.
fn sleeper(station: &Station, name: &str) -> Running {
    let running = Running::start(station.wayfarer(&["run", "--name", name, "--", "sleep", "600"]));
    eventually("the job runs", || {
        text(&station.output(&["ps", name]).stdout).contains("running")
    });
    running
}

/// Checkpoints the job to this file and ends it.
fn checkpoint_and_kill(station: &Station, mut running: Running, name: &str, image: &Path) {
    let words = ["checkpoint", name, "-o"].map(OsStr::new);
    let words = [
        &words[..],
        &[image.as_os_str(), "--then".as_ref(), "kill".as_ref()],
    ]
    .concat();
    let output = station.output(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    assert_eq!(running.wait(), Some(128 + 9));
}

/// Restarts with these words; the job, once it runs under this name.
fn restart<W: AsRef<OsStr>>(station: &Station, words: &[W], name: &str) -> Running {
    let mut all = vec![OsStr::new("restart")];
    all.extend(words.iter().map(AsRef::as_ref));
    let running = Running::start(station.wayfarer(&all));
    eventually("the job runs again", || {
        text(&station.output(&["ps", name]).stdout).contains("running")
    });
    running
}

#[test]
fn paths_that_are_no_text_are_carried_and_noted() {
    let station = Station::new();
    let dir = station.state.path().join(odd("d"));
    fs::create_dir(&dir).expect("make");
    let mut command = station.wayfarer(&["run", "--name", "k1", "--", "sleep", "600"]);
    command.current_dir(&dir);
    let running = Running::start(command);
    eventually("the job runs", || {
        text(&station.output(&["ps", "k1"]).stdout).contains("running")
    });
    let image = dir.join(odd("k"));
    checkpoint_and_kill(&station, running, "k1", &image);
    let job = station.job("k1");
    assert_eq!(job["generation"], 1);
    let noted = job["image"].as_str().expect("image");
    assert!(noted.ends_with("/d\0ff/k\0ff"), "{noted:?}");
    for verb in ["inspect", "verify"] {
        let words = [verb.as_ref(), "--json".as_ref(), image.as_os_str()];
        let output = station.output(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["image"], noted);
        let plain = station.output(&[verb.as_ref(), image.as_os_str()]);
        assert!(
            text(&plain.stdout).contains("/d\\xff/k\\xff"),
            "{}",
            text(&plain.stdout)
        );
    }
    let running = restart(&station, &[image], "k1");
    let comm = station.job("k1")["root_pid"].to_string();
    let cwd = fs::read_link(format!("/proc/{comm}/cwd")).expect("cwd");
    assert_eq!(cwd, dir);
    station.output(&["kill", "k1", "-s", "KILL"]);
    drop(running);
}

#[test]
fn a_job_is_called_again_what_it_was_called() {
    let station = Station::new();
    let running = sleeper(&station, "night");
    let image = station.state.path().join("n.img");
    checkpoint_and_kill(&station, running, "night", &image);
    // Even where nothing is known of it but the image.
    let output = station.output(&["ps", "--prune", "night"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let first = restart(&station, &[&image], "night");
    let job = station.job("night");
    assert_eq!(job["command"], serde_json::json!(["sleep", "600"]));
    assert_eq!(job["generation"], 1);
    // The name is in use now.
    let second = restart(&station, &[&image], "night-1");
    let third = restart(&station, &[&image], "night-2");
    for name in ["night", "night-1", "night-2"] {
        station.output(&["kill", name, "-s", "KILL"]);
    }
    drop((first, second, third));
}

#[test]
fn a_job_restarts_by_name_from_an_image_elsewhere() {
    let station = Station::new();
    let running = sleeper(&station, "k2");
    let image = station.state.path().join("k2.img");
    checkpoint_and_kill(&station, running, "k2", &image);
    let mut running = restart(&station, &["k2"], "k2");
    assert_eq!(station.job("k2")["generation"], 1);
    station.output(&["kill", "k2", "-s", "KILL"]);
    running.wait();
    fs::remove_file(&image).expect("remove");
    let output = station.output(&["restart", "k2"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("k2.img") && said.contains("try: wayfarer restart FILE"),
        "{said}"
    );
}

#[test]
fn a_record_that_cannot_be_written_is_only_a_warning() {
    let station = Station::new();
    let file = station.state.path().join("file");
    fs::write(&file, "").expect("write");
    let nowhere = file.join("state").display().to_string();
    let words = ["--dir", &nowhere, "run", "--name", "x", "--", "echo", "hi"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_wayfarer"));
    command.args(words).stdin(std::process::Stdio::null());
    let output = finish(Running::start(command));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(text(&output.stdout), "hi\n");
    assert!(said.contains("the job is not written down"), "{said}");
    // A checkpoint whose note cannot be written is good all the same.
    let running = sleeper(&station, "k");
    let jobs = station.state.path().join("jobs/k");
    fs::remove_file(jobs.join("lock")).ok();
    fs::create_dir(jobs.join("lock")).expect("in the way of the lock");
    let image = station.state.path().join("k.img");
    let words = ["checkpoint", "k", "-o", &image.display().to_string()].map(str::to_owned);
    let output = station.output(&words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("not kept away") && image.exists(), "{said}");
    station.output(&["kill", "k", "-s", "KILL"]);
    drop(running);
}

#[test]
fn jobs_live_in_the_users_own_directory_of_states() {
    let home = tempfile::tempdir().expect("temporary directory");
    let state = home.path().join("states");
    let command = |words: &[&str], state: &Path| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_wayfarer"));
        command.args(words).stdin(std::process::Stdio::null());
        command
            .env("HOME", home.path())
            .env("XDG_STATE_HOME", state);
        finish(Running::start(command))
    };
    // Unset, as not absolute: as if it were not there.
    for (state, expected) in [
        (state.as_path(), "states/wayfarer/jobs/night/job.json"),
        (Path::new(""), ".local/state/wayfarer/jobs/night/job.json"),
    ] {
        let output = command(&["run", "--name", "night", "--", "true"], state);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(home.path().join(expected).is_file(), "no {expected}");
        let output = command(&["ps", "--prune"], state);
        assert_eq!(text(&output.stdout), "removed night (0 images)\n");
    }
}

#[test]
fn what_never_began_leaves_no_record() {
    let station = Station::new();
    let put = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = station.state.path().join(name);
        fs::write(&path, bytes).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
        path
    };
    let mut elf = fs::read("/bin/sh").expect("read");
    let interpreter = b"/lib64/ld-linux-x86-64.so.2";
    let place = elf
        .windows(interpreter.len())
        .position(|found| found == interpreter);
    let mut cases = vec![
        (
            put("script", b"#!/no/such/interpreter -x\n"),
            "/no/such/interpreter",
        ),
        (
            put(
                "other-machine",
                &[&fs::read("/bin/sh").expect("read")[..18], &[0xb7; 200][..]].concat(),
            ),
            "other-machine",
        ),
    ];
    if let Some(place) = place {
        elf[place + 1] = b'X';
        cases.push((put("loaderless", &elf), "/Xib64/"));
    }
    for (path, word) in cases {
        let output = station.output(&["run".as_ref(), "--".as_ref(), path.as_os_str()]);
        let said = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(126),
            "{}: {said}",
            path.display()
        );
        assert!(said.contains(word), "{said}");
    }
    let jobs = station.json(&["ps", "--json"]);
    assert_eq!(jobs["jobs"], serde_json::json!([]), "a record was left");
    let left = fs::read_dir(station.state.path().join("jobs"));
    let left = left
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().is_dir());
    assert_eq!(left.count(), 0);
}

#[test]
fn damaged_and_foreign_records_are_pruned_by_name_or_left_alone() {
    let station = Station::new();
    let jobs = station.state.path().join("jobs");
    let put = |name: &str, record: Option<&str>| {
        fs::create_dir_all(jobs.join(name)).expect("make");
        if let Some(record) = record {
            fs::write(jobs.join(name).join("job.json"), record).expect("write");
        }
    };
    put("damaged", Some("{\"schema_version\": 1, \"na"));
    put("v9", Some("{\"schema_version\": 9}"));
    put("f", None);
    let output = station.output(&["run", "--name", "v9", "--", "true"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("v9") && said.contains("a newer wayfarer"),
        "{said}"
    );
    let output = station.output(&["ps", "--prune"]);
    assert_eq!(
        text(&output.stdout),
        "removed f (0 images)\n",
        "{}",
        text(&output.stderr)
    );
    let output = station.output(&["ps", "--prune", "damaged"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!jobs.join("damaged").exists());
    let output = station.output(&["ps", "--prune", "v9"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let record = fs::read_to_string(jobs.join("v9/job.json")).expect("still there");
    assert_eq!(record, "{\"schema_version\": 9}");
}

#[test]
fn only_a_damaged_image_of_a_job_has_one_before_it() {
    let station = Station::new();
    for words in [
        &["inspect", "/etc/passwd"][..],
        &["verify", "/tmp"],
        &["verify", "/dev/null"],
    ] {
        let output = station.output(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{words:?}: {said}");
        assert!(!said.contains("try:"), "{words:?}: {said}");
    }
    let running = sleeper(&station, "k");
    let state = station.state.path().display().to_string();
    for (output, advice) in [
        (state.clone(), "a file in it"),
        (format!("{state}/none/x"), "a directory that is there"),
    ] {
        let output = station.output(&["checkpoint", "k", "-o", &output]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(advice) && said.contains("runs on"), "{said}");
    }
    for _ in 0..2 {
        let output = station.output(&["checkpoint", "k"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let images = station.state.path().join("jobs/k/images");
    let last = images.join("k-2.img");
    let whole = fs::read(&last).expect("read");
    fs::write(&last, &whole[..whole.len() - 100]).expect("write");
    let output = station.output(&["verify".as_ref(), last.as_os_str()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("try: the image before it, ") && said.contains("k-1.img"),
        "{said}"
    );
    station.output(&["kill", "k", "-s", "KILL"]);
    drop(running);
}

#[test]
fn names_of_files_do_not_reach_the_terminal_raw() {
    let station = Station::new();
    let bytes = b"a\x1b[31mb\x07\n\xe2\x80\xae\xff";
    let name = station.state.path().join(OsStr::from_bytes(bytes));
    fs::write(&name, "words").expect("write");
    for words in [
        ["inspect".as_ref(), name.as_os_str()].to_vec(),
        ["restart".as_ref(), name.as_os_str()].to_vec(),
        ["run".as_ref(), "--".as_ref(), name.as_os_str()].to_vec(),
    ] {
        let output = station.output(&words);
        assert_ne!(output.status.code(), Some(0));
        let said = [output.stdout, output.stderr].concat();
        assert!(
            !said.contains(&0x1b) && !said.contains(&7) && !text(&said).contains('\u{202e}'),
            "{}",
            text(&said)
        );
        let shown = "a\\x1b[31mb\\x07\\x0a\\u{202e}\\xff";
        assert!(text(&said).contains(shown), "{}", text(&said));
    }
}

/// A FIFO is waited for without end by whoever opens it in the plain way.
#[test]
fn a_record_that_is_no_file_is_named_and_nobody_waits_for_it() {
    let station = Station::new();
    let jobs = station.state.path().join("jobs");
    fs::create_dir_all(jobs.join("odd")).expect("make");
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&jobs.join("odd/job.json"), mode).expect("mkfifo");
    nix::unistd::mkfifo(&jobs.join(".number"), mode).expect("mkfifo");
    let damaged = "job.json is damaged: found a FIFO, expected a regular file";
    for words in [
        &["ps"][..],
        &["status", "odd"],
        &["kill", "odd"],
        &["checkpoint", "odd"],
    ] {
        let output = station.output(words);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains(damaged), "{words:?}: {said}");
    }
    let output = station.output(&["run", "-q", "--name", "other", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let output = station.output(&["ps", "--prune", "odd"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!jobs.join("odd").exists());
}

#[test]
fn a_thread_is_no_process() {
    let station = Station::new();
    let script = "import threading, time\n\
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n\
        print(threading.enumerate()[-1].native_id, 'ready', flush=True)\ntime.sleep(600)";
    let words = [
        "run", "-q", "--pids", "host", "--name", "t", "--", "python3", "-c", script,
    ];
    let mut running = Running::start(station.wayfarer(&words));
    let said = running.wait_for("ready");
    let thread = said.split_whitespace().next().expect("an id").to_owned();
    let process = station.job("t")["root"].clone();
    let output = station.output(&["checkpoint", &thread]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    let expected = format!("{thread} is a thread of process ");
    assert!(said.contains(&expected), "{said} ({process})");
}

#[test]
fn a_checkpoint_that_is_ended_leaves_nothing_beside_the_image() {
    let station = Station::new();
    let script = "my $x = ''; $x .= pack('Q', int(rand(2**60))) for 1..6_000_000; $| = 1; print \"ready\\n\"; sleep 600";
    let words = ["run", "--name", "big", "--", "perl", "-e", script];
    let mut running = Running::start(station.wayfarer(&words));
    running.wait_for("ready");
    let image = station.state.path().join("big.img");
    let words = [
        "checkpoint",
        "big",
        "-o",
        &image.display().to_string(),
        "--compress",
        "zstd:19",
    ]
    .map(str::to_owned);
    use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGKILL, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGKILL] {
        eventually("the copy of the killed checkpoint is gone", || {
            station.job("big")["processes"] == 1
        });
        let mut writing = Running::start(station.wayfarer(&words));
        let path = format!("/proc/{}/fd", writing.pid());
        eventually("the image is being written", || {
            let fds = fs::read_dir(&path).into_iter().flatten().flatten();
            let files = fds.filter_map(|entry| fs::metadata(entry.path()).ok());
            files
                .into_iter()
                .any(|file| file.is_file() && file.len() > 1 << 16)
        });
        writing.signal(signal);
        assert_eq!(writing.wait(), Some(128 + signal as i32));
        let left: Vec<_> = fs::read_dir(station.state.path())
            .expect("list")
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().contains("big.img"))
            .collect();
        assert!(left.is_empty(), "{signal}: {left:?}");
    }
    assert_eq!(station.job("big")["state"], "running");
    station.output(&["kill", "big", "-s", "KILL"]);
    running.wait();
}
