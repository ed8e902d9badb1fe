//! The engine: a stopped process tree becomes a [`snapshot`] becomes an [`image`].
//!
//! ```text
//! quiesce -> inject -> capture -> snapshot -> plan -> operations --+
//!                         `-> picture (COW child) -> extents ------+-> image
//! ```
//! # What callers may rely on
//! [`checkpoint`] either commits one whole image and leaves the job as it was
//! told to (running or killed), or returns an error that names what was in the
//! way and leaves the job running and no file under the final name.
//!
//! # What it does not do
//! It knows nothing of daemons, sockets or policy.
#![deny(unsafe_code)]

pub mod baseline;
pub mod board;
pub mod capture;
mod checkpoint;
pub mod export;
pub mod filters;
pub mod host;
pub mod image;
pub mod inject;
pub mod loader_code;
pub mod pace;
pub mod pages;
pub mod picture;
pub mod plan;
pub mod platform;
pub mod procfs;
pub mod progress;
pub(crate) mod shown;
#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
mod skip;
pub mod snapshot;
mod spool;
mod sys;
pub mod tracee;
pub mod vdso;
pub mod watch;

pub use capture::{ProcessUsed, ThreadUsed, Used};
pub use checkpoint::{
    CheckpointError, CheckpointReport, CheckpointRequest, JobSession, SessionError, Then,
    checkpoint,
};
pub use shown::shown;
