//! What is in a file system: which inode it is, of what kind, and how it looks.

use bincode::{Decode, Encode};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

/// A point in time, as file systems keep it.
#[derive(Clone, Copy, Debug, Decode, Default, Encode, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Stamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: u32,
}

/// Which inode. The time of its birth, where the file system tells one, tells it from a later one with the same number.
#[derive(Clone, Copy, Debug, Decode, Encode, Eq, Hash, PartialEq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) born: Option<Stamp>,
}

/// Of what kind something is.
#[derive(Clone, Copy, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) enum Kind {
    File,
    Folder,
    Link,
    /// FIFO, socket, device.
    Special,
}

/// How something looks: it changes when anybody changes it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Fingerprint {
    pub(crate) size: u64,
    pub(crate) modified: Stamp,
    pub(crate) changed: Stamp,
    /// All of `st_mode`.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Something that is there now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) identity: Identity,
    pub(crate) kind: Kind,
    pub(crate) print: Fingerprint,
    pub(crate) accessed: Stamp,
    pub(crate) links: u64,
    pub(crate) mount: u64,
    /// Bytes on the disk.
    pub(crate) used: u64,
}

/// Looks at what is open. statx(2).
pub(crate) fn look(fd: impl AsFd) -> Result<Seen, Errno> {
    let told = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted())?;
    Ok(seen(&told))
}

/// Looks at a name, not through a link in its place; none if nothing has it.
pub(crate) fn look_at(folder: impl AsFd, name: &[u8]) -> Result<Option<Seen>, Errno> {
    match rustix::fs::statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, wanted()) {
        Ok(told) => Ok(Some(seen(&told))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID
}

fn seen(told: &Statx) -> Seen {
    let stamp = |time: &StatxTimestamp| Stamp {
        seconds: time.tv_sec,
        nanoseconds: time.tv_nsec,
    };
    let born = StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::BTIME);
    let mode = u32::from(told.stx_mode);
    Seen {
        identity: Identity {
            device: rustix::fs::makedev(told.stx_dev_major, told.stx_dev_minor),
            inode: told.stx_ino,
            born: born.then(|| stamp(&told.stx_btime)),
        },
        kind: match FileType::from_raw_mode(mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Link,
            _ => Kind::Special,
        },
        print: Fingerprint {
            size: told.stx_size,
            modified: stamp(&told.stx_mtime),
            changed: stamp(&told.stx_ctime),
            mode,
            uid: told.stx_uid,
            gid: told.stx_gid,
        },
        accessed: stamp(&told.stx_atime),
        links: told.stx_nlink.into(),
        mount: told.stx_mnt_id,
        used: told.stx_blocks.saturating_mul(512),
    }
}
