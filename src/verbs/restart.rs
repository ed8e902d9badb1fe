//! `wayfarer restart IMAGE|JOB`.

use crate::args::{Files, Restart, is_job_name};
use crate::away;
use crate::ckpt_server::{Where, newer_than_here};
use crate::confine;
use crate::jobs::{Job, JobError, JobStore, Life, NewJob, Outputs, images_dir};
use crate::launch::{self, Launch, Options};
use crate::life::{self, Tied};
use crate::limits;
use crate::progress;
use crate::raw;
use crate::reach;
use crate::remote::{self, By, Resumption};
use crate::report::{Exit, Failure, Outcome, tell};
use crate::target;
use crate::verbs::{self, image_failure, needed_by, open_image};
use ckpt_lib::image::{Image, ImageError};
use ckpt_lib::platform::{Missing, Platform};
use ckpt_lib::progress::Progress;
use ckpt_lib::snapshot::{DescriptionKind, SnapshotV1};
use loader::layout::SectionKind;
use starter::life::State;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is restarted.
pub(crate) struct Chosen {
    pub(crate) path: PathBuf,
    image: Image,
    /// The job it was made of, if it lies in that job's directory.
    pub(crate) job: Option<Job>,
    /// It was named itself, not its job.
    pub(crate) is_named: bool,
    /// Newer images of the job that are damaged, and how.
    pub(crate) passed_over: Vec<String>,
}

/// Goes on from the image, under a starter if that was asked for.
pub(crate) fn restart(store: &JobStore, arguments: &Restart) -> Outcome {
    if arguments.with_parent {
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    }
    let fetched = match arguments.image.to_str().filter(|name| is_job_name(name)) {
        Some(name) if !arguments.image.is_file() => {
            let at = Where {
                shadow: arguments.shadow.as_ref(),
                identity: arguments.identity_file.as_deref(),
                lease: arguments.lease,
                life: &arguments.life,
            };
            newer_than_here(store, name, &at)?
        }
        _ => None,
    };
    let chosen = match fetched {
        Some(image) => image_file(store, &image)?,
        None => choose(store, &arguments.image)?,
    };
    if let Some(tied) = away::tied(arguments.starter_fd, arguments.name.as_deref())? {
        return begin(store, arguments, chosen, Some(tied));
    }
    // A job that had a starter has one again.
    let had_starter = |job: &Job| job.life.is_some();
    if arguments.life.is_wanted() || chosen.job.as_ref().is_some_and(had_starter) {
        return life::restart(store, arguments, chosen);
    }
    begin(store, arguments, chosen, None)
}

/// Becomes the supervisor of a copy that goes on from the image; returns only if that failed.
pub(crate) fn begin(
    store: &JobStore,
    arguments: &Restart,
    chosen: Chosen,
    tied: Option<Tied>,
) -> Outcome {
    limits::raise(0)?;
    let snapshot = chosen.snapshot()?;
    check_platform(&chosen.path, &chosen.image, arguments.degraded)?;
    let niceness = match arguments.nice {
        Some(by) => Some(verbs::run::niceness(by)?),
        None => None,
    };
    let mut inherit_fds = arguments.inherit_fd.clone();
    let is_confined = arguments.confine || snapshot.confined;
    if is_confined {
        confine::check_image(&snapshot, &inherit_fds)?;
    }
    let mut keeper = None;
    let mut door = None;
    let here = tied.as_ref().filter(|tied| !tied.is_away);
    let name = here.map(|tied| tied.name.as_str());
    let dir = name.and_then(|name| Some(store.find(name).ok()?.dir));
    let kept = dir.as_deref().zip(here);
    if let Some(socket) = resume_session((store, kept), arguments, &chosen, &snapshot)? {
        if is_confined {
            door = Some(confine::door(&socket)?);
        }
        inherit_fds.extend(remote::of_a_restart());
        keeper = Some(remote::keeper::begin(true)?);
    }
    let job = register(store, arguments, &chosen, &snapshot, name)?;
    let failure = launch::execute(&Launch {
        title: format!(
            "wayfarer: {}",
            job.as_ref().map_or("a job", |job| &job.record.name)
        ),
        image: chosen.image.file(),
        path: Some(&chosen.path),
        prefix_len: Some(chosen.image.header().section(SectionKind::Pages).offset),
        fallback_dirs: launch::fallback_dirs(),
        options: Options {
            pids: arguments.pids,
            files: files_of(arguments),
            accept_new_ids: arguments.accept_new_ids,
            degraded: arguments.degraded,
            inherit_fds,
            keeper,
            starter: tied.map(|tied| tied.tells),
            prepare: None,
            prepared: match arguments.prepared[..] {
                [door, pid] => Some((door, pid)),
                _ => None,
            },
            confine: door,
            niceness,
        },
    });
    if let Some(job) = job {
        job.withdraw();
    }
    Err(failure)
}

