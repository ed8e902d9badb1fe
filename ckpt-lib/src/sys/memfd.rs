//! Files in memory.

use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io;

/// An empty memfd, closed on exec (memfd_create(2)); executable where the machine allows that
/// (`vm.memfd_noexec` = 2 does not).
pub(crate) fn create(name: &str) -> io::Result<File> {
    use nix::errno::Errno;
    // Since 6.3.
    const MFD_EXEC: MFdFlags = MFdFlags::from_bits_retain(0x10);
    const MFD_NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(0x8);
    let with = |flags| memfd_create(name, MFdFlags::MFD_CLOEXEC | flags);
    let made = match with(MFD_EXEC) {
        Err(Errno::EINVAL) => with(MFdFlags::empty()),
        Err(Errno::EACCES) => with(MFD_NOEXEC_SEAL),
        made => made,
    };
    Ok(File::from(made?))
}
