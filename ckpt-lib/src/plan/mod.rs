//! From a snapshot to the operations that bring it back: a pure function.

mod builder;

pub use builder::{Arg, OpsBuilder, StreamIndex};
