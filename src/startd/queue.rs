//! The queue: the jobs in the spool, and where each of them is.
//!
//! ```text
//! spool/NAME.job ──> Idle ──claim──> Claiming ──> Claimed ──start──> Running ──> completed, removed: no more
//!                     ^ ^               │           │                  │  `────> Held
//!                     │ `───refused─────┴───────────┘                  │
//!                     `─────────── it has left, or was killed ─────────'
//! Leaving: it still runs under a starter that another startd has begun; that makes an image, and is gone soon
//! ```

use super::ask::Places;
use super::job_file::{self, Spec, Surrounding};
use super::pace::Pace;
use super::record::Record;
use super::runner::Runner;
use crate::args::is_job_name;
use crate::jobs::{Job, JobStore, Life};
use crate::report::{Explain, Outcome, chain};
use crate::verbs;
use ckpt_lib::platform::Platform;
use classad::{ClassAd, Context, Expr, Nowhere, Value};
use nix::fcntl::OFlag;
use nix::unistd::Uid;
use starter::life::{Hold, State};
use starter::machine::{ClaimId, SlotId};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file in the spool is called behind the job's name.
pub(crate) const SUFFIX: &str = "job";

/// Where a job is.
#[derive(Debug)]
pub(super) enum Phase {
    Idle,
    /// It has asked for a slot.
    Claiming(ClaimId),
    /// It has a slot.
    Claimed(SlotId),
    Running(Box<Runner>),
    Leaving,
    /// Why.
    Held(String),
}

/// A job of the queue.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// `ClusterId`: the smaller, the older.
    pub(super) number: i64,
    pub(super) priority: i64,
    pub(super) submitted: i64,
    pub(super) spec: Spec,
    pub(super) phase: Phase,
    /// It is to be no more as soon as it does not run.
    pub(super) is_removed: bool,
    /// The configuration has let it in (admission.rs).
    pub(super) is_admitted: bool,
    /// Why it waits, as of the last time somebody asked.
    pub(super) why: Vec<String>,
    /// The machine wants it held when it has left.
    pub(super) to_hold: Option<Hold>,
    /// `HoldReasonCode`, of one that is held and has no directory that says so.
    pub(super) hold_code: Option<i32>,
    /// What a slot was refused for last.
    pub(super) refused: Option<String>,
    /// When it may run again.
    pub(super) pace: Pace,
    /// The most that its processes had, in KiB, until there is an image.
    pub(super) size_kib: u64,
    pub(super) images: u64,
    pub(super) starts: u64,
    /// Its newest image goes on on this platform: what that is called.
    platform: Option<String>,
}

/// When it is a job's turn: the smaller, the sooner. Priority, number, when it was handed in, name.
pub(super) type Turn = (Reverse<i64>, i64, i64, String);

/// All of them, by name; and files that are none.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) places: Places,
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) damaged: BTreeMap<String, String>,
}

impl Entry {
    pub(super) fn new(name: String, spec: Spec) -> Self {
        let ad = spec.ad.clone();
        let context = Context::new(&Nowhere).with_my(ad);
        let number = |attribute: &str| match context.eval_attribute(attribute) {
            Ok(Value::Integer(number)) => Some(number),
            _ => None,
        };
        let program = fs::metadata(&spec.program).map_or(0, |file| file.len() >> 10);
        let size = number("ImageSize").and_then(|size| u64::try_from(size).ok());
        Entry {
            number: number("ClusterId").unwrap_or(0),
            priority: number("JobPrio").unwrap_or(0),
            submitted: number("QDate").unwrap_or(0),
            size_kib: size.unwrap_or(program),
            name,
            spec,
            phase: Phase::Idle,
            is_removed: false,
            is_admitted: false,
            why: vec![],
            to_hold: None,
            hold_code: None,
            refused: None,
            pace: Pace::default(),
            images: 0,
            starts: 0,
            platform: None,
        }
    }

