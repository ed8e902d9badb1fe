//! Bringing threads that run our code to a stop again, and telling those that went home alone.

use super::{RUNNER_LEN, Site, Whereabouts};
use crate::inject::InjectError;
use crate::inject::hands::{self, trace};
use crate::inject::runner::PARK_S;
use crate::sys::ptrace::{self, Waited};
use crate::tracee::{Deadline, StoppedProcess, is_at_known_stop};
use std::collections::VecDeque;

/// How many threads are let run before it is looked which are done.
pub(super) const LAUNCHED_AT_ONCE: usize = 128;
/// Every so many passes it is looked why a thread is not done.
const PASSES_PER_LOOK: u32 = 64;

/// Threads on their way to a stop.
#[derive(Debug, Default)]
pub(super) struct Roundup {
    /// Not yet done.
    pub(super) running: Vec<usize>,
    /// Asked to stop, in this order.
    asked: VecDeque<usize>,
    passes: u32,
    /// The signals of the stops that were seen: SIGTRAP, or that of job control.
    job_control: Vec<i32>,
    /// The first thing that should not have happened.
    failed: Option<InjectError>,
}

impl Roundup {
    fn is_over(&self) -> bool {
        self.running.is_empty() && self.asked.is_empty()
    }
}

impl Site {
    /// Waits until all these threads say they are done and are stopped.
    pub(in crate::inject) fn gather(
        &self,
        process: &mut StoppedProcess,
        indices: &[usize],
        deadline: &Deadline,
    ) -> Result<(), InjectError> {
        let roundup = Roundup {
            running: indices.to_vec(),
            ..Roundup::default()
        };
        self.finish(process, roundup, deadline)
    }

    /// Stops these threads wherever they are in our code.
    pub(super) fn halt(
        &self,
        process: &mut StoppedProcess,
        indices: &[usize],
        deadline: &Deadline,
    ) -> Result<(), InjectError> {
        let mut roundup = Roundup::default();
        for index in indices {
            let tid = self.threads[*index].0;
            // One that is at a stop already, since something failed there, is told of no more.
            if is_at_known_stop(tid) {
                self.arrived(process, *index)?;
            } else {
                self.ask_to_stop(&mut roundup, *index);
            }
        }
        self.finish(process, roundup, deadline)
    }

    fn ask_to_stop(&self, roundup: &mut Roundup, index: usize) {
        // If this fails it has ended, which the wait will tell.
        let _ = ptrace::interrupt(self.threads[index].0);
        roundup.asked.push_back(index);
    }

    /// Rounds up all that are left. A thread that is late is no reason to leave the others running.
    pub(super) fn finish(
        &self,
        process: &mut StoppedProcess,
        mut roundup: Roundup,
        deadline: &Deadline,
    ) -> Result<(), InjectError> {
        let all_in = deadline.poll(|| match self.pass(process, &mut roundup) {
            Ok(()) if roundup.is_over() => Some(Ok(())),
            Ok(()) => None,
            Err(error) => Some(Err(error)),
        });
        let late = roundup.asked.front().or(roundup.running.first());
        match (all_in, late) {
            (Some(result), _) => result?,
            (None, Some(late)) => return Err(hands::missed(self.threads[*late], deadline)),
            (None, None) => {}
        }
        if !roundup.job_control.is_empty() {
            // Each stop says what was so at that moment.
            let stopped = roundup.job_control.iter();
            process.group_stopped = stopped.copied().find_map(hands::by_job_control);
        }
        roundup.failed.map_or(Ok(()), Err)?;
        self.nobody_astray()
    }

    /// One look at all: those that are done are stopped at once, for they do not wait long (`PARK_S`).
    pub(super) fn pass(
        &self,
        process: &mut StoppedProcess,
        roundup: &mut Roundup,
    ) -> Result<(), InjectError> {
        if !roundup.running.is_empty() {
            let done = self.done_words(process)?;
            let running = std::mem::take(&mut roundup.running);
            for index in running {
                if done[index * 8] == 0 {
                    roundup.running.push(index);
                } else {
                    self.ask_to_stop(roundup, index);
                }
            }
        }
        roundup.passes += 1;
        if roundup.passes.is_multiple_of(PASSES_PER_LOOK)
            && let Some(first) = roundup.running.first().copied()
        {
            // It may stand at a stop that nobody asked for.
            if self.look(process, first, roundup)? {
                roundup.running.remove(0);
            }
        }
        while let Some(first) = roundup.asked.front().copied() {
            if !self.look(process, first, roundup)? {
                break;
            }
            roundup.asked.pop_front();
        }
        Ok(())
    }

