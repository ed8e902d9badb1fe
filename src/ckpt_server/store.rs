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

use crate::away::chunks::{GOOD, Reception, hear_end, receive, say_why_not};
use crate::jobs::{check_place, state_in};
use crate::life::check_room;
use crate::raw::shown_path;
use crate::report::{Explain, Outcome, chain};
use ckpt_lib::image::Image;
use ckpt_lib::pace::Rate;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use shadow::{Epoch, Images, JobId, Taking, ToKeep};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::{KeepImage, KeptImage};

const JOB: &str = ".job";
const LOCK: &str = ".lock";
const PART: &str = ".carried";
const COMPLETED: &str = ".completed";
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

    fn complete(&self, job: JobId) {
        for folder in self.folders_of(job) {
            if let Err(why) = folder.complete() {
                tracing::warn!(%job, why, "images of a job that is completed stay");
            }
        }
    }
}

/// An image that is kept.
struct Kept {
    path: PathBuf,
    generation: u64,
    len: u64,
}

impl Kept {
    /// Every byte of it is what it was.
    fn is_good(&self) -> bool {
        let verified = Image::open(&self.path).and_then(|image| image.verify(&mut |_| {}));
        verified.is_ok()
    }
}

/// Gives an image its name.
type Naming<'a> = &'a dyn Fn() -> Result<(), String>;

/// How an image is taken.
struct How<'a> {
    asked: &'a KeepImage,
    most: Option<u64>,
    rate: Option<NonZeroU64>,
    /// Gives it its name, unless it does not count any more.
    counts: &'a dyn Fn(Naming<'_>) -> Result<(), String>,
}

/// The images of a job.
struct Folder {
    path: PathBuf,
    name: String,
}

impl Folder {
    fn image(&self, generation: u64) -> PathBuf {
        self.path.join(format!("{}-{generation}.img", self.name))
    }

    fn job(&self) -> Option<String> {
        fs::read_to_string(self.path.join(JOB)).ok()
    }

