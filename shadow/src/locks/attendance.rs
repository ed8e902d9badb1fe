//! Processes that have record locks: each has a stream for nothing else, which nobody inherits, so that its end is the end
//! of the process.

use super::{FileId, Locks, Owner};
use crate::peer::Peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::{Attend, Span};

/// A process that is there.
#[derive(Debug)]
pub(super) struct Attendant {
    pub(super) pid: u32,
    /// Which of its streams, if a line that has broken is made anew.
    serial: u64,
    /// Its stream.
    stream: OwnedFd,
    /// Whether that has ended without it.
    loss: Option<Arc<AtomicBool>>,
    /// The files of which it closes a descriptor if it executes a program.
    pub(super) at_exec: Vec<FileId>,
}

/// As many files as a job can have open.
const MOST_AT_EXEC: usize = 4096;

impl Attendant {
    /// Its stream has an end, read or not.
    pub(super) fn is_gone(&self) -> bool {
        let mut streams = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let ended = matches!(poll(&mut streams, Some(&now)), Ok(1))
            && streams[0].revents().intersects(ends);
        let lost = self.loss.as_ref();
        ended && !lost.is_some_and(|lost| lost.load(Ordering::SeqCst))
    }
}

/// A process, as long as its stream is served.
#[derive(Debug)]
pub(crate) struct Attendance<'a> {
    locks: &'a Locks,
    /// What it is called in requests.
    pub(crate) number: u64,
    serial: u64,
    /// Its stream has broken, and it will have another.
    comes_again: bool,
}

impl<'a> Attendance<'a> {
    /// A process begins to be there, or, in a job that goes on, is there again.
    ///
    /// # Errors
    /// No descriptor is left; ENOLCK: nobody waits for one of this number.
    pub(crate) fn begin(
        locks: &'a Locks,
        attend: Attend,
        stream: &impl Peer,
    ) -> Result<Self, Errno> {
        let Attend { pid, number } = attend;
        let loss = stream.loss();
        let stream = rustix::io::fcntl_dupfd_cloexec(stream, 0)?;
        let mut state = locks.state();
        let number = if number == 0 {
            state.last_process += 1;
            state.last_process
        } else {
            // That its stream before has broken may not have been seen yet.
            let is_there = state
                .attendants
                .get(&number)
                .is_some_and(|one| one.pid == pid);
            if state.awaited.remove(&number).is_none() && !is_there {
                return Err(Errno::NOLCK);
            }
            number
        };
        state.last_serial += 1;
        let serial = state.last_serial;
        let attendant = Attendant {
            pid,
            serial,
            stream,
            loss,
            at_exec: vec![],
        };
        state.attendants.insert(number, attendant);
        drop(state);
        Ok(Attendance {
            locks,
            number,
            serial,
            comes_again: false,
        })
    }

    /// Its stream has broken: what it has it keeps, until it is there again.
    pub(crate) fn comes_again(mut self) {
        self.comes_again = true;
    }

    /// It has executed a program: what was to be closed is.
    ///
    /// # Errors
    /// EPERM: another process has the stream now.
    pub(crate) fn executed(&self, pid: u32) -> Result<(), Errno> {
        let mut state = self.locks.state();
        let process = state.attendants.get_mut(&self.number);
        let process = process.filter(|one| one.pid == pid).ok_or(Errno::PERM)?;
        for file in std::mem::take(&mut process.at_exec) {
            state.change(Owner::Process(self.number), file, Span::ALL, None);
        }
        drop(state);
        self.locks.bells.ring();
        Ok(())
    }
}

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.state();
        let is_ours = state
            .attendants
            .get(&self.number)
            .map(|one| (one.serial, one.pid));
        let Some((_, pid)) = is_ours.filter(|(serial, _)| *serial == self.serial) else {
            // It is there again already.
            return;
        };
        state.attendants.remove(&self.number);
        if self.comes_again {
            state.awaited.insert(self.number, pid);
            return;
        }
        state.forget(Owner::Process(self.number));
        drop(state);
        self.locks.bells.ring();
    }
}

impl Locks {
    /// A process closes a descriptor of a file (none: of nothing), now or if it executes a program.
    ///
    /// # Errors
    /// ENOLCK: there is no such process; it would have too much to close.
    pub(crate) fn release(
        &self,
        process: u64,
        file: Option<FileId>,
        at_exec: bool,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        if !at_exec && state.awaited.contains_key(&process) {
            if let Some(file) = file {
                state.change(Owner::Process(process), file, Span::ALL, None);
            }
            drop(state);
            self.bells.ring();
            return Ok(());
        }
        let attendant = state.attendants.get_mut(&process).ok_or(Errno::NOLCK)?;
        let closed = &mut attendant.at_exec;
        if at_exec {
            if closed.len() >= MOST_AT_EXEC {
                return Err(Errno::NOLCK);
            }
            closed.extend(file);
            return Ok(());
        }
        closed.clear();
        if let Some(file) = file {
            state.change(Owner::Process(process), file, Span::ALL, None);
        }
        drop(state);
        self.bells.ring();
        Ok(())
    }
}
