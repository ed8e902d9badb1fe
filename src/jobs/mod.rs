//! The directory of jobs: `$XDG_STATE_HOME/wayfarer/jobs/NAME/`.
//!
//! ```text
//! free --register--> living --supervisor gone--> ended --prune, same name--> free
//! ```
//! # What callers may rely on
//! A name belongs to one living job. A job lives as long as its supervisor, the
//! process that `run` or `restart` became. An ended job keeps its images; its
//! name is only given to another when there are none, or when asked to.
//! Jobs of another machine that shares the directory are left alone.

mod belongings;
mod elsewhere;
mod error;
mod images;
mod life;
mod outputs;
mod outset;
pub(crate) mod process;
pub(crate) mod pulse;
mod record;
pub(crate) mod tails;

pub(crate) use belongings::forget_journals;
pub(crate) use belongings::state_in;
pub(crate) use elsewhere::check_place;
pub(crate) use error::JobError;
pub(crate) use images::{StoredImage, image_before, images_dir, images_disk};
pub(crate) use life::{Counted, IMAGES_KEPT, KeptAt, LifeRecord, RunningCopy};
pub(crate) use outputs::{FileId, Output, OutputKind, Outputs};
pub(crate) use outset::{Outset, has_more_descriptors};
pub(crate) use process::{JobProcesses, ProcessName};
pub(crate) use record::{
    CheckpointNote, FileNumbers, JobRecord, Made, Place, RecordError, SCHEMA_VERSION, read_record,
    replace_record,
};

use crate::report::chain;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The directory of jobs.
#[derive(Clone, Debug)]
pub(crate) struct JobStore {
    dir: PathBuf,
}

/// A job: its directory and what is written down there.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) dir: PathBuf,
    pub(crate) record: JobRecord,
    /// How it fares, if it has or had a starter.
    pub(crate) life: Option<LifeRecord>,
    /// What stood in its place before it was registered.
    before: Option<JobRecord>,
    /// The same of its life.
    pub(crate) life_before: Option<LifeRecord>,
    /// The outset of the one before it, which is another job.
    outset_before: Option<Outset>,
}

/// Whether a job lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its supervisor runs here.
    Living,
    /// Its supervisor has ended.
    Ended,
    /// It is another machine's, or another container's.
    Elsewhere {
        /// That machine's host name.
        host: String,
    },
}

/// What a new job's record begins with.
#[derive(Clone, Debug)]
pub(crate) struct NewJob {
    /// The name asked for; if none was, one is made from `base`.
    pub(crate) name: Option<String>,
    /// What the name is made from.
    pub(crate) base: String,
    /// Images of an ended job of this name may be removed.
    pub(crate) replace: bool,
    /// An ended job of this name is continued: its images stay.
    pub(crate) continues: bool,
    /// It is the same job, though there is nothing to continue: it keeps its number.
    pub(crate) is_same: bool,
    /// See [`JobRecord::command`].
    pub(crate) command: Vec<String>,
    /// See [`JobRecord::generation`].
    pub(crate) generation: u64,
    /// See [`JobRecord::root_pid`].
    pub(crate) root_pid: Option<u32>,
    /// See [`JobRecord::journal`].
    pub(crate) journal: bool,
    /// See [`JobRecord::restarted_from`].
    pub(crate) restarted_from: Option<PathBuf>,
    /// See [`JobRecord::outputs`]; what is not known is as it was.
    pub(crate) outputs: Outputs,
    /// It is a copy that the job's starter, our parent, has begun: the name is ours.
    pub(crate) is_copy: bool,
    /// See [`JobRecord::confined`].
    pub(crate) confined: bool,
}

/// Seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn at<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T, JobError> {
    result.map_err(|source| JobError::File {
        action,
        path: path.to_owned(),
        source,
    })
}

fn make_private_dir(path: &Path) -> Result<(), JobError> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    at("cannot make", path, made)
}

fn lock(path: &Path, how: FlockArg) -> Result<Option<Flock<File>>, JobError> {
    let opened = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path);
    match Flock::lock(at("cannot open", path, opened)?, how) {
        Ok(held) => Ok(Some(held)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => at("cannot lock", path, Err(errno.into())),
    }
}

/// Begins the names of such folders.
pub(crate) const AWAY: &str = "away-";

/// The user's directory of ours: in what the variable names, or in that of their home.
fn users_own(name: &'static str, in_home: &str) -> Result<PathBuf, JobError> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let absolute = |path: &PathBuf| path.is_absolute(); // others count as unset (XDG)
    let named = variable(name).filter(absolute);
    let found = named.or_else(|| Some(variable("HOME").filter(absolute)?.join(in_home)));
    let found = found.ok_or(JobError::NoHome { variable: name })?;
    Ok(found.join("wayfarer"))
}

