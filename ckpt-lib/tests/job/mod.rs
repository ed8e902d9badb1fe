//! Real processes for the tests of tracee, inject and picture.
#![allow(dead_code)] // each test program uses its part

use ckpt_lib::tracee::HostPid;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// As whom a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    /// Whoever runs the tests.
    Self_,
    /// An ordinary user, if the tests run as root.
    User,
}

/// The ids of an ordinary user.
const ORDINARY: u32 = 65_534;

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

impl As {
    pub(crate) fn apply(self, command: &mut Command) {
        if self == As::User && is_root() {
            command.uid(ORDINARY).gid(ORDINARY);
        }
    }
}

/// The guest program, compiled once.
pub(crate) fn workload() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/workload.c");
        let name = format!("workload-{}", std::process::id());
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let status = Command::new("gcc")
            .args(["-O1", "-pthread", "-o"])
            .args([&program, &source])
            .status()
            .expect("gcc");
        assert!(status.success());
        program
    })
}

/// A running guest; killed when dropped.
pub(crate) struct Job {
    pub(crate) child: Child,
    pub(crate) input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Job {
    /// Starts the guest and waits until it says "ready".
    pub(crate) fn start(who: As, args: &[&str]) -> Job {
        let (mut job, lines) = Job::start_with_lines(who, args);
        assert!(lines.is_empty(), "{lines:?}");
        assert!(job.child.try_wait().expect("wait").is_none());
        job
    }

    /// The same, with the lines that came before.
    pub(crate) fn start_with_lines(who: As, args: &[&str]) -> (Job, Vec<String>) {
        let mut command = Command::new(workload());
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        who.apply(&mut command);
        let mut child = command.spawn().expect("spawn");
        let output = BufReader::new(child.stdout.take().expect("stdout"));
        let input = child.stdin.take();
        let mut job = Job {
            child,
            input,
            output,
        };
        let mut lines = vec![];
        loop {
            let line = job.line();
            if line == "ready" {
                return (job, lines);
            }
            assert!(!line.is_empty(), "guest ended: {lines:?}");
            lines.push(line);
        }
    }

    pub(crate) fn pid(&self) -> HostPid {
        HostPid(i32::try_from(self.child.id()).expect("pid"))
    }

    /// The next line it writes; empty at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("read");
        line.trim_end().to_owned()
    }

    /// Sends a command and returns the answer.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.line()
    }

    pub(crate) fn send(&mut self, command: &str) {
        let input = self.input.as_mut().expect("stdin");
        input.write_all(command.as_bytes()).expect("write");
    }

    /// Waits for its end, which must be good.
    pub(crate) fn passes(mut self, within: Duration) {
        let mut lines = vec![];
        let deadline = Instant::now() + within;
        loop {
            if let Some(good) = self.ended() {
                loop {
                    let line = self.line();
                    if line.is_empty() {
                        break;
                    }
                    lines.push(line);
                }
                let passed = lines.last().is_some_and(|line| line.starts_with("PASS"));
                assert!(good && passed, "{lines:?}");
                return;
            }
            assert!(Instant::now() < deadline, "guest hangs: {}", self.state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it has ended, and well. A tracer that is the parent, too, as in these tests, takes
    /// the status with it; then the guest's last line has to do.
    pub(crate) fn ended(&mut self) -> Option<bool> {
        match self.child.try_wait() {
            Ok(status) => status.map(|status| status.success()),
            Err(_) => Some(true),
        }
    }

    /// The letter of its state.
    pub(crate) fn state(&self) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid().0));
        let status = status.unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("State:"));
        line.unwrap_or("gone").to_owned()
    }

    /// Waits until `/proc/PID/status` holds this text ("T (stopped)").
    pub(crate) fn await_status(&self, text: &str) {
        self.await_text("status", |status| status.contains(text), text);
    }

    /// Waits until its first thread is in this call.
    pub(crate) fn await_call(&self, nr: libc::c_long) {
        let start = format!("{nr} ");
        self.await_text("syscall", |call| call.starts_with(&start), &start);
    }

    fn await_text(&self, name: &str, holds: impl Fn(&str) -> bool, wanted: &str) {
        let path = format!("/proc/{}/{name}", self.pid().0);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            if holds(&found) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{path}: found {found}, expected {wanted}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Page tables, KiB.
    pub(crate) fn page_tables_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid().0));
        let status = status.expect("status");
        let line = status.lines().find(|line| line.starts_with("VmPTE:"));
        let words: Vec<&str> = line.expect("VmPTE").split_whitespace().collect();
        words[1].parse().expect("number")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
