//! Small python programs that set up what is to be looked at, and then wait.

use crate::tracee::HostPid;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// What every guest begins with.
const PRELUDE: &str = r#"
import ctypes, fcntl, mmap, os, select, signal, socket, struct, sys, time
# What whoever runs the tests has left open is not the guest's.
os.closerange(3, 4096)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
def call(result):
    if result is None or result == -1 or result == 2**64 - 1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def say(*words):
    print(*words, flush=True)
"#;

/// What it ends with: everything stays alive until the test lets go.
const WAIT: &str = "\nsay('ready')\nsys.stdin.read()\n";

pub(super) struct Guest {
    child: Child,
    /// What it said before it was ready.
    pub(super) said: Vec<String>,
}

impl Guest {
    /// Starts a guest and waits until it is ready. `None` (with a word about it) if it says "skip".
    pub(super) fn try_start(body: &str) -> Option<Guest> {
        Self::start_with(body, |_| {})
    }

    pub(super) fn start(body: &str) -> Guest {
        Self::try_start(body).expect("the guest is not able to set up what the test needs")
    }

    pub(super) fn start_with(body: &str, change: impl FnOnce(&mut Command)) -> Option<Guest> {
        let mut command = Command::new("python3");
        command
            .arg("-c")
            .arg(format!("{PRELUDE}{body}{WAIT}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A pipe of ours: where the test's own leads may be no place for a job (another user's file).
            .stderr(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().expect("python3 starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output"));
        let mut said = vec![];
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).expect("its output");
            match line.trim_end() {
                "ready" => break,
                "" => {
                    let _ = child.kill();
                    let ended = child.wait_with_output().expect("its output");
                    panic!(
                        "the guest ended early: {}",
                        String::from_utf8_lossy(&ended.stderr)
                    );
                }
                line if line.starts_with("skip") => {
                    crate::skip::note("a guest of capture", line);
                    let _ = child.kill();
                    let _ = child.wait();
                    return None;
                }
                line => said.push(line.to_owned()),
            }
        }
        child.stdout = Some(lines.into_inner());
        let guest = Guest { child, said };
        guest.settle();
        Some(guest)
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(super) fn host_pid(&self) -> HostPid {
        HostPid(self.pid())
    }

    /// A number it said.
    pub(super) fn number(&self, index: usize) -> i64 {
        self.said[index].trim().parse().expect("a number")
    }

    /// Lets it read to the end, and waits for its end.
    pub(super) fn finish(mut self) -> std::process::ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().expect("its end")
    }

    /// Waits until it sleeps in its last read.
    fn settle(&self) {
        let path = format!("/proc/{}/stat", self.pid());
        for _ in 0..500 {
            let stat = std::fs::read_to_string(&path).expect("alive");
            if stat.contains(") S ") {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        panic!("the guest does not come to rest");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
