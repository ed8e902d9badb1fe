//! What the owner allows: directories, each for reading or for writing too.

use journal::OWN_PREFIX;
use rustix::fd::OwnedFd;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A root cannot be allowed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllowError {
    /// It is not there, or may not be entered.
    #[error("cannot allow {}", path.display())]
    Unusable {
        /// As it was given.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Not from the root directory on.
    #[error("cannot allow {}: expected an absolute path", path.display())]
    Relative {
        /// As it was given.
        path: PathBuf,
    },
}

/// A directory that may be used.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) dir: OwnedFd,
    pub(crate) writable: bool,
    /// Its names, without a slash at the end: the real one, and as it was given, or of what it covers.
    pub(super) names: [Vec<u8>; 2],
    /// What lies under the second name on this machine, if this root takes its place ([`super::covers`]).
    pub(super) covered: Option<OwnedFd>,
}

/// All directories that may be used.
#[derive(Debug, Default)]
pub struct Allowed {
    pub(super) roots: Vec<Root>,
    hidden: Vec<Hidden>,
}

/// A folder of ours that the job is not to see.
#[derive(Debug)]
struct Hidden {
    /// The real one, without a slash at the end.
    name: Vec<u8>,
    inode: u64,
}

/// What a name is to the roots.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// In this root, under this name in it (empty: the root itself).
    Beneath(&'a Root, &'a [u8]),
    /// Above a root: a directory, of which nothing else is told.
    Above,
    /// Elsewhere.
    Outside,
    /// In a folder of ours: as if it were not there.
    Hidden,
}

impl Allowed {
    /// Nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Allows a directory and all beneath it; of nested ones the innermost counts.
    ///
    /// # Errors
    /// [`AllowError`].
    pub fn allow(&mut self, path: PathBuf, writable: bool) -> Result<(), AllowError> {
        if !path.is_absolute() {
            return Err(AllowError::Relative { path });
        }
        let real = path.canonicalize().and_then(|real| {
            let dir = super::folder(real.as_os_str().as_bytes())?;
            Ok((dir, real))
        });
        match real {
            Ok((dir, real)) => {
                let names = [real, path].map(|name| trimmed(name.into_os_string().into_vec()));
                self.roots.push(Root {
                    dir,
                    writable,
                    names,
                    covered: None,
                });
                Ok(())
            }
            Err(source) => Err(AllowError::Unusable { path, source }),
        }
    }

    /// As the command line says it: `PATH` or `PATH:ro`.
    ///
    /// # Errors
    /// [`AllowError`].
    pub fn allow_text(&mut self, text: &OsStr) -> Result<(), AllowError> {
        let bytes = text.as_bytes();
        let (path, writable) = match bytes.strip_suffix(b":ro") {
            Some(path) => (path, false),
            None => (bytes, true),
        };
        self.allow(OsStr::from_bytes(path).into(), writable)
    }

    /// Hides a folder and all beneath it, wherever it lies: to the job it is not there.
    ///
    /// # Errors
    /// [`AllowError::Unusable`].
    pub fn hide(&mut self, path: &Path) -> Result<(), AllowError> {
        let real = path.canonicalize().and_then(|real| {
            let inode = std::fs::metadata(&real)?.ino();
            Ok((real, inode))
        });
        let (real, inode) = real.map_err(|source| AllowError::Unusable {
            path: path.to_owned(),
            source,
        })?;
        let name = trimmed(real.into_os_string().into_vec());
        self.hidden.push(Hidden { name, inode });
        Ok(())
    }

    /// The real names of the roots where things may be changed.
    pub fn writable_roots(&self) -> impl Iterator<Item = &Path> {
        let writable = self.roots.iter().filter(|root| root.writable);
        writable.map(|root| match &root.names[0][..] {
            b"" => Path::new("/"),
            name => Path::new(OsStr::from_bytes(name)),
        })
    }

    /// Whether an entry of a folder is not to be seen.
    pub(crate) fn hides(&self, name: &[u8], inode: u64) -> bool {
        let own = |hidden: &Hidden| hidden.inode == inode && hidden.name.ends_with(name);
        name.starts_with(OWN_PREFIX.as_bytes()) || self.hidden.iter().any(own)
    }

    fn is_hidden(&self, root: &Root, rest: &[u8]) -> bool {
        let prefix = OWN_PREFIX.as_bytes();
        let mut parts = rest.split(|byte| *byte == b'/');
        if parts.any(|part| part.starts_with(prefix)) {
            return true;
        }
        // What covers a folder may lie in one of ours.
        !self.hidden.is_empty() && root.covered.is_none() && {
            let whole = [&root.names[0], &b"/"[..], trim(rest)].concat();
            let mut hidden = self.hidden.iter();
            hidden.any(|hidden| beneath(&whole, &hidden.name).is_some())
        }
    }

    /// Whether another root lies beneath this name in a root: what is there would lose its own permission if the name
    /// were another's.
    pub(super) fn holds_another(&self, root: &Root, name: &[u8]) -> bool {
        let whole = [&root.names[0], &b"/"[..], trim(name)].concat();
        let roots = self.roots.iter().flat_map(|root| &root.names);
        let mut names = roots.chain(self.hidden.iter().map(|hidden| &hidden.name));
        names.any(|other| beneath(other, &whole).is_some())
    }

