//! Which run of the machine this is.

use crate::JournalError;
use crate::inode::Stamp;
use std::fs;

/// A run of the machine, from its start to its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Boot {
    /// Random, of this run only.
    pub id: [u8; 16],
    /// When it began.
    pub began: Stamp,
}

impl Boot {
    /// This one. `/proc/sys/kernel/random/boot_id` and `btime` of `/proc/stat`, proc(5).
    ///
    /// # Errors
    /// [`JournalError::Io`] without `/proc`.
    pub fn now() -> Result<Self, JournalError> {
        let name = "/proc/sys/kernel/random/boot_id";
        let text =
            fs::read_to_string(name).map_err(|error| JournalError::io("read", name, error))?;
        let hash = blake3::hash(text.trim().as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hash.as_bytes()[..16]);
        let name = "/proc/stat";
        let text =
            fs::read_to_string(name).map_err(|error| JournalError::io("read", name, error))?;
        let began = text.lines().find_map(|line| line.strip_prefix("btime "));
        let seconds = began.and_then(|began| began.trim().parse().ok());
        let seconds = seconds.ok_or_else(|| {
            JournalError::damaged(name, "btime", "none", "the time of the machine's start")
        })?;
        let began = Stamp {
            seconds,
            nanoseconds: 0,
        };
        Ok(Boot { id, began })
    }
}
