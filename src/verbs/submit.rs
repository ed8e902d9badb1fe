//! `wayfarer submit`: a job on another machine, its files, input and outputs here.
//!
//! ```text
//! submit ──spawns──> ssh ═══ its two pipes ═══ wayfarer run --shadow stdio ──> job
//!  shadow, our stdin, stdout, stderr               (copied there first, if it is not)
//! ```
//! # What callers may rely on
//! It ends as the job does. If the other machine is lost, it says so and ends with status 5, and the job is ended there.
//!
//! # What it does not do
//! It gives the job no terminal.

use crate::args::Submit;
use crate::launch;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::sys;
use crate::verbs::shadow::{new_token, sessions};
use line::{Line, Preface, Purpose};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Pid;
use shadow::{Carried, CarriedWriter, Taker, carry};
use starter::{Notice, Status};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Begins what the other machine says before the line begins.
const MARK: &str = "wayfarer-submit: ";
/// What a login may print before that.
const MOST_GREETING: usize = 64 << 10;
/// How long ssh may stay when nothing goes through it any more: as long as a job is given to end, and something.
const SSH_ENDS_WITHIN: Duration = Duration::from_secs(10);
/// So often a signal is passed on to the job; then the job is left.
const PATIENCE: usize = 3;

/// Runs the job; returns if it could not be run, or has ended by itself.
pub(crate) fn submit(arguments: &Submit) -> Outcome {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    let mode = umask(Mode::empty());
    let token = new_token()?;
    let sessions = Arc::new(sessions(&arguments.allow, token, None)?);
    let directory = match &arguments.chdir {
        Some(directory) => std::path::absolute(directory)?,
        None => std::env::current_dir()?,
    };
    let job = Arc::new(JobState::default());
    let passed = [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGHUP,
    ];
    let passed: SigSet = passed.into_iter().collect();
    let options = Remote {
        mode,
        directory: &directory,
        arguments,
    };
    let mut ssh = spawn(arguments, &options)?;
    // Not before: what is blocked here would be blocked there.
    passed.thread_block()?;
    let pid = Pid::from_raw(ssh.id() as i32);
    let passing = job.clone();
    std::thread::spawn(move || pass_signals(&passed, &passing, pid));
    let (Some(mut input), Some(mut output)) = (ssh.stdout.take(), ssh.stdin.take()) else {
        return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
    };
    if arguments.wayfarer.is_none()
        && let Err(failure) = install(&mut input, &mut output)
    {
        drop((input, output));
        return Err(lost(arguments, &mut ssh, Some(failure)));
    }
    let line = Line::plain(input.into(), output.into())?;
    let preface = Preface {
        token,
        environment: Some(environment()),
    };
    let carried = carry(line, &preface, &sessions, &job.taker());
    match job.status() {
        Some(Status::Exited(status)) => std::process::exit(status as i32),
        Some(Status::Killed(signal)) => sys::end_by_signal(signal as i32),
        None => Err(lost(arguments, &mut ssh, carried.err().map(Failure::from))),
    }
}

/// What is known of the job.
#[derive(Default)]
struct JobState {
    control: Mutex<Option<CarriedWriter>>,
    status: Mutex<Option<Status>>,
}

