//! The folder at the shadow: a folder for each name, with the images of one job.
//!
//! ```text
//! DIR/NAME/.job            which job's they are: 32 hexadecimal digits
//!          .lock           locked (flock) while one comes
//!          .carried        one that comes
//!          .completed      the job has ended well, and there are none any more
//!          NAME-1.img ...
//! ```
//! # What callers may rely on
//! What has the name of an image is one of which every byte was read, and is durable. The newest that there was goes only for another one.

use super::folder::{COMPLETED, Folder, How, PART, failed};
use crate::away::chunks::say_why_not;
use crate::jobs::{check_place, state_in};
use crate::life::check_room;
use crate::raw::shown_path;
use crate::report::{Explain, Outcome};
use ckpt_lib::image::Image;
use shadow::{Epoch, Images, JobId, Taking, ToKeep};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::KeptImage;

/// No job makes so many.
const MOST_GENERATION: u64 = 1 << 40;

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    /// So many bytes may the images of one job have together.
    most: Option<u64>,
    /// They come no faster.
    rate: Option<NonZeroU64>,
    /// Held while one gets its name, or some go because they cannot be used any more.
    naming: Mutex<()>,
}

impl Store {
    /// In a folder, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or others can take away what is in it.
    pub(crate) fn open(dir: &Path, most: Option<u64>, rate: Option<NonZeroU64>) -> Outcome<Self> {
        let shown = || shown_path(dir);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.context(shown)?;
        let dir = dir.canonicalize().context(shown)?;
        check_place(&dir)?;
        Ok(Store {
            dir,
            most,
            rate,
            naming: Mutex::default(),
        })
    }

    fn names(&self) -> MutexGuard<'_, ()> {
        self.naming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of this job, whatever it has called itself.
    fn folders_of(&self, job: JobId) -> Vec<Folder> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let folders = entries.filter_map(|entry| {
            let name = entry.file_name();
            self.folder(name.as_encoded_bytes()).ok()
        });
        let job = job.to_string();
        folders
            .filter(|folder| folder.job().as_ref() == Some(&job))
            .collect()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn folder(&self, name: &[u8]) -> Result<Folder, String> {
        let name = std::str::from_utf8(name).ok();
        let name = name.filter(|name| crate::args::is_job_name(name));
        let name = name.ok_or("that is no name of a job")?;
        Ok(Folder {
            path: self.dir.join(name),
            name: name.to_owned(),
        })
    }
}

impl Images for Store {
    fn keep<'a>(&'a self, image: ToKeep<'a>) -> Result<Taking<'a>, String> {
        let folder = self.folder(image.name)?;
        let lock = folder.begin(image.job)?;
        if image.asked.least_free > 0 {
            let (least, expected) = (image.asked.least_free, image.asked.expected);
            check_room(&folder.path, least, Some(expected))
                .map_err(|why| format!("on the shadow's machine: {why}"))?;
        }
        let most = match image.asked.most {
            0 => self.most,
            asked => Some(self.most.map_or(asked, |most| most.min(asked))),
        };
        let generation = image.asked.generation;
        if !(1..=MOST_GENERATION).contains(&generation) {
            return Err(format!(
                "found image {generation}, expected 1 to {MOST_GENERATION}"
            ));
        }
        let sized = (generation, image.asked.expected);
        folder.may_have_room_for(sized, most)?;
        Ok(Box::new(move |input, output, may_count| {
            let how = How {
                asked: &image.asked,
                most,
                rate: self.rate,
                counts: &|name| {
                    let _naming = self.names();
                    match may_count() {
                        true => name(),
                        false => Err("a newer copy of the job has begun".to_owned()),
                    }
                },
            };
            // Reading them may take longer than anybody waits for a first answer.
            let room = folder.make_room_for(sized, most);
            let taken = room.and_then(|()| folder.take(&how, input, output));
            if let Err(why) = &taken {
                let _ = fs::remove_file(folder.path.join(PART));
                // Nobody may hear it.
                let _ = say_why_not(output, why);
            }
            drop(lock);
            taken
        }))
    }

