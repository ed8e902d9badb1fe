//! What was added to the records of version 1 later: in the image it lies behind all else, where older ones have nothing.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSettings {
    /// modify_ldt(2): its local descriptor table, a segment descriptor each.
    pub local_descriptors: Vec<u64>,
    /// PR_SET_MEMORY_MERGE: all its memory may be merged with equal pages.
    pub merges_memory: bool,
    /// Flags of PR_SET_THP_DISABLE.
    pub thp_flags: u32,
    /// mbind(2): memory with a policy of its own, in order of addresses.
    pub policies: Vec<(Range<u64>, MemoryPolicy)>,
    /// MADV_GUARD_INSTALL: pages that may not be touched, in order of addresses.
    pub guards: Vec<Range<u64>>,
}

/// Of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSettings {
    /// set_mempolicy(2).
    pub memory_policy: MemoryPolicy,
    /// PR_GET_SPECULATION_CTRL of store bypass, indirect branches, flushing of the first cache: what can be set of it (PR_SPEC_DISABLE,
    /// PR_SPEC_FORCE_DISABLE, PR_SPEC_DISABLE_NOEXEC; for the last PR_SPEC_ENABLE), or 0 for what a thread has by itself.
    pub speculation: [u32; 3],
    /// PR_MCE_KILL_GET: PR_MCE_KILL_EARLY or PR_MCE_KILL_LATE, if it has been said.
    pub memory_failure: Option<u32>,
    /// PR_SET_IO_FLUSHER.
    pub flushes_io: bool,
    /// sched_setattr(2): least and most utilisation that the scheduler is told, of 1024; if it is not what a thread has by itself.
    pub utilization: Option<(u32, u32)>,
}

/// On which nodes memory is placed (set_mempolicy(2)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPolicy {
    /// MPOL_DEFAULT ..., and MPOL_F_STATIC_NODES and the like.
    pub mode: u32,
    /// The nodes, one bit each, lowest first; a multiple of 8 bytes, the last 8 of them not zero.
    pub nodes: Vec<u8>,
}

/// Of a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketSettings {
    /// Options of SOL_SOCKET that are not what a socket has by itself, and their values.
    pub options: Vec<(i32, Vec<u8>)>,
    /// Who sent each message of its inbox, as SCM_CREDENTIALS will say; none where it will say nothing.
    pub senders: Vec<Option<Sender>>,
}

/// The sender of a message: always a process of the job, with the ids that it has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// Its id.
    pub pid: u32,
}
