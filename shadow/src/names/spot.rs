//! A place beneath a root, and what is done there.

use super::LONGEST_NAME;
use super::allow::{Allowed, Place, Root};
use super::walk::{Walked, walk, walk_within};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The name is of the machine where the job runs ([`wire::ELSEWHERE`]).
pub(crate) const ELSEWHERE: Errno = Errno::from_raw_os_error(wire::ELSEWHERE as i32);

/// How often a name is walked anew because links change under way.
const TRIES: u32 = 8;

/// What becomes of a link in the last part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// It is followed.
    Followed,
    /// It is meant itself.
    Kept,
}

impl Last {
    pub(crate) fn from_follow(follow: bool) -> Self {
        if follow { Last::Followed } else { Last::Kept }
    }
}

/// A name without links beneath a root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot<'a> {
    root: &'a Root,
    /// Empty: the root itself.
    name: &'a [u8],
}

impl<'a> Spot<'a> {
    pub(super) fn new(root: &'a Root, name: &'a [u8]) -> Self {
        Spot { root, name }
    }

    /// Whether anything may be changed here.
    pub(crate) fn writable(&self) -> bool {
        self.root.writable
    }

    /// Whether another root lies beneath this name, or what is hidden.
    pub(crate) fn holds_a_root(&self, allowed: &Allowed) -> bool {
        allowed.holds_another(self.root, self.name)
    }

    /// Whether it must be a folder.
    pub(crate) fn ends_in_slash(&self) -> bool {
        self.name.ends_with(b"/")
    }

    /// openat2(2) without following any link; nothing is made or cut.
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let changing = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | NAMELESS;
        self.open_with(flags.difference(changing), Mode::empty())
    }

    /// openat2(2) with any flags, and the permissions of a new file; only for [`crate::changes`].
    pub(crate) fn open_with(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        open_beneath(&self.root.dir, self.name, flags, mode)
    }

    /// The folder, and the name in it with the slash that may be behind it.
    pub(crate) fn parent(&self) -> Result<(OwnedFd, &'a [u8]), Errno> {
        let bare = self.name.strip_suffix(b"/").unwrap_or(self.name);
        let (folder, name) = match bare.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&self.name[..at], &self.name[at + 1..]),
            None => (&b""[..], self.name),
        };
        // A root itself is not to be removed, renamed or made.
        if name.is_empty() {
            return Err(Errno::BUSY);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let folder = open_beneath(&self.root.dir, folder, flags, Mode::empty())?;
        Ok((folder, name))
    }
}

/// `O_TMPFILE` without `O_DIRECTORY`, which is part of it.
pub(crate) const NAMELESS: OFlags = OFlags::TMPFILE.difference(OFlags::DIRECTORY);

