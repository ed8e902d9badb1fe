//! The memory of another process.

use super::HostPid;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The memory of a process that we may trace.
#[derive(Debug)]
pub struct Memory {
    pid: HostPid,
    file: File,
}

impl Memory {
    /// Of process `pid`.
    ///
    /// # Errors
    /// Of opening `/proc/PID/mem`: it is gone, or we may not trace it.
    pub fn open(pid: HostPid) -> io::Result<Self> {
        let path = format!("/proc/{}/mem", pid.0);
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Memory { pid, file })
    }

    /// Whose it is.
    #[must_use]
    pub fn pid(&self) -> HostPid {
        self.pid
    }

    /// Fills `buf` from `address` on, whatever the protection of the pages.
    ///
    /// # Errors
    /// EIO where nothing is mapped.
    pub fn read(&self, address: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, address)
    }

    /// Writes `bytes` at `address`, whatever the protection of the (private) pages.
    ///
    /// # Errors
    /// EIO where nothing is mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }
}
