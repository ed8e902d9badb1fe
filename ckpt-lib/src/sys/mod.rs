//! The kernel and the processor, wrapped: the only place in the engine where `unsafe` is allowed.

pub(crate) mod cpu;
pub(crate) mod probe;
