//! What the image writer and the loader agree on, and nothing else.
//!
//! ```text
//! ckpt-lib --writes--> image: [layout::Header] [ops] [extents] [pages]
//! loader   --reads---> the same bytes, without allocation
//! ```
//! # What callers may rely on
//! Everything here is plain integers in little-endian order, `no_std`, and
//! free of pointers; reading arbitrary bytes returns an error, never panics.
//!
//! # What it does not do
//! It does not know how an operation list was made (see `ckpt_lib::plan`) and
//! does not carry it out (see the program in `main.rs`).
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

pub mod call_names;
pub mod clocks;
#[cfg(feature = "frames")]
pub mod frame;
pub mod guard;
pub mod hole;
pub mod knock;
pub mod layout;
pub mod locks;
pub mod meaning;
pub mod ops;
pub mod page_advice;
pub mod page_sizes;
pub mod processor;
pub mod visible;
pub mod words;
pub mod xstate;
