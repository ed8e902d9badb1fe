//! A job's end is a commit: it has not happened before it is written down.
//!
//! ```text
//! the job has ended, all that it wrote is where it belongs ── sync(2) ── life.json: Completed ──> its supervisor: the journal goes, it ends
//! killed before that: the job goes on from its last image, and ends again    killed behind that: it has ended, and its journal is still there
//! ```

use super::{Copy, Starter};
use crate::fault;
use crate::limits;
use crate::report::{Outcome, chain};
use crate::sys;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use starter::life::{End, Leave, State};
use std::os::fd::{AsFd, AsRawFd};

/// How long a disk may take. One that takes longer (a server that is gone) does not keep the job's end from being known.
const DURABLE_WITHIN_MS: u16 = 60_000;

/// How long a record that cannot be written waits for the next attempt.
const WRITTEN_AGAIN_MS: u16 = 1_000;

impl Starter<'_> {
    /// The job has ended so, and its supervisor waits until that is written down.
    pub(super) fn commit(&mut self, end: End) {
        fault::life("ended");
        let committed = is_its_own(end) && self.write_end(end);
        if committed {
            fault::life("committed");
        }
        self.is_committed = committed;
        // One that has failed may be wanted back, if there is an image of it.
        let is_final = committed && (end == End::Exited(0) || !self.has_image());
        self.with_copy(|copy: &Copy| copy.has_been_noted(is_final));
    }

    fn write_end(&mut self, end: End) -> bool {
        self.make_durable();
        // That may have taken longer than others wait for us.
        if self.is_taken() {
            return false;
        }
        let mut record = self.record.clone();
        record.state = State::Completed.name().to_owned();
        record.counted.left(&Leave::Completed(end), None);
        let saved = record.save(&self.dir);
        if let Err(error) = &saved {
            tracing::error!("the job's end is not written down: {}", chain(error));
        }
        saved.is_ok()
    }

    /// Waits until the job's end is written down, however long its disk is full: before that it has not happened, and would come once more.
    /// Whether it is; not if somebody wants us to leave first.
    pub(super) fn is_written_at_last(&mut self) -> bool {
        if self.unwritten && !self.is_fenced && self.dir.exists() {
            self.hear_nobody();
            let name = &self.name;
            self.voice.say(&format!(
                "job {name} has ended; that is tried to be written down until it can be"
            ));
        }
        // If somebody has removed it, there is nothing to go on with either.
        while self.unwritten && !self.is_fenced && self.dir.exists() {
            let signals = &mut self.copies.signals;
            let mut fds = [PollFd::new(signals.watched(), PollFlags::POLLIN)];
            // Whatever wakes us, we look again.
            let _ = poll(&mut fds, PollTimeout::from(WRITTEN_AGAIN_MS));
            while let Some(meaning) = signals.next(None) {
                if meaning.is_to_leave() {
                    return false;
                }
            }
            self.save();
        }
        !self.unwritten || !self.dir.exists()
    }

    /// What the job has made outlives a power loss. Nobody knows all file systems on which it has made something.
    pub(super) fn make_durable(&self) {
        match sync_all() {
            Ok(true) => {}
            Ok(false) => {
                let name = &self.name;
                self.voice.say(&format!(
                    "a file system takes more than a minute to write what job {name} may have left to it"
                ));
            }
            Err(failure) => tracing::error!("sync: {failure}"),
        }
    }
}

/// Others may have to be judged when nothing is left of the copy: who was killed, or told to end by us or by others, goes on perhaps.
fn is_its_own(end: End) -> bool {
    let told = [
        libc::SIGKILL,
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
    ];
    match end {
        End::Exited(_) => true,
        End::Signalled(signal) => !told.contains(&signal),
        End::NotBegun(_) | End::Interrupted(_) | End::Gone => false,
    }
}

/// sync(2) by another process, which may have to be left behind; whether it is through.
fn sync_all() -> Outcome<bool> {
    let (through, tells) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let Some(child) = limits::process()? else {
        // Nobody is to wait for what we would hold.
        sys::close_all_but(0, vec![tells.as_raw_fd().cast_unsigned()]);
        nix::unistd::sync();
        std::process::exit(0);
    };
    drop(tells);
    let mut fds = [PollFd::new(through.as_fd(), PollFlags::POLLIN)];
    let told = loop {
        match poll(&mut fds, PollTimeout::from(DURABLE_WITHIN_MS)) {
            // One more signal is one more minute.
            Err(nix::errno::Errno::EINTR) => {}
            told => break told?,
        }
    };
    if told > 0 {
        let _ = nix::sys::wait::waitpid(child, None);
    }
    Ok(told > 0)
}
