//! What a program asks of the starter above it (`ckpt_lib::board`, docs/adr/0024).
//!
//! ```text
//! the job: writes on its board, SIGURG ─> its supervisor ─ASKS─> is_asked_by_job ─> a command of the machine
//!                                    the board <─ answer_job <─ its answer
//! checkpoints are disabled: a checkpoint that is due is postponed ─ASKS, enabled─> it is made
//! ```

use super::{JOB, Starter};
use crate::jobs::JobStore;
use crate::leftovers;
use crate::report::{Failure, Outcome, tell};
use ckpt_lib::board::{Board, Want};
use ckpt_lib::image::{Image, ImageError, WriteOptions, flatten};
use ckpt_lib::procfs::{by_living_thread, living_thread};
use ckpt_lib::progress::Silent;
use ckpt_lib::tracee::HostPid;
use shadow::Allowed;
use starter::life::{Answer, Command, Event};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What there is between this copy and its starter.
#[derive(Debug, Default)]
pub(super) struct Inside {
    /// The checkpoint that is made, or postponed, is for leaving.
    pub(super) leaves: bool,
    /// One waits until the job allows it.
    is_postponed: bool,
    /// What the job waits for.
    asked: Option<(u32, Want)>,
    /// It was killed because it wants to be as at its last image.
    pub(super) goes_back: bool,
}

impl Starter<'_> {
    /// The boards of the job, if it has some and is on this machine.
    fn boards(&self) -> Vec<Board> {
        let root = self.copy.as_ref().and_then(|copy| copy.root());
        let boards =
            root.map(|root| by_living_thread(root, |thread| Board::all_of(HostPid(thread))));
        // Of a job that has just ended there are none.
        boards.and_then(Result::ok).unwrap_or_default()
    }

    /// The job has told us to read its board.
    pub(super) fn is_asked_by_job(&mut self) {
        for board in self.boards() {
            let wants = board.read().ok().and_then(|notice| notice.wants);
            if let Some((number, want)) = wants {
                self.wants(number, want);
            }
        }
        if self.inside.is_postponed && !self.is_disabled() {
            self.inside.is_postponed = false;
            self.checkpoint(self.inside.leaves);
        }
    }

    /// The job wants this, wherever it is; it may have said so before.
    pub(super) fn wants(&mut self, number: u32, want: Want) {
        if self.inside.asked == Some((number, want)) {
            return;
        }
        let command = match want {
            Want::Checkpoint => Command::Checkpoint,
            Want::Leave => Command::Vacate {
                within: self.arguments.vacate_within,
                insists: false,
            },
            Want::GoBack => Command::GoBack,
            Want::Unknown(kind) => {
                let why = format!("request {kind} is unknown to this wayfarer");
                self.answer_board(number, want, Err(&why));
                return;
            }
        };
        self.inside.asked = Some((number, want));
        self.events.push_back(Event::Asked(JOB, command));
    }

    fn answer_board(&self, number: u32, want: Want, result: Result<(), &str>) {
        for board in self.boards() {
            let wants = board.read().ok().and_then(|notice| notice.wants);
            if wants == Some((number, want)) {
                // If it is gone, nobody waits.
                let _ = board.answer(number, result);
            }
        }
        self.with_copy(|copy| copy.answer_there(number, want, result));
    }

    /// What the job waits for is done, or not.
    pub(super) fn answer_job(&mut self, answer: &Answer) {
        let not_copied = self.not_copied.take();
        let wants_image = |want| matches!(want, Want::Checkpoint | Want::Leave);
        let asked = self.inside.asked.map(|(_, want)| want);
        let result = match (answer, &not_copied) {
            (Answer::Done, Some(why)) if asked.is_some_and(wants_image) => Err(why.as_str()),
            (Answer::Done, _) => Ok(()),
            (Answer::Refused(why), _) => Err(why.as_str()),
        };
        let Some((number, want)) = self.inside.asked.take() else {
            return;
        };
        if want == Want::GoBack && result.is_ok() {
            // It has been killed, and is not to go on from here.
            self.inside.goes_back = true;
            return;
        }
        self.answer_board(number, want, result);
    }

    /// Whether the job has disabled checkpoints, and tells when it has enabled them again.
    fn is_disabled(&self) -> bool {
        let disabled = |board: &Board| board.read().is_ok_and(|notice| notice.disabled > 0);
        let boards = self.boards();
        // Looked at again when it knows that we wait: it may have looked for that before.
        boards
            .iter()
            .any(|board| disabled(board) && board.wait().is_ok() && disabled(board))
    }

    /// Whether the checkpoint that is to be made has to wait for the job: then it is made when the job allows it.
    pub(super) fn postpones(&mut self) -> bool {
        self.inside.is_postponed = self.is_disabled();
        if self.inside.is_postponed {
            tracing::info!("the job has disabled checkpoints: this one waits");
        }
        self.inside.is_postponed
    }

    pub(super) fn abandon_postponed(&mut self, why: &str) {
        if std::mem::take(&mut self.inside.is_postponed) {
            let refused = Event::Checkpointed(Err(why.to_owned()));
            self.events.push_back(refused);
        }
    }

    /// Where the job wants its images copied to, if it is on this machine.
    pub(super) fn wanted_file(&self) -> Option<PathBuf> {
        let root = self.copy.as_ref().and_then(|copy| copy.root());
        root.and_then(|root| Board::wanted_file(HostPid(living_thread(root))))
    }
}

