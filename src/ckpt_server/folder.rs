//! The images of one job at the shadow: how one comes, and what goes to make room for it.
//!
//! ```text
//! begin --a stream--> .carried --every byte read, durable; whoever sends it agrees--> NAME-N.img --> older ones go
//! ```

use crate::away::chunks::{GOOD, Reception, hear_end, receive, while_synced};
use crate::raw::shown_path;
use crate::report::chain;
use crate::verbs::checkpoint::is_good;
use ckpt_lib::image::Image;
use ckpt_lib::pace::Rate;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use shadow::JobId;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use wire::KeepImage;

const JOB: &str = ".job";
const NEW_JOB: &str = ".job.new";
const LOCK: &str = ".lock";
pub(super) const PART: &str = ".carried";
pub(super) const COMPLETED: &str = ".completed";

/// An image that is kept.
pub(super) struct Kept {
    pub(super) path: PathBuf,
    pub(super) generation: u64,
    pub(super) len: u64,
}

/// Gives an image its name.
pub(super) type Naming<'a> = &'a dyn Fn() -> Result<(), String>;

/// How an image is taken.
pub(super) struct How<'a> {
    pub(super) asked: &'a KeepImage,
    pub(super) most: Option<u64>,
    pub(super) rate: Option<NonZeroU64>,
    /// Gives it its name, unless it does not count any more.
    pub(super) counts: &'a dyn Fn(Naming<'_>) -> Result<(), String>,
}

/// The images of a job.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) name: String,
}

impl Folder {
    pub(super) fn image(&self, generation: u64) -> PathBuf {
        self.path.join(format!("{}-{generation}.img", self.name))
    }

    pub(super) fn job(&self) -> Option<String> {
        fs::read_to_string(self.path.join(JOB)).ok()
    }

    /// Oldest first.
    pub(super) fn images(&self) -> Result<Vec<Kept>, String> {
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

    /// None: somebody else has it.
    fn lock(&self) -> Result<Option<Flock<File>>, String> {
        let at = |error: &io::Error| failed(&self.path, error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options
            .open(self.path.join(LOCK))
            .map_err(|error| at(&error))?;
        match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(lock)),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(at(&errno.into())),
        }
    }

    /// One of this job's comes next; until the answer is dropped nobody else's.
    pub(super) fn begin(&self, job: JobId) -> Result<Flock<File>, String> {
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
        let lock = self
            .lock()?
            .ok_or_else(|| format!("another image of job {} is coming", self.name))?;
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
                let new = self.path.join(NEW_JOB);
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
    pub(super) fn may_have_room_for(
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
    pub(super) fn make_room_for(
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
        let newest_good = before.clone().find(|one| is_good(&one.path).is_ok());
        let newest = || before.clone().next().or(all.last());
        let Some(stays) = newest_good.or_else(newest) else {
            return check_size(0, expected, most);
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

    pub(super) fn take(
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
        let (verified, synced) = while_synced(&file, || image.verify(&mut |_| {}));
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
    pub(super) fn trim(&self, asked: &KeepImage, most: Option<u64>) {
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

    /// As if it had never been; what is not ours in it stays.
    pub(super) fn remove(&self, job: JobId) -> Result<(), String> {
        let at = |error: &io::Error| failed(&self.path, error);
        let _lock = self
            .lock()?
            .ok_or_else(|| format!("an image of job {} is coming", self.name))?;
        if self.job() != Some(job.to_string()) {
            return Ok(());
        }
        // Whose it is, is known as long as there is an image.
        for one in self.images()? {
            fs::remove_file(&one.path).map_err(|error| failed(&one.path, &error))?;
        }
        for name in [PART, COMPLETED, NEW_JOB, JOB, LOCK] {
            match fs::remove_file(self.path.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(&error)),
                _ => {}
            }
        }
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => Err(at(&error)),
            _ => Ok(()),
        }
    }

    pub(super) fn complete(&self) -> Result<(), String> {
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

pub(super) fn failed(path: &Path, error: &io::Error) -> String {
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
