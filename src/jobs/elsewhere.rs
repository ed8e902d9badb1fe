//! Images of a job that are not in its directory (`--images DIR`).
//!
//! ```text
//! jobs/NAME/images ──link──> DIR/NAME/            0700, made by us
//! jobs/NAME        <──link── DIR/NAME/.job        which job's they are
//! ```
//! # What callers may rely on
//! The links are durable before an image is made. A folder that is not the job's is never written to or removed. One that is gone is named, and
//! nobody takes the job for one without images.

use super::images::images_in;
use super::{Job, JobError, at};
use crate::raw::shown_path;
use crate::report::tell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// What a job's directory calls them.
const IMAGES: &str = "images";
/// Which job's a folder is.
const BACK: &str = ".job";

/// Whether images of the job with this directory are elsewhere.
pub(super) fn is_in(dir: &Path) -> bool {
    fs::read_link(dir.join(IMAGES)).is_ok()
}

/// The directory of the job whose images are to be in this folder, if it was made for one.
pub(super) fn job_of(folder: &Path) -> Option<PathBuf> {
    fs::read_link(folder.join(BACK)).ok()
}

impl Job {
    /// Its images are below this directory from now on; those that it has stay where they are, so there may be none elsewhere.
    pub(crate) fn keep_images_in(&self, asked: &Path) -> Result<(), JobError> {
        let asked = at("cannot find", asked, asked.canonicalize())?;
        check_place(&asked)?;
        let folder = asked.join(&self.record.name);
        let link = self.dir.join(IMAGES);
        match fs::read_link(&link) {
            Ok(there) if there == folder => return is_ours(&folder, &self.dir),
            _ if !images_in(&self.dir)?.is_empty() => {
                let found = super::images::images_dir(&self.dir);
                let found = format!("its images in {}", shown_path(&found));
                return Err(unfit(&folder, found, "none, or those there"));
            }
            Ok(_) => release(&self.dir),
            Err(_) if link.is_dir() => at("cannot remove", &link, fs::remove_dir(&link))?,
            Err(_) => {}
        }
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => {
                let back = folder.join(BACK);
                at("cannot make", &back, symlink(&self.dir, &back))?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                is_ours(&folder, &self.dir)?;
                let entries = at("cannot read", &folder, fs::read_dir(&folder))?;
                let others = entries.flatten().filter(|entry| entry.file_name() != BACK);
                if let Some(entry) = others.into_iter().next() {
                    let found =
                        format!("a file that was there before, {}", shown_path(entry.path()));
                    return Err(unfit(&folder, found, "an empty folder, or none"));
                }
            }
            made => at("cannot make", &folder, made)?,
        }
        at("cannot make", &link, symlink(&folder, &link))?;
        for dir in [&folder, &asked, &self.dir] {
            at(
                "cannot make durable",
                dir,
                File::open(dir).and_then(|dir| dir.sync_all()),
            )?;
        }
        Ok(())
    }
}

/// A directory in which others cannot take a folder of ours away.
pub(crate) fn check_place(asked: &Path) -> Result<(), JobError> {
    const BY_OTHERS: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let found = at("cannot read", asked, fs::metadata(asked))?;
    let own = nix::unistd::geteuid().as_raw();
    if !found.is_dir() {
        return Err(unfit(asked, "no directory".to_owned(), "one"));
    }
    if ![0, own].contains(&found.uid()) {
        let owner = format!("a directory of user {}", found.uid());
        return Err(unfit(asked, owner, "one of ours, or of root"));
    }
    if found.mode() & BY_OTHERS != 0 && found.mode() & STICKY == 0 {
        let mode = format!("mode {:04o}", found.mode() & 0o7777);
        let expected = "one in which others cannot remove our files (chmod go-w, or +t)";
        return Err(unfit(asked, mode, expected));
    }
    Ok(())
}

/// The folder is there, nobody else's, and for this job.
fn is_ours(folder: &Path, dir: &Path) -> Result<(), JobError> {
    let found = at("cannot read", folder, fs::symlink_metadata(folder))?;
    let own = nix::unistd::geteuid().as_raw();
    if !found.is_dir() || found.uid() != own || found.mode() & 0o077 != 0 {
        let found = format!("owner {}, mode {:04o}", found.uid(), found.mode() & 0o7777);
        return Err(unfit(folder, found, "a folder of ours, with mode 0700"));
    }
    let is_it = |job: &PathBuf| match (job.canonicalize(), dir.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => job == dir,
    };
    match job_of(folder) {
        Some(job) if is_it(&job) => Ok(()),
        Some(job) => {
            let found = format!("that of the job in {}", shown_path(&job));
            Err(unfit(folder, found, "this job's, or none"))
        }
        None => Err(unfit(
            folder,
            "a folder of somebody else".to_owned(),
            "none",
        )),
    }
}

fn unfit(path: &Path, found: String, expected: &'static str) -> JobError {
    JobError::Unfit {
        path: path.to_owned(),
        found,
        expected,
    }
}

/// The job is to be removed, or its name to be another's: its folder elsewhere goes. What is out of reach stays, and that is told.
pub(super) fn release(dir: &Path) {
    let link = dir.join(IMAGES);
    let Ok(folder) = fs::read_link(&link) else {
        return;
    };
    let removed = match is_ours(&folder, dir) {
        Ok(()) => fs::remove_dir_all(&folder).map_err(|error| error.to_string()),
        Err(error) => Err(crate::report::chain(&error)),
    };
    if let Err(why) = removed {
        let folder = shown_path(&folder);
        tell(&format!(
            "images of the job that may be in {folder} stay there: {why}"
        ));
    }
    let _ = fs::remove_file(&link);
}
