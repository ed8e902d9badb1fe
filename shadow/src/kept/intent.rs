//! Changes that must not be made twice: what there was before, and how it is found out afterwards whether one was made.
//!
//! ```text
//! looked at --Begun is noted--> made --Made or Done is noted--> answered
//!                 `-- the shadow dies ── started again: looks at what is there ──> made, or not: done when it is asked for again
//! ```
//! # What callers may rely on
//! Changes of one name, and appends to one file, follow each other (`super::noted`), so that at most one of them can be in doubt. What is there
//! when the shadow comes again is taken for the job's if it is what the job would have made.
//!
//! # What it does not do
//! It cannot tell the job's change from the same change by somebody else, made between the shadow's end and its next beginning.

use bincode::{Decode, Encode};
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Device and inode.
pub(crate) type Id = (u64, u64);

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct NamedPlace {
    folder: Vec<u8>,
    folder_id: Id,
    name: Vec<u8>,
}

/// What is to get a name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum New {
    /// By open(2), with these flags as `F_GETFL` would give them.
    File(u32),
    Folder,
    /// To this target.
    Link(Vec<u8>),
    /// Its type, as in `st_mode`.
    Node(u32),
    /// A further name of this.
    Name(Id),
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Intent {
    /// Nothing has this name.
    Make(NamedPlace, New),
    /// This has it.
    Remove(NamedPlace, Id),
    Rename {
        from: NamedPlace,
        moved: Id,
        to: NamedPlace,
        replaced: Option<Id>,
        exchange: bool,
    },
    /// The file is so long.
    Append { handle: u64, before: u64 },
    /// The attribute is there, or it is not, which is to be changed.
    Xattr {
        file: Vec<u8>,
        id: Id,
        name: Vec<u8>,
        there: bool,
    },
    /// The file is so long, and is to become so much longer or shorter.
    Shift {
        handle: u64,
        before: u64,
        after: u64,
    },
}

/// Whether a change has been made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Made,
    /// And this name has what was made by open(2) with these flags.
    MadeFile(Vec<u8>, u32, Id),
    NotMade,
    /// As many bytes as the file has now, at most.
    Appended {
        handle: u64,
        before: u64,
    },
}

pub(super) fn id(stat: &Stat) -> Id {
    (stat.st_dev, stat.st_ino)
}

/// Without the slash that may be behind it.
pub(super) fn bare(name: &[u8]) -> &[u8] {
    let last = name.iter().rposition(|byte| *byte != b'/');
    last.map_or(&name[..0], |at| &name[..=at])
}

/// What has the name, not through a link in its place.
pub(super) fn look(folder: &OwnedFd, name: &[u8]) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, bare(name), AtFlags::SYMLINK_NOFOLLOW)
}

impl NamedPlace {
    pub(super) fn new(folder: &OwnedFd, name: &[u8]) -> Result<Self, Errno> {
        let text = crate::names::own_descriptor(std::os::fd::AsRawFd::as_raw_fd(folder));
        Ok(NamedPlace {
            folder: rustix::fs::readlink(text, vec![])?.into_bytes(),
            folder_id: id(&rustix::fs::fstat(folder)?),
            name: bare(name).to_vec(),
        })
    }

    pub(super) fn path(&self) -> Vec<u8> {
        let folder = self.folder.strip_suffix(b"/").unwrap_or(&self.folder);
        [folder, b"/", &self.name].concat()
    }