/// openat2(2) of what lies beneath a folder, without following any link; only for [`crate::changes`] and here.
#[allow(clippy::disallowed_methods)]
pub(crate) fn open_beneath(
    root: &OwnedFd,
    name: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    // It wants no permissions where nothing is made.
    let mode = if flags.intersects(OFlags::CREATE | NAMELESS) {
        mode
    } else {
        Mode::empty()
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let name = if name.is_empty() { b"." } else { name };
    rustix::fs::openat2(root, name, flags | OFlags::CLOEXEC, mode, resolve)
}

impl Allowed {
    /// Does `act` where the absolute name `text` leads, at most a few times if links are in the way.
    pub(crate) fn at<T>(
        &self,
        text: &[u8],
        last: Last,
        mut act: impl FnMut(&Spot<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if text.len() > LONGEST_NAME {
            return Err(Errno::NAMETOOLONG);
        }
        if !text.starts_with(b"/") || text.contains(&0) {
            return Err(Errno::INVAL);
        }
        let mut name = plain(text);
        if name.as_deref().is_some_and(wire::is_local) {
            return Err(ELSEWHERE);
        }
        for _ in 0..TRIES {
            let before = name;
            let result = match &before {
                Some(name) => match self.place(name) {
                    Place::Beneath(root, rest) => act(&Spot::new(root, rest)),
                    // Perhaps a link leads in again.
                    Place::Above | Place::Outside => Err(Errno::ACCESS),
                    Place::Hidden => Err(Errno::NOENT),
                },
                None => Err(Errno::LOOP),
            };
            let outside = matches!(&before, Some(name)
                if matches!(self.place(name), Place::Above | Place::Outside));
            match result {
                Err(Errno::LOOP | Errno::AGAIN | Errno::XDEV) => {}
                Err(Errno::ACCESS) if outside => {}
                result => return result,
            }
            let Walked::Here(walked) = walk(self, text, last)? else {
                return Err(ELSEWHERE);
            };
            if before.as_ref() == Some(&walked) {
                if outside {
                    let name = String::from_utf8_lossy(text);
                    tracing::info!(%name, "refused: outside of what is allowed");
                }
                return result;
            }
            name = Some(walked);
        }
        Err(Errno::LOOP)
    }
}

impl Allowed {
    /// The folder in which the job may have this made, and its name there: for what is made for the job, not by it. The folder stays the one that was
    /// found, whatever becomes of names.
    ///
    /// # Errors
    /// EACCES outside of what may be changed; what openat2(2) says.
    pub fn folder_for(&self, name: &Path) -> io::Result<(OwnedFd, OsString)> {
        let found = self.at(name.as_os_str().as_bytes(), Last::Kept, |spot| {
            if !spot.writable() || spot.ends_in_slash() || spot.holds_a_root(self) {
                return Err(Errno::ACCESS);
            }
            let (folder, name) = spot.parent()?;
            Ok((folder, OsStr::from_bytes(name).to_owned()))
        });
        Ok(found?)
    }
}

impl Allowed {
    /// Does `act` where a name leads from a folder on, as openat2(2) may ask; EAGAIN if names change too often meanwhile.
    pub(crate) fn at_within<T>(
        &self,
        folder: &[u8],
        (name, flags): (&[u8], ResolveFlags),
        last: Last,
        mut act: impl FnMut(&Spot<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if folder.len() + name.len() > LONGEST_NAME {
            return Err(Errno::NAMETOOLONG);
        }
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        let mut failed = None;
        for _ in 0..TRIES {
            let walked = match walk_within(self, folder, (name, flags), last) {
                Ok(Walked::Here(walked)) => walked,
                Ok(Walked::Elsewhere(_)) => return Err(ELSEWHERE),
                // Too many links, or a folder became one when it was looked at.
                Err(Errno::LOOP) => {
                    failed = None;
                    continue;
                }
                Err(errno) => return Err(errno),
            };
            let done = match self.place(&walked) {
                Place::Beneath(root, rest) => act(&Spot::new(root, rest)),
                Place::Above | Place::Outside => Err(Errno::ACCESS),
                Place::Hidden => Err(Errno::NOENT),
            };
            match done {
                Err(errno @ (Errno::LOOP | Errno::AGAIN | Errno::XDEV)) => failed = Some(errno),
                done => return done,
            }
        }
        Err(match (failed, last) {
            (None, _) => Errno::LOOP,
            // A link that is kept may be what the call itself does not take.
            (Some(errno), Last::Kept) => errno,
            (Some(_), Last::Followed) => Errno::AGAIN,
        })
    }
}

impl Allowed {
    /// Where an absolute name leads on the machine where the job runs; EINVAL if it does not lead there.
    pub(crate) fn elsewhere(&self, text: &[u8]) -> Result<Vec<u8>, Errno> {
        if text.len() > LONGEST_NAME || text.contains(&0) {
            return Err(Errno::INVAL);
        }
        match walk(self, text, Last::Followed)? {
            Walked::Elsewhere(name) if name.len() <= LONGEST_NAME => Ok(name),
            Walked::Elsewhere(_) => Err(Errno::NAMETOOLONG),
            Walked::Here(_) => Err(Errno::INVAL),
        }
    }

    /// The name without `.` and double slashes of a directory above a root, of which only its attributes are told.
    pub(crate) fn above(&self, text: &[u8]) -> Option<Vec<u8>> {
        let name = plain(text)?;
        matches!(self.place(&name), Place::Above).then_some(name)
    }
}

/// The name without `.` and double slashes, if there is no `..` in it.
fn plain(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    for part in text.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return None,
            part => {
                name.push(b'/');
                name.extend_from_slice(part);
            }
        }
    }
    // "a/." is a directory as "a/" is.
    if name.is_empty() || text.ends_with(b"/") || text.ends_with(b"/.") {
        name.push(b'/');
    }
    Some(name)
}
