//! Whose files these are.

use rustix::process::{getegid, geteuid};
use wire::{Owner, Reply};

/// The answer to a [`wire::Identify`]: whoever this process is, and (uname(2)) the names of this machine and of its domain, put
/// into `out`.
pub(super) fn identify(out: &mut Vec<u8>) -> Reply<'static> {
    let system = rustix::system::uname();
    out.extend(system.nodename().to_bytes_with_nul());
    out.extend(system.domainname().to_bytes_with_nul());
    Reply::Owner(Owner {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    })
}
