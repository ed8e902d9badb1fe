//! Entries of directories.

use crate::session::Session;
use rustix::fd::OwnedFd;
use rustix::fs::{RawDir, SeekFrom};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::sync::PoisonError;
use wire::{Entry, List, MOST_DATA, Packer, Reply};

/// Bytes that the kernel is asked for at once.
const AT_ONCE: usize = 32 << 10;

impl Session {
    /// getdents64(2), with attributes if they are asked for.
    pub(super) fn list(&self, list: &List, out: &mut Vec<u8>) -> Result<Reply<'static>, Errno> {
        let file = self.get(list.handle)?;
        let _lock = file.offset.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::fs::seek(&file.fd, SeekFrom::Start(list.from))?;
        let len = (list.len as usize).min(MOST_DATA);
        let is_whole = self.entries(&file.fd, len, list.attributes, out)?;
        // Room for not even one.
        if out.is_empty() && !is_whole {
            return Err(Errno::INVAL);
        }
        Ok(Reply::Done)
    }

    /// The first entries of a folder that was opened just now, with attributes; behind them, if these are all, one without a
    /// name. None if that fails: then it is to be asked for.
    pub(super) fn first_entries(&self, folder: &OwnedFd, len: usize, out: &mut Vec<u8>) {
        const END: Entry<'_> = Entry {
            next: 0,
            inode: 0,
            kind: 0,
            name: b"",
            attributes: None,
        };
        let mut end = [0; 32];
        let mut writer = Packer::new(&mut end);
        let end_len = writer.push(&END, &[]).map_or(0, |()| writer.len());
        match self.entries(folder, len.saturating_sub(end_len), true, out) {
            Ok(true) => out.extend_from_slice(&end[..end_len]),
            Ok(false) => {}
            Err(_) => out.clear(),
        }
    }

    /// Entries from where the folder's offset is; whether these were all.
    fn entries(
        &self,
        folder: &OwnedFd,
        len: usize,
        with_attributes: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, Errno> {
        out.resize(len, 0);
        let mut writer = Packer::new(out);
        let mut buffer = [const { MaybeUninit::uninit() }; AT_ONCE];
        let mut entries = RawDir::new(folder, &mut buffer);
        let is_whole = loop {
            let Some(entry) = entries.next() else {
                break true;
            };
            let entry = entry?;
            let name = entry.file_name();
            if self.allowed.hides(name.to_bytes(), entry.ino()) {
                continue;
            }
            // What lies above is not always ours to tell.
            let attributes = (with_attributes && name != c"..")
                .then(|| self.look_at_entry(folder, name).ok())
                .flatten();
            let record = Entry {
                next: entry.next_entry_cookie(),
                inode: entry.ino(),
                kind: kind(entry.file_type()),
                name: name.to_bytes(),
                attributes,
            };
            if writer.push(&record, &[]).is_err() {
                break false;
            }
        };
        let len = writer.len();
        out.truncate(len);
        Ok(is_whole)
    }
}

/// `d_type` (readdir(3)): the type in `st_mode`, shifted.
fn kind(file_type: rustix::fs::FileType) -> u8 {
    (file_type.as_raw_mode() >> 12) as u8
}
