//! The whole of a checkpoint, in order.
//!
//! ```text
//! look for refusals          nothing touched
//! open the partial file      a full or read-only disk shows here, not later
//! hooks of the job           `before`
//! stop                       FROZEN: every thread at a ptrace stop
//!   lists of injected calls, capture
//!   copy what a picture cannot show (shared memory, MADV_DONTFORK ...)
//!   picture                  copy-on-write child
//! go on                      unless the job is to be killed (then it stays stopped to the end) or its
//!                            cgroup could not bear the copies (then until its memory is written)
//! look at mappings again, write pages, hash files, plan, commit
//! kill                       only after the commit
//! ```
//! # What callers may rely on
//! An error means: the job runs on as if nothing had been asked (or has ended, which [`StopError::Gone`] and
//! [`CheckpointError::Ended`] say), and nothing stands under the final name. The partial file is removed. If wayfarer is
//! killed, the job runs on too.

mod error;
mod hooks;
mod session;
mod store;
mod watched;

use crate::baseline;
use crate::board::{self, Board};
use crate::capture::{self, CaptureError, CaptureOptions, Captured, EarlyView};
use crate::image::{Bytes, Committed, Image, ImageError, ImageParts, ImageWriter, WriteOptions};
use crate::inject::{InjectError, Workshop};
use crate::loader_code;
use crate::pace::Rate;
use crate::picture::Picture;
use crate::plan::{self, Contents, PlanError};
use crate::platform::{Level, Platform};
use crate::procfs::{self, ProcDir, has_ended, living_thread, parse_stat};
use crate::progress::Progress;
use crate::snapshot::{InodeKind, SnapshotV1};
use crate::spool::Spool;
use crate::tracee::{CallNotes, HostPid, Memory, Quiesced, SharedNotes, StopError};
use crate::watch::Watch;
pub use error::CheckpointError;
use hooks::Hooks;
use loader::layout::Space;
use session::Marked;
pub use session::{JobSession, SessionError};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use watched::Watched;

/// How long stopping all threads of a job may take.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// How long is waited for a descriptor that cannot be carried to be closed, from one try to the next.
const BRIEF_MS: [u64; 4] = [1, 4, 16, 32];

/// Room that a picture's page tables and the kernel's records of it take at least.
const PICTURE_TABLES: u64 = 8 << 20;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct CheckpointRequest {
    /// First process of the job, as the caller sees its id.
    pub target: HostPid,
    /// The process of ours that orphans of the job are given to, and that has no children but the job's.
    pub reaper: Option<HostPid>,
    /// Final name of the image.
    pub output: PathBuf,
    /// An image of that name may be replaced.
    pub overwrite: bool,
    /// What becomes of the job.
    pub then: Then,
    /// zstd level; none: pages are stored as they are.
    pub compression: Option<i32>,
    /// The image is written no faster than that, unless a job that is to go on stands still for it. If it is given up, there is no image.
    pub rate: Option<Rate>,
    /// Called when the image is about to count: from then on the checkpoint is not given up any more.
    pub commits: Option<fn()>,
    /// The image may have so many bytes.
    pub most: Option<u64>,
    /// An earlier image, in the directory of this one: what it has is not stored again, and has to stay there. Its contents are not read.
    pub since: Option<PathBuf>,
    /// From this image on it is watched what the job writes to, if the kernel can.
    pub watch_on: bool,
    /// The image is taken to another machine by [`JobSession::carry`]: this one's disk is not waited for.
    pub passes: bool,
    /// Checkpoints of this job before this one.
    pub generation: u64,
    /// How long brief connections to the outside are waited for.
    pub wait_for_sockets: Option<Duration>,
    /// Where it is remembered from one checkpoint to the next when calls in progress time out.
    pub calls_in_progress: Option<PathBuf>,
    /// What is carried and what is refused.
    pub capture: CaptureOptions,
}

/// What becomes of the job after the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It goes on, and did so long before the image was written.
    GoOn,
    /// It is killed, having executed nothing since the checkpoint.
    Kill,
}

