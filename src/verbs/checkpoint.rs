//! `wayfarer checkpoint JOB|PID`.

mod said;

use crate::args::{self, Checkpoint};
use crate::away::watcher;
use crate::jobs::{CheckpointNote, FileId, Job, JobError, JobStore, LifeRecord, process};
use crate::life::{self, Chronicle, Spent};
use crate::output;
use crate::permission;
use crate::progress;
use crate::raw;
use crate::remote::{RunningSession, keeper_of_image, taker, used_by};
use crate::report::{Exit, Explain, Failure, Outcome, chain};
use crate::target::{self, Purpose, Target};
use crate::verbs::output_failure;
use ckpt_lib::board::Board;
use ckpt_lib::capture::{CaptureError, CaptureOptions, Refusal};
use ckpt_lib::image::{Image, ImageError};
use ckpt_lib::pace::Rate;
use ckpt_lib::procfs::{by_living_thread, living_thread};
use ckpt_lib::snapshot::{JobLabel, KernelPath};
use ckpt_lib::tracee::{HostPid, StopError};
use ckpt_lib::{CheckpointError, CheckpointRequest, JobSession, Then};
use nix::fcntl::Flock;
use starter::life::State;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::KeepImage;

/// What is said to whoever waits for an image.
const WAITS: &str = "the job has disabled checkpoints for now; waiting until it enables them";
/// How long a checkpoint that nobody wants any more may take to notice that.
const ABANDONED_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// What a job's starter says of the images that it makes.
#[derive(Clone, Debug)]
pub(crate) struct ImageLimits {
    /// How fast they are written.
    pub(crate) rate: Rate,
    /// So many bytes may those of the job have together.
    pub(crate) images_max: Option<u64>,
    /// They count when the shadow has them, too.
    pub(crate) at_shadow: Option<AtShadow>,
}

/// What the shadow is told that keeps images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtShadow {
    /// So many.
    pub(crate) keep: u32,
    /// Bytes that are to be free there.
    pub(crate) min_free: Option<u64>,
}

/// Writes an image of a job or process. That of a job with a starter is that one's to make, unless it is to be another image than the starter's.
pub(crate) fn checkpoint(store: &JobStore, arguments: &Checkpoint) -> Outcome {
    let name = &arguments.target;
    if arguments.abort {
        return super::life::abort(store, name);
    }
    let job = store.find(name).ok();
    let Some(job) = job.filter(|job| job.has_starter() && arguments.carry.is_none()) else {
        return make(store, arguments, None, false);
    };
    let is_elsewhere = job.runs_on().is_some();
    // Among the job's images here there is none that the shadow does not have.
    let is_only_the_starters =
        is_elsewhere || job.has_images_at_shadow() && arguments.output.is_none();
    if is_another(arguments) || is_elsewhere && arguments.json {
        if !is_only_the_starters {
            return make(store, arguments, None, false);
        }
        let message =
            format!("an image of job {name} is made as its starter was told, and kept there");
        return Err(Failure::new(Exit::Usage, message)
            .advise(format!("wayfarer checkpoint {name}, or vacate {name}")));
    }
    if job.processes().root.is_some_and(is_disabled) {
        crate::report::tell(WAITS);
    }
    let state = job.life.as_ref().and_then(LifeRecord::state);
    if matches!(state, Some(State::Starting | State::Restarting)) {
        crate::report::tell("the job does not run yet; waiting until it does");
    }
    let asked = super::life::checkpoint(store, name);
    asked.map_err(|failure| match is_only_the_starters {
        true => failure,
        false => advise_of(failure, name),
    })?;
    let job = target::named(store, name)?;
    let Some(last) = job.record.last_checkpoint.clone() else {
        return Ok(Exit::Done);
    };
    match last.made.clone() {
        Some(made) => said::tell(arguments, &said::noted(&job, last, made))?,
        None => {
            let (path, len) = (raw::shown_path(&last.image), last.image_bytes);
            output::print(&format!("{path} ({})\n", output::bytes(len)))?;
        }
    }
    Ok(Exit::Done)
}

/// What can be done where its starter was refused an image.
fn advise_of(failure: Failure, name: &str) -> Failure {
    let said = failure.to_string();
    if !said.contains("leads out of") {
        return failure;
    }
    let how = match said.contains("connected") {
        true => "--wait-for-sockets 10s, if the connections are brief",
        false => "--inherit-fd N, if the restart is to be given others instead",
    };
    failure.advise(format!("wayfarer checkpoint {name} {how}"))
}