/// So begins what is said of an image that is not copied to where the job wants it.
pub(super) const NOT_COPIED: &str = "the image is good, but is not copied to ";

/// Copies the newest image of the job there, whole or not at all; that it is not is only told. `allowed`: what a job may change that is not on this machine.
pub(super) fn place(
    store: &JobStore,
    name: &str,
    file: &Path,
    allowed: Option<&dyn Fn() -> Outcome<Allowed>>,
) {
    let shown = crate::raw::shown_path(file);
    let not_copied = |why: &str| format!("{NOT_COPIED}{shown}, as the job wants: {why}");
    let placed = store.find(name).map_err(Failure::from).and_then(|job| {
        let images = job.known_images()?;
        let Some(newest) = images.last() else {
            return Ok(());
        };
        let loss = not_copied("its starter was told to end");
        let Some(allowed) = allowed else {
            return copy(&newest.path, file, &loss);
        };
        let (folder, name) = allowed()?.folder_for(file)?;
        let folder = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        copy(&newest.path, &folder.join(name), &loss)
    });
    leftovers::remove_no_more();
    if let Err(failure) = placed {
        tell(&not_copied(&failure.to_string()));
    }
}

/// Nothing is replaced but an image.
fn check_place(file: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(file) {
        Ok(found) if found.is_file() && Image::open(file).is_ok() => Ok(()),
        Ok(_) => Err(io::Error::other(
            "found something there that is no image, expected nothing, or an image",
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// `loss`: what is said if we are ended before it is there.
fn copy(image: &Path, file: &Path, loss: &str) -> Outcome<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    check_place(file)?;
    let found = Image::open(image)?;
    let is_whole = found.files().count() == 1;
    let part = tempfile::Builder::new()
        .prefix(".wayfarer-image-")
        .make_in(folder, |path| {
            if is_whole {
                return copy_whole(image, path, loss);
            }
            // One that needs others would be of no use there.
            let flat = flatten(&found, path, WriteOptions::default(), &mut Silent);
            leftovers::remove_also(path.to_owned(), loss.to_owned());
            flat.map(drop).map_err(|error| match error {
                ImageError::Exists { .. } => ErrorKind::AlreadyExists.into(),
                error => io::Error::other(error),
            })
        })?;
    part.persist(file).map_err(|error| error.error)?;
    Ok(File::open(folder)?.sync_all()?)
}

/// It is the same, by its id, too. What the job may have put there is not touched, and nothing stays of what does not fit.
fn copy_whole(image: &Path, path: &Path, loss: &str) -> io::Result<()> {
    let mut part = File::options().write(true).create_new(true).open(path)?;
    leftovers::remove_also(path.to_owned(), loss.to_owned());
    let mut fill = || {
        io::copy(&mut File::open(image)?, &mut part)?;
        part.set_permissions(Permissions::from_mode(0o700))?;
        part.sync_all()
    };
    fill().inspect_err(|_| drop(std::fs::remove_file(path)))
}
