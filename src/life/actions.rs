//! What a starter does when its state machine says so.

use super::copy::Copy;
use super::inside::Inside;
use super::making::{self, ABORTED, Making};
use super::passing::{self, Choice, Refused, is_refused};
use super::{How, JOB, MOVER, NOBODY, Starter, Tied, inside};
use crate::args::Restart;
use crate::jobs::{JobStore, images_disk};
use crate::report::{Exit, Failure, Outcome};
use crate::verbs;
use crate::verbs::checkpoint::{AtShadow, ImageLimits};
use nix::sys::signal::Signal;
use starter::life::{Action, End, Event};
use std::path::PathBuf;
use std::time::Instant;

impl Starter<'_> {
    pub(super) fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start | Action::Restart => self.begin_copy(action == Action::Restart),
                Action::Pause(pause) => {
                    let (name, pause) = (&self.name, pause.as_secs());
                    self.voice.say(&format!(
                        "job {name} was killed before it ran; it is tried again in {pause} s"
                    ));
                }
                Action::Checkpoint { leaves } => self.checkpoint(leaves),
                Action::AbandonCheckpoint => {
                    self.abandon_postponed("the job did not enable checkpoints in time");
                    if let Some(making) = &mut self.making {
                        making.abandon(Signal::SIGTERM);
                    }
                }
                Action::AbortCheckpoint => {
                    self.abandon_postponed(ABORTED);
                    if let Some(making) = &mut self.making {
                        making.abort();
                    }
                }
                Action::Stop => self.with_copy(Copy::stop),
                Action::Go => self.with_copy(Copy::go),
                Action::Kill => self.with_copy(Copy::kill),
                Action::KillAll => {
                    if let Some(making) = &mut self.making {
                        making.abandon(Signal::SIGKILL);
                    }
                    self.with_copy(Copy::kill_all);
                }
                Action::Answer(NOBODY, _) => {}
                Action::Answer(JOB, answer) => self.answer_job(&answer),
                Action::Answer(MOVER, answer) => self.has_image_for_move(&answer),
                // Whoever waits for the job to leave finds it gone.
                Action::Answer(who, answer) if self.life.has_left() => {
                    self.answers.push((who, answer));
                }
                Action::Answer(who, answer) => {
                    let state = self.life.state().name();
                    self.control.answer(who, &answer, state);
                }
                Action::Leave(leave) => self.left = Some(leave),
            }
        }
    }

    pub(super) fn with_copy(&self, act: impl FnOnce(&Copy)) {
        if let Some(copy) = &self.copy {
            act(copy);
        }
    }

    fn begin_copy(&mut self, again: bool) {
        if std::mem::take(&mut self.passes_over) {
            // Which has been said of an older image.
            if !again {
                let message = format!("no image of job {} verifies: it begins again", self.name);
                self.voice.say(&message);
            }
        } else if let Some(host) = self.moves_to() {
            let message = format!("job {} goes on on {host}", self.name);
            self.voice.say(&message);
        } else if again && self.inside.goes_back {
            self.voice
                .say(&format!("job {} goes back to its last image", self.name));
        } else if again && self.copies_begun > 0 {
            self.voice.say(&format!(
                "job {} was killed, and goes on from its last image",
                self.name
            ));
        } else if self.copies_begun > 0 {
            self.voice
                .say(&format!("job {} was killed, and begins again", self.name));
        }
        self.copies_begun += 1;
        self.begin_copy_here_or_away(again);
    }

    pub(super) fn begin_copy_here_or_away(&mut self, again: bool) {
        self.copy_since = Instant::now();
        self.inside = Inside::default();
        let begun = match self.away() {
            Some(_) => self.begin_away(again),
            None => self.begin_here(again),
        };
        match begun {
            Ok(copy) => self.copy = Some(copy),
            Err(failure) => {
                self.not_begun = Some(failure.to_string());
                let status = failure.exit_status() as i32;
                self.unsaid = Some(failure);
                self.events.push_back(Event::Ended(End::NotBegun(status)));
            }
        }
    }

    fn begin_here(&self, again: bool) -> Outcome<Copy> {
        let refused = &self.refused;
        let is_first = self.copies_begun == 1;
        let by = self.by;
        let (store, copies, name) = (self.store, &self.copies, &self.name);
        let How::Here {
            run,
            restart,
            image,
            ..
        } = &copies.how
        else {
            let message = "the job is not for this machine";
            return Err(Failure::new(Exit::Failed, message));
        };
        Copy::begin(&copies.signals, false, |tells| {
            let tied = Tied {
                name: name.clone(),
                tells,
                is_first,
                by,
                is_away: false,
            };
            let outcome = match run.filter(|_| !again) {
                Some(run) => verbs::run::begin(store, run, Some(tied)),
                None => go_on(store, restart, (image.as_ref(), refused), tied),
            };
            outcome.err().unwrap_or_else(Failure::reader_gone)
        })
    }

    pub(super) fn checkpoint(&mut self, leaves: bool) {
        self.inside.leaves = leaves;
        if self.postpones() {
            return;
        }
        let file = self.wanted_file();
        let signals = &self.copies.signals;
        let begun = match self.arguments.min_free {
            Some(least) => {
                let expected = self.last_image().map(|last| last.size());
                making::check_room(&images_disk(&self.dir), least, expected)
            }
            None => Ok(()),
        };
        let begun = begun.and_then(|()| {
            let begun = self.begin_fetch(leaves).unwrap_or_else(|| {
                let options = making::options(&self.name, leaves, self.arguments);
                let images_max = self.arguments.images_max;
                let at_shadow = self.record.images_at_shadow.then_some(AtShadow {
                    keep: self.record.keep,
                    min_free: self.arguments.min_free,
                });
                Making::begin(signals, self.rate, |rate| {
                    let rate = rate.clone();
                    let limits = ImageLimits {
                        rate,
                        images_max,
                        at_shadow,
                    };
                    let made = verbs::checkpoint::by_starter(self.store, &options, &limits)?;
                    if let Some(file) = &file {
                        inside::place(self.store, &self.name, file, None);
                    }
                    Ok(made)
                })
            });
            begun.map_err(|failure| failure.to_string())
        });
        match begun {
            Ok(making) => self.making = Some(making),
            Err(reason) => self.events.push_back(Event::Checkpointed(Err(reason))),
        }
    }
}

/// Becomes a copy that goes on from the image that was named, or the newest good one that was not refused.
fn go_on(
    store: &JobStore,
    restart: &Restart,
    (image, refused): (Option<&(PathBuf, u64)>, &[Refused]),
    tied: Tied,
) -> Outcome {
    let job = store.find(&tied.name)?;
    let chosen = match image {
        Some((image, generation))
            if job.record.generation <= *generation && !is_refused(refused, image) =>
        {
            verbs::restart::image_file(store, image)?
        }
        _ => passing::latest(job, refused, &tied.tells)?,
    };
    Choice::of(&chosen).tell(&tied.tells)?;
    verbs::restart::begin(store, restart, chosen, Some(tied))
}
