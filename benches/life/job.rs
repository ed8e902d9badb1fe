//! A job of `submit`, on machines that are this one.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(120);
/// In place of ssh: another home, and what sshd would do.
const SSH: &str = "#!/bin/sh
home=\"${0%/*}/$1\"; shift
mkdir -p \"$home\"
exec env -i HOME=\"$home\" PATH=/usr/bin:/bin sh -c \"$*\"
";

/// Where everything lies.
pub(crate) struct Station {
    directory: tempfile::TempDir,
    guest: PathBuf,
}

impl Station {
    pub(crate) fn open() -> Self {
        let place = super::verdicts::setting("WF_BENCH_DIR", "/var/tmp");
        let directory = tempfile::tempdir_in(place).expect("a directory");
        let guest = directory.path().join("mover");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/guests/mover.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-o"]).arg(&guest).arg(source);
        assert!(compiler.status().expect("cc").success());
        let ssh = directory.path().join("ssh");
        fs::write(&ssh, SSH).expect("writes");
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o700)).expect("sets its mode");
        Station { directory, guest }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn wayfarer(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wayfarer"));
        command.arg("--dir").arg(self.path("own")).args(words);
        command.current_dir(self.directory.path());
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn newest_image(&self) -> PathBuf {
        let images = fs::read_dir(self.path("own/jobs/job/images")).expect("images");
        let images = images.flatten().map(|image| image.path());
        let newest =
            images.max_by_key(|path| fs::metadata(path).and_then(|one| one.modified()).ok());
        newest.expect("an image")
    }
}

/// Killed when dropped.
pub(crate) struct Job<'a> {
    station: &'a Station,
    child: Child,
    said: usize,
}

impl<'a> Job<'a> {
    /// One elsewhere.
    pub(crate) fn start(station: &'a Station, mib: u64, changes: bool) -> Self {
        let mut command =
            station.wayfarer(&["submit", "--name", "job", "--every", "1h", "--on", "a"]);
        command.arg("--ssh").arg(station.path("ssh"));
        Self::begin(station, command, mib, changes)
    }

    /// The same here.
    pub(crate) fn start_here(station: &'a Station, mib: u64) -> Self {
        let command = station.wayfarer(&["run", "--quiet", "--name", "job", "--every", "1h"]);
        Self::begin(station, command, mib, false)
    }

    fn begin(station: &'a Station, mut command: Command, mib: u64, changes: bool) -> Self {
        let out = File::create(station.path("out")).expect("opens");
        command.arg("--").arg(&station.guest);
        command.args([mib.to_string(), u8::from(changes).to_string()]);
        let child = command.stdout(out).spawn().expect("starts");
        let mut job = Job {
            station,
            child,
            said: 0,
        };
        assert_eq!(job.line(), "ready");
        job
    }

    /// The next line that it writes.
    fn line(&mut self) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            let text = fs::read_to_string(self.station.path("out")).unwrap_or_default();
            let mut whole = text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            if let Some(line) = whole.nth(self.said) {
                self.said += 1;
                return line.trim_end().to_owned();
            }
            assert!(Instant::now() < until, "the job says nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its starter's pid.
    pub(crate) fn starter(&self) -> u32 {
        self.child.id()
    }

    /// The longest time it stood still since it was asked last, in milliseconds.
    pub(crate) fn longest_gap(&mut self) -> f64 {
        File::create(self.station.path("say")).expect("writes");
        self.line().parse().expect("a number")
    }

    pub(crate) fn tell(&self, words: &[&str]) {
        let output = self.station.wayfarer(words).output().expect("starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
    }

    fn wait(&mut self) -> Option<i32> {
        let until = Instant::now() + DEADLINE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the job does not end");
    }

    pub(crate) fn has_left(&mut self) {
        assert_eq!(self.wait(), Some(85));
    }

    /// It is done.
    pub(crate) fn end(mut self) {
        File::create(self.station.path("enough")).expect("writes");
        assert_eq!(self.wait(), Some(0));
        fs::remove_file(self.station.path("enough")).expect("removes");
        self.forget();
    }

    /// Nothing is known of it any more.
    pub(crate) fn forget(&self) {
        self.tell(&["remove", "job"]);
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
