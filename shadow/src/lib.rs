//! The shadow: serves a job's system calls on the submit machine, as the job's owner.
//!
//! ```text
//! stream ── connection/ ──> Session::answer ── serve/ ──> the file systems, beneath the allowed roots
//!           heads, limits    open files          names/     (openat2)
//! ```
//! # What callers may rely on
//! Whatever a peer sends, no name leads out of what [`Allowed`] lists, memory stays within limits, and other
//! sessions are not disturbed. A refusal is EACCES to the job and a line in the log.
//!
//! # What it does not do
//! It knows nothing of processes but which of them have locks: descriptors, offsets shared by `dup`, `O_CLOEXEC`, umask and current directory are
//! the shim's.

mod connection;
mod listen;
mod locks;
mod names;
mod peer;
mod serve;
mod session;

pub use connection::{StreamError, serve_stream};
pub use listen::{ListenError, Server};
pub use names::{AllowError, Allowed};
pub use peer::Peer;
pub use session::{Limits, Session, Sessions};
