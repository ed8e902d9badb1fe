//! A checkpoint of the job, made by a child of the starter: what goes wrong in it is an error, and no end of the job's.

use super::inside::NOT_COPIED;
use super::signals::Signals;
use crate::args::{CARRY_MAX, Checkpoint, Life, Then, signal_name};
use crate::limits;
use crate::report::{Failure, Outcome, conclude};
use crate::rights;
use crate::sys::{self, Change};
use ckpt_lib::pace::Rate;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::Pid;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Why there is no image that somebody has given up.
pub(super) const ABORTED: &str = "it was aborted";
/// How long one that is given up may take to end by itself.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// One that is being made.
#[derive(Debug)]
pub(super) struct Making {
    pid: Pid,
    /// What it says, as every verb says it.
    said: File,
    /// How fast, and whether it is wanted.
    rate: Rate,
    is_aborted: bool,
    /// It was told to end.
    is_abandoned: bool,
}

impl Making {
    /// Begins one that is made at this rate, until another is said.
    pub(super) fn begin(
        signals: &Signals,
        rate: Option<NonZeroU64>,
        make: impl FnOnce(&Rate) -> Outcome,
    ) -> Outcome<Self> {
        let told = memfd_create(c"image rate", MFdFlags::MFD_CLOEXEC)?;
        let told = Rate::told_by(File::from(told));
        told.set(rate)?;
        let said = File::from(memfd_create(c"said", MFdFlags::MFD_CLOEXEC)?);
        let Some(pid) = limits::process()? else {
            let status = make_here(&told, make, &said, signals);
            std::process::exit(i32::from(status));
        };
        Ok(Making {
            pid,
            said,
            rate: told,
            is_aborted: false,
            is_abandoned: false,
        })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// What came of it; if there is an image, why the job does not have its copy.
    pub(super) fn result(self, status: Change) -> Result<Option<String>, String> {
        let len = self.said.metadata().map_or(0, |file| file.len());
        let mut said = vec![0; usize::try_from(len).unwrap_or(0).min(16 << 10)];
        let _ = self.said.read_exact_at(&mut said, 0);
        let said = String::from_utf8_lossy(&said);
        // What could be tried is for people.
        let lines = said.lines().take_while(|line| !line.starts_with("  try:"));
        let lines: Vec<_> = lines
            .map(|line| line.trim_start_matches("wayfarer: "))
            .collect();
        let said = lines.join("; ");
        if status == Change::Exited(0) {
            let at = said.find(NOT_COPIED);
            return Ok(at.map(|at| said[at..].to_owned()));
        }
        if self.is_aborted {
            tracing::info!(why = said, "an image was aborted");
            return Err(ABORTED.to_owned());
        }
        Err(match (status, said.is_empty()) {
            (Change::Signalled(signal), _) => {
                format!("the checkpoint was ended by {}", signal_name(signal))
            }
            (_, true) => "the checkpoint has failed without a word".to_owned(),
            (_, false) => said,
        })
    }

    /// Whether somebody wanted it to end without an image.
    pub(super) fn is_unwanted(&self) -> bool {
        self.is_abandoned || self.is_aborted
    }

    /// It goes at another rate from now on.
    pub(super) fn goes_at(&self, rate: Option<NonZeroU64>) {
        let told = self.rate.set(rate);
        told.unwrap_or_else(
            |error| tracing::warn!(%error, "an image goes at the rate that it had"),
        );
    }

    /// Gives it up, unless the image counts already. The job runs on.
    pub(super) fn abort(&mut self) {
        self.is_aborted = true;
        if self.rate.give_up().is_err() {
            self.abandon(Signal::SIGTERM);
        }
    }

    /// Ends it. The job runs on, and nothing stays of its image.
    pub(super) fn abandon(&mut self, signal: Signal) {
        self.is_abandoned = true;
        let _ = nix::sys::signal::kill(self.pid, signal);
    }
}

/// The checkpoint that the starter of this job makes, as [`verbs::checkpoint::by_starter`](crate::verbs::checkpoint::by_starter) understands it.
pub(super) fn options(job: &str, leaves: bool, life: &Life) -> Checkpoint {
    Checkpoint {
        target: job.to_owned(),
        output: None,
        then: if leaves { Then::Kill } else { Then::GoOn },
        compress: life.compress,
        image_rate: None,
        carry_max: CARRY_MAX,
        carry_files: life.carry_files,
        wait_for_sockets: life.wait_for_sockets,
        inherit_fd: vec![],
        json: true,
        abort: false,
        carry: None,
        since: None,
        watch: false,
        mark: vec![],
        min_free: None,
        expected: None,
    }
}

/// Whether an image as large as the last would leave so much of the disk that this directory is on.
pub(crate) fn check_room(dir: &Path, least: u64, last: Option<u64>) -> Result<(), String> {
    let place = nix::sys::statvfs::statvfs(dir)
        .map_err(|error| format!("{}: {}", crate::raw::shown_path(dir), error.desc()))?;
    let free = place.blocks_available() as u64 * place.fragment_size() as u64;
    let needed = least.saturating_add(last.unwrap_or(0));
    if free < needed {
        let dir = crate::raw::shown_path(dir);
        return Err(format!(
            "{free} bytes are free in {dir}, expected {needed} (--min-free and the last image)"
        ));
    }
    Ok(())
}

/// What looks whether it is wanted ends by itself; what does not, and a line that takes nothing, by a signal, which waits while an image is about to count.
fn end_when_given_up(rate: Rate) -> Outcome<()> {
    // It takes no signals.
    let all = SigSet::all();
    let before = all.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let begun = limits::thread(move || {
        while !rate.is_given_up() {
            std::thread::sleep(LOOK_AGAIN);
        }
        std::thread::sleep(ENDS_WITHIN);
        let _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGTERM);
    });
    before.thread_set_mask()?;
    begun
}

fn make_here(
    rate: &Rate,
    make: impl FnOnce(&Rate) -> Outcome,
    said: &File,
    signals: &Signals,
) -> u8 {
    // The terminal's keys are not for it.
    let _ = nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
    let tied = nix::sys::prctl::set_pdeathsig(Signal::SIGTERM);
    let quiet = || -> Outcome<()> {
        let nothing = sys::nothing()?;
        nix::unistd::dup2_stdin(&nothing)?;
        nix::unistd::dup2_stdout(&nothing)?;
        nix::unistd::dup2_stderr(said)?;
        rights::take_up()?;
        signals.give_back()?;
        end_when_given_up(rate.clone())
    };
    match tied.map_err(Failure::from).and_then(|()| quiet()) {
        Ok(()) => conclude(make(rate)) as u8,
        Err(failure) => conclude(Err(failure)) as u8,
    }
}
