//! Folders of a job's own that take the place of ones which everybody may write to: `/tmp` and `/var/tmp`.
//!
//! A program expects to make files there, and the owner does not expect a job to change theirs. So what a job makes in
//! `/tmp` lies in a folder of the shadow's; what it has no file of that name of is read from the machine's, if that is allowed.

use super::allow::{AllowError, Allowed, Place, Root, beneath, trim, trimmed};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// The folders, and what lies in their place is called.
const COVERED: [(&[u8], &str); 2] = [(b"/tmp", "tmp"), (b"/var/tmp", "var-tmp")];

/// Of `/tmp`: everybody's, and sticky. What is above it keeps others out.
const MODE: u32 = 0o1777;

impl Allowed {
    /// Gives jobs a `/tmp` and a `/var/tmp` of their own, which lie in `dir`, unless these were allowed by their names or may be
    /// written to. `dir` is there, and nobody else may enter it.
    ///
    /// # Errors
    /// [`AllowError::Unusable`].
    pub fn cover_temporary(&mut self, dir: &Path) -> Result<(), AllowError> {
        for (name, own) in COVERED {
            let is_named = |root: &Root| root.names.iter().any(|one| one == name);
            let is_writable = matches!(self.place(name), Place::Beneath(root, _) if root.writable);
            if is_writable || self.roots.iter().any(is_named) {
                continue;
            }
            let path = dir.join(own);
            let root = covering(name, &path).map_err(|source| AllowError::Unusable {
                path: path.clone(),
                source,
            })?;
            self.roots.push(root);
        }
        Ok(())
    }

    /// The name by which a job knows what has this real name.
    pub(crate) fn told(&self, real: Vec<u8>) -> Vec<u8> {
        let covering = self.roots.iter().filter(|root| root.covered.is_some());
        let mut told = covering.filter_map(|root| {
            let rest = beneath(&real, &root.names[0])?;
            let slash: &[u8] = if rest.is_empty() { b"" } else { b"/" };
            Some([&root.names[1], slash, rest].concat())
        });
        told.next().unwrap_or(real)
    }
}

impl Root {
    /// Whether a name beneath it means what lies on this machine there, and not in this root.
    pub(super) fn lets_through(&self, name: &[u8]) -> bool {
        let Some(covered) = &self.covered else {
            return false;
        };
        let rest = beneath(name, &self.names[1]).map(trim);
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
            return false;
        };
        let first = rest.split(|byte| *byte == b'/').next().unwrap_or(rest);
        !is_in(&self.dir, first) && is_in(covered, first)
    }
}

fn is_in(folder: &OwnedFd, name: &[u8]) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Makes it, in a folder of ours: it is no change of a job's.
#[allow(clippy::disallowed_methods)]
fn covering(name: &[u8], path: &Path) -> io::Result<Root> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let real = trimmed(path.canonicalize()?.into_os_string().into_vec());
    let dir = super::folder(&real)?;
    let own = super::own_descriptor(std::os::fd::AsRawFd::as_raw_fd(&dir.as_fd()));
    rustix::fs::chmod(own, Mode::from_raw_mode(MODE))?;
    Ok(Root {
        dir,
        writable: true,
        names: [real, name.to_vec()],
        covered: Some(super::folder(name)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Last;
    use rustix::fs::OFlags;
    use rustix::io::Errno;

    /// Where a name lies: in a root that may be written to, and under which name there.
    fn place(allowed: &Allowed, name: &str) -> (bool, String) {
        match allowed.place(name.as_bytes()) {
            Place::Beneath(root, rest) => (root.writable, String::from_utf8_lossy(rest).into()),
            other => (false, format!("{other:?}")),
        }
    }

    #[test]
    fn what_a_job_makes_in_tmp_is_its_own_and_the_machines_can_be_read() {
        let theirs = tempfile::Builder::new().tempdir_in("/tmp").expect("made");
        let theirs = theirs.path().to_str().expect("is text").to_owned();
        let own = tempfile::tempdir().expect("a directory");
        let mut allowed = Allowed::none();
        allowed.allow("/".into(), false).expect("allowed");
        allowed.cover_temporary(own.path()).expect("covered");

        assert_eq!(place(&allowed, "/tmp"), (true, String::new()));
        assert_eq!(place(&allowed, "/tmp/"), (true, String::new()));
        assert_eq!(place(&allowed, "/tmp/new/x"), (true, "new/x".into()));
        assert_eq!(place(&allowed, "/tmpx"), (false, "tmpx".into()));
        assert_eq!(place(&allowed, &theirs), (false, theirs[1..].to_owned()));
        let inside = format!("{theirs}/x");
        assert_eq!(place(&allowed, &inside), (false, inside[1..].to_owned()));

        // One that the job has made comes first.
        let name = Path::new(&theirs).file_name().expect("has a name");
        std::fs::create_dir(own.path().join("tmp").join(name)).expect("makes it");
        let (is_writable, _) = place(&allowed, &inside);
        assert!(is_writable);

        let made = allowed.at(b"/var/tmp/made", Last::Kept, |spot| {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            spot.open_with(flags, Mode::from_raw_mode(0o600))
        });
        made.expect("makes it");
        assert!(own.path().join("var-tmp/made").exists());
        assert!(!Path::new("/var/tmp/made").exists());
        let real = own.path().canonicalize().expect("is there");
        let real = real.join("var-tmp/made").into_os_string().into_vec();
        assert_eq!(allowed.told(real.clone()), b"/var/tmp/made");
        let found = allowed.at(&real, Last::Kept, |spot| spot.open(OFlags::PATH));
        found.expect("is found by its real name, too");
        assert_eq!(allowed.told(b"/tmp/x".to_vec()), b"/tmp/x");
    }

    #[test]
    fn folders_that_were_allowed_are_not_covered() {
        let own = tempfile::tempdir().expect("a directory");
        let (there, here) = (Some("/tmp"), Some("/tmp:ro"));
        for named in [there, here] {
            let mut allowed = Allowed::none();
            if let Some(text) = named {
                allowed.allow_text(text.as_ref()).expect("allowed");
            }
            allowed.cover_temporary(own.path()).expect("covered");
            let (is_writable, rest) = place(&allowed, "/tmp/x");
            assert_eq!((is_writable, rest.as_str()), (named == there, "x"));
            assert!(!own.path().join("tmp").exists());
            assert!(own.path().join("var-tmp").exists());
        }
        let mut allowed = Allowed::none();
        allowed.allow("/".into(), true).expect("allowed");
        allowed.cover_temporary(own.path()).expect("nothing to do");
        assert_eq!(place(&allowed, "/tmp/x"), (true, "tmp/x".into()));
    }

    #[test]
    fn a_file_of_the_machines_in_tmp_is_not_written_to() {
        let theirs = tempfile::Builder::new().tempfile_in("/tmp").expect("made");
        let own = tempfile::tempdir().expect("a directory");
        let mut allowed = Allowed::none();
        allowed.allow("/".into(), false).expect("allowed");
        allowed.cover_temporary(own.path()).expect("covered");
        let name = theirs.path().to_str().expect("is text").as_bytes();
        let written = allowed.at(name, Last::Kept, |spot| match spot.writable() {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        });
        assert_eq!(written, Err(Errno::ACCESS));
    }
}
