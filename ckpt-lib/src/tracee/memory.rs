//! The memory of another process.

use super::HostPid;
use crate::sys::{fault, ptrace};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The memory of a process that we may trace.
#[derive(Debug)]
pub struct Memory {
    pid: HostPid,
    file: File,
    /// Its pages are shared copy-on-write with another process.
    shared: bool,
}

impl Memory {
    /// Of process `pid`.
    ///
    /// # Errors
    /// Of opening `/proc/PID/mem`: it is gone, or we may not trace it.
    pub fn open(pid: HostPid) -> io::Result<Self> {
        let path = format!("/proc/{}/mem", pid.0);
        let file = File::options().read(true).write(true).open(path)?;
        let shared = false;
        Ok(Memory { pid, file, shared })
    }

    /// Of process `pid`, whose pages are shared copy-on-write and are to stay so. `process_vm_readv` pins
    /// what it reads, and Linux gives whoever has a pinned page a copy of its own (mm/gup.c,
    /// `gup_must_unshare`): a picture read so takes as much memory as the job has.
    ///
    /// # Errors
    /// As [`Memory::open`].
    pub fn open_shared(pid: HostPid) -> io::Result<Self> {
        let memory = Memory::open(pid)?;
        Ok(Memory {
            shared: true,
            ..memory
        })
    }

    /// Whose it is.
    #[must_use]
    pub fn pid(&self) -> HostPid {
        self.pid
    }

    /// Fills `buf` from `address` on, whatever the protection of the pages. (Newer kernels can be told to let only the
    /// thread that traces the process read what is protected: proc_mem.force_override=ptrace, or never.)
    ///
    /// # Errors
    /// EIO where nothing is mapped, or for another than that thread.
    pub fn read(&self, address: u64, buf: &mut [u8]) -> io::Result<()> {
        // One copy instead of the two of `/proc/PID/mem`, which in turn reads what PROT_NONE hides.
        let done = match self.shared {
            true => 0,
            false => ptrace::vm_read(self.pid.0, address, buf).unwrap_or(0),
        };
        if done == buf.len() {
            return Ok(());
        }
        let (at, rest) = (address + done as u64, &mut buf[done..]);
        match self.file.read_exact_at(rest, at) {
            // A kernel that lets only ptrace read what is not readable (proc_mem.force_override=never).
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                self.peek(at, rest).map_err(|_| error)
            }
            result => result,
        }
    }

    fn peek(&self, address: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut at = address & !7;
        let end = address + buf.len() as u64;
        while at < end {
            let word = ptrace::peek_word(self.pid.0, at)?.to_le_bytes();
            for (place, byte) in (at..at + 8).zip(word) {
                if (address..end).contains(&place) {
                    buf[(place - address) as usize] = byte;
                }
            }
            at += 8;
        }
        Ok(())
    }

    /// Reads a little-endian word.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn read_u64(&self, address: u64) -> io::Result<u64> {
        let mut raw = [0; 8];
        self.read(address, &mut raw)?;
        Ok(u64::from_le_bytes(raw))
    }

    /// Whether the process itself could read these bytes: what PROT_NONE hides is there for [`Memory::read`] only.
    pub(super) fn is_readable(&self, address: u64, len: usize) -> bool {
        match ptrace::vm_read(self.pid.0, address, &mut vec![0; len]) {
            Ok(read) => read == len,
            // That the call is not to be had says nothing.
            Err(error) => error.raw_os_error() != Some(libc::EFAULT),
        }
    }

    /// Writes `bytes` at `address`, whatever the protection of the (private) pages.
    ///
    /// # Errors
    /// EIO where nothing is mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let result = self.file.write_all_at(bytes, address);
        fault::step();
        match result {
            // A kernel that lets only ptrace write what is not writable (proc_mem.force_override=never).
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EIO | libc::EPERM | libc::EACCES)
                ) =>
            {
                self.poke(address, bytes).map_err(|_| error)
            }
            result => result,
        }
    }

    fn poke(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let mut at = address & !7;
        let end = address + bytes.len() as u64;
        while at < end {
            let mut word = [0; 8];
            self.read(at, &mut word)?;
            for (offset, byte) in word.iter_mut().enumerate() {
                let index = (at + offset as u64).checked_sub(address);
                let new = index.and_then(|index| bytes.get(usize::try_from(index).ok()?));
                if let Some(new) = new {
                    *byte = *new;
                }
            }
            ptrace::poke(self.pid.0, at, u64::from_le_bytes(word))?;
            at += 8;
        }
        Ok(())
    }
}
