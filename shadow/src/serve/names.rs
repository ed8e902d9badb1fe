//! Names: making, removing, moving them.

use super::refuse;
use crate::kept::Record;
use crate::names::{Last, Spot, own_descriptor};
use crate::session::Session;
use rustix::fs::{FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::PoisonError;
use wire::{
    Leads, Link, MakeDirectory, MakeNode, NameOf, Place, ReadLink, RemoveName, Rename, Reply,
    SymbolicLink,
};

/// Most bytes of a link's target.
const LONGEST_TARGET: usize = 4096;

impl Session {
    /// readlinkat(2).
    pub(super) fn read_link(
        &self,
        link: &ReadLink<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let found = match self.find(&link.place, Last::Kept) {
            // A folder on the way to a root is taken for no link.
            Err(Errno::ACCESS) if self.allowed.above(&self.text(&link.place)?).is_some() => {
                return Err(Errno::INVAL);
            }
            found => found?,
        };
        out.resize(LONGEST_TARGET, 0);
        let len = match rustix::fs::readlinkat_raw(found.fd(), c"", &mut out[..]) {
            // So it says of a descriptor that is no link.
            Err(Errno::NOENT) => return Err(Errno::INVAL),
            len => len?,
        };
        out.truncate(len);
        Ok(Reply::Done)
    }

    /// getcwd(2), of something open that still has a name.
    pub(super) fn name_of(&self, of: &NameOf, out: &mut Vec<u8>) -> Result<Reply<'static>, Errno> {
        let file = self.get(of.handle)?;
        if self.look(file.stored())?.links == 0 {
            return Err(Errno::NOENT);
        }
        out.extend_from_slice(&self.allowed.told(super::name_now(&file)?));
        Ok(Reply::Done)
    }

    /// Where a name leads that is of the machine where the job runs.
    pub(super) fn leads(
        &self,
        leads: &Leads<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Reply<'static>, Errno> {
        let text = self.text(&leads.place)?;
        out.extend_from_slice(&self.allowed.elsewhere(&text)?);
        Ok(Reply::Done)
    }

    /// mkdirat(2).
    pub(super) fn make_directory(&self, make: &MakeDirectory<'_>) -> Result<Reply<'static>, Errno> {
        let mode = Mode::from_raw_mode(make.mode & 0o7777);
        self.make(&make.place, "make a directory", |folder, name| {
            let at = (folder, name);
            self.noted_folder(at, || self.changes.make_directory(at, mode))
        })
    }

    /// mknodat(2).
    pub(super) fn make_node(&self, make: &MakeNode<'_>) -> Result<Reply<'static>, Errno> {
        let mode = Mode::from_raw_mode(make.mode & 0o7777);
        let kind = match FileType::from_raw_mode(make.mode) {
            FileType::Unknown if make.mode & 0o170_000 == 0 => FileType::RegularFile,
            kind @ (FileType::RegularFile | FileType::Fifo | FileType::Socket) => kind,
            _ => return Err(Errno::PERM),
        };
        self.make(&make.place, "make a node", |folder, name| {
            let at = (folder, name);
            self.noted_node(at, kind, || self.changes.make_node(at, kind, mode))
        })
    }

    /// symlinkat(2).
    pub(super) fn symbolic_link(&self, link: &SymbolicLink<'_>) -> Result<Reply<'static>, Errno> {
        self.make(&link.place, "make a link", |folder, name| {
            let at = (folder, name);
            self.noted_link(at, link.target, || self.changes.make_link(at, link.target))
        })
    }

    /// Makes a new name; one that is there already is an error before it may not be made.
    fn make(
        &self,
        place: &Place<'_>,
        what: &'static str,
        mut act: impl FnMut(&OwnedFd, &[u8]) -> Result<(), Errno>,
    ) -> Result<Reply<'static>, Errno> {
        let text = self.text(place)?;
        if self.allowed.above(&text).is_some() {
            return Err(Errno::EXIST);
        }
        if ends_in_dots(place.name).is_some() {
            // What the dots are of must be there.
            self.find(place, Last::Followed)?;
            return Err(Errno::EXIST);
        }
        self.allowed.at(&text, Last::Kept, |spot| {
            if !spot.writable() {
                let there = spot.open(OFlags::PATH | OFlags::NOFOLLOW);
                return Err(match there {
                    Ok(_) => Errno::EXIST,
                    Err(Errno::NOENT) => {
                        spot.parent()?;
                        refuse(what, place.name)
                    }
                    Err(errno) => errno,
                });
            }
            match spot.parent() {
                Ok((folder, name)) => act(&folder, name),
                Err(Errno::BUSY) => Err(Errno::EXIST),
                Err(errno) => Err(errno),
            }
        })?;
        Ok(Reply::Done)
    }

    /// unlinkat(2).
    pub(super) fn remove_name(&self, remove: &RemoveName<'_>) -> Result<Reply<'static>, Errno> {
        match ends_in_dots(remove.place.name) {
            Some(1) if remove.directory => return Err(Errno::INVAL),
            Some(_) if remove.directory => return Err(Errno::NOTEMPTY),
            Some(_) => return Err(Errno::ISDIR),
            None => {}
        }
        self.allowed
            .at(&self.text(&remove.place)?, Last::Kept, |spot| {
                let (folder, name) = to_change(spot, "remove", remove.place.name)?;
                let at = (&folder, name);
                self.noted_remove(at, || self.changes.remove(at, remove.directory))
            })?;
        Ok(Reply::Done)
    }

    /// renameat2(2).
    pub(super) fn rename(&self, rename: &Rename<'_>) -> Result<Reply<'static>, Errno> {
        if ends_in_dots(rename.from.name).is_some() || ends_in_dots(rename.to.name).is_some() {
            return Err(Errno::BUSY);
        }
        let flags = RenameFlags::from_bits(rename.flags).ok_or(Errno::INVAL)?;
        let (from, to) = (self.text(&rename.from)?, self.text(&rename.to)?);
        self.allowed.at(&from, Last::Kept, |source| {
            let (old_folder, old_name) = to_change(source, "rename", rename.from.name)?;
            if source.holds_a_root(&self.allowed) {
                return Err(Errno::BUSY);
            }
            self.allowed.at(&to, Last::Kept, |target| {
                if target.holds_a_root(&self.allowed) {
                    return Err(Errno::BUSY);
                }
                let (new_folder, new_name) = may_change(target, "rename", rename.to.name)?;
                let (old, new) = ((&old_folder, old_name), (&new_folder, new_name));
                self.noted_rename(old, new, flags, || self.changes.rename(old, new, flags))
            })
        })?;
        Ok(Reply::Done)
    }

    /// linkat(2). Both names must lie where things may be changed: a second name would make its file so.
    pub(super) fn link(&self, link: &Link<'_>) -> Result<Reply<'static>, Errno> {
        if link.from.name.is_empty() {
            return self.link_open(link);
        }
        let (from, to) = (self.text(&link.from)?, self.text(&link.to)?);
        self.allowed
            .at(&from, Last::from_follow(link.follow), |source| {
                if link.follow {
                    // A link in the last part is in the way, and followed.
                    source.open(OFlags::PATH)?;
                }
                let (old_folder, old_name) = to_change(source, "link", link.from.name)?;
                self.allowed.at(&to, Last::Kept, |target| {
                    let (new_folder, new_name) = may_change(target, "link", link.to.name)?;
                    let (old, new) = ((&old_folder, old_name), (&new_folder, new_name));
                    self.noted_name(old, new, || self.changes.link(old, new))
                })
            })?;
        Ok(Reply::Done)
    }
    /// The same of what is open.
    fn link_open(&self, link: &Link<'_>) -> Result<Reply<'static>, Errno> {
        let (file, to) = (self.get(link.from.at)?, self.text(&link.to)?);
        let name = self.allowed.at(&to, Last::Kept, |target| {
            let (folder, name) = may_change(target, "link", link.to.name)?;
            if !file.writable {
                return Err(refuse("link", b"what is open"));
            }
            let at = (&folder, name);
            let fd = file.stored();
            self.noted_name_of(fd, at, || self.changes.link_open(fd, at))?;
            let folder = rustix::fs::readlink(own_descriptor(folder.as_raw_fd()), vec![])?;
            Ok([folder.as_bytes(), b"/", name].concat())
        })?;
        *file.linked.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.clone());
        self.note(|| Some(Record::Named(link.from.at, name)));
        Ok(Reply::Done)
    }
}

/// How many dots the last part of a name is, one or two.
fn ends_in_dots(name: &[u8]) -> Option<usize> {
    let bare = name
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(&b""[..], |at| &name[..=at]);
    let last = bare.rsplit(|byte| *byte == b'/').next()?;
    matches!(last, b"." | b"..").then_some(last.len())
}

/// The folder of something that is to be changed; what is not there is an error before it may not be changed.
fn to_change<'a>(
    spot: &Spot<'a>,
    what: &'static str,
    name: &[u8],
) -> Result<(OwnedFd, &'a [u8]), Errno> {
    if !spot.writable() {
        spot.open(OFlags::PATH | OFlags::NOFOLLOW)?;
    }
    may_change(spot, what, name)
}

fn may_change<'a>(
    spot: &Spot<'a>,
    what: &'static str,
    name: &[u8],
) -> Result<(OwnedFd, &'a [u8]), Errno> {
    if !spot.writable() {
        return Err(refuse(what, name));
    }
    spot.parent()
}
