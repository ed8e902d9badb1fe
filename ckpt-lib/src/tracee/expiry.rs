//! When calls in progress expire, remembered from one stop to the next (ADR 0004).
//!
//! After a stop the kernel goes on with `restart_syscall`, where the time-out of the call cannot be
//! seen any more. Whoever stopped it before knew, and has written it down.
//!
//! ```text
//! stop --recall, note--> file      (killed from here on: nothing but the call's rest is forgotten)
//! let go --note-- detach --> file  also after a failure
//! ```
//! # What callers may rely on
//! A note is used for the very call that it was made of, or not at all. A thread that was let go and
//! then stopped has given its processor up once or twice by itself: to go on sleeping, and to stop. A call after
//! the noted one that looks the same would have to be asleep, too, and to have been stopped before (else
//! the kernel does not say `restart_syscall`, and its own arguments tell the time-out): more times. And a
//! note whose moment has passed is of a call that has ended: one that is stopped had not timed out.

use super::{Memory, Quiesced, StoppedThread, reenter};
use crate::procfs::{ProcDir, parse_status};
use crate::snapshot::Registers;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A call that the kernel goes on with, and when it will time out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiryNote {
    /// The thread, by wayfarer's own numbers.
    pub tid: i32,
    /// When the thread was started, clock ticks after boot.
    pub started_ticks: u64,
    /// How often it had given its processor up by itself.
    pub switches: u64,
    /// The call.
    pub nr: u64,
    /// Where it was made: `rip` and `rsp`.
    pub place: [u64; 2],
    /// Its arguments.
    pub args: [u64; 6],
    /// CLOCK_MONOTONIC when it times out.
    pub expiry_ns: u64,
}

/// What the stops of one job remember for those that follow; in a file, if there is a place for one.
#[derive(Debug, Default)]
pub struct CallNotes {
    path: Option<PathBuf>,
    notes: Vec<ExpiryNote>,
}

/// The notes of a job, for as many stops as it takes.
pub type SharedNotes = Rc<RefCell<CallNotes>>;

/// Says which format the file has.
const FORMAT: &str = "calls in progress 2";

impl CallNotes {
    /// What has been remembered there; nothing if it cannot be read: then calls in progress may wait
    /// longer than is due after a restart, never less.
    #[must_use]
    pub fn open(path: Option<&Path>) -> SharedNotes {
        const LIMIT: usize = 64 << 20;
        let bytes = path.and_then(|path| std::fs::read(path).ok());
        let config = bincode::config::standard().with_limit::<LIMIT>();
        let decoded = bytes.and_then(|bytes| {
            let decoded: Result<((String, Vec<ExpiryNote>), usize), _> =
                bincode::serde::decode_from_slice(&bytes, config);
            decoded.ok()
        });
        let notes = decoded.map(|(content, _)| content);
        let notes = notes.filter(|(format, _)| format == FORMAT);
        Rc::new(RefCell::new(CallNotes {
            path: path.map(Path::to_owned),
            notes: notes.map(|(_, notes)| notes).unwrap_or_default(),
        }))
    }

    /// The notes.
    #[must_use]
    pub fn notes(&self) -> &[ExpiryNote] {
        &self.notes
    }

    pub(super) fn replace(&mut self, notes: Vec<ExpiryNote>) {
        if self.notes != notes {
            self.notes = notes;
            self.write();
        }
    }

    /// As little as it is worth, a failure is no reason to have no image.
    fn write(&self) {
        let Some(path) = &self.path else { return };
        let content = (FORMAT, &self.notes);
        let encoded = bincode::serde::encode_to_vec(content, bincode::config::standard());
        let partial = path.with_extension("partial");
        let written = encoded.is_ok_and(|bytes| std::fs::write(&partial, bytes).is_ok());
        if !written || std::fs::rename(&partial, path).is_err() {
            let _ = std::fs::remove_file(&partial);
        }
    }
}

impl Quiesced {
    /// Uses what earlier stops have remembered, and remembers what there is to know for later ones: at
    /// once, and when the threads are let go, whatever comes in between.
    pub fn remember_in(&mut self, notes: SharedNotes) {
        self.recall(notes.borrow().notes());
        self.notes = Some(notes);
        self.note_calls();
    }

    /// Brings the notes up to date, since threads may have run for us.
    pub fn note_calls(&self) {
        if let Some(notes) = &self.notes {
            notes.borrow_mut().replace(self.expiry_notes());
        }
    }

    /// What must be remembered of the threads' calls in progress for the next stop, if they are let go now.
    #[must_use]
    pub fn expiry_notes(&self) -> Vec<ExpiryNote> {
        let processes = self.processes().iter();
        let threads = processes.flat_map(|process| {
            let memory = process.memory();
            process.threads.iter().map(move |thread| (thread, memory))
        });
        threads
            .filter(|(thread, _)| !thread.is_abandoned())
            .filter_map(|(thread, memory)| note_of(thread, memory))
            .collect()
    }

    /// Uses what the stop before this one has remembered, where it is about the same calls.
    fn recall(&mut self, notes: &[ExpiryNote]) {
        for process in self.processes_mut() {
            for thread in &mut process.threads {
                let Some(here) = whereabouts(thread, &thread.registers()) else {
                    continue;
                };
                let call =
                    |note: &ExpiryNote| (note.tid, note.started_ticks, note.place, note.args);
                let same = |note: &&ExpiryNote| {
                    call(note) == call(&here) && note.expiry_ns > thread.stopped_at_ns
                };
                let Some(note) = notes.iter().find(same) else {
                    continue;
                };
                let switched = switches(thread).and_then(|now| now.checked_sub(note.switches));
                if switched.is_some_and(|times| (1..=2).contains(&times)) {
                    thread.remember(note.nr as i64, note.expiry_ns);
                }
            }
        }
    }
}

/// The note of a thread's call, if the next stop might need one.
fn note_of(thread: &StoppedThread, memory: &Memory) -> Option<ExpiryNote> {
    let at_ns = thread.stopped_at_ns;
    let call = reenter::interrupted(thread, memory, at_ns)?;
    let rest_ns = call.timed_rest_ns()?;
    let mut registers = thread.registers();
    if call.ended {
        // It is entered with the rest as its time-out, and only so can it be told from the next.
        registers = match thread.home_registers() {
            same if same == registers => reenter::go_on(thread, memory, at_ns)?,
            home => home,
        };
        if !reenter::has_own_time(call.nr, &thread.registers(), &registers) {
            return None;
        }
    }
    Some(ExpiryNote {
        switches: switches(thread)?,
        nr: call.nr as u64,
        expiry_ns: at_ns.saturating_add(rest_ns),
        ..whereabouts(thread, &registers)?
    })
}

fn switches(thread: &StoppedThread) -> Option<u64> {
    let status = ProcDir::of(thread.tid.0).parsed("status", parse_status);
    Some(status.ok()?.switches)
}

fn whereabouts(thread: &StoppedThread, registers: &Registers) -> Option<ExpiryNote> {
    let r = registers;
    Some(ExpiryNote {
        tid: thread.tid.0,
        started_ticks: thread.before.started_ticks?,
        switches: 0,
        nr: 0,
        place: [r.rip, r.rsp],
        args: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9],
        expiry_ns: 0,
    })
}
