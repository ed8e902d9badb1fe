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
