//! Files, and folders, that are opened in advance for a program that walks through a folder, and many that are closed at once.

use super::opening::first_bytes;
use crate::locks::FileId;
use crate::names::Last;
use crate::session::{OpenFile, Session};
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FileType, OFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use wire::{MOST_DATA, Offer, Offered, Packer, Reply};

/// Bytes of a file that is offered.
const SMALL: u64 = 32 << 10;
/// Bytes of the first entries of a folder that is offered.
const ENTRIES: usize = 16 << 10;
/// Names of a folder that are looked at.
const MOST_NAMES: usize = 50_000;
/// Files at once.
const MOST_FILES: usize = 128;
/// Files of a job that are offered and not taken, for all that is known: a process that is killed leaves its own.
const MOST_OFFERED: usize = 512;
/// How far from one file to the next a program may step and still be walking: folders and other things lie between.
const LONGEST_STEP: usize = 16;
/// A folder of so few files is offered whole: a program that opens two of them may want others in an order of its own (glibc does with
/// those of a locale).
const FEW: usize = 32;

impl Session {
    /// close(2) of many.
    pub(super) fn close_all(&self, data: &[u8]) -> Result<Reply<'static>, Errno> {
        for word in data.chunks_exact(8) {
            if let Some(bytes) = word.first_chunk() {
                // It may have been told before, by a stream that broke.
                let _ = self.close(u64::from_le_bytes(*bytes));
            }
        }
        Ok(Reply::Done)
    }

    /// Small files that come next, open, with their contents. None where it cannot be told which they are.
    pub(super) fn offer(
        &self,
        offer: &Offer<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let folder = if offer.folder.name.is_empty() {
            super::name_now(&*self.get(offer.folder.at)?)?
        } else {
            self.text(&offer.folder)?
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let (fd, _) = self
            .allowed
            .at(&folder, Last::Followed, |spot| Ok((spot.open(flags)?, ())))?;
        let is_folder = offer.files & Offer::FOLDERS != 0;
        let kind = match is_folder {
            true => FileType::Directory,
            false => FileType::RegularFile,
        };
        let names = next_names(self.names(&fd, kind)?, offer.before, offer.after);
        let files = offer.files & !Offer::FOLDERS;
        let room = self.room_for_offers().min(files as usize);
        let mut data = vec![0; (offer.bytes as usize).min(MOST_DATA)];
        let mut writer = Packer::new(&mut data);
        let mut files = 0;
        for name in names {
            if files >= room {
                break;
            }
            let found = match is_folder {
                true => self.folder(&folder, &name),
                false => self.small_file(&folder, &name),
            };
            let Some((file, contents)) = found else {
                continue;
            };
            let attributes = file.1;
            let handle = self.insert(file.0)?;
            let offered = Offered {
                handle,
                attributes,
                name: &name,
                len: contents.len() as u32,
            };
            if writer.push(&offered, &contents).is_err() {
                let _ = self.remove(handle);
                break;
            }
            self.note_offered(handle, &attributes);
            files += 1;
        }
        let len = writer.len();
        out.extend_from_slice(&data[..len]);
        Ok(Reply::Done)
    }

    pub(super) fn room_for_offers(&self) -> usize {
        let open = self.all_open();
        let offered = open
            .iter()
            .filter(|(_, file)| file.offered.load(Ordering::Relaxed));
        // The job's own opens need room, too.
        let spare = (self.limits().open_files / 2).saturating_sub(open.len());
        MOST_OFFERED
            .saturating_sub(offered.count())
            .min(MOST_FILES)
            .min(spare)
    }

    /// What is of this kind, or may be, as the folder is listed.
    fn names(&self, folder: &OwnedFd, kind: FileType) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = vec![];
        for entry in Dir::read_from(folder)?.take(MOST_NAMES) {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let is_own = matches!(name, b"." | b"..");
            let may_be = entry.file_type() == kind || entry.file_type() == FileType::Unknown;
            if may_be && !is_own && !self.allowed.hides(name, entry.ino()) {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    /// A folder, open to be listed, with its attributes and first entries.
    fn folder(
        &self,
        parent: &[u8],
        name: &[u8],
    ) -> Option<((OpenFile, wire::Attributes), Vec<u8>)> {
        let text = [parent, b"/", name].concat();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let opened = self.allowed.at(&text, Last::Kept, |spot| {
            Ok((spot.open(flags)?, spot.writable()))
        });
        let (fd, writable) = opened.ok()?;
        let attributes = self.look(&fd).ok()?;
        let mut entries = vec![];
        self.first_entries(&fd, ENTRIES, &mut entries);
        let id = FileId {
            device: attributes.device,
            inode: attributes.inode,
        };
        let file = OpenFile::new(fd, writable, id);
        Some(((file, attributes), entries))
    }

    /// A regular file that is small, open for reading, with its attributes and all of its contents.
    fn small_file(
        &self,
        folder: &[u8],
        name: &[u8],
    ) -> Option<((OpenFile, wire::Attributes), Vec<u8>)> {
        let text = [folder, b"/", name].concat();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self.allowed.at(&text, Last::Kept, |spot| {
            let looked = spot.open(OFlags::PATH | OFlags::NOFOLLOW)?;
            let found = rustix::fs::fstat(&looked)?;
            let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
            if !is_file || found.st_size as u64 > SMALL {
                return Err(Errno::FBIG);
            }
            Ok((spot.open(flags)?, spot.writable()))
        });
        let (fd, writable) = opened.ok()?;
        let attributes = self.look(&fd).ok()?;
        let is_file = FileType::from_raw_mode(attributes.mode) == FileType::RegularFile;
        if !is_file || attributes.size > SMALL {
            return None;
        }
        let mut contents = vec![];
        first_bytes(&fd, attributes.size as usize, &mut contents);
        if contents.len() as u64 != attributes.size {
            return None;
        }
        let id = FileId {
            device: attributes.device,
            inode: attributes.inode,
        };
        let file = OpenFile::new(fd, writable, id);
        Some(((file, attributes), contents))
    }
}

/// The names behind `after`, in the order in which `before` and `after` stand next to each other: as listed, or sorted. If they are few,
/// the others are behind those.
fn next_names(listed: Vec<Vec<u8>>, before: &[u8], after: &[u8]) -> Vec<Vec<u8>> {
    let is_there = |name: &[u8]| listed.iter().any(|one| one == name);
    if listed.len() > FEW || before == after || !is_there(before) || !is_there(after) {
        return names_behind(listed, before, after);
    }
    let mut names = names_behind(listed.clone(), before, after);
    for name in listed {
        if name != before && name != after && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn names_behind(listed: Vec<Vec<u8>>, before: &[u8], after: &[u8]) -> Vec<Vec<u8>> {
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    let step = |names: &[Vec<u8>]| {
        let at = |name: &[u8]| names.iter().position(|one| one == name);
        let to = at(after)?;
        match before {
            b"" => Some((1, to)),
            before => Some((to.checked_sub(at(before)?)?, to)),
        }
    };
    let near = |names| step(names).filter(|(step, _)| (1..=LONGEST_STEP).contains(step));
    let (names, at) = match (near(&listed), near(&sorted)) {
        (Some((one, _)), Some((other, at))) if other < one => (sorted, at),
        (Some((_, at)), _) => (listed, at),
        (None, Some((_, at))) => (sorted, at),
        (None, None) => return vec![],
    };
    names.into_iter().skip(at + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(listed: &[&str], before: &str, after: &str) -> Vec<String> {
        let listed = listed.iter().map(|name| name.as_bytes().to_vec()).collect();
        let names = names_behind(listed, before.as_bytes(), after.as_bytes());
        let text = |name| String::from_utf8(name).expect("text");
        names.into_iter().map(text).collect()
    }

    #[test]
    fn the_order_is_that_in_which_two_names_follow_each_other() {
        let listed = ["d", "a", "c", "b", "e"];
        assert_eq!(after(&listed, "d", "a"), ["c", "b", "e"]);
        assert_eq!(after(&listed, "a", "b"), ["c", "d", "e"], "sorted");
        assert_eq!(after(&listed, "", "c"), ["b", "e"], "as listed");
        assert_eq!(after(&listed, "e", "d"), [""; 0], "backwards");
        assert_eq!(after(&listed, "a", "none"), [""; 0]);
        assert_eq!(after(&listed, "b", "e"), [""; 0], "the last");
    }

    #[test]
    fn of_few_names_all_come() {
        let names = |many: usize| -> Vec<Vec<u8>> {
            let names = (0..many).map(|number| format!("{number:02}").into_bytes());
            names.collect()
        };
        let all = next_names(names(5), b"02", b"03");
        assert_eq!(all, [b"04", b"00", b"01"]);
        assert_eq!(next_names(names(5), b"04", b"01").len(), 3, "backwards");
        assert_eq!(next_names(names(5), b"01", b"none").len(), 0);
        assert_eq!(next_names(names(5), b"01", b"01").len(), 0, "one file");
        assert_eq!(next_names(names(FEW + 1), b"04", b"01").len(), 0);
        assert_eq!(next_names(names(FEW + 1), b"01", b"04").len(), FEW - 4);
    }
}