/// Whether it is said how the image is to be, and so not as the job's starter would have it.
fn is_another(arguments: &Checkpoint) -> bool {
    arguments.output.is_some()
        || arguments.then == args::Then::Kill
        || arguments.compress.is_some()
        || arguments.image_rate.is_some()
        || arguments.carry_max != args::CARRY_MAX
        || arguments.carry_files
        || arguments.wait_for_sockets.is_some()
        || !arguments.inherit_fd.is_empty()
}

/// The starter of a job has one made; another that is being made is waited for.
pub(crate) fn by_starter(
    store: &JobStore,
    arguments: &Checkpoint,
    limits: &ImageLimits,
) -> Outcome {
    make(store, arguments, Some(limits), false)
}

/// `by`: the job's starter. `waits`: another checkpoint of the job is waited for.
fn make(
    store: &JobStore,
    arguments: &Checkpoint,
    by: Option<&ImageLimits>,
    waits: bool,
) -> Outcome {
    let target = target::find(store, &arguments.target, Purpose::Copy)?;
    if let Some(job) = &target.job
        && arguments.then == args::Then::Kill
        && by.is_none()
        && job.has_starter()
    {
        // It would take that for an accident.
        let name = &job.record.name;
        let message = format!("job {name} has a starter, with which it leaves");
        return Err(Failure::new(Exit::Usage, message).advise(format!("wayfarer vacate {name}")));
    }
    if let Some(job) = &target.job
        && ckpt_lib::procfs::has_ended(target.pid)
    {
        let message = format!("job {} has ended", job.record.name);
        return Err(Failure::new(Exit::Failed, message));
    }
    permission::check_traceable(target.pid)?;
    // Held until the checkpoint is noted: a second one would meet the first one's tracing.
    let patience = match (waits || by.is_some(), arguments.carry) {
        (true, _) => Some(Duration::MAX),
        // One that somebody has given up at home ends soon.
        (false, Some(_)) => Some(ABANDONED_ENDS_WITHIN),
        (false, None) => None,
    };
    let lock = lock(&target, patience)?;
    crate::leftovers::remove_when_ended();
    // Before images go to make room.
    let marks = match arguments.carry {
        Some(_) => arguments.mark.clone(),
        None => target.job.as_ref().map(Job::marks).unwrap_or_default(),
    };
    // Before anything of the job's is held up.
    let taken_by = match arguments.carry {
        Some(_) => Some(taker(arguments.image_rate)?),
        None => None,
    };
    let room = room_for_image(target.job.as_ref(), by, None)?;
    let (output, generation) = destination(&target, arguments)?;
    // Before anything of the job's is held up.
    let keeper = match (by, by.and_then(|by| by.at_shadow), &target.job) {
        (Some(by), Some(there), Some(job)) => {
            let last = job.record.last_checkpoint.as_ref();
            let asked = KeepImage {
                generation,
                keep: there.keep,
                most: by.images_max.unwrap_or(0),
                least_free: there.min_free.unwrap_or(0),
                expected: last.map_or(0, CheckpointNote::size),
            };
            let name = &job.record.name;
            Some(keeper_of_image(target.pid, name, asked, &by.rate)?)
        }
        _ => None,
    };
    if keeper.is_some() {
        // It has its name before it counts there.
        crate::leftovers::remove_also(output.clone(), String::new());
    }
    let request = CheckpointRequest {
        target: HostPid(target.pid),
        reaper: target.processes.reaper.map(HostPid),
        output,
        // What is there was carried away, and has not counted there: they would not have it made once more.
        overwrite: arguments.carry.is_some(),
        then: match arguments.then {
            args::Then::GoOn => Then::GoOn,
            args::Then::Kill => Then::Kill,
        },
        compression: arguments.compress,
        rate: match (by, &taken_by) {
            (Some(by), _) => Some(by.rate.clone()),
            (None, Some((_, rate))) => Some(rate.clone()),
            (None, None) => arguments.image_rate.map(Rate::Fixed),
        },
        // What is carried counts where it goes.
        commits: match arguments.carry.is_some() || keeper.is_some() {
            true => None,
            false => Some(crate::leftovers::hold),
        },
        most: room,
        since: tables_of(&target, arguments),
        watch_on: arguments.watch,
        passes: arguments.carry.is_some(),
        generation: generation - 1,
        wait_for_sockets: arguments.wait_for_sockets,
        calls_in_progress: target.job.as_ref().map(Job::calls_in_progress),
        capture: CaptureOptions {
            carry_max: arguments.carry_max,
            carry_files: arguments.carry_files,
            inherit_fds: arguments.inherit_fd.clone(),
            streams: target.job.as_ref().map(streams).unwrap_or_default(),
            own_pid_namespace: target.processes.init.is_some(),
            job: target
                .job
                .as_ref()
                .map_or_else(|| label_of_stranger(target.pid), label),
            ..CaptureOptions::default()
        },
    };
    if let Some(least) = arguments.min_free
        && let Some(job) = &target.job
    {
        let room = life::check_room(&job.dir, least, arguments.expected);
        room.map_err(|why| Failure::new(Exit::Failed, format!("on the job's machine: {why}")))?;
    }
    let mut session = RunningSession::of(target.pid, request.then == Then::Kill)?;
    if let Some(session) = &mut session {
        session.keeps(&marks);
    }
    if let Some((taker, _)) = taken_by {
        let missing = || {
            Failure::new(
                Exit::Failed,
                "the job has no files at home, where its image would go",
            )
        };
        session.as_mut().ok_or_else(missing)?.carries(taker);
    }
    if let (Some(session), Some(keeper)) = (&mut session, keeper) {
        session.is_kept_by(keeper);
    }
    let wanted = match arguments.carry {
        Some(_) => Board::wanted_file(HostPid(living_thread(target.pid))),
        None => None,
    };
    let files = used_by(target.pid)?.map(|used| super::io::numbers(&used.all()));
    let mut display = progress::display();
    let asked = session
        .as_mut()
        .map(|session| session as &mut dyn JobSession);
    // Whether or not it is of use: with it the job's memory is no longer watched.
    let watch = target.job.as_ref().and_then(|job| watcher::take(&job.dir));
    let made = ckpt_lib::checkpoint(&request, watch, asked, display.as_mut());
    drop(display);
    // A starter waits in its own way, here or at home.
    let can_wait = by.is_none() && arguments.carry.is_none();
    if can_wait && matches!(made, Err(CheckpointError::Disabled { .. })) {
        crate::report::tell(WAITS);
        drop((lock, session));
        wait_until_enabled(target.pid);
        return make(store, arguments, by, true);
    }
    if let Err(CheckpointError::Image(ImageError::TooLarge { most, .. })) = made {
        // Unless older ones can go, that is too much.
        room_for_image(target.job.as_ref(), by, Some(most.saturating_add(1)))?;
        drop((lock, session));
        return make(store, arguments, by, true);
    }
    let made = made.or_else(|error| {
        let ended = matches!(
            error,
            CheckpointError::Stop(StopError::Gone { .. }) | CheckpointError::Ended { .. }
        );
        Err(explain(error, arguments)).context(|| {
            let what = target
                .job
                .as_ref()
                .map(|job| format!("job {}", job.record.name));
            let what = what.unwrap_or_else(|| format!("process {}", target.pid));
            let fate = if ended { "" } else { ", and it runs on" };
            format!("no image of {what} was made{fate}")
        })
    })?;
    if let Some(session) = session.take_if(|_| arguments.carry.is_some()) {
        leave_tables(target.job.as_ref(), &made.image.path);
        let carried = session.has_carried(wanted.as_deref())?;
        if let (Some(job), Some(watch)) = (&target.job, made.watch)
            && let Err(error) = watcher::leave(&job.dir, target.pid, watch)
        {
            tracing::debug!(%error, "the next image reads all memory");
        }
        return Ok(carried);
    }
    let kept_there = session.map_or(Ok(()), |session| session.has_been_kept());
    let (pid, mut job) = (target.pid, target.job);
    if let Some(job) = &mut job {
        let image = &made.image;
        let note_of = CheckpointNote {
            image: image.path.clone(),
            generation: made.snapshot.taken.generation,
            taken_at: made.snapshot.taken.unix_seconds,
            image_bytes: image.len,
            whole_bytes: image.len,
            sent_bytes: None,
            platform: Some(made.snapshot.platform.clone()),
            made: Some(said::made(&made)),
            files,
        };
        // One that is not there yet takes no older one's place.
        note(job, note_of, kept_there.is_err());
        if by.is_none() && job.life.is_some() {
            Chronicle::open(job).checkpointed(Spent::default(), image.len, image.len);
        }
    }
    crate::leftovers::done();
    kept_there?;
    let path = raw::shown_path(&made.image.path);
    let report = said::report(pid, job.as_ref(), made, arguments.then);
    said::tell(arguments, &report).context(|| format!("image {path} is made, but not told"))?;
    Ok(Exit::Done)
}

