//! `wayfarer run`: exit status, pipes, signals, terminal, environment.

use crate::skip;
use crate::station::{Running, Station, finish, shell_status, text};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_exit_status_is_the_commands() {
    let station = Station::new();
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
        let output = station.output(&["run", "--", "sh", "-c", script]);
        assert_eq!(
            output.status.code(),
            Some(expected),
            "{script}: {}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stderr), "", "{script}");
    }
}

#[test]
fn death_by_a_signal_is_passed_on() {
    let station = Station::new();
    for (signal, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
        let script = format!("kill -{signal} $$");
        let output = station.output(&["run", "--", "sh", "-c", &script]);
        let code = shell_status(output.status);
        assert_eq!(
            code,
            Some(128 + number),
            "{signal}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn stdin_and_stdout_are_pipes_all_the_way() {
    let station = Station::new();
    let mut command = station.wayfarer(&["run", "--", "tr", "a-z", "A-Z"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut stdin = running.child.stdin.take().expect("stdin");
    let lines = "hello over there\n".repeat(20_000);
    let sent = lines.clone();
    let writer = std::thread::spawn(move || stdin.write_all(sent.as_bytes()).expect("write"));
    let output = finish(running);
    writer.join().expect("writer");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout) == lines.to_uppercase(),
        "{} bytes",
        output.stdout.len()
    );
}

#[test]
fn a_reader_that_leaves_ends_the_command_as_ever() {
    let station = Station::new();
    let wayfarer = env!("CARGO_BIN_EXE_wayfarer");
    let state = station.state.path().display();
    let script = format!("({wayfarer} --dir {state} run -- yes; echo $? >&2) | head -n 1");
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let output = finish(Running::start(command));
    assert_eq!(text(&output.stdout), "y\n");
    assert_eq!(text(&output.stderr), "141\n", "SIGPIPE is 13");
}

#[test]
fn words_environment_directory_umask_and_signals_arrive_as_given() {
    let station = Station::new();
    let script = r#"pwd; umask; printf '<%s>' "$@"; echo; echo "$WF_TEST"; \
        grep -E '^Sig(Blk|Ign|Cgt)|^Umask' /proc/self/status; env | sort"#;
    let words = ["sh", "-c", script, "zero", "a b", "", "--dir", "*"];
    // Both by absolute path: that decides how std starts a child, and with which dispositions.
    let finished = |mut command: Command| {
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("WF_TEST", "x = y");
        command.current_dir("/usr").stdin(Stdio::null());
        finish(Running::start(command))
    };
    let mut direct = Command::new("/usr/bin/env");
    direct.args(words);
    let direct = finished(direct);
    let output = finished(station.wayfarer(&[&["run", "--"], &words[..]].concat()));
    assert_eq!(
        text(&output.stdout),
        text(&direct.stdout),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_command_gets_the_callers_descriptors_and_no_others() {
    let station = Station::new();
    let wayfarer = env!("CARGO_BIN_EXE_wayfarer");
    let state = station.state.path().display();
    let list = "for f in /proc/self/fd/*; do readlink $f; done | grep -v ^/proc; cat <&9";
    let run = |prefix: &str| {
        let script = format!("{prefix} sh -c '{list}' 9< /etc/hostname < /dev/null");
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        let output = finish(Running::start(command));
        let pipes = |line: &&str| !line.starts_with("pipe:");
        let said = text(&output.stdout);
        said.lines()
            .filter(pipes)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(run(&format!("{wayfarer} --dir {state} run --")), run(""));
}

#[test]
fn signals_reach_the_command() {
    let station = Station::new();
    for signal in [
        Signal::SIGUSR1,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGINT,
    ] {
        let name = signal.as_str().trim_start_matches("SIG");
        let script =
            format!("trap 'echo got; exit 5' {name}; echo ready; while :; do sleep 0.02; done");
        let command = station.wayfarer(&["run", "--", "sh", "-c", &script]);
        let mut running = Running::start(command);
        running.wait_for("ready");
        running.signal(signal);
        running.wait_for("got");
        assert_eq!(running.wait(), Some(5), "{signal}");
    }
}

/// A signal that comes while the job ends reaches nobody; it must not hide how it ended.
#[test]
fn the_exit_status_survives_a_late_signal() {
    let station = Station::new();
    for attempt in 0..60 {
        let script = "trap 'exit 5' USR1; sleep 60 & echo ready; wait";
        let command = station.wayfarer(&["run", "--", "sh", "-c", script]);
        let mut running = Running::start(command);
        running.wait_for("ready");
        running.signal(Signal::SIGUSR1);
        // It ends at once: somewhere here.
        let moment = Instant::now() + Duration::from_micros(attempt * 10);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        running.signal(Signal::SIGUSR1);
        assert_eq!(running.wait(), Some(5), "attempt {attempt}");
    }
}

/// Runs words on a new terminal; the terminal's other side and the process.
pub(crate) fn on_a_terminal(mut words: Command) -> (File, Running) {
    // Close-on-exec from the first: other tests start children at the same time.
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = nix::pty::posix_openpt(flags).expect("ptmx");
    nix::pty::grantpt(&master).expect("grantpt");
    nix::pty::unlockpt(&master).expect("unlockpt");
    let name = nix::pty::ptsname_r(&master).expect("ptsname");
    let slave = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(name)
        .expect("terminal");
    let end = || Stdio::from(slave.try_clone().expect("dup"));
    let mut size = Command::new("stty");
    size.args(["rows", "33", "cols", "77"]).stdin(end());
    assert_eq!(finish(Running::start(size)).status.code(), Some(0));
    words.stdin(end()).stdout(end()).stderr(end());
    words.env("TERM", "xterm");
    let running = Running::start_as_is(words);
    (File::from(OwnedFd::from(master)), running)
}

/// `setsid --ctty wayfarer ...`, so that the terminal is the controlling one.
pub(crate) fn with_controlling_terminal(station: &Station, words: &[&str]) -> Command {
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_wayfarer"), "--dir"]);
    command.arg(station.state.path()).args(words);
    command
}

pub(crate) fn read_until(terminal: &mut File, expected: &str) -> String {
    let end = Instant::now() + Duration::from_secs(10);
    let mut seen = vec![];
    while !text(&seen).contains(expected) {
        assert!(Instant::now() < end, "no {expected:?} in {:?}", text(&seen));
        read_more(terminal, &mut seen);
    }
    text(&seen)
}

/// What is written to a terminal within this time.
pub(crate) fn read_for(terminal: &mut File, time: Duration) -> String {
    let end = Instant::now() + time;
    let mut seen = vec![];
    while Instant::now() < end {
        read_more(terminal, &mut seen);
    }
    text(&seen)
}

/// One byte, if there is one within a tenth of a second.
fn read_more(terminal: &mut File, seen: &mut Vec<u8>) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let fd = std::os::fd::AsFd::as_fd(terminal);
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    let ready = poll(&mut fds, PollTimeout::from(100u8));
    let mut byte = [0];
    if ready == Ok(1) && terminal.read(&mut byte).is_ok_and(|count| count == 1) {
        seen.push(byte[0]);
    }
}

#[test]
fn the_terminal_is_the_commands() {
    let station = Station::new();
    let script = "test -t 0 && test -t 1 && echo both; stty size; read line; echo got $line";
    let words = with_controlling_terminal(&station, &["run", "--", "sh", "-c", script]);
    let (mut terminal, mut running) = on_a_terminal(words);
    read_until(&mut terminal, "both\r\n33 77\r\n");
    terminal.write_all(b"typed\n").expect("type");
    read_until(&mut terminal, "got typed\r\n");
    assert_eq!(running.wait(), Some(0));
}

#[test]
fn ctrl_c_interrupts_the_command_once() {
    let station = Station::new();
    let script = "n=0; trap 'n=$((n+1))' INT; echo ready; \
        while [ $n = 0 ]; do sleep 0.02; done; sleep 0.3; echo count $n";
    let words = with_controlling_terminal(&station, &["run", "--", "sh", "-c", script]);
    let (mut terminal, mut running) = on_a_terminal(words);
    read_until(&mut terminal, "ready");
    terminal.write_all(b"\x03").expect("type");
    read_until(&mut terminal, "count 1\r\n");
    assert_eq!(running.wait(), Some(0));
}

#[test]
fn a_job_is_stopped_and_goes_on() {
    let station = Station::new();
    let script = "echo ready; read line; echo got $line";
    let words =
        with_controlling_terminal(&station, &["run", "--name", "z", "--", "sh", "-c", script]);
    let (mut terminal, mut running) = on_a_terminal(words);
    read_until(&mut terminal, "ready");
    station.output(&["kill", "z", "-s", "STOP"]);
    crate::station::eventually("the job is stopped", || {
        station.job("z")["state"] == "stopped"
    });
    station.output(&["kill", "z", "-s", "CONT"]);
    crate::station::eventually("the job goes on", || station.job("z")["state"] == "running");
    terminal.write_all(b"more\n").expect("type");
    read_until(&mut terminal, "got more\r\n");
    assert_eq!(running.wait(), Some(0));
}

#[test]
fn an_ordinary_user_runs_jobs_too() {
    if !nix::unistd::getuid().is_root() {
        let reason = "already an ordinary user: every other test is this one";
        return skip::note("an_ordinary_user_runs_jobs_too", reason);
    }
    let station = Station::new();
    let dir = station.state.path();
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let copy = dir.join("wayfarer"); // what was built may lie where others cannot read
    // By a process of its own: a file that any child of this one holds open for writing, were it for a
    // moment, cannot be executed.
    let mut cp = Command::new("cp");
    cp.arg(env!("CARGO_BIN_EXE_wayfarer")).arg(&copy);
    assert_eq!(finish(Running::start(cp)).status.code(), Some(0));
    let as_user = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "54321", "--regid", "54321", "--clear-groups"]);
        command
            .arg(&copy)
            .arg("--dir")
            .arg(dir.join("state"))
            .args(words);
        command.current_dir("/").stdin(Stdio::null());
        finish(Running::start(command))
    };
    let output = as_user(&["run", "--name", "mine", "--", "sh", "-c", "id -u; exit 9"]);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "54321\n");
    let output = as_user(&["run", "--pids", "host", "--", "sh", "-c", "id -u; exit 9"]);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    let output = as_user(&["ps"]);
    assert!(
        text(&output.stdout).contains("mine"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn ids_are_the_jobs_own_or_the_machines() {
    let station = Station::new();
    let direct = std::fs::read_link("/proc/self/ns/pid").expect("link");
    let script = "readlink /proc/self/ns/pid; echo $$";
    let output = station.output(&["run", "--pids", "host", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with(&direct.display().to_string()));
    let output = station.output(&["run", "--pids", "namespace", "--", "sh", "-c", script]);
    if output.status.code() == Some(3) {
        let reason = "this machine makes no namespaces";
        return skip::note("ids_are_the_jobs_own_or_the_machines", reason);
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).starts_with(&direct.display().to_string()));
}