    /// Its ad, as it is now.
    pub(super) fn ad(&self, owner: &str) -> Arc<ClassAd> {
        let mut ad = self.spec.ad.clone();
        let number = |number: u64| Expr::from(i64::try_from(number).unwrap_or(i64::MAX));
        let mut usual = |name: &str, value: Expr| {
            if ad.get(name).is_none() {
                ad.insert(name, value);
            }
        };
        usual("MyType", Expr::from("Job"));
        usual("ClusterId", Expr::from(self.number));
        usual("ProcId", Expr::from(0));
        // Whose it is is not the job's to say.
        ad.insert("Owner", Expr::string(owner));
        ad.insert("User", Expr::string(owner));
        ad.insert("NumCkpts", number(self.images));
        ad.insert("NumJobStarts", number(self.starts));
        ad.insert("ImageSize", number(self.size_kib));
        match &self.platform {
            Some(platform) => ad.insert("LastCheckpointPlatform", Expr::string(platform.as_str())),
            None => ad.remove("LastCheckpointPlatform"),
        };
        Arc::new(ad)
    }

    pub(super) fn slot(&self) -> Option<SlotId> {
        match &self.phase {
            Phase::Claimed(slot) => Some(*slot),
            Phase::Running(runner) => Some(runner.slot),
            _ => None,
        }
    }

    pub(super) fn runner(&mut self) -> Option<&mut Runner> {
        match &mut self.phase {
            Phase::Running(runner) => Some(runner),
            _ => None,
        }
    }

    pub(super) fn turn(&self) -> Turn {
        let priority = Reverse(self.priority);
        (priority, self.number, self.submitted, self.name.clone())
    }

    pub(super) fn waits(&self) -> bool {
        matches!(self.phase, Phase::Idle) && !self.pace.waits()
    }

    /// What its directory says of its images.
    pub(super) fn note(&mut self, job: &Job, here: &Platform) {
        self.images = job.record.generation;
        let life = job.life.as_ref();
        self.starts = life.map_or(self.starts, |life| life.counted.num_job_starts);
        let Some(last) = &job.record.last_checkpoint else {
            return;
        };
        if last.image_bytes > 0 {
            self.size_kib = last.image_bytes >> 10;
        }
        self.platform = verbs::platform::needed(&last.image).map(|needed| {
            // Who may go on here is of this platform, whatever it needs less.
            match needed.missing(here).is_empty() {
                true => here.to_string(),
                false => needed.to_string(),
            }
        });
    }
}

/// What has become of a job that does not run.
pub(super) enum Found {
    /// Nothing, or it may go on.
    Idle,
    Held(String),
    /// It still runs.
    Leaving,
    /// It is no more, and how it was.
    Over(String),
}

/// What the directory of a job says.
pub(super) fn found(job: &Job) -> Found {
    if job.life() != Life::Ended {
        return Found::Leaving;
    }
    let Some(life) = &job.life else {
        return Found::Idle;
    };
    let counted = &life.counted;
    match life.state() {
        Some(State::Completed) => Found::Over(match (counted.exit_code, counted.exit_signal) {
            (Some(code), _) => format!("completed with status {code}"),
            (None, Some(signal)) => format!("completed by signal {signal}"),
            (None, None) => "completed".to_owned(),
        }),
        Some(State::Removed) => Found::Over("was removed".to_owned()),
        Some(State::Held) => {
            let reason = counted.hold_reason.clone();
            Found::Held(reason.unwrap_or_else(|| "no reason is known".to_owned()))
        }
        _ => Found::Idle,
    }
}

impl Queue {
    pub(super) fn new(places: Places) -> Self {
        Queue {
            places,
            entries: BTreeMap::new(),
            damaged: BTreeMap::new(),
        }
    }

    /// Looks at the spool; names of jobs that are new, or damaged.
    pub(super) fn read(&mut self, before: Option<&Record>) -> Outcome<Vec<String>> {
        let mut news = vec![];
        let mut names = vec![];
        let describe = || format!("cannot read {}", crate::raw::shown_path(&self.places.spool));
        for file in fs::read_dir(&self.places.spool)
            .context(describe)?
            .flatten()
        {
            let path = file.path();
            let Some(name) = name_of(&path) else {
                continue;
            };
            names.push(name.to_owned());
            if self.entries.contains_key(name) || self.damaged.contains_key(name) {
                continue;
            }
            let loaded = match is_job_name(name) {
                true => load(&path),
                false => Err(format!("{}: `{name}` is no name of a job", path.display())),
            };
            match loaded {
                Ok(spec) => {
                    let mut entry = Entry::new(name.to_owned(), spec);
                    let mut known = before.into_iter().flat_map(|record| &record.jobs);
                    if let Some(line) = known.find(|line| line.name == name) {
                        entry.is_removed = line.is_removed;
                        entry.is_admitted = line.is_admitted;
                        if line.state == "Held" {
                            entry.phase = Phase::Held(line.why.join("; "));
                            entry.hold_code = line.hold_code;
                        }
                    }
                    self.entries.insert(name.to_owned(), entry);
                }
                Err(error) => {
                    self.damaged.insert(name.to_owned(), error);
                }
            }
            news.push(name.to_owned());
        }
        self.damaged.retain(|name, _| names.contains(name));
        Ok(news)
    }