/// What has come of an image that was carried away: whoever has it may say so of a later one.
fn tables_of(target: &Target, arguments: &Checkpoint) -> Option<PathBuf> {
    let path = target.job.as_ref()?.image_path(arguments.since?).ok()?;
    path.exists().then_some(path)
}

/// The image is kept elsewhere: what it had is known here, and takes no room.
fn leave_tables(job: Option<&Job>, image: &Path) {
    let opened = Image::open(image).ok();
    let needed: Vec<&Path> = opened.iter().flat_map(Image::files).collect();
    let others = job.and_then(|job| job.images().ok()).unwrap_or_default();
    for other in &others {
        if !needed.contains(&&*other.path) && other.path != image {
            let _ = std::fs::remove_file(&other.path);
        }
    }
    if ckpt_lib::image::leave_tables(image).is_err() {
        let _ = std::fs::remove_file(image);
    }
}

/// Waits until a job allows checkpoints, or is gone.
fn wait_until_enabled(pid: i32) {
    const PAUSE: Duration = Duration::from_millis(20);
    while is_disabled(pid) {
        std::thread::sleep(PAUSE);
    }
}

/// Whether a job allows none now.
fn is_disabled(pid: i32) -> bool {
    let is_disabled = |board: &Board| board.read().is_ok_and(|notice| notice.disabled > 0);
    by_living_thread(pid, |thread| Board::all_of(HostPid(thread)))
        .is_ok_and(|boards| boards.iter().any(is_disabled))
}

