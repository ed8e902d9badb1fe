//! The images of a job: `jobs/NAME/images/NAME-1.img`, `NAME-2.img` ...
//!
//! `jobs/NAME/images` is a directory, or a link to the one that `--images` has made ([`super::elsewhere`]); [`images_dir`] says where they are.

use super::elsewhere;
use super::{CheckpointNote, IMAGES_KEPT, Job, JobError, at};
use ckpt_lib::image::Image;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where the images of the job with this directory are.
pub(crate) fn images_dir(dir: &Path) -> PathBuf {
    let images = dir.join("images");
    fs::read_link(&images).unwrap_or(images)
}

/// A directory on the disk where they are, or will be when there is the first.
pub(crate) fn images_disk(dir: &Path) -> PathBuf {
    let images = images_dir(dir);
    match images == dir.join("images") && !images.exists() {
        true => dir.to_owned(),
        false => images,
    }
}

/// An image in a job's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredImage {
    pub(crate) path: PathBuf,
    pub(crate) generation: u64,
}

/// A job's images would be larger together than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crowded {
    used: u64,
    expected: u64,
    most: u64,
}

impl Crowded {
    fn check(used: u64, expected: u64, most: u64) -> Result<(), Crowded> {
        match used.saturating_add(expected) <= most {
            true => Ok(()),
            false => Err(Crowded {
                used,
                expected,
                most,
            }),
        }
    }
}

impl std::fmt::Display for Crowded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Crowded {
            used,
            expected,
            most,
        } = self;
        write!(
            f,
            "the job's images have {used} bytes without those that can go, and the next takes about {expected}, expected {most} at most together (--images-max)"
        )
    }
}

/// The images of a job's directory, oldest first.
pub(super) fn images_in(dir: &Path) -> Result<Vec<StoredImage>, JobError> {
    let images = images_dir(dir);
    let entries = match fs::read_dir(&images) {
        // One that is elsewhere, and gone, may come back, with images.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !elsewhere::is_in(dir) => {
            return Ok(vec![]);
        }
        entries => at("cannot read", &images, entries)?,
    };
    let mut found: Vec<StoredImage> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let (_, number) = name.to_str()?.strip_suffix(".img")?.rsplit_once('-')?;
            Some(StoredImage {
                path: entry.path(),
                generation: number.parse().ok()?,
            })
        })
        .collect();
    found.sort_by_key(|image| image.generation);
    Ok(found)
}

/// The directory of the job among whose images this one is, if it is one's; without links.
pub(super) fn job_of(image: &Path) -> Option<PathBuf> {
    let folder = image.parent()?;
    let dir = match elsewhere::job_of(folder) {
        Some(dir) => dir.canonicalize().ok()?,
        None => folder.parent()?.to_owned(),
    };
    let is_its = images_dir(&dir)
        .canonicalize()
        .is_ok_and(|found| found == folder);
    is_its.then_some(dir)
}

/// If this is an image of a job, the one before it.
pub(crate) fn image_before(image: &Path) -> Option<PathBuf> {
    let image = image.canonicalize().ok()?;
    let dir = job_of(&image)?;
    let images = images_in(&dir).ok()?;
    let is_it = |path: &Path| path.canonicalize().is_ok_and(|path| path == image);
    let place = images.iter().position(|stored| is_it(&stored.path))?;
    dir.join("job.json").exists().then_some(())?;
    Some(images[place.checked_sub(1)?].path.clone())
}

/// The images without which this one is of no use, and itself.
fn files_of(image: &StoredImage) -> Result<Vec<PathBuf>, JobError> {
    let image = Image::open(&image.path).map_err(JobError::Damaged)?;
    Ok(image.files().map(Path::to_owned).collect())
}

impl Job {
    /// Its images, oldest first.
    pub(crate) fn images(&self) -> Result<Vec<StoredImage>, JobError> {
        images_in(&self.dir)
    }

    /// Whether its images count when its shadow has them, which its starter sees to.
    pub(crate) fn has_images_at_shadow(&self) -> bool {
        let life = self.life.as_ref().filter(|life| life.has_starter());
        life.is_some_and(|life| life.images_at_shadow)
    }

    /// Writes down a checkpoint.
    pub(crate) fn note(&mut self, note: CheckpointNote) -> Result<(), JobError> {
        self.record.generation = note.generation;
        self.record.last_checkpoint = Some(note);
        Ok(self.record.save(&self.dir)?)
    }