/// What came of it.
#[derive(Debug)]
pub struct CheckpointReport {
    /// The image.
    pub image: Committed,
    /// First thread stopped to last resumed; with [`Then::Kill`], to the kill. Of the try that succeeded.
    pub frozen: Duration,
    /// From when all but its contents had been taken (and the job ran again, if there was a picture) until it had its name
    /// and was durable.
    pub writing: Duration,
    /// The whole checkpoint.
    pub took: Duration,
    /// What the image says of itself.
    pub snapshot: SnapshotV1,
    /// What was asked for by [`CheckpointRequest::watch_on`], if it can be.
    pub watch: Option<Watch>,
}

/// Makes an image of a job.
///
/// The flags of its mappings (`VmFlags`) are slow to read: they are read before the freeze and looked at
/// again in the picture. If the job has changed one in a way that matters just then, the checkpoint is
/// taken once more, with the flags read during the freeze. If only descriptors are in the way, it is tried some more
/// times in a twentieth of a second: most of what cannot be carried is open for a moment only.
///
/// `watch`: what watches the job since the image was made that this one builds on; that is over then. What was not written to since is
/// not read.
///
/// `session`: whoever can ask the job's shadow, if it has one; it is asked while the job is frozen.
///
/// # Errors
/// [`CheckpointError`]; the job runs on and nothing stands under the final name.
pub fn checkpoint(
    request: &CheckpointRequest,
    watch: Option<Watch>,
    mut session: Option<&mut dyn JobSession>,
    progress: &mut dyn Progress,
) -> Result<CheckpointReport, CheckpointError> {
    let began = Instant::now();
    let notes = CallNotes::open(request.calls_in_progress.as_deref());
    let mut flags = Flags::ReadBefore;
    let mut pauses = BRIEF_MS.iter();
    let mut watch = watch;
    let mut stand_ins = 0;
    let taken = loop {
        let mut is_stopped = false;
        let target = HostPid(living_thread(request.target.0));
        let lent: Option<&mut dyn JobSession> = match &mut session {
            Some(session) => Some(&mut **session),
            None => None,
        };
        let watch = watch.take();
        match take(
            (request, target, &mut is_stopped),
            (flags, watch),
            lent,
            &notes,
            began,
            progress,
        ) {
            Err(CheckpointError::Capture(CaptureError::MappingChanged { .. }))
                if flags == Flags::ReadBefore =>
            {
                flags = Flags::ReadWhileFrozen;
            }
            Err(error)
                if !is_stopped
                    && stand_ins < STAND_INS
                    && is_about_a_thread(target, &error)
                    && !has_ended(request.target.0) =>
            {
                stand_ins += 1;
                tracing::debug!(%error, "thread {} has ended meanwhile", target.0);
            }
            Err(error) if may_pass(&error) => match pauses.next() {
                Some(pause) => std::thread::sleep(Duration::from_millis(*pause)),
                None => break Err(error),
            },
            result => break result,
        }
    };
    taken.map_err(|error| name_end(request.target, error))
}

/// So often another thread may stand for a process whose first has ended.
const STAND_INS: u32 = 100;

/// Whether the reason may be that the thread by which a process was looked at has ended before all stood still.
fn is_about_a_thread(thread: HostPid, error: &CheckpointError) -> bool {
    let stat = || ProcDir::of(thread.0).parsed("stat", parse_stat);
    matches!(
        error,
        CheckpointError::Stop(_) | CheckpointError::Capture(_)
    ) && stat().map_or(true, |stat| stat.is_ending())
}

/// Whether what is in the way may be gone in a moment: a program that looks at another process has a file of `/proc`
/// open for some microseconds.
fn may_pass(error: &CheckpointError) -> bool {
    matches!(error, CheckpointError::Capture(CaptureError::Refused(refusals))
        if refusals.iter().all(|refusal| refusal.object.starts_with("descriptor ")))
}

/// A process that ends has hardly any files in `/proc` from then on: whichever step missed one, this is why.
fn name_end(target: HostPid, error: CheckpointError) -> CheckpointError {
    match &error {
        // Whatever else is wrong with the image has nothing to do with the process.
        CheckpointError::Image(ImageError::Source { .. } | ImageError::Ranges { .. }) => {}
        CheckpointError::Image(_) => return error,
        _ => {}
    }
    if !has_ended(target.0) {
        return error;
    }
    match error {
        CheckpointError::Stop(StopError::Gone { .. }) => error,
        error => CheckpointError::Ended {
            pid: target.0,
            first: Box::new(error),
        },
    }
}

