//! The supervisor of a restart: what becomes of the job's processes when it dies, is interrupted, or
//! has children that are not the job's.

use crate::images::spawn;
use crate::restore::tiny_sleeping;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Children of a process of one thread.
fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: u32, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).expect("signal");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal).expect("killed");
}

fn is_there(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn start(image: &crate::images::TestImage, options: &[&str]) -> Child {
    spawn(Command::new(&image.path).args(options))
}

#[test]
fn a_killed_supervisor_leaves_no_process_behind() {
    // Its first thread takes a second for its last steps.
    let image = tiny_sleeping(1).image();
    let mut child = start(&image, &["--pids", "host", "--accept-new-ids"]);
    wait_until("the process", || !children(child.id()).is_empty());
    let made = children(child.id());
    kill(child.id(), libc::SIGKILL);
    child.wait().expect("waited");
    wait_until("its end", || !made.iter().any(|pid| is_there(*pid)));
}

#[test]
fn children_that_were_there_before_are_let_live() {
    // A shell that starts something of its own and then becomes the image.
    let image = tiny_sleeping(0).image();
    let script = "sleep 77 >/dev/null 2>&1 & echo $!; exec \"$0\" --pids host --accept-new-ids";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&image.path);
    let ended = crate::images::finish(command);
    assert_eq!(ended.code(), Some(5), "{}", ended.stderr);
    let sleeping = ended
        .stdout
        .lines()
        .next()
        .and_then(|line| line.parse().ok());
    let sleeping = sleeping.expect("a pid");
    assert!(is_there(sleeping), "killed with the job");
    kill(sleeping, libc::SIGKILL);
}

#[test]
fn nothing_of_a_job_is_left_when_its_root_ends() {
    // A shell whose children sleep in the background, and become our own: more than fit 4096 bytes
    // of /proc/PID/task/TID/children.
    let script = "i=0; while [ $i -lt 800 ]; do sleep 76 & i=$((i+1)); done; echo $!; exit 7";
    let image = crate::images::run_image(&["/bin/sh", "-c", script]);
    let mut bystander = Command::new("sleep").arg("75").spawn().expect("started");
    let began = Instant::now();
    let ended = crate::images::execute(&image, &["--pids", "host"]);
    assert_eq!(ended.code(), Some(7), "{}", ended.stderr);
    let last: u32 = ended.stdout.trim().parse().expect("a pid");
    assert!(!is_there(last));
    assert!(began.elapsed() < Duration::from_secs(15));
    assert_eq!(bystander.try_wait().expect("waited"), None);
    bystander.kill().expect("killed");
    bystander.wait().expect("waited");
}

#[test]
fn how_a_process_died_in_the_restart_is_said() {
    let image = tiny_sleeping(1).image();
    for pids in ["host", "namespace"] {
        let mut command = Command::new(&image.path);
        command.args(["--pids", pids, "--accept-new-ids"]);
        command.stderr(std::process::Stdio::piped());
        let child = spawn(&mut command);
        let job = || {
            let first = *children(child.id()).first()?;
            match pids {
                "host" => Some(first),
                _ => children(first).first().copied(),
            }
        };
        wait_until("the process", || job().is_some());
        kill(job().expect("there"), libc::SIGUSR2);
        kill(job().expect("there"), libc::SIGKILL);
        let output = child.wait_with_output().expect("waited");
        let stderr = String::from_utf8_lossy(&output.stderr);
        // As a shell says it: whoever has begun it can tell this from what cannot be restarted.
        assert_eq!(output.status.code(), Some(137), "{stderr}");
        let expected = "died in the middle of the restart: killed by signal 9";
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn that_pid_1_was_killed_in_the_restart_is_said() {
    let image = tiny_sleeping(1).image();
    let mut command = Command::new(&image.path);
    command.args(["--pids", "namespace", "--accept-new-ids"]);
    command.stderr(std::process::Stdio::piped());
    let child = spawn(&mut command);
    let init = || children(child.id()).first().copied();
    let has_job = || init().is_some_and(|init| !children(init).is_empty());
    wait_until("the process", has_job);
    kill(init().expect("there"), libc::SIGKILL);
    let output = child.wait_with_output().expect("waited");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(137), "{stderr}");
    let expected = "ended before the job was running: killed by signal 9";
    assert!(stderr.contains(expected), "{stderr}");
}
