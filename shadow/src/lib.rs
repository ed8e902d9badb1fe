//! The shadow: serves a job's system calls on the submit machine, as the job's owner.
//!
//! ```text
//! stream ── connection/ ──> Session::answer ── serve/ ──> the file systems, beneath the allowed roots
//!           heads, limits    open files          names/     (openat2)
//!                                                changes/ ──> journal: what is changed can be undone
//! ```
//! # What callers may rely on
//! Whatever a peer sends, no name leads out of what [`Allowed`] lists, memory stays within limits, and other
//! sessions are not disturbed. A refusal is EACCES to the job and a line in the log.
//!
//! # What it does not do
//! It knows nothing of processes but which of them have locks: descriptors, offsets shared by `dup`, `O_CLOEXEC`, umask and current directory are
//! the shim's.

// Tests make the files that they need.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod carried;
mod changes;
mod compressed;
mod connection;
mod copies;
mod crowd;
mod foresight;
mod images;
mod kept;
mod lanes;
mod listen;
mod living;
mod locks;
mod names;
mod peer;
mod saved;
mod secure;
mod serve;
mod session;
mod sessions;
mod undo;

pub use carried::{Carried, CarriedWriter, CarryError, Taker, carry, introduce};
pub use connection::{StreamError, serve_stream};
pub use foresight::Foresight;
pub use images::{Images, Taking, ToKeep};
#[doc(hidden)]
pub use journal::fault::Fatal;
pub use journal::{Brim, Difference, Durability, Epoch, Files, JournalError, Mark, Undone};
pub use kept::{FAULT_POINTS, Presence, Probe, State, StateError};
pub use listen::{ListenError, Server};
pub use names::{AllowError, Allowed};
pub use peer::Peer;
pub use saved::{MoveError, copy_of, mark_of};
pub use secure::SecureServer;
pub use serve::Domains;
pub use session::{Limits, Session};
pub use sessions::Sessions;
pub use undo::{JobId, Journals, UndoError};

/// Parsers of bytes that come from elsewhere, for `fuzz/`.
#[doc(hidden)]
pub mod fuzzed {
    pub use crate::kept::fuzzed_log as log;
    pub use crate::saved::fuzzed as saved;
}
