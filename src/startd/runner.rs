//! A job that runs: its starter, a child of ours, and what we ask of that.
//!
//! ```text
//! order of the machine ──> Ask ──jobs/NAME/control──> wayfarer run --resume --name NAME ... (crate::life)
//!                                                       `- the job
//! ```
//! # What callers may rely on
//! A job never runs without us: when we are gone, the kernel tells its starter to make an image and leave (SIGTERM, as a batch system
//! would). Nobody is waited for here.

use super::queue::{Entry, read_limited};
use crate::jobs::JobStore;
use crate::life::{Ask, Asked};
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::sys;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use starter::machine::SlotId;
use std::ffi::OsString;
use std::fs::{self, File, FileType, OpenOptions};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// After so long without us a job leaves with its last image.
const LEAVES_WITHIN: &str = "60s";
/// The longest reason, in characters.
const LONGEST_REASON: usize = 500;

/// A starter.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) slot: SlotId,
    pub(super) pid: Pid,
    pub(super) began: Instant,
    /// It was told to leave.
    pub(super) leaves: bool,
    /// The directory of its job.
    dir: PathBuf,
    /// Where it says why it could not begin.
    why: PathBuf,
    asked: Asked<Ask>,
}

/// How starters are begun.
pub(super) struct Ways<'a> {
    pub(super) store: &'a JobStore,
    /// The startd's own directory.
    pub(super) own: &'a Path,
    /// Signals that a starter may have blocked.
    pub(super) mask: SigSet,
    /// `JOB_RENICE_INCREMENT`, from 0 to 19.
    pub(super) nicer_by: i64,
}

impl Runner {
    /// Begins a job, or goes on with it.
    pub(super) fn begin(
        entry: &Entry,
        slot: SlotId,
        has_image: bool,
        ways: &Ways<'_>,
    ) -> Outcome<Self> {
        let spec = &entry.spec;
        let name = &entry.name;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("wayfarer").arg("--dir").arg(ways.store.dir());
        command.args(["run", "--quiet", "--resume", "--name", name]);
        command.args(["--vacate-within", LEAVES_WITHIN]);
        let why = ways.own.join(format!("{name}.why"));
        let _ = fs::remove_file(&why);
        command.arg("--why").arg(&why);
        if spec.journal {
            command.arg("--journal");
        }
        if ways.nicer_by > 0 {
            command.args(["--nice", &ways.nicer_by.to_string()]);
        }
        command.arg("--").arg(&spec.program).args(&spec.arguments);
        command.current_dir(&spec.directory);
        if let Some(variables) = &spec.environment {
            command
                .env_clear()
                .envs(variables.iter().map(|(name, value)| (name, value)));
        }
        command.stdin(input(spec.input.as_deref())?);
        // What is there is what an image goes on with.
        let out = output(spec.output.as_deref(), !has_image)?;
        let same = spec.output.is_some() && spec.output == spec.errors;
        let errors = match same {
            true => out.try_clone()?,
            false => output(spec.errors.as_deref(), !has_image)?,
        };
        command.stdout(out).stderr(errors);
        command.process_group(0);
        sys::tie_to_us(&mut command, Signal::SIGTERM, ways.mask, 0);
        let place = || {
            let program = OsString::from(&spec.program);
            format!(
                "{} in {}",
                crate::raw::shown_path(&program),
                crate::raw::shown_path(&spec.directory)
            )
        };
        let child = command.spawn().context(place)?;
        Ok(Runner {
            slot,
            pid: Pid::from_raw(child.id().cast_signed()),
            began: Instant::now(),
            leaves: false,
            dir: ways.store.dir().join("jobs").join(name),
            why,
            asked: Asked::new(),
        })
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        self.leaves |= matches!(ask, Ask::Vacate { .. } | Ask::VacateLatest { .. });
        // One image is as good as two.
        if matches!(ask, Ask::Checkpoint {}) && self.asked.is_pending(&ask) {
            return;
        }
        self.asked.push(ask);
    }

