//! Whose files these are.

use rustix::process::{getegid, geteuid};
use wire::{Owner, Reply};

/// Which machines see the same files, and have the same users: Condor's FILESYSTEM_DOMAIN and UID_DOMAIN. Empty: only this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domains {
    /// Of files.
    pub file_system: String,
    /// Of users.
    pub uid: String,
}

/// Bytes of a mount table that are told.
const MOST_MOUNTS: usize = 512 << 10;

/// The answer to a [`wire::Identify`]: whoever this process is, and (uname(2)) the names of this machine and of its domain, put
/// into `out`; then, if there are any, the domains and what is mounted here (proc_pid_mountinfo(5)).
pub(super) fn identify(domains: &Domains, out: &mut Vec<u8>) -> Reply<'static> {
    let system = rustix::system::uname();
    out.extend(system.nodename().to_bytes_with_nul());
    out.extend(system.domainname().to_bytes_with_nul());
    if !domains.file_system.is_empty() {
        for name in [&domains.file_system, &domains.uid] {
            out.extend(name.bytes().chain([0]));
        }
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        out.extend(mounts.iter().take(MOST_MOUNTS).filter(|byte| **byte != 0));
    }
    Reply::Owner(Owner {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    })
}
