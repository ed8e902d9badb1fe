//! What is asked of open files beside their bytes: ioctl(2), and what a program says of what it will read.

use super::contents::number;
use super::names::{attributes_of, file_system_of};
use super::{File, Served};
use crate::program::behind;
use crate::program::lanes::{Put, ask, tell};
use crate::program::resident;
use crate::program::sys::{self, Errno};
use core::sync::atomic::Ordering;
use wire::{FlagsOf, Request, Sync, SyncAll};

const NOTHING: (*const u8, usize) = (core::ptr::null(), 0);
/// Words of `struct cachestat`.
const COUNTS: usize = 5;

/// Commands of ioctl(2).
mod command {
    pub(super) const FIBMAP: u64 = 1;
    pub(super) const FIGETBSZ: u64 = 2;
    pub(super) const FIONREAD: u64 = 0x541b;
    pub(super) const FIONBIO: u64 = 0x5421;
    pub(super) const FIONCLEX: u64 = 0x5450;
    pub(super) const FIOCLEX: u64 = 0x5451;
    pub(super) const FIOASYNC: u64 = 0x5452;
    pub(super) const FIOQSIZE: u64 = 0x5460;
    pub(super) const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
    pub(super) const FICLONE: u64 = 0x4004_9409;
    pub(super) const FICLONERANGE: u64 = 0x4020_940d;
    pub(super) const FS_IOC_FIEMAP: u64 = 0xc020_660b;
}

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [fd, second, third, fourth, ..] = *args;
    let result = match number {
        sys::IOCTL => File::of(fd)?.control(fd, u64::from(second as u32), third),
        sys::READAHEAD => File::of(fd)?.read_ahead(),
        sys::FADVISE64 => File::of(fd)?.advise(third as i64, fourth as i32),
        sys::SYNC_FILE_RANGE => {
            File::of(fd)?.sync_range(second as i64, third as i64, fourth as u32)
        }
        sys::SYNCFS => File::of(fd)?.sync_all(),
        sys::CACHESTAT => File::of(fd)?.cached(second, third, fourth as u32),
        sys::OPEN_BY_HANDLE_AT => File::of(fd)?.opened().and(Err(Errno(sys::EPERM))),
        _ => return None,
    };
    Some(result)
}

impl File {
    /// It is more than a name.
    fn opened(&self) -> Result<u64, Errno> {
        if self.is_path() {
            return Err(Errno(sys::EBADF));
        }
        Ok(0)
    }

    fn is_regular(&self) -> bool {
        self.kind() == 0o100_000
    }

    fn read_ahead(&self) -> Result<u64, Errno> {
        self.opened()?;
        if self.flags() & sys::O_ACCMODE == sys::O_WRONLY {
            return Err(Errno(sys::EBADF));
        }
        if !self.is_regular() {
            return Err(Errno(sys::EINVAL));
        }
        Ok(0)
    }

    fn advise(&self, len: i64, advice: i32) -> Result<u64, Errno> {
        const MOST: i32 = 5;
        self.opened()?;
        if len < 0 || !(0..=MOST).contains(&advice) {
            return Err(Errno(sys::EINVAL));
        }
        Ok(0)
    }

    /// sync_file_range(2): what was written is sent; who waits for it knows it on the disk.
    fn sync_range(&self, offset: i64, len: i64, flags: u32) -> Result<u64, Errno> {
        const WAIT_AFTER: u32 = 4;
        const KNOWN: u32 = 7;
        self.opened()?;
        let end = offset.checked_add(len);
        if flags & !KNOWN != 0 || offset < 0 || end.is_none_or(|end| end < offset) {
            return Err(Errno(sys::EINVAL));
        }
        if !self.is_regular() && !self.is_directory() {
            return Err(Errno(sys::ESPIPE));
        }
        resident::write_back(self.description)?;
        behind::close(self.description)?;
        if flags & WAIT_AFTER != 0 && self.is_regular() {
            let (handle, data_only) = (self.handle(), true);
            tell(&Request::Sync(Sync { handle, data_only }))?;
        }
        Ok(0)
    }

    fn sync_all(&self) -> Result<u64, Errno> {
        self.opened()?;
        resident::write_back(self.description)?;
        let handle = self.handle();
        tell(&Request::SyncAll(SyncAll { handle }))?;
        behind::error(self.description).map(|()| 0)
    }

