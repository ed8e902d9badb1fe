//! The job's own table of record locks: who has which bytes of which file, and who waits for whom.
//!
//! ```text
//! blockers() none --put()--> held --put(none), forget()--> gone
//!           `some --wait()--> waiting --wait_is_over()--> tried again      would_deadlock() first
//! ```
//! # What callers may rely on
//! It is a value: no system calls, no clock. What is put does not conflict, if they have asked.
//!
//! # What it does not do
//! It does not know whether somebody outside the job is in the way.

use super::pieces::{Piece, Pieces};
use std::collections::BTreeMap;
use wire::{LockMode, Span};

/// A file, by its device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A process, by the number that it was given.
    Process(u64),
    /// An open file description, by its handle.
    Description(u64),
}

/// A lock that somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) owner: Owner,
    pub(crate) file: FileId,
    pub(crate) mode: LockMode,
    pub(crate) span: Span,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    files: BTreeMap<FileId, BTreeMap<Owner, Pieces>>,
    /// By whatever the waiters have named themselves.
    waiting: BTreeMap<u64, Wanted>,
    /// All there are.
    pieces: usize,
}

impl LockTable {
    /// What is in the way.
    pub(crate) fn blockers(&self, wanted: Wanted) -> impl Iterator<Item = (Owner, Piece)> {
        let owners = self.files.get(&wanted.file).into_iter().flatten();
        owners
            .filter(move |(owner, _)| **owner != wanted.owner)
            .flat_map(move |(owner, pieces)| {
                let conflicting = pieces.overlapping(wanted.span).filter(move |one| {
                    one.mode == LockMode::Exclusive || wanted.mode == LockMode::Exclusive
                });
                conflicting.map(|one| (*owner, one))
            })
    }

    /// Gives bytes a mode, or none. Whoever calls has seen that nothing is in the way.
    pub(crate) fn put(&mut self, owner: Owner, file: FileId, span: Span, mode: Option<LockMode>) {
        if mode.is_none() && self.of(owner, file).is_none() {
            return;
        }
        let owners = self.files.entry(file).or_default();
        let pieces = owners.entry(owner).or_default();
        self.pieces -= pieces.len();
        pieces.set(span, mode);
        self.pieces += pieces.len();
        if pieces.is_empty() {
            owners.remove(&owner);
        }
        if owners.is_empty() {
            self.files.remove(&file);
        }
    }

    /// What an owner has on a file.
    pub(crate) fn of(&self, owner: Owner, file: FileId) -> Option<&Pieces> {
        self.files.get(&file)?.get(&owner)
    }

    /// The files that an owner has locks on.
    pub(crate) fn files_of(&self, owner: Owner) -> Vec<FileId> {
        let of_it = |(_, owners): &(&FileId, &BTreeMap<Owner, Pieces>)| owners.contains_key(&owner);
        let files = self.files.iter().filter(of_it);
        files.map(|(file, _)| *file).collect()
    }

    /// All there is.
    pub(crate) fn all(&self) -> impl Iterator<Item = (FileId, Owner, Piece)> {
        self.files.iter().flat_map(|(file, owners)| {
            let owners = owners.iter();
            owners.flat_map(|(owner, pieces)| pieces.iter().map(|piece| (*file, *owner, piece)))
        })
    }

    /// Whether anybody has a lock on a file.
    pub(crate) fn has(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    /// What all owners together have of these bytes: what the job must have towards others.
    pub(crate) fn most(&self, file: FileId, span: Span) -> Pieces {
        let mut most = Pieces::default();
        let owners = self.files.get(&file).into_iter().flatten();
        for (_, pieces) in owners {
            for one in pieces.overlapping(span) {
                let within = Span {
                    first: one.span.first.max(span.first),
                    last: one.span.last.min(span.last),
                };
                most.raise(within, one.mode);
            }
        }
        most
    }

    /// How many pieces there are, of all files.
    pub(crate) fn count(&self) -> usize {
        self.pieces
    }

    /// Somebody waits, under a name of its own.
    pub(crate) fn wait(&mut self, waiter: u64, wanted: Wanted) {
        self.waiting.insert(waiter, wanted);
    }

    /// It does not any longer.
    pub(crate) fn wait_is_over(&mut self, waiter: u64) {
        self.waiting.remove(&waiter);
    }

    /// Whether a process that waited for this would wait for itself. Locks of open file descriptions are given up by
    /// whoever has them: for them nobody can tell (as Linux).
    pub(crate) fn would_deadlock(&self, wanted: Wanted) -> bool {
        if !matches!(wanted.owner, Owner::Process(_)) {
            return false;
        }
        let mut seen = vec![];
        let mut left: Vec<Owner> = self.blockers(wanted).map(|(owner, _)| owner).collect();
        while let Some(owner) = left.pop() {
            if owner == wanted.owner {
                return true;
            }
            if seen.contains(&owner) || !matches!(owner, Owner::Process(_)) {
                continue;
            }
            seen.push(owner);
            let its = self.waiting.values().filter(|wait| wait.owner == owner);
            left.extend(its.flat_map(|wait| self.blockers(*wait).map(|(owner, _)| owner)));
        }
        false
    }
}