    fn done_words(&self, process: &StoppedProcess) -> Result<Vec<u8>, InjectError> {
        let address = self.done_word(0);
        let mut done = vec![0; self.threads.len() * 8];
        let read = process.memory().read(address, &mut done);
        read.map_err(|source| InjectError::Memory {
            pid: self.pid,
            address,
            source,
        })?;
        Ok(done)
    }

    /// Looks whether a thread has stopped, or ended; lets it run on from other stops.
    fn look(
        &self,
        process: &mut StoppedProcess,
        index: usize,
        roundup: &mut Roundup,
    ) -> Result<bool, InjectError> {
        let tid = self.threads[index];
        let signal = match ptrace::try_wait(tid.0) {
            Ok(None) => return Ok(false),
            Ok(Some(Waited::EventStop { signal })) => {
                roundup.job_control.push(signal);
                // A stop of job control, which nobody asked for, ends when it is let run.
                if roundup.running.contains(&index) {
                    0
                } else {
                    self.arrived(process, index)?;
                    return Ok(true);
                }
            }
            Ok(Some(Waited::Ended)) | Err(_) => {
                self.stray(process, index);
                roundup.failed.get_or_insert(hands::ended(self.pid, tid));
                return Ok(true);
            }
            Ok(Some(Waited::Signal(signal))) => {
                let rip = ptrace::registers(tid.0).map_or(0, |found| self.gate.place(&found));
                // In our code only SIGSTOP cannot be blocked; at home by itself, it gets what is for it.
                if signal != libc::SIGSTOP && self.is_ours(rip) {
                    roundup.failed.get_or_insert(InjectError::Escaped {
                        tid: tid.0,
                        what: format!("signal {signal} at {rip:#x}"),
                    });
                }
                signal
            }
            Ok(Some(Waited::Syscall | Waited::Event(_))) => 0,
        };
        // A failure says that it has been killed, which the next look will tell.
        let _ = ptrace::cont(tid.0, signal);
        Ok(false)
    }

    /// Takes a thread that has stopped into our hands, if it is where nothing of the job can have happened:
    /// in the calls, or waiting for us. One that was kept waiting is at home by itself, or on its way.
    fn arrived(&self, process: &mut StoppedProcess, index: usize) -> Result<(), InjectError> {
        let tid = self.threads[index];
        let registers = ptrace::registers(tid.0);
        let registers = registers.map_err(trace(self.pid, tid, "read registers"))?;
        let place = self.gate.place(&registers);
        let runner = self.base != 0 && (self.base..self.base + RUNNER_LEN).contains(&place);
        let call = self.placed.stub.call;
        let at_tail = index == 0 && (call..=call + self.gate.call_len()).contains(&place);
        if runner || at_tail {
            self.goes(process, index, Whereabouts::Held);
        } else {
            self.stray(process, index);
        }
        Ok(())
    }

    fn is_ours(&self, address: u64) -> bool {
        (self.base..self.base + self.code_len).contains(&address) || self.placed.covers(address)
    }

    pub(super) fn stray(&self, process: &mut StoppedProcess, index: usize) {
        self.whereabouts.borrow_mut()[index] = Whereabouts::Astray;
        process.threads[index].abandon();
    }

    pub(super) fn nobody_astray(&self) -> Result<(), InjectError> {
        let astray = self.indices(|place| place == Whereabouts::Astray);
        match astray.first() {
            None => Ok(()),
            Some(first) => Err(InjectError::WentHome {
                tid: self.threads[*first].0,
                count: astray.len(),
                park_s: PARK_S,
            }),
        }
    }
}
