//! The undo journal: what a job changes in files can be taken back.
//!
//! ```text
//! before_write, before_rename ... ──> the old state, durable ──> Change ──(the caller makes the change)──> drop: what was left
//!
//! epoch 1 ──mark── epoch 2 ──mark── epoch 3 (going on)
//!                  `── undo_to(2): all as it was at this mark, if nobody else has changed it since
//! ```
//! # What callers may rely on
//! If a `before_...` has returned a [`Change`], the old state is kept, and survives the end of this process (and
//! a power loss, see [`Durability`]) at any moment. If it has returned an error, the change must not be made, and nothing is
//! half done. [`Journal::undo_to`] may be interrupted anywhere; done again, it ends as if it had not been.
//!
//! # What it does not do
//! It makes no change itself but to undo. What does not go through it (other processes, memory mappings) it
//! notices, at the comparison before an undo, but cannot take back.

mod adopt;
mod answers;
mod boot;
mod brim;
mod change;
mod check;
mod epochs;
mod error;
#[doc(hidden)]
pub mod fault;
mod format;
mod inode;
mod journal;
mod loading;
mod past;
mod ranges;
mod reserve;
mod settings;
mod state;
mod undo;

pub use boot::Boot;
pub use brim::Brim;
pub use change::Change;
pub use check::{Difference, Foreign};
pub use epochs::{Epoch, Mark};
pub use error::JournalError;
pub use format::frame::{Frame, FrameError, Key};
pub use inode::Stamp;
pub use journal::{Journal, sweep};
pub use reserve::OWN_PREFIX;
pub use settings::{Durability, Settings};
pub use undo::{Files, Undone};

/// Whether these bytes are a record with a meaning; for fuzzing.
#[doc(hidden)]
#[must_use]
pub fn is_record(key: &Key, bytes: &[u8]) -> bool {
    Frame::read(key, 0, bytes).is_ok_and(|frame| is_body(frame.head.kind, frame.body, frame.data))
}

/// Whether these bytes are a record's body; for fuzzing.
#[doc(hidden)]
#[must_use]
pub fn is_body(kind: u16, body: &[u8], data: &[u8]) -> bool {
    format::record::Record::decode(kind, body, data.len() as u64).is_ok()
}