/// When the flags of mappings are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flags {
    ReadBefore,
    ReadWhileFrozen,
}

/// One try. `target`: the thread by which the process is looked at. `is_stopped`: all threads stood still.
fn take(
    (request, target, is_stopped): (&CheckpointRequest, HostPid, &mut bool),
    (flags, watch): (Flags, Option<Watch>),
    mut session: Option<&mut dyn JobSession>,
    notes: &SharedNotes,
    began: Instant,
    progress: &mut dyn Progress,
) -> Result<CheckpointReport, CheckpointError> {
    let environ = std::fs::read(format!("/proc/{}/environ", target.0)).unwrap_or_default();
    let baseline = baseline::asked_for(&environ);
    let pids = vec![target];
    let with_picture = request.then == Then::GoOn && pids.iter().all(|pid| picture_fits(*pid));
    let mut options = request.capture.clone();
    options.watched = watch.is_some();
    options.flags_while_frozen =
        !with_picture || flags == Flags::ReadWhileFrozen || options.watched;
    let early = look_first(request, &pids, &options, progress)?;
    let write_options = WriteOptions {
        compression: request.compression,
        overwrite: request.overwrite,
        most: request.most,
        rate: request.rate.clone(),
        hurries: request.then == Then::GoOn,
        commits: request.commits,
        passes: request.passes,
        ..WriteOptions::default()
    };
    let mut writer = ImageWriter::create(&request.output, write_options)?;
    options.aside = Some(writer.folder());
    let mut earlier = None;
    if let Some(path) = &request.since {
        let image = Image::open(path)?;
        earlier = Some(image.header().id);
        writer.build_on(image)?;
    }
    if let (Then::Kill, Some(session)) = (request.then, &mut session)
        && let Some(away) = session.away().map_err(CheckpointError::Carry)?
    {
        writer.send_to(away);
    }
    let mut hooks = Hooks::begin(&pids)?;
    let frozen_at = Instant::now();
    let mut quiesced = Quiesced::stop(&pids, STOP_DEADLINE)?;
    *is_stopped = true;
    quiesced.remember_in(notes.clone());
    // Now that they stand still, what was looked at before is final.
    refuse_others(request, &pids, capture::others(&pids, request.reaper)?)?;
    if let Some(watch) = watch {
        watched::spare(&mut writer, target, watch, earlier);
    }
    let mut marked = match Marked::now(session) {
        Ok(marked) => marked,
        Err(error) => return Err(error.and_then(quiesced.resume())),
    };
    let mut session = Session {
        quiesced,
        writer,
        progress,
        watch: Watched::of(request.watch_on),
    };
    let (mut captured, pictures) =
        match session.capture(with_picture, (early, &options), baseline, &mut marked) {
            Ok(captured) => captured,
            Err(error) => return Err(error.and_then(session.quiesced.resume())),
        };
    let Session {
        quiesced,
        mut writer,
        progress,
        watch,
    } = session;
    let mut frozen = Duration::ZERO;
    // If it is killed while it is copied, the next stop finds threads that have run for us.
    if pictures.is_empty() {
        quiesced.note_calls();
    }
    let mut held = Some(quiesced);
    if !pictures.is_empty()
        && let Some(quiesced) = held.take()
    {
        quiesced.resume()?;
        marked.goes_on();
        hooks.over();
        frozen = frozen_at.elapsed();
        writer.slows_down();
    }
    let writing_since = Instant::now();
    let from: Vec<(HostPid, &Memory)> = match &held {
        Some(quiesced) => quiesced
            .processes()
            .iter()
            .map(|process| (process.pid, process.memory()))
            .collect(),
        None => pictures
            .iter()
            .map(|picture| (picture.pid(), picture.memory()))
            .collect(),
    };
    // Before contents are written: with a rate that may take hours.
    if captured.flags_unverified() {
        for (index, (pid, _)) in from.iter().enumerate() {
            captured.verify_mappings(index, *pid)?;
        }
    }
    store::store(&mut writer, &captured, &pids, &from, false, progress)?;
    writer.all_stored();
    // Its page tables are freed beside what follows.
    pictures.iter().for_each(Picture::kill);
    if request.then == Then::GoOn
        && let Some(quiesced) = held.take()
    {
        quiesced.resume()?;
        marked.goes_on();
        hooks.over();
        frozen = frozen_at.elapsed();
    }
    progress.begin("hashing files", None);
    captured.finish_hashes(held.is_some())?;
    let mut snapshot = captured.into_snapshot();
    marked.note(&mut snapshot)?;
    snapshot.taken.generation = request.generation + 1;
    snapshot.job = request.capture.job.clone();
    let mut platform = Platform::needed_by(&snapshot);
    let proven = baseline::proven(&snapshot);
    if let Some(level) = proven.or(baseline) {
        platform.add_request(&snapshot, level);
    }
    if let Some(level) = proven {
        platform.add_proof(&snapshot, level);
    }
    if baseline::binds_early(&environ) {
        platform.within = None;
    }
    snapshot.platform = platform.to_string();
    progress.begin("bringing the image to the disk", None);
    let image = commit(writer, &snapshot)?;
    let writing = writing_since.elapsed();
    // However long it takes to bring it elsewhere: the job has no end before its parent has buried the copies, which their tracer does first.
    drop(pictures);
    if let Err(error) = marked.carry(&image.path) {
        let _ = std::fs::remove_file(&image.path);
        return Err(match held.take() {
            Some(quiesced) => error.and_then(quiesced.resume()),
            None => error,
        });
    }
    let session = marked.committed();
    if let Some(quiesced) = held {
        if let Some(session) = session {
            if let Err(error) = session.may_leave() {
                return Err(CheckpointError::Carry(error).and_then(quiesced.resume()));
            }
            session.kills();
        }
        quiesced.kill()?;
        frozen = frozen_at.elapsed();
    }
    Ok(CheckpointReport {
        watch: watch.on().map(|watch| watch.of(image.id)),
        image,
        frozen,
        writing,
        took: began.elapsed(),
        snapshot,
    })
}