/// Where the image goes, and which checkpoint of the job it is.
fn destination(target: &Target, arguments: &Checkpoint) -> Outcome<(PathBuf, u64)> {
    let asked = arguments
        .output
        .as_deref()
        .map(std::path::absolute)
        .transpose()?;
    if let Some(job) = &target.job {
        let generation = arguments.carry.unwrap_or_else(|| job.next_generation());
        let path = match asked {
            Some(path) => path,
            None => job.image_path(generation)?,
        };
        return Ok((path, generation));
    }
    let path = match asked {
        Some(path) => path,
        None => {
            let comm = process::read_stat(target.pid)
                .map(|stat| stat.comm)
                .unwrap_or_default();
            let plain = comm.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            std::env::current_dir()?.join(format!("{plain}-{}.img", target.pid))
        }
    };
    Ok((path, 1))
}

/// Keeps other checkpoints of the job away, if it is one; a lock that cannot be had because of the file system is told.
/// `patience`: one that is being made is waited for, so long.
fn lock(target: &Target, patience: Option<Duration>) -> Outcome<Option<Flock<File>>> {
    const PAUSE: Duration = Duration::from_millis(20);
    let began = Instant::now();
    let waits = || patience.is_some_and(|patience| began.elapsed() < patience);
    let Some(job) = &target.job else {
        return Ok(None);
    };
    loop {
        match job.lock() {
            Ok(lock) => return Ok(Some(lock)),
            Err(JobError::Busy { .. }) if waits() => std::thread::sleep(PAUSE),
            Err(error @ JobError::Busy { .. }) => return Err(error.into()),
            // It has been removed: nothing is to be made in its place.
            Err(error) if !job.dir.exists() => return Err(error.into()),
            Err(error) => {
                warn("other checkpoints of the job are not kept away", &error);
                return Ok(None);
            }
        }
    }
}

/// What it was begun with as descriptors 0 to 2.
fn streams(job: &Job) -> [Option<(u64, u64)>; 3] {
    let identity = |file: FileId| (file.device, file.inode);
    job.record.streams.map(|file| file.map(identity))
}

/// What the job is called, for its image.
fn label(job: &Job) -> JobLabel {
    let word = |word: &String| KernelPath(raw::decode(word).into_vec());
    JobLabel {
        name: job.record.name.clone(),
        command: job.record.command.iter().map(word).collect(),
    }
}

