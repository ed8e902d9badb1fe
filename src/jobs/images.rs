//! The images in a job's directory: `jobs/NAME/images/NAME-1.img`, `NAME-2.img` ...

use super::{IMAGES_KEPT, Job, JobError, at, make_private_dir};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
    let images = dir.join("images");
    let entries = match fs::read_dir(&images) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
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

/// If this image lies in the directory of a job, the one before it there.
pub(crate) fn image_before(image: &Path) -> Option<PathBuf> {
    let image = image.canonicalize().ok()?;
    let dir = image.parent()?.parent()?;
    let images = images_in(dir).ok()?;
    let place = images.iter().position(|stored| stored.path == image)?;
    dir.join("job.json").exists().then_some(())?;
    Some(images[place.checked_sub(1)?].path.clone())
}

impl Job {
    /// Its images, oldest first.
    pub(crate) fn images(&self) -> Result<Vec<StoredImage>, JobError> {
        images_in(&self.dir)
    }

    /// Where the image of this generation goes.
    pub(crate) fn image_path(&self, generation: u64) -> Result<PathBuf, JobError> {
        let images = self.dir.join("images");
        make_private_dir(&images)?;
        Ok(images.join(format!("{}-{generation}.img", self.record.name)))
    }

    /// The number of its next checkpoint.
    pub(crate) fn next_generation(&self) -> u64 {
        let images = self.images().unwrap_or_default();
        let stored = images.last().map_or(0, |image| image.generation);
        self.record.generation.max(stored) + 1
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
        let Some(((_, newest_len), older)) = sized.split_last() else {
            return Ok(Crowded::check(0, expected, most));
        };
        if used.saturating_add(expected) <= most {
            return Ok(Ok(()));
        }
        // For nothing, none is removed.
        if let Err(crowded) = Crowded::check(*newest_len, expected, most) {
            return Ok(Err(crowded));
        }
        if let Some((newest, _)) = sized.last().filter(|_| !older.is_empty()) {
            is_good(&newest.path)?;
        }
        for (image, len) in older {
            if used.saturating_add(expected) <= most {
                break;
            }
            at("cannot remove", &image.path, fs::remove_file(&image.path))?;
            used -= len;
        }
        Ok(Crowded::check(used, expected, most))
    }

    /// Removes all images but the last few, if the newest of them is good. They are whole: none needs another.
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
        for image in images.iter().take(surplus) {
            at("cannot remove", &image.path, fs::remove_file(&image.path))?;
        }
        Ok(())
    }
}