/// Whether the job's cgroups would bear that all its memory is copied: while there is a picture, every
/// page that the job writes to exists twice.
fn picture_fits(pid: HostPid) -> bool {
    let Some(room) = procfs::memory_room(pid.0) else {
        return true;
    };
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.0)).unwrap_or_default();
    let resident_kib = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    resident_kib.is_some_and(|kib| kib * 1024 + PICTURE_TABLES < room.left())
}

/// Everything that can be known to be in the way without touching the job.
fn look_first(
    request: &CheckpointRequest,
    pids: &[HostPid],
    options: &CaptureOptions,
    progress: &mut dyn Progress,
) -> Result<EarlyView, CheckpointError> {
    // A copy that a killed checkpoint has left ends by itself, but not in no time.
    let others = capture::others_but_pictures(pids, request.reaper)?;
    let target = request.target.0;
    if has_ended(target) {
        // While it was waited for. What is there of the copy is nobody's any more.
        return Err(StopError::Gone { pid: target }.into());
    }
    refuse_others(request, pids, others)?;
    if let Some(patience) = request.wait_for_sockets {
        progress.begin("waiting for connections to end", None);
        let left = capture::wait_for_sockets(pids, options, patience, &|| {
            request.rate.as_ref().is_some_and(Rate::is_given_up)
        })?;
        if !left.is_empty() {
            return Err(CheckpointError::Sockets {
                left,
                waited: patience,
            });
        }
    }
    Ok(capture::refuse_early(pids, options)?)
}

fn refuse_others(
    request: &CheckpointRequest,
    pids: &[HostPid],
    others: Vec<HostPid>,
) -> Result<(), CheckpointError> {
    let root = request.target.0;
    if others.is_empty() {
        return Ok(());
    }
    let is_copy = |other: &HostPid| pids.iter().any(|pid| capture::is_picture(*other, *pid));
    let are_copies = others.iter().all(is_copy);
    let others = others.into_iter().map(|pid| pid.0).collect();
    Err(match are_copies {
        true => CheckpointError::Copies {
            root,
            copies: others,
        },
        false => CheckpointError::Tree { root, others },
    })
}

/// A stopped job and the image it goes into.
struct Session<'a> {
    quiesced: Quiesced,
    writer: ImageWriter,
    progress: &'a mut dyn Progress,
    watch: Watched,
}