    /// Oldest first.
    fn images(&self) -> Result<Vec<Kept>, String> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
            entries => entries.map_err(|error| failed(&self.path, &error))?,
        };
        let mut found = vec![];
        for entry in entries.flatten() {
            let file_name = entry.file_name();
            let number = file_name.to_str().and_then(|file| {
                let rest = file.strip_prefix(&self.name)?.strip_prefix('-')?;
                rest.strip_suffix(".img")?.parse().ok()
            });
            if let (Some(generation), Ok(about)) = (number, entry.metadata()) {
                let (path, len) = (entry.path(), about.len());
                found.push(Kept {
                    path,
                    generation,
                    len,
                });
            }
        }
        found.sort_by_key(|one| one.generation);
        Ok(found)
    }

    /// One of this job's comes next; until the answer is dropped nobody else's.
    fn begin(&self, job: JobId) -> Result<Flock<File>, String> {
        let at = |error: &io::Error| failed(&self.path, error);
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(at(&error)),
            _ => {}
        }
        let found = fs::symlink_metadata(&self.path).map_err(|error| at(&error))?;
        if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
            let shown = shown_path(&self.path);
            return Err(format!(
                "{shown} is somebody else's, expected a folder of ours"
            ));
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options
            .open(self.path.join(LOCK))
            .map_err(|error| at(&error))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, errno)| match errno {
            Errno::EWOULDBLOCK => format!("another image of job {} is coming", self.name),
            errno => at(&errno.into()),
        })?;
        let job = job.to_string();
        match self.job() {
            Some(owner) if owner == job => self.goes_on(),
            Some(_) if !self.images()?.is_empty() => {
                return Err(format!(
                    "{} has images of another job of the name {}: they are to be removed, or this one is to have another name",
                    shown_path(&self.path),
                    self.name
                ));
            }
            _ => {
                let new = self.path.join(".job.new");
                let named = private(&new).and_then(|mut file| {
                    file.write_all(job.as_bytes())?;
                    file.sync_all()?;
                    fs::rename(&new, self.path.join(JOB))
                });
                named.map_err(|error| at(&error))?;
                self.goes_on();
            }
        }
        Ok(lock)
    }

    /// Whether one of about that size could be kept beside another before it; which that is to be is found out when room is made.
    fn may_have_room_for(
        &self,
        (generation, expected): (u64, u64),
        most: Option<u64>,
    ) -> Result<(), String> {
        let all = self.images()?;
        let before = all.iter().filter(|one| one.generation < generation);
        let smallest = before.map(|one| one.len).min();
        let beside = smallest
            .or(all.iter().map(|one| one.len).min())
            .unwrap_or(0);
        most.map_or(Ok(()), |most| check_size(beside, expected, most))
    }

    /// Makes room for this one, of about that size, beside the newest good one before it: others go as far as that takes.
    fn make_room_for(
        &self,
        (generation, expected): (u64, u64),
        most: Option<u64>,
    ) -> Result<(), String> {
        let Some(most) = most else {
            return Ok(());
        };
        let all = self.images()?;
        let mut used: u64 = all.iter().map(|one| one.len).sum();
        if used.saturating_add(expected) <= most {
            return Ok(());
        }
        let before = all.iter().rev().filter(|one| one.generation < generation);
        let newest_good = before.clone().find(|one| one.is_good());
        let newest = || before.clone().next().or(all.last());
        let Some(stays) = newest_good.or_else(newest) else {
            return Ok(());
        };
        check_size(stays.len, expected, most)?;
        // First those of a time that the job has gone back behind, and those that are damaged.
        let (useless, older): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|one| one.generation != stays.generation)
            .partition(|one| one.generation > stays.generation);
        for one in useless.into_iter().chain(older) {
            if used.saturating_add(expected) <= most {
                break;
            }
            fs::remove_file(&one.path).map_err(|error| failed(&one.path, &error))?;
            used -= one.len;
        }
        Ok(())
    }

    fn take(
        &self,
        how: &How<'_>,
        input: &mut dyn Read,
        output: &mut (dyn Write + Send),
    ) -> Result<(), String> {
        let How { asked, most, .. } = *how;
        let part = self.path.join(PART);
        let at = |error: io::Error| failed(&part, &error);
        let kept = self.images()?;
        let newest = kept.last();
        let mut before = vec![];
        before.extend(newest.and_then(|newest| File::open(&newest.path).ok()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.mode(0o600).open(&part).map_err(at)?;
        let beside = newest.map_or(0, |newest| newest.len);
        let mut crowded = None;
        let mut grows = |len: u64| match most {
            Some(most) => check_size(beside, len, most).map_err(|why| {
                crowded = Some(why);
                ErrorKind::QuotaExceeded.into()
            }),
            None => Ok(()),
        };
        // The job's starter has a rate of its own, which counts if we have none.
        let rate = Rate::told_by(tempfile().map_err(at)?);
        rate.set(how.rate).map_err(at)?;
        let reception = Reception {
            rate: &rate,
            begun_at: None,
            grows: &mut grows,
        };
        let carried = receive(&file, &before, reception, input, output);
        if let Some(why) = crowded {
            return Err(why);
        }
        let carried = carried.map_err(at)?;
        let image = Image::open(&part).map_err(|error| chain(&error))?;
        let (verified, synced) = std::thread::scope(|scope| {
            let syncing = scope.spawn(|| file.sync_all());
            let verified = image.verify(&mut |_| {});
            let lost = |_| Err(ErrorKind::Other.into());
            (verified, syncing.join().unwrap_or_else(lost))
        });
        verified.map_err(|error| chain(&error))?;
        synced.map_err(at)?;
        let agreed = output.write_all(&[GOOD]).and_then(|()| output.flush());
        let agreed = agreed.and_then(|()| hear_end(input));
        agreed.map_err(|error| format!("it does not count: {error}"))?;
        let path = self.image(asked.generation);
        (how.counts)(&|| {
            let named = fs::rename(&part, &path).and_then(|()| File::open(&self.path)?.sync_all());
            named.map_err(|error| failed(&path, &error))
        })?;
        tracing::info!(
            whole = carried.whole,
            sent = carried.sent,
            "an image has come"
        );
        self.trim(asked, most);
        let told = output.write_all(&[GOOD]).and_then(|()| output.flush());
        told.map_err(|error| format!("it is kept, and that cannot be said: {error}"))
    }

    /// Older ones go, and those of a time that the job has gone back behind.
    fn trim(&self, asked: &KeepImage, most: Option<u64>) {
        let all = self.images().unwrap_or_default();
        let (newer, all): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|one| one.generation > asked.generation);
        let mut left: u64 = all.iter().map(|one| one.len).sum();
        let surplus = all.len().saturating_sub(asked.keep.max(1) as usize);
        let last = all.len().saturating_sub(1);
        let older = all.iter().take(last).enumerate().filter(|(place, one)| {
            let goes = *place < surplus || most.is_some_and(|most| left > most);
            if goes {
                left -= one.len;
            }
            goes
        });
        let gone: Vec<_> = newer.iter().chain(older.map(|(_, one)| one)).collect();
        for one in gone {
            if let Err(error) = fs::remove_file(&one.path) {
                tracing::warn!(%error, image = %one.path.display(), "an older image stays");
            }
        }
    }

    /// Whoever has ended well before, another job or this one that was wanted back, is not over now.
    fn goes_on(&self) {
        let _ = fs::remove_file(self.path.join(COMPLETED));
    }

    fn complete(&self) -> Result<(), String> {
        let mark = self.path.join(COMPLETED);
        let marked = private(&mark);
        let _ = fs::remove_file(self.path.join(PART));
        for one in self.images()? {
            fs::remove_file(&one.path).map_err(|error| failed(&one.path, &error))?;
        }
        // There may be room for it now.
        let marked = marked.or_else(|_| private(&mark));
        marked.map_err(|error| failed(&mark, &error))?;
        let synced = File::open(&self.path).and_then(|folder| folder.sync_all());
        synced.map_err(|error| failed(&self.path, &error))
    }
}

fn check_size(beside: u64, len: u64, most: u64) -> Result<(), String> {
    match beside.saturating_add(len) <= most {
        true => Ok(()),
        false => Err(format!(
            "the newest image has {beside} bytes and this one {len}, expected {most} at most together"
        )),
    }
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", shown_path(path))
}

/// A new file for the owner only: what is made here is made without a umask.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.mode(0o600).open(path)
}

fn tempfile() -> io::Result<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    Ok(memfd_create(c"image rate", MFdFlags::MFD_CLOEXEC)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        store.complete(JobId([2; 16]));
        assert_eq!(left(), Ok(vec![(3, 5)]));
        store.complete(JobId([1; 16]));
        let why = store.list(b"sim").expect_err("is over");
        assert!(why.contains("job sim has been completed"), "{why}");
        assert!(store.open(b"sim", 3).is_err());
        assert_eq!(refused(&store, 2, "sim", ASKED), None);
        assert_eq!(left(), Ok(vec![]));
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
