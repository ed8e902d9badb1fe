//! Files in memory.

use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io;

/// An empty executable memfd, closed on exec (memfd_create(2)).
pub(crate) fn create(name: &str) -> io::Result<File> {
    let exec = MFdFlags::from_bits_retain(0x10); // MFD_EXEC, since 6.3
    match memfd_create(name, MFdFlags::MFD_CLOEXEC | exec) {
        Ok(fd) => Ok(File::from(fd)),
        Err(nix::errno::Errno::EINVAL) => {
            Ok(File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?))
        }
        Err(error) => Err(error.into()),
    }
}
