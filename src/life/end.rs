//! How a starter ends.

use super::begin::note_why;
use super::streams::Streams;
use super::{Chronicle, How, LifeRecord, Starter, VACATED, voice};
use crate::jobs::{Job, Outset, forget_journals, pulse};
use crate::report::{self, Exit, Failure, Outcome, chain};
use crate::{sys, temporary};
use nix::unistd::AccessFlags;
use starter::life::{Answer, End, Leave};
use std::path::Path;

/// How shells end for programs that cannot be started.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

impl Starter<'_> {
    /// Whether somebody has made an image of the job, we or others.
    pub(super) fn has_image(&self) -> bool {
        self.newest_image().is_some()
    }

    /// The generation of the newest of them.
    pub(super) fn newest_image(&self) -> Option<u64> {
        let job = self.store.find(&self.name).ok()?;
        match job.known_images() {
            Ok(images) => images.last().map(|image| image.generation),
            // Those that are out of reach may come back: a job that had some is not one without.
            Err(_) => job.record.last_checkpoint.map(|last| last.generation),
        }
    }

    /// Writes down how it ended, tells who waits, and ends so.
    pub(super) fn conclude(mut self, job: &Job, leave: Leave) -> Outcome {
        let name = self.name.clone();
        if self.is_taken() {
            if let (Leave::Completed(end), true) = (&leave, self.is_committed) {
                // The name is another job's since then.
                end_as(*end);
            }
            // Everything in its directory is the other's.
            let message = format!("job {name} is another starter's; this copy has ended");
            return Err(Failure::new(Exit::Lost, message));
        }
        if let Leave::NotBegun(status) = leave {
            if let Some(failure) = self.unsaid.take() {
                let _ = report::conclude(Err(failure));
            }
            self.tell_why_not_begun(status);
            LifeRecord::withdraw(&self.dir);
            pulse::withdraw(&self.dir);
            Outset::withdraw(&self.dir);
            Streams::withdraw(&self.dir);
            temporary::remove(&self.dir);
            let _ = std::fs::remove_file(self.dir.join(voice::NAME));
            // That of a job that has begun before is its history.
            if !self.chronicle.has_events() {
                Chronicle::withdraw(&self.dir);
            }
            self.control
                .close(&Answer::Refused("the job has not begun".to_owned()), "Idle");
            job.withdraw();
            std::process::exit(status);
        }
        if matches!(leave, Leave::Completed(_)) && !self.is_committed {
            self.make_durable();
        }
        self.record.counted.left(&leave, self.not_begun.as_deref());
        self.tell_lost();
        let spent = self.record.counted.spent().since(self.spent_before);
        let counted = &self.record.counted;
        let with_image = self.leaves_with_image;
        self.chronicle.left(&leave, counted, spent, with_image);
        self.save();
        if matches!(leave, Leave::Completed(_)) && !self.is_written_at_last() {
            let message = format!(
                "job {name} has ended, which is not written down: whoever goes on with it sees its end once more"
            );
            return Err(Failure::new(Exit::Failed, message));
        }
        self.end_last_copy();
        let is_killed = matches!(
            leave,
            Leave::Completed(End::Gone | End::Signalled(libc::SIGKILL))
        );
        if is_killed && Outset::is_in(&self.dir) {
            self.voice.say(&format!(
                "job {name} was killed, and does not begin again: what it has read from its input, or from other descriptors that it was given, is gone"
            ));
        }
        if matches!(leave, Leave::Completed(_)) {
            // With an image, it may be wanted back.
            if !self.has_image() {
                forget_journals(&self.dir);
            }
            Outset::withdraw(&self.dir);
        }
        if matches!(leave, Leave::Completed(end) if end == End::Exited(0) || !self.has_image()) {
            temporary::remove(&self.dir);
        }
        self.hear_nobody();
        if !self.is_fenced {
            self.notify(&leave);
        }
        match leave {
            Leave::Completed(end) => {
                self.deliver();
                if self.arguments.forget
                    && let Err(error) = self.store.forget(job)
                {
                    self.voice.say(&chain(&error));
                }
                end_as(end);
            }
            Leave::Killed => end_as(End::Signalled(libc::SIGKILL)),
            Leave::NotBegun(_) => {}
            Leave::Vacated => {
                let from = match self.has_image() {
                    true => format!("`wayfarer restart {name}` goes on from its last image"),
                    false if Outset::is_in(&self.dir) => {
                        "there is no image of it; `run --resume` begins again, with its files as they were".to_owned()
                    }
                    false => "there is no image of it; `run --resume` begins it again, with its files as it has left them".to_owned(),
                };
                self.voice.say(&format!("job {name} has left; {from}"));
                let status = self.arguments.vacated_status.unwrap_or(VACATED);
                std::process::exit(status.into());
            }
            Leave::Held(hold) => {
                let why = self.not_begun.as_ref().unwrap_or(&hold.reason);
                let failure = Failure::new(Exit::Failed, format!("job {name} is held: {why}"));
                tracing::error!("{failure}");
                return Err(failure.advise(format!("wayfarer release {name}")));
            }
        }
        Ok(Exit::Done)
    }
}

impl Starter<'_> {
    /// Who has asked is answered, and nobody is heard any more.
    pub(super) fn hear_nobody(&mut self) {
        let state = self.life.state().name();
        for (who, answer) in std::mem::take(&mut self.answers) {
            self.control.answer(who, &answer, state);
        }
        let ended = Answer::Refused("the job has left or ended".to_owned());
        self.control.close(&ended, state);
    }

    /// Whoever began us may have no other way to know why there is no job.
    fn tell_why_not_begun(&self, status: i32) {
        let How::Here { run: Some(run), .. } = &self.copies.how else {
            return;
        };
        let Some(file) = &run.why else {
            return;
        };
        let why = not_executed(status, Path::new(&run.command[0]));
        let why = why.or_else(|| self.not_begun.clone());
        if let Some(why) = why {
            note_why(file, &why);
        }
    }
}

/// What execve(2) says of a program whose start has ended with this status, as a shell's would; the loader itself says it on the job's own
/// standard error, where nobody may read it.
fn not_executed(status: i32, program: &Path) -> Option<String> {
    if !matches!(status, NOT_FOUND | NOT_EXECUTABLE) {
        return None;
    }
    let shown = crate::raw::shown_path(program);
    let found = nix::unistd::access(program, AccessFlags::F_OK | AccessFlags::X_OK);
    Some(match (found, status) {
        (Err(errno), _) => format!("{shown} cannot be started: {}", errno.desc()),
        (Ok(()), NOT_FOUND) => format!("{shown} cannot be started: its interpreter is not there"),
        (Ok(()), _) if program.is_dir() => format!("{shown} cannot be started: it is a directory"),
        (Ok(()), _) => format!("{shown} cannot be started: it is no program for this machine"),
    })
}

/// Ends this process as the job has ended.
pub(super) fn end_as(end: End) -> ! {
    match end {
        End::Exited(status) | End::NotBegun(status) => std::process::exit(status),
        End::Interrupted(signal) | End::Signalled(signal) => sys::end_by_signal(signal),
        End::Gone => sys::end_by_signal(libc::SIGKILL),
    }
}