    /// The jobs that wait, those that come first first.
    pub(super) fn waiting(&self) -> Vec<&Entry> {
        let mut waiting: Vec<&Entry> = self
            .entries
            .values()
            .filter(|entry| entry.waits())
            .collect();
        waiting.sort_by_cached_key(|entry| entry.turn());
        waiting
    }

    pub(super) fn in_slot(&mut self, slot: SlotId) -> Option<&mut Entry> {
        self.entries
            .values_mut()
            .find(|entry| entry.slot() == Some(slot))
    }

    /// A job is no more.
    pub(super) fn forget(&mut self, name: &str) {
        let _ = fs::remove_file(file_of(&self.places.spool, name));
        self.entries.remove(name);
        self.damaged.remove(name);
    }

    /// The job's directory, if it has begun.
    pub(super) fn job(store: &JobStore, name: &str) -> Option<Job> {
        store.find(name).ok()
    }
}

/// The file of a job.
pub(crate) fn file_of(spool: &Path, name: &str) -> PathBuf {
    spool.join(format!("{name}.{SUFFIX}"))
}

/// The name of the job that a file of the spool is; it need not be one that jobs may have.
pub(crate) fn name_of(file: &Path) -> Option<&str> {
    let is_job = file.extension().is_some_and(|suffix| suffix == SUFFIX);
    let name = file.file_stem()?.to_str()?;
    (is_job && !name.is_empty()).then_some(name)
}

/// Reads a job of the spool.
pub(crate) fn load(path: &Path) -> Result<Spec, String> {
    let shown = crate::raw::shown_path(path);
    let bytes = read_limited(path).map_err(|error| format!("{shown}: {error}"))?;
    parse(&shown, &bytes)
}

/// A job, from its text.
pub(super) fn parse(shown: &str, bytes: &[u8]) -> Result<Spec, String> {
    let around = Surrounding {
        directory: std::env::current_dir().unwrap_or_default(),
        environment: std::env::vars_os().collect(),
    };
    let read = job_file::read(shown, bytes, &around);
    read.map(|read| read.spec).map_err(|error| chain(&error))
}

/// As much of a job file as is looked at.
pub(crate) fn read_limited(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = vec![];
    // Nobody may have to be waited for.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        let expected = "not a regular file";
        return Err(Error::new(ErrorKind::InvalidInput, expected));
    }
    file.take(job_file::MOST_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whose jobs these are.
pub(crate) fn owner() -> String {
    crate::users::name_of(Uid::effective())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A queue of these jobs: names and priorities, numbered in this order.
    fn queue(jobs: &[(&str, i64)]) -> Queue {
        let mut queue = Queue::new(Places::of(Path::new("/nowhere")));
        for (number, (name, priority)) in jobs.iter().enumerate() {
            let text = format!("Cmd = \"/bin/true\"\nJobPrio = {priority}\nClusterId = {number}\n");
            let around = Surrounding {
                directory: PathBuf::from("/"),
                environment: vec![],
            };
            let read = job_file::read("a.job", text.as_bytes(), &around).expect("a job");
            let entry = Entry::new((*name).to_owned(), read.spec);
            queue.entries.insert((*name).to_owned(), entry);
        }
        queue
    }

    #[test]
    fn any_priority_has_its_place() {
        let queue = queue(&[("e", 0), ("f", i64::MIN + 1), ("a", i64::MAX), ("b", 0)]);
        let names = |queue: &Queue| -> String {
            let waiting = queue.waiting();
            waiting.iter().map(|entry| entry.name.as_str()).collect()
        };
        assert_eq!(names(&queue), "aebf");
        let mut queue = queue;
        queue.entries.get_mut("e").expect("is there").priority = i64::MIN;
        assert_eq!(names(&queue), "abfe");
    }

    #[test]
    fn who_is_no_file_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("a.job");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        let error = read_limited(&fifo).expect_err("a FIFO");
        assert_eq!(error.to_string(), "not a regular file");
    }
}