    /// cachestat(2): of a remote file this machine's kernel has nothing.
    fn cached(&self, range: u64, counts: u64, flags: u32) -> Result<u64, Errno> {
        self.opened()?;
        if range == 0 {
            return Err(Errno(sys::EFAULT));
        }
        if flags != 0 {
            return Err(Errno(sys::EINVAL));
        }
        // SAFETY: the program says that there is room for a structure, or nothing.
        let place = unsafe { (counts as *mut [u64; COUNTS]).as_mut() };
        *place.ok_or(Errno(sys::EFAULT))? = [0; COUNTS];
        Ok(0)
    }

    fn control(&self, fd: u64, command: u64, argument: u64) -> Result<u64, Errno> {
        match command {
            command::FIOCLEX => return sys::fcntl(fd as i32, sys::F_SETFD, 1),
            command::FIONCLEX => return sys::fcntl(fd as i32, sys::F_SETFD, 0),
            _ => {
                self.opened()?;
            }
        }
        match command {
            command::FIONBIO => {
                let flags = &self.description.flags;
                if int(argument)? != 0 {
                    flags.fetch_or(sys::O_NONBLOCK, Ordering::Relaxed);
                } else {
                    flags.fetch_and(!sys::O_NONBLOCK, Ordering::Relaxed);
                }
                Ok(0)
            }
            // Nobody can be told.
            command::FIOASYNC if int(argument)? != 0 => Err(Errno(sys::ENOTTY)),
            command::FIOASYNC => Ok(0),
            command::FIONREAD if self.is_regular() => {
                let rest = self.size()?.saturating_sub(self.offset());
                give(argument, rest as i32)
            }
            command::FIOQSIZE => give(argument, attributes_of(self)?.blocks * 512),
            command::FIGETBSZ => give(argument, file_system_of(self.place())?.block_size as i32),
            command::FIBMAP if self.is_regular() => Err(Errno(sys::EPERM)),
            command::FS_IOC_GETFLAGS => {
                let handle = self.handle();
                let flags = ask(
                    &Request::FlagsOf(FlagsOf { handle }),
                    NOTHING,
                    Put::Lane,
                    number,
                )?;
                // A long by its number, an int by what every file system does.
                give(argument, flags as i32)
            }
            command::FICLONE => self.clone_of(argument),
            command::FICLONERANGE => {
                // SAFETY: the program says that a structure is there, or nothing.
                let from = unsafe { (argument as *const u64).as_ref() };
                self.clone_of(*from.ok_or(Errno(sys::EFAULT))?)
            }
            // As of a file system that does not tell, or cannot share blocks.
            command::FS_IOC_FIEMAP => Err(Errno(sys::EOPNOTSUPP)),
            _ => Err(Errno(sys::ENOTTY)),
        }
    }

    /// Blocks are not shared: who asks copies.
    fn clone_of(&self, from: u64) -> Result<u64, Errno> {
        let Some(source) = File::of(from) else {
            sys::fcntl(from as i32, sys::F_GETFD, 0)?;
            return Err(Errno(sys::EXDEV));
        };
        source.opened()?;
        if self.is_directory() || source.is_directory() {
            return Err(Errno(21));
        }
        let reads = source.flags() & sys::O_ACCMODE != sys::O_WRONLY;
        let writes = self.flags() & (sys::O_ACCMODE | sys::O_APPEND);
        if !reads || !matches!(writes, 1 | 2) {
            return Err(Errno(sys::EBADF));
        }
        Err(Errno(sys::EOPNOTSUPP))
    }
}

fn int(address: u64) -> Result<i32, Errno> {
    if address == 0 {
        return Err(Errno(sys::EFAULT));
    }
    // SAFETY: the program says that an int is there.
    Ok(unsafe { (address as *const i32).read_unaligned() })
}

fn give<T>(address: u64, value: T) -> Result<u64, Errno> {
    if address == 0 {
        return Err(Errno(sys::EFAULT));
    }
    // SAFETY: the program says that there is room.
    unsafe { (address as *mut T).write_unaligned(value) };
    Ok(0)
}
