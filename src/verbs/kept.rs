//! What a shadow keeps, so that it goes on with its jobs when it is started again: where, and how it sees whether they are there.

use crate::address::Address;
use crate::jobs::{JobStore, process};
use crate::remote::reserved::open_link;
use c_shim::link::{LINK_LEN, Link};
use ckpt_lib::procfs::has_ended;
use shadow::Presence;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use wire::Token;

/// Milliseconds by which the begin of a process may be told too early: the kernel counts it in hundredths of a second.
const ROUNDING_MS: u64 = 20;

/// The folder of a shadow that listens there: another for each address.
pub(crate) fn default_dir(store: &JobStore, listen: &Address) -> PathBuf {
    let text = match listen {
        Address::Unix(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            [b"unix:", path.as_os_str().as_bytes()].concat()
        }
        other => other.to_string().into_bytes(),
    };
    let mut name = String::new();
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' => name.push(byte.into()),
            other => {
                // A sink that cannot fail.
                let _ = write!(name, "-{other:02x}");
            }
        }
    }
    store.dir().join("shadows").join(name)
}

/// The processes of a session: each has its link.
pub(crate) fn presence(token: &Token, session: u64, began_ms: u64) -> Presence {
    let mut presence = Presence {
        pids: vec![],
        is_all: true,
    };
    let Ok(pids) = process::all() else {
        presence.is_all = false;
        return presence;
    };
    let own = nix::unistd::geteuid().as_raw();
    for pid in pids {
        let path = PathBuf::from(format!("/proc/{pid}"));
        // One that cannot be looked into is root's here.
        let is_ours = |uid| uid == own || uid == 0;
        if !fs::metadata(&path).is_ok_and(|found| is_ours(found.uid())) {
            continue;
        }
        match link_of(pid) {
            Ok(Some(link)) if link.token == *token && link.session == session => {
                presence.pids.extend(innermost_pid(&path));
            }
            Ok(_) => {}
            Err(()) => {
                // Of a dead one nobody may have asked yet how it has ended.
                let may_be = !has_ended(pid)
                    && user_of(&path) == Some(own)
                    && begin_ms(&path).is_some_and(|began| began + ROUNDING_MS >= began_ms);
                presence.is_all &= !may_be;
            }
        }
    }
    presence
}

/// None if it has no link; an error if it cannot be looked into.
fn link_of(pid: i32) -> Result<Option<Link>, ()> {
    let mut bytes = [0; LINK_LEN];
    let read = open_link(pid).and_then(|link| link.read_exact_at(&mut bytes, 0));
    match read {
        Ok(()) => Ok(Link::read(&bytes)),
        // Or it has ended meanwhile.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(_) => Err(()),
    }
}

/// `NSpid`: as the process knows itself.
fn innermost_pid(process: &Path) -> Option<u32> {
    field(process, "NSpid:")?
        .split_whitespace()
        .last()?
        .parse()
        .ok()
}

/// The effective one.
fn user_of(process: &Path) -> Option<u32> {
    field(process, "Uid:")?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

fn field(process: &Path, name: &str) -> Option<String> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.to_owned())
}

/// Since the machine began.
fn begin_ms(process: &Path) -> Option<u64> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name may have anything in it; the 22nd field is the 20th behind it.
    let ticks: u64 = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    Some(ticks.saturating_mul(1000) / u64::try_from(per_second).ok()?.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use c_shim::table::Reserved;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn this_process_began_a_while_ago_and_has_no_session() {
        let own = Path::new("/proc/self");
        let began = begin_ms(own).expect("is told");
        assert!(began > 0);
        assert_eq!(innermost_pid(own), Some(std::process::id()));
        assert_eq!(user_of(own), Some(nix::unistd::geteuid().as_raw()));
        let pid = std::process::id().cast_signed();
        assert!(matches!(link_of(pid), Ok(None)));
        let presence = presence(&[7; 32], 1, u64::MAX);
        assert!(presence.is_over(), "{presence:?}");
    }

    #[test]
    fn a_process_with_the_link_of_a_session_is_seen() {
        let link = Link::new(&[7; 32], 5, 1, 1, b"/nowhere").expect("fits");
        let name = c"wf-link";
        let file = nix::sys::memfd::memfd_create(name, nix::sys::memfd::MFdFlags::empty());
        let file = File::from(file.expect("is made"));
        file.write_all_at(&link.bytes(), 0).expect("writes");
        let number = Reserved::Link.number();
        let held = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_DUPFD(number));
        assert_eq!(held, Ok(number), "{} is free", file.as_raw_fd());
        let seen = presence(&[7; 32], 5, 0);
        assert_eq!(seen.pids, [std::process::id()]);
        assert!(presence(&[7; 32], 6, u64::MAX).is_over());
        assert!(presence(&[8; 32], 5, u64::MAX).is_over());
        let _ = nix::unistd::close(number);
    }

    #[test]
    fn each_address_has_a_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = JobStore::locate(Some(dir.path())).expect("a store");
        let tls = Address::parse("tls:here:7").expect("an address");
        let name = default_dir(&store, &tls);
        assert_eq!(name.file_name(), Some("tls-3ahere-3a7".as_ref()));
        let unix = |path: &str| default_dir(&store, &Address::Unix(path.into()));
        assert_ne!(unix("/a/b"), unix("/a-2fb"));
    }
}
