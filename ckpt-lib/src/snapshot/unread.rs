//! Bytes that lay unread in a pipe or socket.

use serde::{Deserialize, Serialize};

/// Bytes that lay unread in a pipe or socket: which of those of [`super::InodeKind::Unread`] they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// Where they begin.
    pub at: u64,
    /// How many they are.
    pub len: u64,
}