impl Chosen {
    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    pub(crate) fn snapshot(&self) -> Outcome<SnapshotV1> {
        let snapshot = self.image.snapshot();
        snapshot.map_err(|error| image_failure(&self.path, error))
    }
}

/// Has the shadow go on with the job's files, if they are at one; its socket. `job`: the job's directory, if it has a starter here, and the tie to that.
fn resume_session(
    (store, kept): (&JobStore, Option<(&Path, &Tied)>),
    arguments: &Restart,
    chosen: &Chosen,
    snapshot: &SnapshotV1,
) -> Outcome<Option<PathBuf>> {
    let mut kinds = snapshot.descriptions.iter().map(|one| &one.kind);
    let state = kinds.find_map(|kind| match kind {
        DescriptionKind::Session { state } => Some(state),
        _ => None,
    });
    let image = crate::raw::shown_path(&chosen.path);
    let job = kept.map(|(dir, _)| dir);
    let by = match kept {
        Some((_, tied)) => tied.by,
        None => By::command()?,
    };
    match (state, &arguments.shadow) {
        (None, None) if !arguments.journal => Ok(None),
        (Some(state), None) if is_at_home(arguments, chosen) => {
            let socket = reach::home(store, arguments.life.journal_max, job)?;
            let begin = Resumption {
                socket: &socket,
                lease: reach::HOME_LEASE,
                sight: &arguments.sight,
                at_home: true,
                by,
            };
            remote::resume(&begin, state, files_of(arguments))?;
            Ok(Some(socket))
        }
        (Some(state), Some(address)) => {
            let identity = arguments.identity_file.as_deref();
            let socket = reach::socket(address, identity, store.dir(), arguments.lease)?;
            let begin = Resumption {
                socket: &socket,
                lease: arguments.lease,
                sight: &arguments.sight,
                at_home: false,
                by,
            };
            remote::resume(&begin, state, files_of(arguments))?;
            Ok(Some(socket))
        }
        (Some(_), None) => {
            let message = format!("the job of {image} has its files at a shadow");
            let advice = format!("wayfarer restart --shadow unix:PATH {image}");
            let home = format!("wayfarer restart --journal {image}, after run --journal");
            Err(Failure::new(Exit::Usage, message)
                .advise(advice)
                .advise(home))
        }
        (None, _) => {
            let message = format!("the job of {image} has its files here, not at a shadow");
            Err(Failure::new(Exit::Usage, message))
        }
    }
}

fn files_of(arguments: &Restart) -> Files {
    arguments.files.unwrap_or(Files::Fail)
}

/// Whether the shadow is one of the job's own, on this machine.
fn is_at_home(arguments: &Restart, chosen: &Chosen) -> bool {
    let recorded = |job: &Job| job.record.journal;
    arguments.journal || chosen.job.as_ref().is_some_and(recorded)
}

/// A file, if there is one of that name, else a job's latest good image.
fn choose(store: &JobStore, asked: &Path) -> Outcome<Chosen> {
    let name = asked.to_str().filter(|name| is_job_name(name));
    if let Some(name) = name.filter(|_| !asked.is_file()) {
        let job = store.find(name).map_err(|error| missing(asked, error))?;
        if job.life() == Life::Living {
            let failure = Failure::new(Exit::Failed, format!("job {name} is running"));
            return Err(failure.advise(format!("wayfarer kill {name}, or restart an image file")));
        }
        refuse_if_completed(&job)?;
        let chosen = latest_good(job, |_| false).map_err(NoneGood::failure)?;
        for damaged in &chosen.passed_over {
            tell(&format!(
                "{damaged}; trying {}",
                raw::shown_path(&chosen.path)
            ));
        }
        return Ok(chosen);
    }
    image_file(store, asked)
}

