//! The starter: what stands for the shadow on the execute machine, and what a job's life is like there (`life`, `events`);
//! what the machine is and how busy it is (`measure`), and what its owner lets jobs do (`machine`), also on days that are
//! only thought of (`simulate`).
//!
//! ```text
//! shims ==> socket ─┐
//! job's stdin, -out ┴─ streams ── carrier/ (one thread) ── line ──> shadow
//! ```
//! # What callers may rely on
//! One thread, memory within limits whatever the shadow sends: 1.5 MiB for each stream that is not read. What a process
//! has closed is told to the shadow before anything that another process sends later.
//!
//! # What it does not do
//! It looks into no message but the shadow's first, for the number of the session.

mod carrier;
mod door;
mod error;
pub mod events;
mod folder;
mod job;
pub mod life;
pub mod machine;
pub mod measure;
mod reattach;
pub mod simulate;
mod streams;

pub use carrier::{Again, End, NoLine, carry};
pub use door::{Door, DoorError};
pub use error::CarrierError;
pub use folder::{Folder, FolderKind};
pub use job::{Heed, Job, Notice, Status};
pub use reattach::{Within, hand_over, take_over, told_by};
