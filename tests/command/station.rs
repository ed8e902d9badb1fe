//! What the tests of the command stand on: the built binary, a directory of
//! jobs of its own, and children that cannot outlive their test.

use crate::inherited::close_inherited;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// No step of a test takes longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A place where jobs are run.
pub(crate) struct Station {
    pub state: tempfile::TempDir,
}

impl Station {
    pub(crate) fn new() -> Self {
        close_inherited();
        Station {
            state: tempfile::tempdir().expect("temporary directory"),
        }
    }

    /// `wayfarer --dir STATE WORDS...`
    pub(crate) fn wayfarer<W: AsRef<OsStr>>(&self, words: &[W]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wayfarer"));
        command
            .arg("--dir")
            .arg(self.state.path())
            .args(words)
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn output<W: AsRef<OsStr>>(&self, words: &[W]) -> Output {
        finish(Running::start(self.wayfarer(words)))
    }

    /// Its stdout as JSON; it has to succeed.
    pub(crate) fn json(&self, words: &[&str]) -> serde_json::Value {
        let output = self.output(words);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The line of `ps --json` for a job.
    pub(crate) fn job(&self, name: &str) -> serde_json::Value {
        self.json(&["ps", "--json", name])["jobs"][0].clone()
    }
}

/// A child that is killed, with its descendants, if the test ends before it.
pub(crate) struct Running {
    pub child: Child,
}

impl Running {
    /// Starts it with stdout and stderr as pipes.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start_as_is(command)
    }

    pub(crate) fn start_as_is(mut command: Command) -> Self {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Running { child }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).expect("kill");
    }

    /// Reads stdout until this text has come.
    pub(crate) fn wait_for(&mut self, expected: &str) -> String {
        let stdout = self.child.stdout.as_mut().expect("stdout is a pipe");
        let end = Instant::now() + DEADLINE;
        let mut seen = vec![];
        let mut byte = [0];
        while !text(&seen).contains(expected) {
            let left = end.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).expect("short");
            let mut watched = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut watched, left).expect("polls");
            assert_ne!(
                ready,
                0,
                "not said in {DEADLINE:?}: {expected:?}, but {:?}",
                text(&seen)
            );
            match stdout.read(&mut byte) {
                Ok(1) => seen.push(byte[0]),
                _ => panic!("ended without saying {expected:?}, but {:?}", text(&seen)),
            }
        }
        text(&seen)
    }

    pub(crate) fn wait(&mut self) -> Option<i32> {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return shell_status(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("process {} did not end in {DEADLINE:?}", self.pid());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        for pid in descendants(self.pid()).into_iter().rev() {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The exit status as a shell gives it: 128 + N for death by signal N.
pub(crate) fn shell_status(status: ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| Some(128 + status.signal()?))
}

/// All processes under this one.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let list = std::fs::read_to_string(path).unwrap_or_default();
    let children = list
        .split_ascii_whitespace()
        .filter_map(|id| id.parse().ok());
    children
        .flat_map(|child| [vec![child], descendants(child)].concat())
        .collect()
}

/// Lets a child end, within the deadline, and collects what it said.
pub(crate) fn finish(mut running: Running) -> Output {
    let collect = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = vec![];
            if let Some(mut pipe) = pipe {
                pipe.read_to_end(&mut bytes).expect("read");
            }
            bytes
        })
    };
    let stdout = running
        .child
        .stdout
        .take()
        .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    let stderr = running
        .child
        .stderr
        .take()
        .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    let (stdout, stderr) = (collect(stdout), collect(stderr));
    running.wait();
    Output {
        status: running.child.wait().expect("wait"),
        stdout: stdout.join().expect("stdout"),
        stderr: stderr.join().expect("stderr"),
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