    /// Asks for something that is not asked for already.
    pub(super) fn ask_once(&mut self, ask: Ask) {
        if !self.asked.is_pending(&ask) {
            self.ask(ask);
        }
    }

    /// Whether it has done all that it was asked for.
    pub(super) fn is_done(&self) -> bool {
        !self.asked.is_asking()
    }

    /// Why the job could not begin, as far as its starter has said so.
    pub(super) fn take_why(&self) -> Option<String> {
        let said = read_limited(&self.why).ok()?;
        let _ = fs::remove_file(&self.why);
        let said = String::from_utf8_lossy(&said);
        let line = said.lines().rfind(|line| !line.trim().is_empty())?;
        Some(line.chars().take(LONGEST_REASON).collect())
    }

    /// Ends the starter; the kernel ends the job with it.
    pub(super) fn kill(&self) {
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    pub(super) fn waits(&self) -> bool {
        self.asked.waits()
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.asked.watched()
    }

    pub(super) fn answers(&mut self) -> Vec<(Ask, Result<(), String>)> {
        self.asked.answers(&self.dir)
    }
}

fn input(path: Option<&Path>) -> Outcome<Stdio> {
    let Some(path) = path else {
        return Ok(Stdio::null());
    };
    let mut options = OpenOptions::new();
    Ok(open("input", path, options.read(true))?.into())
}

fn output(path: Option<&Path>, anew: bool) -> Outcome<File> {
    let path = path.unwrap_or(Path::new("/dev/null"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(anew).mode(0o666);
    open("output", path, &mut options)
}

/// Opens what a job reads or writes. A FIFO would have us wait for who opens its other end, and an image could not go on with it.
fn open(what: &str, path: &Path, options: &mut OpenOptions) -> Outcome<File> {
    let describe = || format!("{what} {}", crate::raw::shown_path(path));
    // What has no other end cannot even be opened.
    if let Ok(found) = fs::metadata(path) {
        usable(found.file_type()).context(describe)?;
    }
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = options.custom_flags(flags.bits()).open(path);
    let file = file.context(describe)?;
    let found = file.metadata().context(describe)?;
    usable(found.file_type()).context(describe)?;
    let now = fcntl(&file, FcntlArg::F_GETFL).context(describe)?;
    let blocking = OFlag::from_bits_retain(now) - OFlag::O_NONBLOCK;
    fcntl(&file, FcntlArg::F_SETFL(blocking)).context(describe)?;
    Ok(file)
}

fn usable(kind: FileType) -> Outcome<()> {
    if kind.is_file() || kind.is_char_device() {
        return Ok(());
    }
    let found = match kind {
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_dir() => "a directory",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() => "a block device",
        _ => "something else",
    };
    Err(Failure::new(
        Exit::Failed,
        format!("found {found}, expected a file or a character device"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    #[test]
    fn no_job_has_a_fifo_and_nobody_waits_for_its_other_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).expect("a FIFO");
        let expected = "fifo: found a FIFO, expected a file or a character device";
        let refused = input(Some(&fifo)).map(drop).expect_err("a FIFO");
        assert!(refused.to_string().ends_with(expected), "{refused}");
        let refused = output(Some(&fifo), true).expect_err("a FIFO");
        assert!(refused.to_string().ends_with(expected), "{refused}");
        let refused = input(Some(dir.path())).map(drop).expect_err("a directory");
        assert!(
            refused.to_string().contains("found a directory"),
            "{refused}"
        );
    }

    #[test]
    fn a_job_blocks_at_its_files_as_usual() {
        let dir = tempfile::tempdir().expect("a directory");
        for path in [dir.path().join("file"), PathBuf::from("/dev/null")] {
            let file = output(Some(&path), false).expect("is opened");
            let flags = fcntl(&file, FcntlArg::F_GETFL).expect("its flags");
            assert!(!OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK));
            input(Some(&path)).expect("is opened");
        }
    }
}
