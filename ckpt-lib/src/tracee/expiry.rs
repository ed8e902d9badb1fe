//! When calls in progress expire, remembered from one checkpoint to the next (ADR 0004).
//!
//! After a stop the kernel goes on with `restart_syscall`, where the time-out of the call cannot be
//! seen any more. Whoever stopped it before knew, and has written it down.

use super::{Quiesced, StoppedThread, reenter};
use serde::{Deserialize, Serialize};

/// A call that the kernel goes on with, and when it will time out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiryNote {
    /// The thread, by wayfarer's own numbers.
    pub tid: i32,
    /// The call.
    pub nr: u64,
    /// Where it was made: `rip` and `rsp`.
    pub place: [u64; 2],
    /// Its first four arguments.
    pub args: [u64; 4],
    /// CLOCK_MONOTONIC when it times out.
    pub expiry_ns: u64,
}

impl Quiesced {
    /// What must be remembered of the threads' calls in progress for the next stop.
    #[must_use]
    pub fn expiry_notes(&self) -> Vec<ExpiryNote> {
        let processes = self.processes().iter();
        let threads = processes.flat_map(|process| {
            let memory = process.memory();
            process.threads.iter().map(move |thread| (thread, memory))
        });
        threads
            .filter_map(|(thread, memory)| {
                let at_ns = thread.stopped_at_ns;
                let (_, call) = reenter::translate(thread, memory, at_ns)?;
                let call = call?;
                Some(ExpiryNote {
                    tid: thread.tid.0,
                    nr: call.nr,
                    expiry_ns: at_ns.saturating_add(call.remaining_ns),
                    ..whereabouts(thread)
                })
            })
            .collect()
    }

    /// Uses what the stop before this one has remembered, where it is about the same calls.
    pub fn recall(&mut self, notes: &[ExpiryNote]) {
        for process in self.processes_mut() {
            for thread in &mut process.threads {
                let here = whereabouts(thread);
                let note = notes.iter().find(|note| {
                    (note.tid, note.place, note.args) == (here.tid, here.place, here.args)
                });
                if let Some(note) = note {
                    thread.remember(note.nr as i64, note.expiry_ns);
                }
            }
        }
    }
}

fn whereabouts(thread: &StoppedThread) -> ExpiryNote {
    let registers = thread.registers();
    ExpiryNote {
        tid: thread.tid.0,
        nr: 0,
        place: [registers.rip, registers.rsp],
        args: [registers.rdi, registers.rsi, registers.rdx, registers.r10],
        expiry_ns: 0,
    }
}