/// A job's end happens once. Whoever names an image file knows what he does.
fn refuse_if_completed(job: &Job) -> Outcome<()> {
    let state = job.life.as_ref().and_then(|life| life.state());
    if state != Some(State::Completed) {
        return Ok(());
    }
    let name = &job.record.name;
    let message = format!("job {name} has ended: it is completed");
    let failure = Failure::new(Exit::Failed, message);
    Err(match job.images()?.last() {
        Some(last) => failure.advise(format!(
            "wayfarer restart {}, if it is wanted back",
            crate::raw::shown_path(&last.path)
        )),
        None => failure,
    })
}

/// An image file, and the job in whose directory it lies.
pub(crate) fn image_file(store: &JobStore, asked: &Path) -> Outcome<Chosen> {
    let image = open_image(asked)?;
    let path = std::path::absolute(asked)?;
    Ok(Chosen {
        job: store.find_by_image(&path),
        image,
        path,
        is_named: true,
        passed_over: vec![],
    })
}

fn missing(asked: &Path, error: JobError) -> Failure {
    match error {
        JobError::Missing { .. } => {
            let asked = crate::raw::shown_path(asked);
            target::missing(error).advise(format!("./{asked}, if an image file was meant"))
        }
        other => other.into(),
    }
}

/// A job has no image of which every byte is right.
pub(crate) struct NoneGood {
    /// Those that are damaged, and how, the newest first.
    pub(crate) damaged: Vec<String>,
    failure: Failure,
}

impl NoneGood {
    pub(crate) fn failure(self) -> Failure {
        self.failure
    }
}

impl From<JobError> for NoneGood {
    fn from(error: JobError) -> Self {
        NoneGood {
            damaged: vec![],
            failure: error.into(),
        }
    }
}

/// The newest image of a job of which every byte is right, but none of those that the caller does not want.
pub(crate) fn latest_good(
    job: Job,
    is_unwanted: impl Fn(&Path) -> bool,
) -> Result<Chosen, NoneGood> {
    let mut damaged = vec![];
    let mut failure = None;
    let mut display = progress::display();
    for stored in job.known_images()?.iter().rev() {
        if is_unwanted(&stored.path) {
            continue;
        }
        match Image::open(&stored.path).and_then(|image| verified(image, display.as_mut())) {
            Ok(image) => {
                return Ok(Chosen {
                    path: stored.path.clone(),
                    image,
                    job: Some(job),
                    is_named: false,
                    passed_over: damaged,
                });
            }
            Err(error) => {
                let gone = matches!(&error, ImageError::Io { source, .. } if source.kind() == ErrorKind::NotFound);
                let found = image_failure(&stored.path, error);
                damaged.push(found.to_string());
                failure = Some(if gone {
                    found.advise("wayfarer restart FILE, if it was moved")
                } else {
                    found
                });
            }
        }
    }
    let failure = failure.unwrap_or_else(|| {
        let (name, dir) = (&job.record.name, images_dir(&job.dir));
        let message = format!(
            "job {name} has no image in {}",
            crate::raw::shown_path(&dir)
        );
        Failure::new(Exit::Usage, message).advise("wayfarer checkpoint, while a job runs")
    });
    Err(NoneGood { damaged, failure })
}

fn verified(image: Image, display: &mut dyn Progress) -> Result<Image, ImageError> {
    let total = image.contents_bytes()?;
    display.begin("checking", Some(total));
    image.verify(&mut |bytes| display.advance(bytes))?;
    Ok(image)
}

/// Refuses this machine if a restart of the image would be refused here for what the machine is.
pub(crate) fn fits_here(path: &Path) -> Outcome<()> {
    check_platform(path, &open_image(path)?, false)
}

/// Refuses a machine that does not offer what the image needs.
fn check_platform(path: &Path, image: &Image, degraded: bool) -> Outcome<()> {
    let needed = needed_by(image)?;
    let offered = Platform::of_this_machine_for(&needed);
    let mut missing = needed.missing(&offered);
    // Whether ids can be corrected is known to the loader only.
    missing.retain(|what| !is_kernel(what, &["own_ids"]));
    let (waived, fatal): (Vec<_>, Vec<_>) = missing
        .into_iter()
        .partition(|what| may_be_waived(what) || needed.is_beyond_its_request(what, &offered));
    let words = |missing: &[Missing]| {
        let words: Vec<_> = missing.iter().map(Missing::to_string).collect();
        words.join("; ")
    };
    let image = crate::raw::shown_path(path);
    if !fatal.is_empty() {
        let message = format!("{image} may not restart on this machine: {}", words(&fatal));
        let advice = format!("a machine that offers {needed}");
        return Err(Failure::new(Exit::Image, message).advise(advice));
    }
    if waived.is_empty() {
        return Ok(());
    }
    if degraded {
        tell(&format!("{image} goes on without: {}", words(&waived)));
        return Ok(());
    }
    let message = format!("{image} would miss on this machine: {}", words(&waived));
    Err(Failure::new(Exit::Image, message).advise("--degraded, to go on without"))
}

