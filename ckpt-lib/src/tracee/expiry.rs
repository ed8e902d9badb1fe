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
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
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
const FORMAT: &str = "calls in progress 3";
/// The file begins with the hash of what follows.
const HASH_LEN: usize = blake3::OUT_LEN;

impl CallNotes {
    /// What has been remembered there; nothing if it cannot be read: then calls in progress may wait
    /// longer than is due after a restart, never less.
    #[must_use]
    pub fn open(path: Option<&Path>) -> SharedNotes {
        let bytes = path.and_then(|path| std::fs::read(path).ok());
        let notes = bytes.and_then(|bytes| decode(&bytes)).unwrap_or_default();
        Rc::new(RefCell::new(CallNotes {
            path: path.map(Path::to_owned),
            notes,
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

    /// As little as it is worth, a failure is no reason to have no image. It is written in place, since ext4
    /// lets a rename over a file wait for the disk (`auto_da_alloc`), and the job stands still; what was
    /// written in part is nothing, by its hash.
    fn write(&self) {
        let Some(path) = &self.path else { return };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        if let (Some(bytes), Ok(file)) = (encode(&self.notes), file)
            && file.write_all_at(&bytes, 0).is_ok()
        {
            let _ = file.set_len(bytes.len() as u64);
        }
    }
}

fn encode(notes: &[ExpiryNote]) -> Option<Vec<u8>> {
    let content = (FORMAT, notes);
    let encoded = bincode::serde::encode_to_vec(content, bincode::config::standard()).ok()?;
    Some([blake3::hash(&encoded).as_bytes(), encoded.as_slice()].concat())
}

fn decode(bytes: &[u8]) -> Option<Vec<ExpiryNote>> {
    const LIMIT: usize = 64 << 20;
    let (hash, encoded) = bytes.split_at_checked(HASH_LEN)?;
    let config = bincode::config::standard().with_limit::<LIMIT>();
    let decoded: Result<((String, Vec<ExpiryNote>), usize), _> =
        bincode::serde::decode_from_slice(encoded, config);
    let ((format, notes), len) = decoded.ok()?;
    // A longer file that was here may show behind it for a moment.
    let same = blake3::hash(encoded.get(..len)?).as_bytes() == hash;
    (format == FORMAT && same).then_some(notes)
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
    let mut nr = call.nr;
    if call.ended {
        // It is entered with the rest as its time-out, and only so can it be told from the next.
        registers = match thread.home_registers() {
            same if same == registers => reenter::go_on(thread, memory, at_ns)?,
            home => home,
        };
        // Which may be another that does the same.
        nr = registers.orig_rax.cast_signed();
        if !reenter::has_our_time(nr, &registers) {
            return None;
        }
    }
    Some(ExpiryNote {
        switches: switches(thread)?,
        nr: nr.cast_unsigned(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    fn notes(numbers: Range<u64>) -> Vec<ExpiryNote> {
        let note = |number| ExpiryNote {
            tid: 7,
            started_ticks: number,
            switches: 3,
            nr: 230,
            place: [number, 1 << 40],
            args: [number; 6],
            expiry_ns: u64::MAX - number,
        };
        numbers.map(note).collect()
    }

    fn read_back(path: &Path) -> Vec<ExpiryNote> {
        CallNotes::open(Some(path)).borrow().notes().to_vec()
    }

    #[test]
    fn what_was_written_in_part_is_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes");
        let shared = CallNotes::open(Some(&path));
        for count in [3, 100, 0, 2] {
            shared.borrow_mut().replace(notes(0..count));
            assert_eq!(read_back(&path), notes(0..count));
        }
        let old = encode(&notes(0..100)).expect("old");
        let new = encode(&notes(100..190)).expect("new");
        for done in [1, HASH_LEN, HASH_LEN + 25, new.len() / 2, new.len() - 40] {
            let torn = [&new[..done], &old[done..]].concat();
            std::fs::write(&path, torn).expect("write");
            assert_eq!(read_back(&path), [], "{done} bytes of {}", new.len());
        }
        // All of it, but not yet cut back.
        let uncut = [&new[..], &old[new.len()..]].concat();
        std::fs::write(&path, uncut).expect("write");
        assert_eq!(read_back(&path), notes(100..190));
    }
}
