//! Entries of directories.

use crate::session::Session;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags, SeekFrom};
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::PoisonError;
use wire::{Entry, EntryWriter, List, MOST_DATA, Reply};

/// Bytes that the kernel is asked for at once.
const AT_ONCE: usize = 32 << 10;

impl Session {
    /// getdents64(2), with attributes if they are asked for.
    pub(super) fn list(&self, list: &List, out: &mut Vec<u8>) -> Result<Reply<'static>, Errno> {
        let file = self.get(list.handle)?;
        let _lock = file.offset.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::fs::seek(&file.fd, SeekFrom::Start(list.from))?;
        out.resize((list.len as usize).min(MOST_DATA), 0);
        let mut writer = EntryWriter::new(out);
        let mut buffer = [const { MaybeUninit::uninit() }; AT_ONCE];
        let mut entries = RawDir::new(&file.fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if self.allowed.hides(name.to_bytes(), entry.ino()) {
                continue;
            }
            let attributes = if list.attributes {
                open_entry(&file.fd, name)
                    .and_then(|fd| self.look(&fd))
                    .ok()
            } else {
                None
            };
            let pushed = writer.push(&Entry {
                next: entry.next_entry_cookie(),
                inode: entry.ino(),
                kind: kind(entry.file_type()),
                name: name.to_bytes(),
                attributes,
            });
            if pushed.is_err() {
                break;
            }
        }
        let len = writer.len();
        // Room for not even one.
        if len == 0 && entries.next().is_some() {
            return Err(Errno::INVAL);
        }
        out.truncate(len);
        Ok(Reply::Done)
    }
}

/// Neither beyond ".." nor into what is mounted there.
#[allow(clippy::disallowed_methods)]
fn open_entry(folder: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve)
}

/// `d_type` (readdir(3)): the type in `st_mode`, shifted.
fn kind(file_type: rustix::fs::FileType) -> u8 {
    (file_type.as_raw_mode() >> 12) as u8
}
