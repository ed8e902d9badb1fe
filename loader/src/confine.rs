//! A job that sees nothing of the machine (`--confine`, docs/adr/0027).
//!
//! ```text
//! an empty file system over the socket's folder: dev/null ..., tmp, the socket -> /proc -> it becomes the root, the old one goes
//!   -> /proc without what changes the machine -> no user namespaces below, no capabilities to come, no_new_privs
//! ```
//! # What callers may rely on
//! P1 and all it begins have no name, and no directory that is open, through which the machine's files can be reached. Whatever step fails, nothing of the
//! job is there yet, and P1 ends.
//!
//! # What it does not do
//! The job's own descriptors are looked at by whoever hands them down. The network is not touched.

use crate::abi::*;
use crate::sys::{self, Errno, SysResult};
use core::ffi::CStr;
use loader::ops::CONFINED_ROOT;

/// Devices that every program may expect; one that the machine has not got is left out.
const DEVICES: [(&CStr, &CStr); 6] = [
    (c"/dev/null", c"dev/null"),
    (c"/dev/zero", c"dev/zero"),
    (c"/dev/full", c"dev/full"),
    (c"/dev/random", c"dev/random"),
    (c"/dev/urandom", c"dev/urandom"),
    (c"/dev/tty", c"dev/tty"),
];
const FOLDERS: [&CStr; 6] = [c"proc", c"dev", c"dev/shm", c"tmp", c"var", c"var/tmp"];
const LINKS: [(&CStr, &CStr); 4] = [
    (c"/proc/self/fd", c"dev/fd"),
    (c"/proc/self/fd/0", c"dev/stdin"),
    (c"/proc/self/fd/1", c"dev/stdout"),
    (c"/proc/self/fd/2", c"dev/stderr"),
];
/// What root's programs could change the machine by, without any capability, or learn too much.
const OF_THE_MACHINE: [&CStr; 10] = [
    c"/proc/sys",
    c"/proc/sysrq-trigger",
    c"/proc/irq",
    c"/proc/bus",
    c"/proc/fs",
    c"/proc/acpi",
    c"/proc/scsi",
    c"/proc/driver",
    c"/proc/mtrr",
    c"/proc/dynamic_debug",
];
/// A number above the kernel's last is refused.
const LAST_CAPABILITY: u64 = 63;
const LONGEST: usize = 108;

/// The new root, with `/proc` mounted, is where we are; `socket` (an absolute path) is all that it has of the machine.
pub fn leave_the_machine(socket: &CStr) -> SysResult<()> {
    let (folder, inside) = parts(socket)?;
    let folder = folder.as_c_str();
    let door = sys::open(socket, O_PATH)?;
    sys::mount(CONFINED_ROOT, folder, c"tmpfs", MS_NOSUID | MS_NODEV)?;
    let root = sys::open(folder, O_PATH | O_DIRECTORY)?;
    sys::change_to(root)?;
    sys::close(root);
    for folder in FOLDERS {
        sys::make_folder(folder)?;
    }
    for (there, here) in DEVICES {
        match bind(there, here) {
            Err(Errno(ENOENT)) | Ok(()) => {}
            Err(error) => return Err(error),
        }
    }
    for (to, name) in LINKS {
        sys::make_link(to, name)?;
    }
    let mut path = Path::new();
    for byte in inside.to_bytes() {
        if *byte == b'/' {
            match sys::make_folder(path.as_c_str()) {
                Err(Errno(EEXIST)) | Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        path.push(*byte)?;
    }
    let mut there = Path::new();
    for byte in b"/proc/self/fd/" {
        there.push(*byte)?;
    }
    there.push_number(door)?;
    bind(there.as_c_str(), inside)?;
    sys::close(door);
    let flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    sys::mount(c"proc", c"proc", c"proc", flags)?;
    // The old root comes to lie upon the new one, and is taken away there (pivot_root(2)).
    sys::pivot_root(c".", c".")?;
    sys::unmount(c".", MNT_DETACH)?;
    sys::change_to_path(c"/")?;
    Ok(())
}

/// Nothing is gained from here on, and what `/proc` could change stays as it is.
pub fn take_rights() -> SysResult<()> {
    // A user namespace of its own would give it capabilities there, and more of the kernel to try them on.
    let fd = sys::open(c"/proc/sys/user/max_user_namespaces", O_WRONLY)?;
    let written = sys::write(fd, b"0");
    sys::close(fd);
    written?;
    for path in OF_THE_MACHINE {
        let none = c"none";
        match sys::mount(path, path, c"", MS_BIND | MS_REC) {
            Ok(_) => {}
            Err(Errno(ENOENT)) => continue,
            Err(error) => return Err(error),
        }
        let flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
        sys::mount(none, path, c"", flags)?;
    }
    for capability in 0..=LAST_CAPABILITY {
        match sys::prctl(PR_CAPBSET_DROP, capability) {
            // Above the kernel's last.
            Err(Errno(EINVAL)) => break,
            other => other?,
        };
    }
    sys::prctl(PR_SET_NO_NEW_PRIVS, 1)?;
    Ok(())
}

/// `there` is found as `here`, a file that is made for it. It can be used, but not changed itself: root's would be root's, whose mode may be set.
fn bind(there: &CStr, here: &CStr) -> SysResult<()> {
    let found = sys::open(there, O_PATH)?;
    sys::close(found);
    let flags = O_CREAT | O_WRONLY | O_CLOEXEC;
    let fd = sys::open_at(AT_FDCWD, here, flags, 0o600)?;
    sys::close(fd);
    sys::mount(there, here, c"", MS_BIND)?;
    let flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NOEXEC;
    sys::mount(c"none", here, c"", flags).map(|_| ())
}

/// The folder of a socket, and its path below the root.
fn parts(socket: &CStr) -> SysResult<(Path, &CStr)> {
    let bytes = socket.to_bytes();
    let last = bytes.iter().rposition(|byte| *byte == b'/');
    let (Some(last @ 1..), Some(b'/')) = (last, bytes.first()) else {
        return Err(Errno(EINVAL));
    };
    let mut folder = Path::new();
    for byte in &bytes[..last] {
        folder.push(*byte)?;
    }
    let inside = &socket.to_bytes_with_nul()[1..];
    let inside = CStr::from_bytes_with_nul(inside).map_err(|_| Errno(EINVAL))?;
    Ok((folder, inside))
}

/// A short path.
struct Path {
    bytes: [u8; LONGEST + 1],
    len: usize,
}

impl Path {
    fn new() -> Self {
        Path {
            bytes: [0; LONGEST + 1],
            len: 0,
        }
    }

    fn push(&mut self, byte: u8) -> SysResult<()> {
        if self.len == LONGEST {
            return Err(Errno(ENAMETOOLONG));
        }
        self.bytes[self.len] = byte;
        self.len += 1;
        Ok(())
    }

    fn push_number(&mut self, number: i32) -> SysResult<()> {
        let mut digits = [0; 10];
        let mut left = number.unsigned_abs();
        let mut count = 0;
        while count == 0 || left > 0 {
            digits[count] = b'0' + (left % 10) as u8;
            left /= 10;
            count += 1;
        }
        digits[..count]
            .iter()
            .rev()
            .try_for_each(|digit| self.push(*digit))
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}
