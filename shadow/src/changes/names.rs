//! Names: made, removed, moved. A folder is open as `O_PATH`, a name may have a slash behind it.
#![allow(clippy::disallowed_methods)]

use super::{About, Changes, TRIES, own_descriptor};
use journal::Change;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

/// A folder and a name in it.
pub(crate) type Named<'a> = (&'a OwnedFd, &'a [u8]);

impl Changes {
    /// mkdirat(2).
    pub(crate) fn make_directory(&self, at: Named<'_>, mode: Mode) -> Result<(), Errno> {
        self.make("make a directory", at, || {
            rustix::fs::mkdirat(at.0, at.1, mode)
        })
    }

    /// mknodat(2) of what is no device.
    pub(crate) fn make_node(&self, at: Named<'_>, kind: FileType, mode: Mode) -> Result<(), Errno> {
        self.make("make a node", at, || {
            rustix::fs::mknodat(at.0, at.1, kind, mode, 0)
        })
    }

    /// symlinkat(2).
    pub(crate) fn make_link(&self, at: Named<'_>, target: &[u8]) -> Result<(), Errno> {
        self.make("make a link", at, || {
            rustix::fs::symlinkat(target, at.0, at.1)
        })
    }

    /// Makes what has no name yet; EEXIST if something has it.
    pub(super) fn make<T>(
        &self,
        what: &'static str,
        (folder, name): Named<'_>,
        make: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let about = About::Name(folder.as_fd(), name);
        let change = self.before(what, about, |journal| {
            journal.before_create(folder.as_fd(), name)
        })?;
        match change {
            // Somebody may remove it before we try.
            Some(change) if change.is_empty() => Err(Errno::EXIST),
            change => {
                let made = make();
                drop(change);
                made
            }
        }
    }

    /// Announces a change of a name that is there, again if somebody else removes or replaces meanwhile what was to be kept.
    fn before_names<'a>(
        &'a self,
        name: Named<'_>,
        announce: impl Fn() -> Result<Option<Change<'a>>, Errno>,
    ) -> Result<Option<Change<'a>>, Errno> {
        for _ in 0..TRIES {
            match announce() {
                Err(Errno::NOENT) => look_at(name.0, name.1)?,
                announced => return announced,
            };
        }
        Err(Errno::AGAIN)
    }

    /// unlinkat(2).
    pub(crate) fn remove(&self, (folder, name): Named<'_>, is_folder: bool) -> Result<(), Errno> {
        let flags = if is_folder {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        if self.journal().is_some() {
            // What the call would refuse is not kept.
            let there = look_at(folder, name)?;
            may_change_names(folder)?;
            let found = FileType::from_raw_mode(there.st_mode) == FileType::Directory;
            if found && !is_folder {
                return Err(Errno::ISDIR);
            }
            if !found && (is_folder || name.ends_with(b"/")) {
                return Err(Errno::NOTDIR);
            }
        }
        let about = About::Name(folder.as_fd(), name);
        let change = self.before_names((folder, name), || {
            self.before("remove", about, |journal| {
                journal.before_remove(folder.as_fd(), name)
            })
        })?;
        if change.as_ref().is_some_and(Change::is_empty) {
            return Err(Errno::NOENT);
        }
        let removed = rustix::fs::unlinkat(folder, name, flags);
        drop(change);
        removed
    }

    /// renameat2(2).
    pub(crate) fn rename(
        &self,
        from: Named<'_>,
        to: Named<'_>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let rename = || rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags);
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let no_replace = flags.contains(RenameFlags::NOREPLACE);
        let about = About::Name(from.0.as_fd(), from.1);
        if self.journal().is_some() {
            if flags.contains(RenameFlags::WHITEOUT) {
                return Err(Self::unsupported("rename with a whiteout", about));
            }
            if mount(from.0)? != mount(to.0)? {
                return Err(Errno::XDEV);
            }
            // What the call would refuse is not kept.
            look_at(from.0, from.1)?;
            match look_at(to.0, to.1) {
                Ok(_) if no_replace && exchange => return Err(Errno::INVAL),
                Ok(_) if no_replace => return Err(Errno::EXIST),
                Err(Errno::NOENT) if !exchange => {}
                there => {
                    there?;
                }
            }
            may_change_names(from.0)?;
            may_change_names(to.0)?;
        }
        let change = self.before_names(from, || {
            self.before("rename", about, |journal| {
                let names = ((from.0.as_fd(), from.1), (to.0.as_fd(), to.1));
                journal.before_rename(names.0, names.1, exchange)
            })
        })?;
        if change.as_ref().is_some_and(Change::is_empty) {
            // Two names of one file stay as they are. Else somebody has removed one meanwhile.
            let (one, other) = (look_at(from.0, from.1)?, look_at(to.0, to.1)?);
            if (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino) {
                return Err(Errno::NOENT);
            }
        }
        let renamed = rename();
        drop(change);
        renamed
    }

    /// linkat(2), which does not follow a link.
    pub(crate) fn link(&self, from: Named<'_>, to: Named<'_>) -> Result<(), Errno> {
        let link = || rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty());
        if self.journal().is_none() {
            return link();
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let source = rustix::fs::openat(from.0, from.1, flags, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode);
        if kind == FileType::Directory {
            // Nothing to be kept: the call's own error, whichever it is.
            return match look_at(to.0, to.1) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => Err(Errno::PERM),
                Err(errno) => Err(errno),
            };
        }
        self.link_announced(&source, to, link)
    }

    /// linkat(2) of what is open.
    pub(crate) fn link_open(&self, source: &OwnedFd, to: Named<'_>) -> Result<(), Errno> {
        let name = own_descriptor(source);
        let link = || rustix::fs::linkat(CWD, &name, to.0, to.1, AtFlags::SYMLINK_FOLLOW);
        if self.journal().is_none() {
            return link();
        }
        let stat = rustix::fs::fstat(source)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(Errno::PERM);
        }
        self.link_announced(source, to, link)
    }

    fn link_announced(
        &self,
        source: &OwnedFd,
        to: Named<'_>,
        link: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let about = About::Name(to.0.as_fd(), to.1);
        let change = self.before("link", about, |journal| {
            journal.before_link(source.as_fd(), to.0.as_fd(), to.1)
        })?;
        if change.as_ref().is_some_and(Change::is_empty) {
            return Err(Errno::EXIST);
        }
        let linked = link();
        drop(change);
        linked
    }
}

/// What has a name, not through a link in its place.
fn look_at(folder: &OwnedFd, name: &[u8]) -> Result<Stat, Errno> {
    let bare = name.iter().rposition(|byte| *byte != b'/');
    let bare = bare.map_or(&name[..0], |at| &name[..=at]);
    rustix::fs::statat(folder, bare, AtFlags::SYMLINK_NOFOLLOW)
}

/// Whether names in a folder may be changed at all.
fn may_change_names(folder: &OwnedFd) -> Result<(), Errno> {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, own_descriptor(folder), wanted, AtFlags::EACCESS)
}

fn mount(folder: &OwnedFd) -> Result<u64, Errno> {
    let wanted = rustix::fs::StatxFlags::MNT_ID;
    Ok(rustix::fs::statx(folder, c"", AtFlags::EMPTY_PATH, wanted)?.stx_mnt_id)
}