/// Where what can be made again is.
pub(crate) fn cache() -> Result<PathBuf, JobError> {
    users_own("XDG_CACHE_HOME", ".cache")
}

impl JobStore {
    /// The directory that was asked for, or the user's own.
    pub(crate) fn locate(asked: Option<&Path>) -> Result<Self, JobError> {
        let dir = match asked {
            Some(dir) => at("cannot find", dir, std::path::absolute(dir))?,
            None => users_own("XDG_STATE_HOME", ".local/state")?,
        };
        Ok(JobStore { dir })
    }

    /// That of this copy of a job whose starter is on another machine: it goes with the copy.
    pub(crate) fn away(id: &str) -> Result<Self, JobError> {
        let dir = cache()?.join(format!("{AWAY}{id}"));
        Ok(JobStore { dir })
    }

    /// Where images and records live.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn jobs_dir(&self) -> PathBuf {
        self.dir.join("jobs")
    }

    /// All jobs by name. Records that cannot be read are errors of their own.
    pub(crate) fn list(&self) -> Result<Vec<Result<Job, RecordError>>, JobError> {
        let jobs_dir = self.jobs_dir();
        let entries = match fs::read_dir(&jobs_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => at("cannot read", &jobs_dir, entries)?,
        };
        let mut dirs: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.join("job.json").exists())
            .collect();
        dirs.sort();
        Ok(dirs.into_iter().map(Job::load).collect())
    }

    /// The job of this name.
    pub(crate) fn find(&self, name: &str) -> Result<Job, JobError> {
        let dir = self.jobs_dir().join(name);
        if !crate::args::is_job_name(name) || !dir.join("job.json").exists() {
            let jobs = self.list()?;
            let names: Vec<_> = jobs
                .into_iter()
                .flatten()
                .map(|job| job.record.name)
                .collect();
            let found = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            return Err(JobError::Missing {
                name: name.to_owned(),
                dir: self.jobs_dir(),
                found,
            });
        }
        Ok(Job::load(dir)?)
    }

    /// The living job whose supervisor or process this is.
    pub(crate) fn find_by_pid(&self, pid: i32) -> Result<Option<Job>, JobError> {
        let mut line = process::ancestors(pid);
        line.push(pid);
        let jobs = self.list()?.into_iter().flatten();
        let mut living = jobs.filter(|job| job.life() == Life::Living);
        Ok(living.find(|job| line.contains(&job.record.supervisor.pid)))
    }

    /// The job in whose directory this image lies.
    pub(crate) fn find_by_image(&self, image: &Path) -> Option<Job> {
        let image = image.canonicalize().ok()?;
        let dir = images::job_of(&image)?;
        let ours = dir.parent()? == self.jobs_dir().canonicalize().ok()?;
        ours.then(|| Job::load(dir).ok()).flatten()
    }

    /// Writes down a job whose supervisor this process is about to become.
    pub(crate) fn register(&self, new: NewJob) -> Result<Job, JobError> {
        let jobs_dir = self.jobs_dir();
        make_private_dir(&jobs_dir)?;
        let _guard = lock(&jobs_dir.join(".lock"), FlockArg::LockExclusive)?;
        let dir = match &new.name {
            Some(name) => {
                let dir = jobs_dir.join(name);
                free_name(&dir, &new)?;
                dir
            }
            None => first_free(&jobs_dir, &new)?,
        };
        let is_new = !dir.exists();
        make_private_dir(&dir)?;
        if !new.is_copy && !new.continues {
            // One before it had its images elsewhere, and has none.
            elsewhere::release(&dir);
        }
        let name = name_of(&dir);
        let before = JobRecord::load(&dir).ok();
        let mut life = LifeRecord::load(&dir).ok().flatten();
        let continued = before.as_ref().filter(|_| new.continues || new.is_copy);
        let number = match &before {
            Some(before) if new.continues || new.is_copy || new.is_same => before.number,
            _ => record::next_number(&jobs_dir),
        };
        let record = JobRecord {
            schema_version: SCHEMA_VERSION,
            name,
            number,
            command: new.command,
            cwd: std::env::current_dir().unwrap_or_default(),
            supervisor: ProcessName::of_self().map_err(JobError::Proc)?,
            place: Place::here(),
            root_pid: new.root_pid,
            started_at: unix_now(),
            generation: new.generation,
            journal: new.journal,
            confined: new.confined || continued.is_some_and(|record| record.confined),
            restarted_from: new.restarted_from,
            outputs: new.outputs.or(continued.map(|record| &record.outputs)),
            streams: outputs::streams_of_self(),
            last_checkpoint: continued.and_then(|record| record.last_checkpoint.clone()),
        };
        if let Err(error) = record.save(&dir) {
            if is_new {
                let _ = fs::remove_dir(&dir);
            }
            return Err(error.into());
        }
        let mut outset_before = None;
        if !new.is_copy && !new.continues && Outset::is_in(&dir) {
            outset_before = Outset::load(&dir).ok().flatten();
            Outset::withdraw(&dir);
        }
        let mut life_before = None;
        if !new.is_copy {
            // Its starter, if it is to have one, writes another. Until then a job that goes on has this one, whoever is killed.
            life_before = life.take();
            if !new.continues {
                LifeRecord::withdraw(&dir);
            }
        }
        Ok(Job {
            life,
            dir,
            record,
            before,
            life_before,
            outset_before,
        })
    }

    /// Directories of jobs that have no record, by name, with the number of their images: what a crash or a
    /// full disk left.
    pub(crate) fn unrecorded(&self) -> Result<Vec<(String, usize)>, JobError> {
        let jobs_dir = self.jobs_dir();
        let entries = match fs::read_dir(&jobs_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => at("cannot read", &jobs_dir, entries)?,
        };
        let mut found = vec![];
        for entry in entries.flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name().into_string().unwrap_or_default();
            if is_dir && crate::args::is_job_name(&name) && !entry.path().join("job.json").exists()
            {
                let count = match images_in(&entry.path()) {
                    // Out of reach, there may be some.
                    Err(_) if elsewhere::is_in(&entry.path()) => 1,
                    images => images?.len(),
                };
                found.push((name, count));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Removes a job's directory that has no record, or a damaged one, with its images; how many there were.
    pub(crate) fn remove_unreadable(&self, name: &str) -> Result<usize, JobError> {
        let _guard = lock(&self.jobs_dir().join(".lock"), FlockArg::LockExclusive)?;
        let dir = self.jobs_dir().join(name);
        match Job::load(dir.clone()) {
            Ok(job) => return Err(taken(&job)), // registered meanwhile
            Err(error) if error.is_newer() => return Err(newer(&dir)),
            Err(_) => {}
        }
        let count = count_in(&dir)?;
        at("cannot remove", &dir, belongings::remove(&dir))?;
        Ok(count)
    }

    /// Removes a job that has just ended under us, with its images.
    pub(crate) fn forget(&self, job: &Job) -> Result<(), JobError> {
        let _guard = lock(&self.jobs_dir().join(".lock"), FlockArg::LockExclusive)?;
        at("cannot remove", &job.dir, belongings::remove(&job.dir))
    }

    /// Removes an ended job with its images; how many there were.
    pub(crate) fn remove(&self, job: &Job) -> Result<usize, JobError> {
        let _guard = lock(&self.jobs_dir().join(".lock"), FlockArg::LockExclusive)?;
        if job.life() == Life::Living {
            return Err(taken(job));
        }
        let count = count_in(&job.dir)?;
        at("cannot remove", &job.dir, belongings::remove(&job.dir))?;
        Ok(count)
    }
}

/// How many images it has; none, if they are out of reach.
fn count_in(dir: &Path) -> Result<usize, JobError> {
    match images_in(dir) {
        Err(_) if elsewhere::is_in(dir) => Ok(0),
        images => Ok(images?.len()),
    }
}

fn taken(job: &Job) -> JobError {
    let state = match job.life() {
        Life::Elsewhere { host } => format!("on host {host}"),
        _ => format!("supervised by process {}", job.record.supervisor.pid),
    };
    JobError::Taken {
        name: job.record.name.clone(),
        state,
    }
}

fn newer(dir: &Path) -> JobError {
    JobError::Newer {
        name: name_of(dir),
        dir: dir.to_owned(),
    }
}

/// The name of the job whose directory this is.
fn name_of(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Makes sure that `dir` may become the directory of the new job.
fn free_name(dir: &Path, new: &NewJob) -> Result<(), JobError> {
    if !dir.exists() {
        return Ok(());
    }
    // A directory without a readable record is what a crash left behind; its images still count.
    match Job::load(dir.to_owned()) {
        Ok(job) if new.is_copy && job.is_our_parents() => return Ok(()),
        Ok(job) if job.life() != Life::Ended => return Err(taken(&job)),
        Err(error) if error.is_newer() => return Err(newer(dir)),
        _ => {}
    }
    if !new.replace || new.continues {
        let images = images_in(dir)?;
        if new.continues || images.is_empty() {
            return Ok(());
        }
        return Err(JobError::HasImages {
            name: name_of(dir),
            count: images.len(),
            dir: images_dir(dir),
        });
    }
    if count_in(dir)? == 0 && !elsewhere::is_in(dir) {
        return Ok(());
    }
    at("cannot remove", dir, belongings::remove(dir))
}

/// The first of `base-1`, `base-2` ... that no job has.
fn first_free(jobs_dir: &Path, new: &NewJob) -> Result<PathBuf, JobError> {
    let mut number = 1u64;
    loop {
        let dir = jobs_dir.join(format!("{}-{number}", name_base(&new.base)));
        match free_name(&dir, new) {
            Ok(()) => return Ok(dir),
            Err(error) if error.is_taken() => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// A name that jobs may have, as near as possible to this one.
fn name_base(text: &str) -> String {
    let last = text.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "._+-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = last.chars().map(plain).take(40).collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() {
        "job".to_owned()
    } else {
        name.to_owned()
    }
}

impl Job {
    fn load(dir: PathBuf) -> Result<Self, RecordError> {
        Ok(Job {
            record: JobRecord::load(&dir)?,
            life: match LifeRecord::load(&dir) {
                Err(error) if !error.is_newer() => {
                    // What it says is of less worth than the job's images.
                    crate::report::tell(&format!("{}, and is left out", chain(&error)));
                    None
                }
                life => life?,
            },
            dir,
            before: None,
            life_before: None,
            outset_before: None,
        })
    }

    /// Whether it lives.
    pub(crate) fn life(&self) -> Life {
        let here = Place::here();
        let there = &self.record.place;
        if here.same_pids(there) {
            let alive = self.has_starter() || self.record.supervisor.is_alive();
            return if alive { Life::Living } else { Life::Ended };
        }
        if here.rebooted_since(there) || self.starter_is_lost() {
            return Life::Ended;
        }
        Life::Elsewhere {
            host: there.host.clone(),
        }
    }

    /// Whether the starter on another machine has left it, or has given no sign for too long.
    fn starter_is_lost(&self) -> bool {
        let life = self.life.as_ref();
        life.is_some_and(|life| life.lease_left(&self.dir).is_none())
    }

    /// Whether there is a starter above it.
    pub(crate) fn has_starter(&self) -> bool {
        self.life.as_ref().is_some_and(LifeRecord::has_starter)
    }

    /// The machine where its copy is, if it lives and that is another one.
    pub(crate) fn runs_on(&self) -> Option<&str> {
        let life = self.life.as_ref().filter(|life| life.has_starter())?;
        life.on.as_deref()
    }

    /// Whether our parent is its starter.
    fn is_our_parents(&self) -> bool {
        let parent = nix::unistd::getppid().as_raw();
        let life = self.life.as_ref();
        life.is_some_and(|life| life.has_starter() && life.starter.pid == parent)
    }

    /// The process that supervises its copy; none if its starter has not begun one.
    pub(crate) fn supervisor(&self) -> Option<i32> {
        let supervisor = self.record.supervisor;
        let is_starter = |life: &LifeRecord| life.starter == supervisor;
        let is_there = !self.life.as_ref().is_some_and(is_starter);
        is_there.then_some(supervisor.pid)
    }

    /// Its processes.
    pub(crate) fn processes(&self) -> JobProcesses {
        self.supervisor().map(process::find_job).unwrap_or_default()
    }

    /// Keeps other checkpoints of this job away while the lock is held.
    pub(crate) fn lock(&self) -> Result<Flock<File>, JobError> {
        lock(&self.dir.join("lock"), FlockArg::LockExclusiveNonblock)?.ok_or_else(|| {
            JobError::Busy {
                name: self.record.name.clone(),
            }
        })
    }

    /// Where it is remembered when its calls in progress time out.
    pub(crate) fn calls_in_progress(&self) -> PathBuf {
        self.dir.join("calls-in-progress")
    }
    /// Forgets a job whose start failed; what stood in its place stands there again.
    pub(crate) fn withdraw(&self) {
        if let Some(before) = &self.life_before {
            let _ = before.save(&self.dir);
        }
        if let Some(before) = &self.outset_before {
            let _ = before.save(&self.dir);
        }
        match &self.before {
            Some(before) => drop(before.save(&self.dir)),
            None => {
                let _ = fs::remove_file(self.dir.join("job.json"));
                if images_in(&self.dir).is_ok_and(|images| images.is_empty()) {
                    elsewhere::release(&self.dir);
                }
                let _ = fs::remove_dir(&self.dir); // only if empty
            }
        }
    }
}

use images::images_in;

#[cfg(test)]
mod tests;
