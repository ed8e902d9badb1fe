//! Images of jobs that are kept where their files are (`--images shadow`), as Condor's checkpoint server kept them.
//!
//! ```text
//! job's machine: checkpoint ── its image, on this disk ──pages that are not there yet──> shadow --images DIR: DIR/NAME/NAME-N.img
//!                    │ <── every byte has been read, and it is durable ── GOOD ──┘
//!                    └── the mark counts, and so does the image here ──> GOOD ──> there, too
//! another one:   restart | run --resume ── newest that is good ── fetched (client.rs)
//! ```
//! What goes along the stream is [`crate::away::chunks`]'s.

mod client;
mod folder;
mod forget;
mod store;

pub(crate) use client::{Where, is_fetched, newer_than_here};
pub(crate) use forget::Kept;
pub(crate) use store::Store;