    fn list(&self, name: &[u8]) -> Result<Vec<KeptImage>, String> {
        let folder = self.folder(name)?;
        if folder.path.join(COMPLETED).exists() {
            return Err(format!(
                "job {} has been completed: its images are not kept any more",
                folder.name
            ));
        }
        let images = folder.images()?.into_iter();
        let kept = images.map(|one| KeptImage {
            generation: one.generation,
            len: one.len,
            id: Image::open(&one.path).map_or([0; 32], |image| image.header().id),
        });
        Ok(kept.collect())
    }

    fn open(&self, name: &[u8], generation: u64) -> Result<File, String> {
        let path = self.folder(name)?.image(generation);
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW);
        options.open(&path).map_err(|error| failed(&path, &error))
    }

    fn only_those_with(&self, job: JobId, marks: &dyn Fn() -> Option<Vec<Epoch>>) {
        let _naming = self.names();
        let Some(marks) = marks() else {
            return;
        };
        let is_lost = |image: &Path| {
            let mark = state_in(image).and_then(|state| shadow::mark_of(&state));
            mark.is_some_and(|(of, mark)| of == job && !marks.contains(&mark))
        };
        for folder in self.folders_of(job) {
            let all = folder.images().unwrap_or_default();
            for one in all.iter().filter(|one| is_lost(&one.path)) {
                tracing::info!(image = %one.path.display(), "an image goes: its mark is gone");
                if let Err(error) = fs::remove_file(&one.path) {
                    tracing::warn!(%error, image = %one.path.display(), "it stays");
                }
            }
        }
    }

    fn may_forget(&self, job: JobId, copy: u64) -> Result<(), String> {
        for folder in self.folders_of(job) {
            for one in folder.images()? {
                let of = state_in(&one.path).and_then(|state| shadow::copy_of(&state));
                if let Some(newer) = of.filter(|of| *of > copy) {
                    let shown = shown_path(&one.path);
                    return Err(format!(
                        "{shown} is of copy {newer} of the job, expected copy {copy} or one before it"
                    ));
                }
            }
        }
        Ok(())
    }

    fn forget(&self, job: JobId, copy: u64) -> Result<(), String> {
        let _naming = self.names();
        self.may_forget(job, copy)?;
        self.folders_of(job)
            .iter()
            .try_for_each(|folder| folder.remove(job))
    }

    fn complete(&self, job: JobId) {
        for folder in self.folders_of(job) {
            if let Err(why) = folder.complete() {
                tracing::warn!(%job, why, "images of a job that is completed stay");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::KeepImage;

    const ASKED: KeepImage = KeepImage {
        generation: 4,
        keep: 2,
        most: 0,
        least_free: 0,
        expected: 0,
    };

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Store::open(&dir.path().join("kept"), None, None).expect("opens");
        (dir, store)
    }

    fn refused(store: &Store, job: u8, name: &str, asked: KeepImage) -> Option<String> {
        let name = name.as_bytes();
        let job = JobId([job; 16]);
        store.keep(ToKeep { job, name, asked }).err()
    }

    #[test]
    fn a_folder_is_of_one_job_until_that_is_completed() {
        let (_dir, store) = store();
        for name in ["", "../x", "a/b", ".job"] {
            let why = refused(&store, 1, name, ASKED).expect("no name of a job");
            assert!(why.contains("no name of a job"), "{name}: {why}");
        }
        let left = || -> Result<Vec<(u64, u64)>, String> {
            let all = store.list(b"sim")?.into_iter();
            Ok(all.map(|one| (one.generation, one.len)).collect())
        };
        assert_eq!(left(), Ok(vec![]));
        assert_eq!(refused(&store, 2, "sim", ASKED), None);
        // It has none yet.
        assert_eq!(refused(&store, 1, "sim", ASKED), None);
        fs::write(store.dir().join("sim/sim-3.img"), "image").expect("writes");
        let why = refused(&store, 2, "sim", ASKED).expect("is another's");
        assert!(
            why.contains("images of another job of the name sim"),
            "{why}"
        );
        assert_eq!(left(), Ok(vec![(3, 5)]));
        store.forget(JobId([2; 16]), 9).expect("has nothing of it");
        store.complete(JobId([2; 16]));
        assert_eq!(left(), Ok(vec![(3, 5)]));
        store.complete(JobId([1; 16]));
        let why = store.list(b"sim").expect_err("is over");
        assert!(why.contains("job sim has been completed"), "{why}");
        assert!(store.open(b"sim", 3).is_err());
        assert_eq!(refused(&store, 2, "sim", ASKED), None);
        assert_eq!(left(), Ok(vec![]));
        fs::write(store.dir().join("sim/sim-3.img"), "image").expect("writes");
        let (job, name, asked) = (JobId([2; 16]), &b"sim"[..], ASKED);
        let taking = store.keep(ToKeep { job, name, asked }).expect("is taken");
        let why = store.forget(job, 9).expect_err("one is coming");
        assert!(why.contains("an image of job sim is coming"), "{why}");
        drop(taking);
        assert_eq!(left(), Ok(vec![(3, 5)]));
        fs::write(store.dir().join("sim/notes"), "the owner's").expect("writes");
        store.forget(job, 9).expect("is removed");
        let entries = fs::read_dir(store.dir().join("sim")).expect("lists");
        let names: Vec<_> = entries.flatten().map(|one| one.file_name()).collect();
        assert_eq!(names, ["notes"]);
        fs::remove_file(store.dir().join("sim/notes")).expect("removes");
        assert_eq!(refused(&store, 2, "sim", ASKED), None);
        store.forget(job, 9).expect("is removed");
        assert!(!store.dir().join("sim").exists());
        assert_eq!(left(), Ok(vec![]), "it is not over");
    }

    #[test]
    fn one_image_comes_at_a_time_and_only_where_there_is_room() {
        let (_dir, store) = store();
        let (job, name, asked) = (JobId([1; 16]), &b"sim"[..], ASKED);
        let taking = store.keep(ToKeep { job, name, asked }).expect("is taken");
        let why = refused(&store, 1, "sim", ASKED).expect("there is one already");
        assert!(why.contains("another image of job sim is coming"), "{why}");
        drop(taking);
        let large = KeepImage {
            least_free: 1 << 60,
            ..ASKED
        };
        let why = refused(&store, 1, "sim", large).expect("there is no room");
        assert!(
            why.contains("on the shadow's machine") && why.contains("are free"),
            "{why}"
        );
    }

    #[test]
    fn older_images_go_and_those_that_the_job_has_gone_back_behind() {
        let (_dir, store) = store();
        assert_eq!(refused(&store, 1, "sim", ASKED), None);
        let folder = store.folder(b"sim").expect("is one");
        let left = |most| {
            for generation in 1..=6 {
                fs::write(folder.image(generation), [0; 10]).expect("writes");
            }
            folder.trim(&ASKED, most);
            let all = store.list(b"sim").expect("lists");
            all.into_iter()
                .map(|one| one.generation)
                .collect::<Vec<_>>()
        };
        assert_eq!(left(None), [3, 4]);
        assert_eq!(left(Some(15)), [4]);
        assert_eq!(left(Some(5)), [4], "the newest stays");
    }

    #[test]
    fn numbers_that_no_image_has_are_refused() {
        let (_dir, store) = store();
        for generation in [0, MOST_GENERATION + 1, u64::MAX] {
            let asked = KeepImage {
                generation,
                ..ASKED
            };
            let why = refused(&store, 1, "sim", asked).expect("none has it");
            assert!(why.contains(&format!("found image {generation}")), "{why}");
        }
        assert_eq!(store.list(b"sim"), Ok(vec![]));
    }

    /// What comes is no image, or ends: what there is stays.
    #[test]
    fn what_is_no_image_is_not_kept() {
        let (_dir, store) = store();
        assert_eq!(refused(&store, 1, "sim", ASKED), None);
        let folder = store.folder(b"sim").expect("is one");
        fs::write(folder.image(3), vec![7; 8192]).expect("writes");
        let (job, name, asked) = (JobId([1; 16]), &b"sim"[..], ASKED);
        let whole = [&b"wf-pages"[..], &[0xff; 8], &8192_u64.to_le_bytes()].concat();
        for said in [&b"garbage"[..], &whole[..12], &whole] {
            let taking = store.keep(ToKeep { job, name, asked }).expect("is taken");
            let mut output = vec![];
            let taken = taking(&mut &*said, &mut output, &|| true);
            assert!(taken.is_err(), "{taken:?}");
            let all = store.list(b"sim").expect("lists");
            assert_eq!((all.len(), all[0].generation, all[0].len), (1, 3, 8192));
            assert!(!folder.path.join(PART).exists());
        }
    }
}