    /// What has the name now; none: nothing.
    fn now(&self) -> Result<Option<Stat>, Errno> {
        let folder = crate::names::folder(&self.folder)?;
        if id(&rustix::fs::fstat(&folder)?) != self.folder_id {
            return Err(Errno::STALE);
        }
        match look(&folder, &self.name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn target(&self) -> Result<Vec<u8>, Errno> {
        Ok(rustix::fs::readlink(self.path(), vec![])?.into_bytes())
    }
}

impl Intent {
    /// Looks whether it has come to be. `made`: it is known that it has.
    ///
    /// # Errors
    /// What is there cannot be looked at.
    pub(super) fn fate(&self, made: bool) -> Result<Fate, Errno> {
        let fate = |yes| if yes { Fate::Made } else { Fate::NotMade };
        match self {
            Intent::Make(place, new) => {
                let Some(now) = place.now()? else {
                    return Ok(Fate::NotMade);
                };
                let kind = FileType::from_raw_mode(now.st_mode);
                Ok(match new {
                    New::File(flags) if kind == FileType::RegularFile => {
                        Fate::MadeFile(place.path(), *flags, id(&now))
                    }
                    New::File(_) => Fate::NotMade,
                    New::Folder => fate(kind == FileType::Directory),
                    New::Link(target) => {
                        fate(kind == FileType::Symlink && place.target()? == *target)
                    }
                    New::Node(wanted) => fate(kind == FileType::from_raw_mode(*wanted)),
                    New::Name(of) => fate(id(&now) == *of),
                })
            }
            Intent::Remove(place, was) => {
                let now = place.now()?;
                Ok(fate(made || now.is_none_or(|now| id(&now) != *was)))
            }
            Intent::Rename {
                from,
                moved,
                to,
                replaced,
                exchange,
            } => {
                let (old, new) = (from.now()?, to.now()?);
                let is = |there: &Option<Stat>, what: Id| there.is_some_and(|one| id(&one) == what);
                // Of two names of one file nothing is changed.
                let same = *replaced == Some(*moved);
                let exchanged = is(&new, *moved) && replaced.is_some_and(|one| is(&old, one));
                let gone = !exchange && !is(&old, *moved);
                Ok(fate(made || same || exchanged || gone))
            }
            Intent::Append { handle, before } => Ok(Fate::Appended {
                handle: *handle,
                before: *before,
            }),
            Intent::Xattr {
                file,
                id: was,
                name,
                there,
            } => {
                if made {
                    return Ok(Fate::Made);
                }
                if id(&rustix::fs::lstat(&file[..])?) != *was {
                    return Err(Errno::STALE);
                }
                let now = match rustix::fs::lgetxattr(&file[..], &name[..], &mut [0u8; 0][..]) {
                    Ok(_) => true,
                    Err(Errno::NODATA) => false,
                    Err(errno) => return Err(errno),
                };
                Ok(fate(now != *there))
            }
            // Looked at by whoever has the file open.
            Intent::Shift { .. } => Ok(fate(made)),
        }
    }

    /// Where something has come to be by another name, if that was to be.
    pub(super) fn moved(&self) -> Option<[(Vec<u8>, Vec<u8>); 2]> {
        let Intent::Rename {
            from, to, exchange, ..
        } = self
        else {
            return None;
        };
        let there = (from.path(), to.path());
        let back = if *exchange {
            (to.path(), from.path())
        } else {
            there.clone()
        };
        Some([there, back])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_was_made_is_told_from_what_was_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder =
            crate::names::folder(dir.path().as_os_str().as_encoded_bytes()).expect("opens");
        let at = |name: &str| NamedPlace::new(&folder, name.as_bytes()).expect("is a place");
        let path = |name: &str| dir.path().join(name);
        let fate = |intent: &Intent| intent.fate(false).expect("is told");
        let make = Intent::Make(at("new/"), New::Folder);
        assert_eq!(fate(&make), Fate::NotMade);
        fs::create_dir(path("new")).expect("makes");
        assert_eq!(fate(&make), Fate::Made);
        let link = Intent::Make(at("link"), New::Link(b"target".to_vec()));
        std::os::unix::fs::symlink("other", path("link")).expect("makes");
        assert_eq!(fate(&link), Fate::NotMade, "somebody else's");
        fs::write(path("file"), "x").expect("writes");
        let file = id(&look(&folder, b"file").expect("is there"));
        let create = Intent::Make(at("file"), New::File(2));
        let name = path("file").into_os_string().into_encoded_bytes();
        assert_eq!(fate(&create), Fate::MadeFile(name, 2, file));
        let remove = Intent::Remove(at("file"), file);
        assert_eq!(fate(&remove), Fate::NotMade);
        let rename = |replaced, exchange| Intent::Rename {
            from: at("file"),
            moved: file,
            to: at("moved"),
            replaced,
            exchange,
        };
        assert_eq!(fate(&rename(None, false)), Fate::NotMade);
        fs::rename(path("file"), path("moved")).expect("renames");
        assert_eq!(fate(&rename(None, false)), Fate::Made);
        assert_eq!(fate(&remove), Fate::Made);
        fs::write(path("file"), "y").expect("writes");
        let other = id(&look(&folder, b"file").expect("is there"));
        assert_eq!(fate(&rename(Some(other), true)), Fate::Made);
        assert_eq!(fate(&rename(Some((1, 1)), true)), Fate::NotMade);
        fs::remove_dir(path("new")).expect("removes");
        assert_eq!(fate(&make), Fate::NotMade);
    }
}
