//! The kernel and the processor, wrapped: the only place in the engine where `unsafe` is allowed.
//!
//! Each module allows it for itself (`#![allow(unsafe_code)]`) and offers safe functions.

pub(crate) mod affinity;
pub(crate) mod channels;
pub(crate) mod cpu;
pub(crate) mod fault;
pub(crate) mod foreign;
pub(crate) mod guarded;
pub(crate) mod landlock;
pub(crate) mod memfd;
pub(crate) mod pagemap;
pub(crate) mod probe;
pub(crate) mod ptrace;
pub(crate) mod segments;
pub(crate) mod signals;
pub(crate) mod userfaultfd;
pub(crate) mod writeback;
