//! The descriptors that a job with remote files has at fixed numbers, seen from outside.
//!
//! # What callers may rely on
//! Nothing happens to a program that has something of its own at such a number: opening a FIFO waits, opening a device may do anything.

use c_shim::link::LINK_NAME;
use c_shim::table::{Reserved, TABLE_NAME};
use ckpt_lib::procfs::by_living_thread;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

/// Opens the link of a process, to read it.
///
/// # Errors
/// As [`open_table`].
pub(crate) fn open_link(pid: i32) -> io::Result<File> {
    open(
        pid,
        Reserved::Link,
        LINK_NAME,
        OpenOptions::new().read(true),
    )
}

/// Opens the file table of the job that a process belongs to, to read it, or also to write to it.
///
/// # Errors
/// `NotFound`: it has none. Others where it cannot be looked at.
pub(crate) fn open_table(pid: i32, writes: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(writes);
    open(pid, Reserved::Table, TABLE_NAME, &options)
}

fn open(pid: i32, which: Reserved, name: &[u8], options: &OpenOptions) -> io::Result<File> {
    // It may become something else between the two.
    let mut options = options.clone();
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    by_living_thread(pid, |thread| {
        let path = format!("/proc/{thread}/fd/{}", which.number());
        match fs::read_link(&path)?.as_os_str().as_bytes() == name {
            true => options.open(&path),
            false => Err(ErrorKind::NotFound.into()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use std::io::Read;

    #[test]
    fn a_link_is_told_from_what_a_program_has_at_its_number() {
        let pid = std::process::id().cast_signed();
        let number = Reserved::Link.number();
        let missing = |found: io::Result<File>| found.expect_err("none").kind();
        assert_eq!(missing(open_link(pid)), ErrorKind::NotFound);
        let name = c"wf-link";
        let file = memfd_create(name, MFdFlags::MFD_CLOEXEC).expect("is made");
        nix::unistd::write(&file, b"it").expect("writes");
        assert_eq!(fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(number)), Ok(number));
        let mut found = String::new();
        let mut opened = open_link(pid).expect("opens");
        opened.read_to_string(&mut found).expect("reads");
        assert_eq!(found, "it");
        nix::unistd::close(number).expect("closes");
        // A FIFO that nobody writes to: who opened it would wait for a writer.
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("is made");
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let fifo = options.open(path).expect("opens");
        assert_eq!(fcntl(&fifo, FcntlArg::F_DUPFD_CLOEXEC(number)), Ok(number));
        assert_eq!(missing(open_link(pid)), ErrorKind::NotFound);
        nix::unistd::close(number).expect("closes");
    }
}
