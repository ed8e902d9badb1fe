//! Attributes of what is open or named.

use super::{Found, refuse};
use crate::names::{Last, own_descriptor};
use crate::session::Session;
use rustix::fd::OwnedFd;
use rustix::fs::{
    Access as Permission, AtFlags, CWD, Gid, Mode, OFlags, StatxFlags, StatxTimestamp, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};
use wire::{
    Access, Attribute, Attributes, Change, FileSystem, FileSystemOf, GetXattr, ListXattr,
    MOST_DATA, RemoveXattr, Reply, SetXattr, Stamp, What,
};

/// Most bytes of an extended attribute's value, and of a list of names (XATTR_SIZE_MAX, XATTR_LIST_MAX).
const LARGEST_XATTR: usize = 64 << 10;
const _: () = assert!(LARGEST_XATTR <= MOST_DATA);

impl Session {
    /// statx(2).
    pub(super) fn attributes(&self, asked: &Attribute<'_>) -> Result<Reply<'static>, Errno> {
        let found = self.find(&asked.place, Last::from_follow(asked.follow));
        let attributes = match found {
            Ok(found) => self.look_found(&found)?,
            Err(Errno::ACCESS) => {
                // realpath(3) looks at every folder on the way to a root.
                let above = self.allowed.above(&self.text(&asked.place)?);
                let above = above.ok_or(Errno::ACCESS)?;
                self.look(&crate::names::folder(&above)?)?
            }
            Err(errno) => return Err(errno),
        };
        Ok(Reply::Attributes(attributes))
    }

    /// chmod(2), chown(2), utimensat(2), truncate(2).
    pub(super) fn change(&self, change: &Change<'_>) -> Result<Reply<'static>, Errno> {
        let last = Last::from_follow(change.follow);
        let place = &change.place;
        if let What::Size(size) = change.what {
            return self.resize(change, size);
        }
        let found = self.find_to_change(place, last, "change of attributes")?;
        if let Found::Open(file) = &found {
            // What is stored later has other times.
            self.store(file)?;
        }
        match change.what {
            What::Mode(mode) => {
                let mode = Mode::from_raw_mode(mode & 0o7777);
                self.changes.set_mode(found.fd(), mode)?;
            }
            What::Owner(uid, gid) => {
                let uid = (uid != u32::MAX).then(|| Uid::from_raw(uid));
                let gid = (gid != u32::MAX).then(|| Gid::from_raw(gid));
                self.changes.set_owner(found.fd(), uid, gid)?;
            }
            What::Times(accessed, modified) => {
                let times = Timestamps {
                    last_access: time(accessed),
                    last_modification: time(modified),
                };
                self.changes.set_times(found.fd(), &times)?;
            }
            What::Size(_) => {}
        }
        Ok(Reply::Attributes(self.look_found(&found)?))
    }

    /// All that statx(2) tells of what a descriptor leads to, but for names that are ours.
    pub(crate) fn look(&self, fd: &OwnedFd) -> Result<Attributes, Errno> {
        let mut attributes = told(fd, c"", AtFlags::EMPTY_PATH)?;
        if self.local.has(&attributes, fd) {
            let names = rustix::fs::listxattr(own_descriptor(fd.as_raw_fd()), &mut [0; 0][..]);
            attributes.bare = names == Ok(0);
        }
        Ok(self.seen(attributes))
    }

    /// The same of what a folder has by this name, which is one part and no `..`.
    pub(super) fn look_at_entry(&self, folder: &OwnedFd, name: &CStr) -> Result<Attributes, Errno> {
        let mut attributes = told(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if self.local.has_known(&attributes) {
            let mut text = own_descriptor(folder.as_raw_fd()).into_bytes();
            text.push(b'/');
            text.extend_from_slice(name.to_bytes());
            attributes.bare = rustix::fs::llistxattr(text, &mut [0; 0][..]) == Ok(0);
        }
        Ok(self.seen(attributes))
    }

    fn seen(&self, mut attributes: Attributes) -> Attributes {
        let own = self.changes.own_links(&attributes);
        attributes.links = attributes.links.saturating_sub(own);
        attributes
    }

    fn resize(&self, change: &Change<'_>, size: u64) -> Result<Reply<'static>, Errno> {
        if change.place.name.is_empty() {
            let file = self.get(change.place.at)?;
            self.changes_of(&file).resize(&file.fd, size)?;
            self.changed(&file)?;
            return Ok(Reply::Attributes(self.look_at(&file)?));
        }
        let text = self.text(&change.place)?;
        let fd = self.allowed.at(&text, Last::Followed, |spot| {
            if !spot.writable() {
                spot.open(OFlags::PATH)?;
                return Err(refuse("truncate", change.place.name));
            }
            spot.open(OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
        })?;
        self.changes.resize(&fd, size)?;
        Ok(Reply::Attributes(self.look(&fd)?))
    }

    /// faccessat2(2).
    pub(super) fn access(&self, access: &Access<'_>) -> Result<Reply<'static>, Errno> {
        let wanted = Permission::from_bits(access.mode).ok_or(Errno::INVAL)?;
        let found = match self.find(&access.place, Last::from_follow(access.follow)) {
            Err(Errno::ACCESS)
                if !wanted.intersects(Permission::READ_OK | Permission::WRITE_OK) =>
            {
                let above = self.allowed.above(&self.text(&access.place)?);
                return above.map(|_| Reply::Done).ok_or(Errno::ACCESS);
            }
            found => found?,
        };
        if wanted.contains(Permission::WRITE_OK) && !found.writable() {
            return Err(Errno::ACCESS);
        }
        let flags = if access.effective {
            AtFlags::EACCESS
        } else {
            AtFlags::empty()
        };
        rustix::fs::accessat(CWD, found.name(), wanted, flags)?;
        Ok(Reply::Done)
    }

    /// statfs(2).
    pub(super) fn file_system(&self, of: &FileSystemOf<'_>) -> Result<Reply<'static>, Errno> {
        let found = self.find(&of.place, Last::Followed)?;
        let told = rustix::fs::fstatfs(found.fd())?;
        let number = |value: i64| u64::try_from(value).unwrap_or(0);
        Ok(Reply::FileSystem(FileSystem {
            kind: number(told.f_type),
            block_size: number(told.f_bsize),
            fragment_size: number(told.f_frsize),
            blocks: (told.f_blocks, told.f_bfree, told.f_bavail),
            files: (told.f_files, told.f_ffree),
            id: rustix::fs::fstatvfs(found.fd())?.f_fsid,
            longest_name: number(told.f_namelen),
            flags: number(told.f_flags),
        }))
    }

    /// getxattr(2).
    pub(super) fn get_xattr(
        &self,
        get: &GetXattr<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let found = self.find(&get.place, Last::from_follow(get.follow))?;
        out.resize(LARGEST_XATTR, 0);
        let len = rustix::fs::getxattr(found.name(), get.name, &mut out[..])?;
        out.truncate(len);
        Ok(Reply::Done)
    }

    /// setxattr(2).
    pub(super) fn set_xattr(
        &self,
        set: &SetXattr<'_>,
        value: &[u8],
    ) -> Result<Reply<'static>, Errno> {
        let last = Last::from_follow(set.follow);
        let found = self.find_to_change(&set.place, last, "set an extended attribute")?;
        let flags = XattrFlags::from_bits(set.flags).ok_or(Errno::INVAL)?;
        let act = || self.changes.set_xattr(found.fd(), set.name, value, flags);
        if flags.contains(XattrFlags::CREATE) {
            self.noted_xattr(found.fd(), set.name, false, act)?;
        } else {
            act()?;
        }
        Ok(Reply::Done)
    }

    /// listxattr(2).
    pub(super) fn list_xattr(
        &self,
        list: &ListXattr<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let found = self.find(&list.place, Last::from_follow(list.follow))?;
        out.resize(LARGEST_XATTR, 0);
        let len = rustix::fs::listxattr(found.name(), &mut out[..])?;
        out.truncate(len);
        Ok(Reply::Done)
    }

    /// removexattr(2).
    pub(super) fn remove_xattr(&self, remove: &RemoveXattr<'_>) -> Result<Reply<'static>, Errno> {
        let last = Last::from_follow(remove.follow);
        let found = self.find_to_change(&remove.place, last, "remove an extended attribute")?;
        self.noted_xattr(found.fd(), remove.name, true, || {
            self.changes.remove_xattr(found.fd(), remove.name)
        })?;
        Ok(Reply::Done)
    }
}

fn time(stamp: Option<Option<Stamp>>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match stamp {
        None => special(UTIME_OMIT),
        Some(None) => special(UTIME_NOW),
        Some(Some(stamp)) => Timespec {
            tv_sec: stamp.seconds,
            tv_nsec: stamp.nanoseconds.into(),
        },
    }
}

/// Devices that have been looked at: whether what has no extended attributes is known there without asking another machine.
#[derive(Debug, Default)]
pub(crate) struct LocalDevices(Mutex<HashMap<u64, bool>>);

impl LocalDevices {
    /// Such file systems (magic numbers of statfs(2)): ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs.
    const LOCAL: [u32; 8] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0x794c_7630,
        0x2fc1_2fc1,
        0xf2f5_2010,
        0xca45_1a4e,
    ];
    const MOST: usize = 1024;

    /// Whether what is open lies on one.
    fn has(&self, of: &Attributes, fd: &OwnedFd) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&of.device) {
            return *found;
        }
        let found = rustix::fs::fstatfs(fd)
            .is_ok_and(|system| Self::LOCAL.contains(&(system.f_type as u32)));
        if known.len() < Self::MOST {
            known.insert(of.device, found);
        }
        found
    }

    /// The same, if it has been looked at.
    fn has_known(&self, of: &Attributes) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&of.device) == Some(&true)
    }
}

fn told(fd: &OwnedFd, name: &CStr, flags: AtFlags) -> Result<Attributes, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let told = rustix::fs::statx(fd, name, flags, wanted)?;
    let stamp = |time: &StatxTimestamp| Stamp {
        seconds: time.tv_sec,
        nanoseconds: time.tv_nsec,
    };
    let born = StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::BTIME);
    Ok(Attributes {
        device: rustix::fs::makedev(told.stx_dev_major, told.stx_dev_minor),
        inode: told.stx_ino,
        mode: told.stx_mode.into(),
        links: told.stx_nlink.into(),
        uid: told.stx_uid,
        gid: told.stx_gid,
        special: rustix::fs::makedev(told.stx_rdev_major, told.stx_rdev_minor),
        size: told.stx_size,
        blocks: told.stx_blocks,
        block_size: told.stx_blksize,
        accessed: stamp(&told.stx_atime),
        modified: stamp(&told.stx_mtime),
        changed: stamp(&told.stx_ctime),
        born: born.then(|| stamp(&told.stx_btime)),
        flags: (told.stx_attributes.bits(), told.stx_attributes_mask.bits()),
        bare: false,
    })
}
