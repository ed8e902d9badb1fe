//! In the job: its file calls go to the shadow, its descriptors stay real (docs/adr/0009-remote-calls.md).
//!
//! ```text
//! program -> libc -> jmp instead of syscall -> entry -> calls/ -> lanes -> shadow
//!                    rewrite/, patch           |         `- table: open file descriptions
//!                                              `-> not ours: the kernel
//! ```
//! # What callers may rely on
//! No allocation, no lock and no libc where a call is served. What is not about a remote file reaches the
//! kernel unchanged, from where the program made it.
//!
//! # What it does not do
//! It knows nothing of images or ptrace.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod behind;
pub mod elf;
pub mod faults;
pub mod folders;
pub mod habits;
pub mod handles;
pub mod hash;
pub mod libraries;
pub mod link;
pub mod nodes;
#[cfg(feature = "program")]
mod program;
pub mod remembered;
pub mod residents;
pub mod rewrite;
pub mod rules;
pub mod sequenced;
pub mod span;
pub mod store;
pub mod table;
pub mod usage;
pub mod used;
pub mod versions;
#[cfg(test)]
mod zeroed;