    /// Where the image of this generation goes.
    pub(crate) fn image_path(&self, generation: u64) -> Result<PathBuf, JobError> {
        let images = images_dir(&self.dir);
        if elsewhere::is_in(&self.dir) {
            at("cannot read", &images, fs::read_dir(&images))?;
        } else if !images.is_dir() {
            // Not its own directory, too: it may have been removed.
            let made = fs::DirBuilder::new().mode(0o700).create(&images);
            at("cannot make", &images, made)?;
        }
        Ok(images.join(format!("{}-{generation}.img", self.record.name)))
    }

    /// The number of its next checkpoint.
    pub(crate) fn next_generation(&self) -> u64 {
        let images = self.images().unwrap_or_default();
        let stored = images.last().map_or(0, |image| image.generation);
        self.record.generation.max(stored).saturating_add(1)
    }

    /// Its images, oldest first: those in its directory and, if that is elsewhere, the one of its last checkpoint.
    pub(crate) fn known_images(&self) -> Result<Vec<StoredImage>, JobError> {
        let mut images = self.images()?;
        if let Some(last) = &self.record.last_checkpoint
            && images.iter().all(|image| image.path != last.image)
        {
            let place = images.partition_point(|image| image.generation <= last.generation);
            let last = StoredImage {
                path: last.image.clone(),
                generation: last.generation,
            };
            images.insert(place, last);
        }
        Ok(images)
    }

    /// Whether an image of so many bytes could be kept beside the newest, if the job's are to have `most` together.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(crate) fn could_have(&self, most: u64, len: u64) -> Result<Result<(), Crowded>, JobError> {
        let newest = self.images()?.pop();
        let newest = newest.and_then(|image| fs::metadata(&image.path).ok());
        let used = newest.map_or(0, |found| found.len());
        Ok(Crowded::check(used, len, most))
    }

    /// How many bytes its images have together.
    pub(crate) fn bytes_of_images(&self) -> Result<u64, JobError> {
        let images = self.images()?.into_iter();
        let sizes = images.map(|image| fs::metadata(&image.path).map_or(0, |found| found.len()));
        Ok(sizes.sum())
    }

    /// Whether another image of `expected` bytes may be made if the job's are to have `most` together: older ones are removed as far as that takes, but never
    /// the newest, nor any if that is not good.
    ///
    /// # Errors
    /// An image cannot be removed, or the newest is not good.
    pub(crate) fn make_room(
        &self,
        most: u64,
        expected: u64,
        is_good: impl FnOnce(&Path) -> Result<(), JobError>,
    ) -> Result<Result<(), Crowded>, JobError> {
        let images = self.images()?;
        let sized = images.iter().map(|image| {
            let len = fs::metadata(&image.path).map_or(0, |found| found.len());
            (image, len)
        });
        let sized: Vec<_> = sized.collect();
        let mut used: u64 = sized.iter().map(|(_, len)| len).sum();
        let Some(((newest, newest_len), older)) = sized.split_last() else {
            return Ok(Crowded::check(0, expected, most));
        };
        if used.saturating_add(expected) <= most {
            return Ok(Ok(()));
        }
        // For nothing, none is removed.
        if let Err(crowded) = Crowded::check(*newest_len, expected, most) {
            return Ok(Err(crowded));
        }
        if !older.is_empty() {
            is_good(&newest.path)?;
        }
        let needed = files_of(newest)?;
        for (image, len) in older
            .iter()
            .filter(|(image, _)| !needed.contains(&image.path))
        {
            if used.saturating_add(expected) <= most {
                break;
            }
            at("cannot remove", &image.path, fs::remove_file(&image.path))?;
            used -= len;
        }
        Ok(Crowded::check(used, expected, most))
    }

    /// Removes all images but the last few and those that they are based on, if the newest of them is good.
    pub(crate) fn trim(
        &self,
        is_good: impl FnOnce(&Path) -> Result<(), JobError>,
    ) -> Result<(), JobError> {
        let images = self.images()?;
        let kept = self.life.as_ref().map_or(IMAGES_KEPT, |life| life.keep);
        let surplus = images.len().saturating_sub(kept as usize);
        if let Some(newest) = images.last().filter(|_| surplus > 0) {
            is_good(&newest.path)?;
        }
        let mut needed = vec![];
        for image in &images[surplus..] {
            // One that cannot be opened is of no use with others, either.
            needed.extend(files_of(image).unwrap_or_default());
        }
        let surplus = images.iter().take(surplus);
        for image in surplus.filter(|image| !needed.contains(&image.path)) {
            at("cannot remove", &image.path, fs::remove_file(&image.path))?;
        }
        Ok(())
    }
}