    /// Where a name without links, `.`, `..` and double slashes lies.
    pub(crate) fn place<'a>(&'a self, name: &'a [u8]) -> Place<'a> {
        let mut best: Option<(&Root, &[u8])> = None;
        let mut above = false;
        for root in &self.roots {
            for own in &root.names {
                match beneath(name, own) {
                    Some(_) if root.lets_through(name) => {}
                    Some(rest) if best.is_none_or(|(_, other)| rest.len() < other.len()) => {
                        best = Some((root, rest));
                    }
                    Some(_) => {}
                    None => above |= beneath(own, trim(name)).is_some(),
                }
            }
        }
        match best {
            Some((root, rest)) if self.is_hidden(root, rest) => Place::Hidden,
            Some((root, rest)) => Place::Beneath(root, rest),
            None if above => Place::Above,
            None => Place::Outside,
        }
    }
}

pub(super) fn trim(name: &[u8]) -> &[u8] {
    name.strip_suffix(b"/").unwrap_or(name)
}

pub(super) fn trimmed(mut name: Vec<u8>) -> Vec<u8> {
    name.truncate(trim(&name).len());
    name
}

/// The rest of `name` behind `root`, without a slash before it.
pub(super) fn beneath<'a>(name: &'a [u8], root: &[u8]) -> Option<&'a [u8]> {
    let rest = name.strip_prefix(root)?;
    match rest.split_first() {
        None => Some(rest),
        Some((b'/', rest)) => Some(rest),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_root_counts() {
        let outer = tempfile::tempdir().expect("a directory");
        let real = outer.path().canonicalize().expect("is there");
        let inner = real.join("inner");
        std::fs::create_dir(&inner).expect("makes it");
        let mut allowed = Allowed::none();
        allowed.allow(real.clone(), true).expect("allowed");
        allowed
            .allow_text(format!("{}:ro", inner.display()).as_ref())
            .expect("allowed");
        let look = |name: &str| match allowed.place(real.join(name).as_os_str().as_bytes()) {
            Place::Beneath(root, rest) => (root.writable, String::from_utf8_lossy(rest).into()),
            _ => (false, "not beneath".to_owned()),
        };
        assert_eq!(look("a/b"), (true, "a/b".to_owned()));
        assert_eq!(look("inner/b"), (false, "b".to_owned()));
        assert_eq!(look("inner"), (false, String::new()));
        assert_eq!(look("innermost"), (true, "innermost".to_owned()));
        let parent = real.parent().expect("has one").as_os_str().as_bytes();
        assert!(matches!(allowed.place(parent), Place::Above));
        assert!(matches!(allowed.place(b"/"), Place::Above));
        assert!(matches!(allowed.place(b"/etc"), Place::Outside));
    }

    #[test]
    fn what_is_made_for_a_job_lies_where_it_may_write() {
        use std::io::ErrorKind;
        let outer = tempfile::tempdir().expect("a directory");
        let real = outer.path().canonicalize().expect("is there");
        for folder in ["in/below", "in/ours", "in/read", "out"] {
            std::fs::create_dir_all(real.join(folder)).expect("makes it");
        }
        for (link, to) in [("in/leads-out", "../out"), ("in/leads-in", "below")] {
            std::os::unix::fs::symlink(to, real.join(link)).expect("links");
        }
        let mut allowed = Allowed::none();
        allowed.allow(real.join("in"), true).expect("allowed");
        allowed.allow(real.join("in/read"), false).expect("allowed");
        allowed.hide(&real.join("in/ours")).expect("hidden");
        for (name, folder) in [
            ("in/image", "in"),
            ("in/below/../image", "in"),
            ("in/leads-in/image", "in/below"),
            // It is itself meant, and replaced.
            ("in/leads-out", "in"),
        ] {
            let (found, last) = allowed.folder_for(&real.join(name)).expect(name);
            let number = std::os::fd::AsRawFd::as_raw_fd(&found);
            let found = std::fs::read_link(format!("/proc/self/fd/{number}"));
            assert_eq!(found.expect("is open"), real.join(folder), "{name}");
            assert_eq!(Some(&*last), Path::new(name).file_name(), "{name}");
        }
        for (name, expected) in [
            ("out/image", ErrorKind::PermissionDenied),
            ("in/leads-out/image", ErrorKind::PermissionDenied),
            ("in/../out/image", ErrorKind::PermissionDenied),
            ("in/read/image", ErrorKind::PermissionDenied),
            ("in/ours", ErrorKind::NotFound),
            ("in/ours/image", ErrorKind::NotFound),
            ("in/none/image", ErrorKind::NotFound),
            ("in", ErrorKind::ResourceBusy),
        ] {
            let refused = allowed.folder_for(&real.join(name)).expect_err(name);
            assert_eq!(refused.kind(), expected, "{name}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_allowed() {
        let mut allowed = Allowed::none();
        let error = allowed.allow("/nowhere/at/all".into(), true);
        let error = error.expect_err("is not there");
        assert_eq!(error.to_string(), "cannot allow /nowhere/at/all");
        let error = allowed.allow("here".into(), true).expect_err("is relative");
        assert!(error.to_string().contains("expected an absolute path"));
    }
}