impl Session<'_> {
    /// The job says so itself, and while it stands still it does not change its mind.
    fn refuse_disabled(&self) -> Result<(), CheckpointError> {
        let mut times = 0;
        for process in self.quiesced.processes() {
            for board in Board::all_of(process.pid).map_err(CaptureError::from)? {
                times += board.read().map_or(0, |notice| notice.disabled);
            }
        }
        match times {
            0 => Ok(()),
            times => Err(CheckpointError::Disabled { times }),
        }
    }

    /// All that is done while the job is frozen.
    fn capture(
        &mut self,
        with_picture: bool,
        (early, options): (EarlyView, &CaptureOptions),
        baseline: Option<Level>,
        marked: &mut Marked<'_>,
    ) -> Result<(Captured, Vec<Picture>), CheckpointError> {
        let mut workshops = vec![];
        for process in self.quiesced.processes_mut() {
            let apart = early.apart(process.pid);
            workshops.push(Workshop::open(process, apart)?);
        }
        let mut captured = capture::capture(&mut self.quiesced, &mut workshops, early, options)?;
        if has_board(&captured.snapshot) {
            self.refuse_disabled()?;
        }
        marked.used(&captured.used)?;
        if let Some(process) = self.quiesced.processes().first() {
            baseline::note_enforcement(&mut captured.snapshot, process.memory(), baseline);
        }
        let pids: Vec<HostPid> = self
            .quiesced
            .processes()
            .iter()
            .map(|process| process.pid)
            .collect();
        {
            let processes = self.quiesced.processes();
            let from: Vec<(HostPid, &Memory)> = processes
                .iter()
                .map(|process| (process.pid, process.memory()))
                .collect();
            let writer = &mut self.writer;
            store::store(writer, &captured, &pids, &from, true, self.progress)?;
        }
        let mut pictures = vec![];
        let mut refused = false;
        for (process, mut workshop) in self.quiesced.processes_mut().iter_mut().zip(workshops) {
            if with_picture {
                match workshop.take_picture(process) {
                    Ok(picture) => pictures.push(picture),
                    // Then the job stays stopped while it is copied.
                    Err(
                        InjectError::Refused { .. }
                        | InjectError::NoRoom { .. }
                        | InjectError::Reaper { .. },
                    ) => refused = true,
                    Err(error) => return Err(error.into()),
                }
            }
            self.watch.borrow(&mut workshop, process)?;
            workshop.close(process)?;
        }
        self.watch.begin();
        if refused {
            pictures.clear();
        }
        Ok((captured, pictures))
    }
}

fn has_board(snapshot: &SnapshotV1) -> bool {
    let mut inodes = snapshot.inodes.iter();
    inodes
        .any(|inode| matches!(&inode.kind, InodeKind::MemFd { name, .. } if name.0 == board::NAME))
}

/// Plans the restart and gives the image its name.
pub(crate) fn commit(
    mut writer: ImageWriter,
    snapshot: &SnapshotV1,
) -> Result<Committed, CheckpointError> {
    let processes = snapshot.processes.iter().zip(0..);
    let contents = processes.map(|(process, index)| {
        let mappings = process.memory.mappings.iter();
        let places = mappings.map(|mapping| mapping.start..mapping.end);
        writer.stored_in(Space::Process(index), places)
    });
    let contents = contents.collect::<Result<Contents, ImageError>>()?;
    let ops = plan::operations(snapshot, &contents, &writer.folder())?;
    if let Some((at, what)) = ops.fault().map_err(PlanError::PutAside)? {
        return Err(CheckpointError::Image(ImageError::Layout {
            image: PathBuf::new(),
            section: "operations",
            what: format!("{what} at byte {at}"),
        }));
    }
    let header = *ops.header();
    let needed = loader::hole::hole_needed(
        loader_code::span()?,
        ops.size(),
        writer.extents_len(),
        header.streams,
        header.slot_count,
    );
    let hole = plan::find_hole(snapshot, needed).map_err(PlanError::from)?;
    let mut meta = Spool::in_folder(&writer.folder());
    Image::write_snapshot(snapshot, &mut meta)?;
    let parts = ImageParts {
        platform: &snapshot.platform,
        ops: Bytes::from(&ops),
        meta: Bytes::from(&meta),
        loader: &loader_code::link(hole.start)?,
        hole,
    };
    Ok(writer.commit(&parts)?)
}