fn is_kernel(what: &Missing, names: &[&str]) -> bool {
    matches!(what, Missing::Kernel { name } if names.contains(&name.as_str()))
}

/// What a job can go on without, although it will notice (docs/PLATFORM.md).
fn may_be_waived(what: &Missing) -> bool {
    let kernel = ["thp", "ksm", "anon_names", "realtime", "raise_priority"];
    matches!(what, Missing::Cpus { .. } | Missing::HardLimit { .. }) || is_kernel(what, &kernel)
}

/// Writes the job down; as a copy of the one of this name, if there is one whose starter has begun it.
pub(crate) fn register(
    store: &JobStore,
    arguments: &Restart,
    chosen: &Chosen,
    snapshot: &SnapshotV1,
    copy_of: Option<&str>,
) -> Outcome<Option<Job>> {
    let root = snapshot.processes.first();
    let program = root.and_then(|process| {
        let exe = process.memory.exe?;
        let path = &snapshot.inodes.get(exe.0 as usize)?.path.0;
        Some(raw::encode(OsStr::from_bytes(path)))
    });
    let label = &snapshot.job;
    let had = Some(label.name.as_str()).filter(|name| is_job_name(name));
    let old = chosen.job.as_ref();
    let ended = old.filter(|job| job.life() == Life::Ended);
    let name = copy_of
        .map(str::to_owned)
        .or_else(|| arguments.name.clone())
        .or_else(|| Some(ended?.record.name.clone()));
    let continues = name.is_some() && name.as_deref() == ended.map(|job| job.record.name.as_str());
    let words = label.command.iter();
    let words: Vec<String> = words
        .map(|word| raw::encode(OsStr::from_bytes(&word.0)))
        .collect();
    let command = match old {
        Some(job) => job.record.command.clone(),
        None if !words.is_empty() => words,
        None => program.iter().cloned().collect(),
    };
    let thread_name = root.and_then(|process| Some(process.name()?.to_string()));
    let base = had.map(|name| unnumbered(name).to_owned());
    let new = NewJob {
        name,
        base: base.or(thread_name).or(program).unwrap_or_default(),
        replace: false,
        continues,
        is_same: false,
        command,
        generation: snapshot.taken.generation,
        root_pid: root.map(|process| process.pid),
        journal: is_at_home(arguments, chosen),
        restarted_from: Some(chosen.path.clone()),
        outputs: Outputs::of_image(snapshot),
        is_copy: copy_of.is_some(),
        confined: arguments.confine || snapshot.confined,
    };
    if let (None, Some(had)) = (&new.name, had) {
        let named = NewJob {
            name: Some(had.to_owned()),
            continues: is_last_of(store, had, chosen, arguments.life.forget),
            ..new.clone()
        };
        // A name that is not free gets a number; any other trouble is told below.
        if let Ok(job) = store.register(named) {
            return Ok(Some(job));
        }
    }
    crate::verbs::register(store, new)
}

/// Whether this image, wherever it lies, is the last checkpoint of the ended job of this name; or a copy of that, if copies count.
fn is_last_of(store: &JobStore, name: &str, chosen: &Chosen, copies_count: bool) -> bool {
    let is_copy = |last: &Path| {
        let last = Image::open(last);
        last.is_ok_and(|last| last.header().id == chosen.image.header().id)
    };
    store.find(name).is_ok_and(|job| {
        let last = job.record.last_checkpoint.as_ref().map(|last| &last.image);
        job.life() == Life::Ended
            && last.is_some_and(|last| *last == chosen.path || copies_count && is_copy(last))
    })
}

/// `perl` of `perl-1`: the next of them is `perl-2`, not `perl-1-1`.
fn unnumbered(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((base, number))
            if !base.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            base
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_names_are_not_piled_up() {
        for (name, base) in [
            ("perl-1", "perl"),
            ("a-b-12", "a-b"),
            ("night", "night"),
            ("-1", "-1"),
        ] {
            assert_eq!(unnumbered(name), base);
        }
    }
}
