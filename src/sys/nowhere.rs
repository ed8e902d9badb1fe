//! A file system in memory that is mounted nowhere: only a descriptor leads to it, and it is gone with the last one.
//!
//! ```text
//! fsopen, fsmount: as root, or
//! a child that shares our descriptors --its own user namespace--> fsopen, fsmount --its end--> the descriptor is ours
//! ```

use std::ffi::CStr;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

const FSCONFIG_SET_STRING: usize = 1;
const FSCONFIG_CMD_CREATE: usize = 6;
/// FSMOUNT_CLOEXEC
const CLOSED_ON_EXEC: usize = 1;
/// MOUNT_ATTR_NOSUID, NODEV, NOEXEC
const ATTRIBUTES: usize = 2 | 4 | 8;

/// Makes one, whose folder anybody may write to who has it; none where the kernel does not do that for us (before Linux 5.2, or without
/// user namespaces).
pub(crate) fn memory_mounted_nowhere() -> Option<OwnedFd> {
    mount().or_else(|_| mount_in_a_child()).ok()
}

/// A system call, whose descriptor is ours then.
fn descriptor(number: libc::c_long, args: [usize; 5]) -> io::Result<OwnedFd> {
    let fd = plain(number, args)?;
    // SAFETY: the kernel has just made it, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn plain(number: libc::c_long, args: [usize; 5]) -> io::Result<i32> {
    let [a, b, c, d, e] = args;
    // SAFETY: those of this file read strings that end with a zero, and write nothing.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    match i32::try_from(result) {
        Ok(result @ 0..) => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn address(text: &CStr) -> usize {
    text.as_ptr().addr()
}

fn mount() -> io::Result<OwnedFd> {
    let kind = address(c"tmpfs");
    let system = descriptor(libc::SYS_fsopen, [kind, CLOSED_ON_EXEC, 0, 0, 0])?;
    let fd = system.as_raw_fd() as usize;
    for (key, value) in [(c"mode", c"0777"), (c"source", c"wayfarer")] {
        let set = [fd, FSCONFIG_SET_STRING, address(key), address(value), 0];
        plain(libc::SYS_fsconfig, set)?;
    }
    plain(libc::SYS_fsconfig, [fd, FSCONFIG_CMD_CREATE, 0, 0, 0])?;
    let mount = [fd, CLOSED_ON_EXEC, ATTRIBUTES, 0, 0];
    descriptor(libc::SYS_fsmount, mount)
}

/// An ordinary user may do it in a user namespace, which lasts as long as the file system.
fn mount_in_a_child() -> io::Result<OwnedFd> {
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    /// What cannot be told by an exit status.
    const NONE: i32 = 255;
    // No signal at its end: where SIGCHLD is ignored nobody could wait for it.
    let flags = libc::CLONE_FILES as usize;
    // SAFETY: as fork(2), but for the descriptors: the child has its own copy of our memory, and takes no lock.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if child == 0 {
        let made = enter().and_then(|()| mount());
        let number = made.map_or(NONE, IntoRawFd::into_raw_fd).min(NONE);
        // SAFETY: it ends the child, and runs nothing of ours.
        unsafe { libc::_exit(number) };
    }
    let child = i32::try_from(child).map_err(|_| io::ErrorKind::Other)?;
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    let child = nix::unistd::Pid::from_raw(child);
    match waitpid(child, Some(WaitPidFlag::__WALL))? {
        WaitStatus::Exited(_, fd @ 3..NONE) => {
            // SAFETY: the child has made it in our table, and nobody else knows it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// A user namespace in which we are who we are.
fn enter() -> io::Result<()> {
    use nix::sched::{CloneFlags, unshare};
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    // Where there is no such file nobody asks for it.
    let _ = write("/proc/self/setgroups", format_args!("deny"));
    write("/proc/self/uid_map", format_args!("{user} {user} 1"))?;
    write("/proc/self/gid_map", format_args!("{group} {group} 1"))
}

fn write(path: &str, text: std::fmt::Arguments<'_>) -> io::Result<()> {
    let mut room = [0; 64];
    let mut rest = &mut room[..];
    rest.write_fmt(text)?;
    let left = rest.len();
    let text = &room[..64 - left];
    // In one piece, as the kernel wants it.
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::{Mode, SFlag, mknodat};
    use std::fs;

    #[test]
    fn what_is_made_there_is_found_by_the_descriptor_only() {
        for folder in [mount(), mount_in_a_child()].into_iter().flatten() {
            mknodat(&folder, "fifo", SFlag::S_IFIFO, Mode::S_IRUSR, 0).expect("makes it");
            let name = format!("/proc/self/fd/{}", folder.as_raw_fd());
            let found: Vec<_> = fs::read_dir(&name).expect("lists").flatten().collect();
            assert_eq!(found.len(), 1);
            let mounts = fs::read_to_string("/proc/self/mountinfo").expect("reads");
            assert!(!mounts.contains(" wayfarer "), "{mounts}");
            assert!(
                fs::read_dir(format!("{name}/../.."))
                    .expect("stays")
                    .count()
                    == 1
            );
        }
    }
}
