//! What is remembered of a job from before it is stopped.

use super::inodes::OpenedFiles;
use super::watches::Watches;
use crate::inject::block_apart;
use crate::procfs::SmapsEntry;
use crate::tracee::HostPid;
use std::collections::{HashMap, HashSet};

/// What was found before the job was stopped, and saves time while it is.
#[derive(Debug, Default)]
pub struct EarlyView {
    /// Mappings of each process, in order.
    pub(super) smaps: HashMap<i32, Vec<SmapsEntry>>,
    /// Processes whose memory has nothing but the default policy.
    pub(super) unplaced: HashSet<i32>,
    pub(super) watches: Watches,
    pub(super) opened: OpenedFiles,
}

impl EarlyView {
    /// Where a workshop in a process is apart from its mappings.
    #[must_use]
    pub fn apart(&self, pid: HostPid) -> Option<u64> {
        let entries = self.smaps.get(&pid.0)?;
        let range = |entry: &SmapsEntry| entry.line.start..entry.line.end;
        block_apart(entries.iter().map(range))
    }
}
