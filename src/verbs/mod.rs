//! The verbs of the command, one file each.

pub(crate) mod completions;
pub(crate) mod kill;
pub(crate) mod man;
pub(crate) mod ps;
