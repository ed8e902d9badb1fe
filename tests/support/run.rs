//! One started program: what it says, how it ends, and that nothing stays of it.

use super::inherited::close_inherited;
use super::user::User;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What a program has said is here within this.
const COMES_WITHIN: Duration = Duration::from_secs(20);

/// A stream of a program, collected as it comes.
#[derive(Clone, Debug, Default)]
pub struct Stream(Arc<Mutex<Vec<u8>>>, Arc<AtomicBool>);

impl Stream {
    fn collect(mut source: impl Read + Send + 'static) -> Self {
        let stream = Stream::default();
        let bytes = stream.clone();
        thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(len @ 1..) = source.read(&mut buffer) {
                bytes.0.lock().expect("stream").extend(&buffer[..len]);
            }
            bytes.1.store(true, Ordering::SeqCst);
        });
        stream
    }

    /// Everybody who could write to it has closed it.
    fn is_over(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }

    /// What has come so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("stream").clone()
    }

    /// The same as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// The text as soon as this holds of it: what was said before something else was seen may come here later. After a while as it
    /// is.
    pub fn text_once(&self, holds: impl Fn(&str) -> bool) -> String {
        let text = || Some(self.text()).filter(|text| holds(text));
        poll(COMES_WITHIN, text).unwrap_or_else(|| self.text())
    }
}

/// A started program.
#[derive(Debug)]
pub struct Run {
    child: Child,
    /// For messages.
    pub label: String,
    /// Its standard output.
    pub out: Stream,
    /// Its standard error.
    pub err: Stream,
    ended: Option<ExitStatus>,
}

/// Polls until `done` gives something.
pub fn poll<T>(deadline: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = done() {
            return Some(value);
        }
        if Instant::now() > end {
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

impl Run {
    /// Starts `command` as `user`, with an empty standard input.
    ///
    /// # Errors
    /// Why it could not be started.
    pub fn start(label: &str, mut command: Command, user: User) -> Result<Self, String> {
        command.stdin(Stdio::piped());
        Self::start_with_stdin(label, command, user).map(|mut run| {
            drop(run.child.stdin.take());
            run
        })
    }

    /// Starts `command` with the standard input it has been given.
    ///
    /// # Errors
    /// Why it could not be started.
    pub fn start_with_stdin(label: &str, mut command: Command, user: User) -> Result<Self, String> {
        command.stdout(Stdio::piped());
        Self::spawn(label, command, user)
    }

    /// Starts `command` as `user` with the standard input it has been given, and its standard output in a file.
    ///
    /// # Errors
    /// Why it could not be started.
    pub fn start_into(
        output: fs::File,
        label: &str,
        mut command: Command,
        user: User,
    ) -> Result<Self, String> {
        command.stdout(output);
        Self::spawn(label, command, user)
    }

    fn spawn(label: &str, mut command: Command, user: User) -> Result<Self, String> {
        close_inherited();
        user.apply(&mut command);
        command.process_group(0);
        command.stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{label}: {command:?}: {error}"))?;
        let out = child.stdout.take().map(Stream::collect).unwrap_or_default();
        let err = child.stderr.take().map(Stream::collect).unwrap_or_default();
        let label = label.to_owned();
        Ok(Run {
            child,
            label,
            out,
            err,
            ended: None,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard input, if that was asked for.
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Waits until a line of its output is `line`.
    ///
    /// # Errors
    /// It ended first, or the deadline passed.
    pub fn wait_line(&mut self, line: &str, deadline: Duration) -> Result<(), String> {
        let found = poll(deadline, || {
            let seen = |run: &Run| run.out.text().lines().any(|found| found == line);
            if seen(self) {
                return Some(true);
            }
            let ended = self.ended().is_some();
            ended.then(|| {
                // What it said last may still be on its way through the collecting thread.
                poll(Duration::from_secs(1), || self.out.is_over().then_some(()));
                seen(self)
            })
        });
        match found {
            Some(true) => Ok(()),
            Some(false) => Err(format!(
                "{}: ended before it said {line}: {}",
                self.label,
                self.err.text()
            )),
            None => Err(format!(
                "{}: did not say {line} within {deadline:?}: {}",
                self.label,
                self.err.text()
            )),
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The deadline passed.
    pub fn wait(&mut self, deadline: Duration) -> Result<ExitStatus, String> {
        let status = poll(deadline, || self.ended())
            .ok_or_else(|| format!("{}: still there after {deadline:?}", self.label))?;
        // The last bytes of its streams; something it started may hold them open for ever.
        poll(Duration::from_secs(1), || {
            (self.out.is_over() && self.err.is_over()).then_some(())
        });
        Ok(status)
    }

    /// Everything known about it, for a log.
    pub fn describe(&self) -> String {
        let (out, err) = (self.out.text(), self.err.text());
        let how = self
            .ended
            .map_or("running".into(), |status| status.to_string());
        format!(
            "--- {} ({how})\nstdout:\n{out}\nstderr:\n{err}\n",
            self.label
        )
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs a command to its end.
///
/// # Errors
/// It could not be started or took longer than `deadline`.
pub fn finish(
    label: &str,
    command: Command,
    user: User,
    deadline: Duration,
) -> Result<(ExitStatus, Run), String> {
    let mut run = Run::start(label, command, user)?;
    let status = run
        .wait(deadline)
        .map_err(|error| format!("{error}\n{}", run.describe()))?;
    Ok((status, run))
}

/// Processes whose environment holds this `NAME=value`, wherever they have moved.
pub fn marked(mark: &str) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return vec![];
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let environ = fs::read(Path::new("/proc").join(pid.to_string()).join("environ"));
        environ.is_ok_and(|text| {
            text.split(|byte| *byte == 0)
                .any(|one| one == mark.as_bytes())
        })
    })
    .collect()
}

/// What the kernel knows about these processes' threads, for a log.
pub fn autopsy(pids: &[i32]) -> String {
    let mut text = String::new();
    for pid in pids {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        for task in tasks {
            text.push_str(&format!(
                "process {pid} thread {}\n",
                task.file_name().to_string_lossy()
            ));
            for file in ["comm", "wchan", "syscall", "stack"] {
                let found = fs::read_to_string(task.path().join(file)).unwrap_or_default();
                text.push_str(&format!("  {file}: {}\n", found.trim()));
            }
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let wanted = ["State", "TracerPid", "NSpid", "SigPnd", "ShdPnd", "SigBlk"];
            for line in status
                .lines()
                .filter(|line| wanted.iter().any(|key| line.starts_with(key)))
            {
                text.push_str(&format!("  {line}\n"));
            }
        }
    }
    text
}

/// Ends every process with this mark.
pub fn end_marked(mark: &str) {
    for _ in 0..50 {
        let left = marked(mark);
        if left.is_empty() {
            return;
        }
        for pid in left {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A command with nothing of our environment but the search path.
pub fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env(
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    );
    command.env("LANG", "C.UTF-8");
    command
}
