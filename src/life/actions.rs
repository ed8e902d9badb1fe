//! What a starter does when its state machine says so.

use super::copy::Copy;
use super::making::{self, Making};
use super::{Copies, NOBODY, Starter, Tied};
use crate::jobs::JobStore;
use crate::report::{Failure, Outcome};
use crate::verbs;
use nix::sys::signal::Signal;
use starter::life::{Action, End, Event};
use std::time::Instant;

impl Starter<'_> {
    pub(super) fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start | Action::Restart => self.begin_copy(action == Action::Restart),
                Action::Checkpoint { leaves } => self.checkpoint(leaves),
                Action::AbandonCheckpoint => {
                    if let Some(making) = &self.making {
                        making.abandon(Signal::SIGTERM);
                    }
                }
                Action::Stop => self.with_copy(Copy::stop),
                Action::Go => self.with_copy(Copy::go),
                Action::Kill => self.with_copy(Copy::kill),
                Action::KillAll => {
                    if let Some(making) = &self.making {
                        making.abandon(Signal::SIGKILL);
                    }
                    self.with_copy(Copy::kill_all);
                }
                Action::Answer(NOBODY, _) => {}
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
        if again && self.copies_begun > 0 {
            self.voice.say(&format!(
                "job {} was killed, and goes on from its last image",
                self.name
            ));
        } else if self.copies_begun > 0 {
            self.voice
                .say(&format!("job {} was killed, and begins again", self.name));
        }
        let is_first = self.copies_begun == 0;
        self.copies_begun += 1;
        self.copy_since = Instant::now();
        let (store, copies, name) = (self.store, &self.copies, &self.name);
        let begun = Copy::begin(&self.copies.signals, |tells| {
            let tied = Tied {
                name: name.clone(),
                tells,
                is_first,
            };
            let outcome = match copies.run.filter(|_| !again) {
                Some(run) => verbs::run::begin(store, run, Some(tied)),
                None => go_on(store, copies, tied),
            };
            outcome.err().unwrap_or_else(Failure::reader_gone)
        });
        match begun {
            Ok(copy) => self.copy = Some(copy),
            Err(failure) => {
                self.not_begun = Some(failure.to_string());
                self.events.push_back(Event::Ended(End::NotBegun(1)));
            }
        }
    }

    fn checkpoint(&mut self, leaves: bool) {
        let signals = &self.copies.signals;
        let begun = match self.arguments.min_free {
            Some(least) => making::check_room(&self.dir, least, self.last_image_bytes()),
            None => Ok(()),
        };
        let begun = begun.and_then(|()| {
            let options = making::options(&self.name, leaves, self.arguments);
            Making::begin(self.store, &options, signals).map_err(|failure| failure.to_string())
        });
        match begun {
            Ok(making) => self.making = Some(making),
            Err(reason) => self.events.push_back(Event::Checkpointed(Err(reason))),
        }
    }
}

/// Becomes a copy that goes on from the image that was named, or the newest good one.
fn go_on(store: &JobStore, copies: &Copies<'_>, tied: Tied) -> Outcome {
    let job = store.find(&tied.name)?;
    let chosen = match &copies.image {
        Some((image, generation)) if job.record.generation <= *generation => {
            verbs::restart::image_file(store, image)?
        }
        _ => verbs::restart::latest_good(job)?,
    };
    verbs::restart::begin(store, &copies.restart, chosen, Some(tied))
}
