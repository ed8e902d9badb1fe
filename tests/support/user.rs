//! Who a job runs as.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Name of the ordinary user that `scripts/setup` makes.
const ORDINARY: &str = "wftest";

/// Who a job runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Root; only where the tests are started by root.
    Root,
    /// An ordinary user: `wftest` where the tests are started by root, else oneself.
    Ordinary,
}

/// Whether the tests were started by root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

impl User {
    /// Why this user cannot be had here, if it cannot.
    pub fn missing(self) -> Option<String> {
        match self {
            User::Root if !is_root() => Some("not started by root".into()),
            User::Ordinary if is_root() && ids().is_none() => {
                Some(format!("no user {ORDINARY}: run scripts/setup"))
            }
            _ => None,
        }
    }

    /// Makes the command run as this user.
    pub fn apply(self, command: &mut Command) {
        if let (User::Ordinary, true, Some((uid, gid))) = (self, is_root(), ids()) {
            command.uid(uid).gid(gid);
            command.env("HOME", format!("/home/{ORDINARY}"));
            command.env("USER", ORDINARY);
        }
    }

    /// Gives the path to this user.
    pub fn own(self, path: &std::path::Path) {
        if let (User::Ordinary, true, Some((uid, gid))) = (self, is_root(), ids()) {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("chown to the test user");
        }
    }
}

fn ids() -> Option<(u32, u32)> {
    #[allow(
        clippy::disallowed_methods,
        reason = "test programs are linked dynamically"
    )]
    let user = nix::unistd::User::from_name(ORDINARY).ok()??;
    Some((user.uid.as_raw(), user.gid.as_raw()))
}