impl JobState {
    fn status(&self) -> Option<Status> {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> Option<CarriedWriter> {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        control.clone()
    }

    fn taker(self: &Arc<Self>) -> Arc<Taker> {
        let job = self.clone();
        Arc::new(move |purpose, stream| match purpose {
            Purpose::Input => feed(&stream),
            Purpose::Output => pour(stream, &mut io::stdout()),
            Purpose::Errors => pour(stream, &mut io::stderr()),
            _ => job.listen(stream),
        })
    }

    /// What is said of the job, until its end.
    fn listen(&self, mut stream: Carried) {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        *control = Some(stream.writer());
        drop(control);
        let mut said = vec![];
        let mut portion = [0; 64];
        while let Ok(len @ 1..) = stream.read(&mut portion) {
            said.extend(&portion[..len]);
            while let Some(notice) = Notice::take(&mut said) {
                if let Notice::Ended(status) = notice {
                    let mut known = self.status.lock().unwrap_or_else(PoisonError::into_inner);
                    *known = Some(status);
                }
            }
        }
    }
}

/// Our input, until its end or the job's disinterest.
fn feed(stream: &Carried) {
    let mut writer = stream.writer();
    let mut input = io::stdin();
    let mut portion = [0; 32 << 10];
    while either(&input, stream) {
        match input.read(&mut portion) {
            Ok(len @ 1..) if writer.write_all(&portion[..len]).is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// One of the job's outputs, until its end or our reader's.
fn pour(mut stream: Carried, output: &mut dyn Write) {
    let mut portion = [0; 32 << 10];
    while let Ok(len @ 1..) = stream.read(&mut portion) {
        if output.write_all(&portion[..len]).is_err() || output.flush().is_err() {
            return;
        }
    }
}

/// Signals that come to us are the job's.
fn pass_signals(passed: &SigSet, job: &JobState, ssh: Pid) {
    for _ in 0..PATIENCE {
        let Ok(signal) = passed.wait() else { return };
        let notice = Notice::Signal(signal as u32).to_bytes();
        let told = job.control().map(|mut control| control.write_all(&notice));
        if !matches!(told, Some(Ok(()))) {
            leave(signal, ssh);
        }
    }
    if let Ok(signal) = passed.wait() {
        leave(signal, ssh);
    }
}

/// Without the line the job is ended there.
fn leave(signal: Signal, ssh: Pid) {
    let _ = kill(ssh, Signal::SIGTERM);
    sys::end_by_signal(signal as i32);
}

fn lost(arguments: &Submit, ssh: &mut Child, failure: Option<Failure>) -> Failure {
    let pid = Pid::from_raw(ssh.id() as i32);
    std::thread::spawn(move || {
        std::thread::sleep(SSH_ENDS_WITHIN);
        // It has not been waited for: we would have ended.
        let _ = kill(pid, Signal::SIGTERM);
    });
    let how = match ssh.wait() {
        Ok(status) => shown(status),
        Err(error) => error.to_string(),
    };
    let host = &arguments.on;
    let message = format!("{host} is lost: {} {how}", program(arguments));
    let outcome: Outcome<()> = Err(failure.unwrap_or_else(|| {
        let message = "the job has not said how it ended";
        Failure::new(Exit::Lost, message)
    }));
    let advice = || format!("ssh {host} true: whether it can be reached");
    let outcome = outcome.context(|| message).exit(Exit::Lost).advise(advice);
    outcome.err().unwrap_or_else(Failure::reader_gone)
}

fn shown(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("has ended with status {code}"),
        None => format!("was ended ({status})"),
    }
}

fn program(arguments: &Submit) -> &str {
    arguments.ssh.split_whitespace().next().unwrap_or("ssh")
}

fn spawn(arguments: &Submit, remote: &Remote<'_>) -> Outcome<Child> {
    let words = arguments.ssh.split_whitespace();
    let command = match &arguments.wayfarer {
        Some(path) => remote.command(&quoted(path.as_os_str())),
        None => remote.installing()?,
    };
    let mut ssh = Command::new(program(arguments));
    ssh.args(words.skip(1)).arg(&arguments.on).arg(command);
    ssh.stdin(Stdio::piped()).stdout(Stdio::piped());
    // A key that is pressed at the terminal is for the job.
    let started = sys::ignoring_keys(|| ssh.spawn())?;
    started
        .context(|| format!("cannot start {}", program(arguments)))
        .exit(Exit::Lost)
}

/// What runs on the other machine.
struct Remote<'a> {
    mode: Mode,
    directory: &'a Path,
    arguments: &'a Submit,
}

impl Remote<'_> {
    /// In the words of its shell, which `wayfarer` is one of.
    fn command(&self, wayfarer: &OsStr) -> OsString {
        let mut command = wayfarer.to_owned();
        command.push(" run --quiet --shadow stdio --umask ");
        command.push(format!("{:03o}", self.mode.bits()));
        if let Some(name) = &self.arguments.name {
            command.push(" --name ");
            command.push(quoted(OsStr::new(name)));
        }
        command.push(" --chdir ");
        command.push(quoted(self.directory.as_os_str()));
        for word in self.arguments.methods.words() {
            command.push(" ");
            command.push(quoted(&word));
        }
        command.push(" --");
        for word in &self.arguments.command {
            command.push(" ");
            command.push(quoted(word));
        }
        command
    }

    /// The same with this program, which is taken from our standard output if it is not there.
    fn installing(&self) -> Outcome<OsString> {
        let (name, len) = own_name()?;
        let mut script = OsString::from(format!(
            r#"d="${{XDG_CACHE_HOME:-$HOME/.cache}}/wayfarer"; f="$d/{name}"
if test ! -x "$f"; then
  t="$d/.new.$$"; (umask 077; mkdir -p "$d" && : > "$t") || exit 1
  echo "{MARK}want"; head -c {len} > "$t"
  if test "$(wc -c < "$t")" -eq {len} && chmod 700 "$t" && mv -f "$t" "$f"; then :; else
    rm -f "$t"; echo "{MARK}failed"; exit 1; fi
fi
echo "{MARK}ready"
exec "#
        ));
        script.push(self.command(OsStr::new("\"$f\"")));
        let mut command = OsString::from("exec sh -c ");
        command.push(quoted(&script));
        Ok(command)
    }
}

/// What this program is called there, so that another version is another file; and its length.
fn own_name() -> Outcome<(String, u64)> {
    let describe = || "cannot read this program".to_owned();
    let mut file = File::open("/proc/self/exe").context(describe)?;
    let mut hasher = blake3::Hasher::new();
    let mut portion = vec![0; 256 << 10];
    let mut whole = 0;
    loop {
        let len = file.read(&mut portion).context(describe)?;
        if len == 0 {
            break;
        }
        whole += len as u64;
        hasher.update(&portion[..len]);
    }
    let hash = hasher.finalize().to_hex();
    Ok((format!("wayfarer-{}", &hash[..32]), whole))
}

/// Until the program is there.
fn install(input: &mut ChildStdout, output: &mut ChildStdin) -> Outcome<()> {
    let mut left = MOST_GREETING;
    loop {
        let said = next_line(input, &mut left)?;
        match said.strip_prefix(MARK) {
            Some("ready") => return Ok(()),
            Some("want") => {
                copy_self(output).context(|| "it cannot be copied there".to_owned())?;
            }
            Some(other) => {
                let message = format!("it cannot be copied to ~/.cache/wayfarer there ({other})");
                return Err(Failure::new(Exit::Lost, message));
            }
            // What a login says.
            None => {}
        }
    }
}

fn copy_self(output: &mut dyn Write) -> io::Result<()> {
    let mut own = File::open("/proc/self/exe")?;
    let mut portion = vec![0; 256 << 10];
    loop {
        match own.read(&mut portion)? {
            0 => return output.flush(),
            len => output.write_all(&portion[..len])?,
        }
    }
}

/// Byte by byte, since what comes behind is not ours.
fn next_line(input: &mut dyn Read, left: &mut usize) -> Outcome<String> {
    let mut line = vec![];
    let mut byte = [0];
    while *left > 0 {
        *left -= 1;
        if input.read(&mut byte)? == 0 {
            let message = "it ended before wayfarer ran there";
            return Err(Failure::new(Exit::Lost, message));
        }
        if byte == *b"\n" {
            return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        line.extend(byte);
    }
    let message = format!("it said {MOST_GREETING} bytes, and nothing of wayfarer's");
    Err(Failure::new(Exit::Lost, message))
}

/// Names that mean something only on the machine where they are set.
const OF_THIS_MACHINE: [&[u8]; 7] = [
    b"SSH_",
    b"XDG_RUNTIME_DIR=",
    b"XDG_SESSION_",
    b"DBUS_",
    b"DISPLAY=",
    b"WAYLAND_DISPLAY=",
    b"XAUTHORITY=",
];

/// Ours is the job's: its programs are found where ours are.
fn environment() -> Vec<u8> {
    let entries = launch::environment()
        .into_iter()
        .map(CString::into_bytes_with_nul);
    let kept = entries.filter(|entry| {
        !OF_THIS_MACHINE
            .iter()
            .any(|prefix| entry.starts_with(prefix))
    });
    kept.flatten().collect()
}

/// As one word of any shell.
fn quoted(word: &OsStr) -> OsString {
    let mut quoted = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

/// Waits until the first can be read (true), or the second has come to its end.
fn either(first: &impl AsFd, second: &impl AsFd) -> bool {
    loop {
        let mut both = [
            PollFd::new(first.as_fd(), PollFlags::POLLIN),
            PollFd::new(second.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut both, PollTimeout::NONE) {
            Ok(_) => return both[1].any() != Some(true),
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_comes_through_a_shell_as_it_is() {
        let words = ["a b", "", "it's", "$HOME `x` \\ \"", "new\nline", "*"];
        let quoted: Vec<_> = words.iter().map(|word| quoted(OsStr::new(word))).collect();
        let mut script = OsString::from("printf '%s\\0' ");
        script.push(quoted.join(OsStr::new(" ")));
        let output = Command::new("sh")
            .arg("-c")
            .arg(script)
            .output()
            .expect("runs");
        let expected: Vec<u8> = words
            .iter()
            .flat_map(|word| [word.as_bytes(), b"\0"].concat())
            .collect();
        assert_eq!(output.stdout, expected);
    }

    #[test]
    fn what_a_login_says_is_skipped_but_not_for_ever() {
        let mut said = &b"Welcome\nto this machine\nwayfarer-submit: ready\nrest"[..];
        let mut left = 100;
        let lines = std::iter::from_fn(|| next_line(&mut said, &mut left).ok());
        let lines: Vec<_> = lines.take(3).collect();
        assert_eq!(lines[2], "wayfarer-submit: ready");
        assert_eq!(said, b"rest");
        let endless = [b'x'; 200];
        assert!(next_line(&mut &endless[..], &mut 100).is_err());
    }
}