/// The label of a process that is no job: its command line, as it says itself (`/proc/PID/cmdline`).
fn label_of_stranger(pid: i32) -> JobLabel {
    let living = living_thread(pid);
    let line = std::fs::read(format!("/proc/{living}/cmdline")).unwrap_or_default();
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    let words = line.split(|byte| *byte == 0).filter(|_| !line.is_empty());
    JobLabel {
        name: String::new(),
        command: words.map(|word| KernelPath(word.to_vec())).collect(),
    }
}

/// Writes the checkpoint down, then removes images that are older than the last two. The image is good
/// whatever comes of that. `hurries`: older ones are left to the next checkpoint.
pub(crate) fn note(job: &mut Job, made: CheckpointNote, hurries: bool) {
    let noted = job.note(made);
    if let Err(error) = noted {
        warn("the image is good, but not written down", &error);
    }
    if hurries {
        return;
    }
    // A starter goes on from what it has without being asked: it keeps one at least of which it has read every byte.
    let has_life = job.life.is_some();
    let is_good = |newest: &Path| match has_life {
        true => is_good(newest),
        false => Ok(()),
    };
    if let Err(error) = job.trim(is_good) {
        warn("the image is good, but an older one stays", &error);
    }
}

/// Reads every byte of it.
///
/// # Errors
/// It is damaged.
pub(crate) fn is_good(image: &Path) -> Result<(), JobError> {
    Image::open(image)
        .and_then(|image| image.verify(&mut |_| {}).map(drop))
        .map_err(JobError::Damaged)
}

/// How large another image may be, so that the job's are not larger together than its starter has been told; `expected`: how large it is at least, or
/// the last was. Older ones go as far as that takes.
fn room_for_image(
    job: Option<&Job>,
    by: Option<&ImageLimits>,
    expected: Option<u64>,
) -> Outcome<Option<u64>> {
    let most = by.and_then(|by| by.images_max);
    let Some((job, most)) = job.zip(most) else {
        return Ok(None);
    };
    check_images(job, Some(most), expected)?;
    Ok(Some(most.saturating_sub(job.bytes_of_images()?)))
}

/// Refuses another image if the job's would be larger together than `most`, although older ones have gone; `expected`: how large it is, or the last was.
pub(crate) fn check_images(job: &Job, most: Option<u64>, expected: Option<u64>) -> Outcome<()> {
    let Some(most) = most else {
        return Ok(());
    };
    let last = job.record.last_checkpoint.as_ref();
    let expected = expected.or(last.map(CheckpointNote::size));
    let room = job.make_room(most, expected.unwrap_or(0), is_good)?;
    room.map_err(|crowded| Failure::new(Exit::Failed, crowded.to_string()))
}

fn warn(what: &str, error: &JobError) {
    crate::report::tell(&format!("{what}: {}", chain(error)));
}

fn explain(error: CheckpointError, arguments: &Checkpoint) -> Failure {
    match error {
        CheckpointError::Image(error) => output_failure(error),
        CheckpointError::Capture(CaptureError::Refused(refusals)) => advise(refusals, arguments),
        CheckpointError::Stop(StopError::Denied { pid, source, .. }) => {
            permission::attach_denied(pid, &source)
        }
        other => other.into(),
    }
}

/// What can be done about things that cannot be carried.
fn advise(refusals: Vec<Refusal>, arguments: &Checkpoint) -> Failure {
    let outside = |refusal: &&Refusal| refusal.reason.contains("leads out of");
    let number = |refusal: &Refusal| {
        refusal
            .object
            .strip_prefix("descriptor ")?
            .parse::<u32>()
            .ok()
    };
    let leading: Vec<&Refusal> = refusals.iter().filter(outside).collect();
    let sockets = leading
        .iter()
        .any(|refusal| refusal.reason.contains("connected"));
    let others = leading
        .iter()
        .filter(|refusal| !refusal.reason.contains("connected"));
    let numbers: Vec<u32> = others.filter_map(|refusal| number(refusal)).collect();
    let mut failure = Failure::from(CaptureError::Refused(refusals));
    if sockets && arguments.wait_for_sockets.is_none() {
        failure = failure.advise("--wait-for-sockets 10s, if the connections are brief");
    }
    if !numbers.is_empty() {
        let words: Vec<_> = numbers
            .iter()
            .map(|fd| format!("--inherit-fd {fd}"))
            .collect();
        let words = words.join(" ");
        failure = failure.advise(format!(
            "{words}, if the restart is to be given others instead"
        ));
    }
    failure
}
