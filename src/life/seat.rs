//! A job that moves to another machine: what can be done while it still runs where it is.
//!
//! ```text
//! migrate --to B ──> an image, as at any time ──> a seat: the copy at B is begun as far as that image being there
//!                                                  | taken: what has changed since follows, as long as that gets less
//!                                                  |        it leaves with the rest (Vacating, Restarting) ──> and goes on there
//!                                                  ` not taken: it runs on, and that is said
//! ```
//! # What callers may rely on
//! Until it is seated nothing of its life has changed but for one more image. A seat that is not taken leaves nothing there.

use super::copy::Copy;
use super::passing::is_refused;
use super::words;
use super::{MOVER, Starter};
use crate::away::{self, Keep};
use crate::report::{Exit, Failure, Outcome};
use ckpt_lib::image::Image;
use nix::sys::signal::{Signal, kill};
use starter::life::{Answer, Command, Event, State, Who};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A move that somebody has asked for.
pub(super) struct Move {
    who: Who,
    to: String,
    seat: Option<Seat>,
    /// When the image was begun that is made or brought there now.
    since: Instant,
    /// How long the one before was under way.
    before: Option<Duration>,
    rounds: u32,
    /// The job is to leave.
    has_begun: bool,
}

/// Where it goes on.
struct Seat {
    /// What the copy's folder there is called by.
    id: String,
    /// Until it is taken.
    keeper: Option<Copy>,
    is_ready: bool,
}

/// So many times what has changed follows, at most.
const ROUNDS: u32 = 4;
/// What has changed in so short a time is not worth another.
const SHORT: Duration = Duration::from_millis(500);

impl Drop for Seat {
    fn drop(&mut self) {
        // Its line ends with it, and what is there with that. Our child, it still owns its number.
        if let Some(keeper) = self.keeper.take().filter(|keeper| !keeper.is_gone()) {
            let _ = kill(keeper.pid(), Signal::SIGKILL);
        }
    }
}

impl Starter<'_> {
    /// Somebody wants the job to move. What runs elsewhere is prepared there.
    pub(super) fn moves(&mut self, who: Who, to: String) {
        self.give_up_move("another move was asked for since");
        let runs = self.life.state() == State::Running && !self.life.is_still();
        let can_be_prepared = runs && self.copy.is_some() && !self.life.is_leaving();
        if !can_be_prepared || self.record.on.as_ref() == Some(&to) {
            self.events
                .push_back(Event::Asked(who, Command::Migrate { to }));
            return;
        }
        self.moving = Some(Move {
            who,
            to,
            seat: None,
            since: Instant::now(),
            before: None,
            rounds: 0,
            has_begun: false,
        });
        self.events
            .push_back(Event::Asked(MOVER, Command::Checkpoint));
    }

    /// What has come of the image that is to be there before the job is.
    pub(super) fn has_image_for_move(&mut self, answer: &Answer) {
        if self.moving.is_none() {
            return;
        }
        if let Answer::Refused(reason) = answer {
            return self.give_up_move(reason);
        }
        let newest = self.newest_path();
        if let Some((seat, newest)) = self.seat().zip(newest) {
            // One that is gone says so by itself.
            let _ = seat.is_told_of(&newest, words::MORE);
            return;
        }
        match (self.begin_seat(), &mut self.moving) {
            (Ok(seat), Some(moving)) => moving.seat = Some(seat),
            (Err(failure), _) => self.give_up_move(&failure.to_string()),
            (Ok(_), None) => {}
        }
    }

    fn begin_seat(&self) -> Outcome<Seat> {
        let gone = || Failure::new(Exit::Failed, "the job does not move any more");
        let (away, moving) = self.away().zip(self.moving.as_ref()).ok_or_else(gone)?;
        let id = super::away::random_id()?;
        let image = Image::open(&self.newest_path().ok_or_else(gone)?)?;
        let job = (self.store, self.dir.as_path(), self.name.as_str());
        let seat = Keep {
            is_seat: true,
            ..away.kept(job, (&moving.to, &id), Some(&image))
        };
        let keep = |tells| away::keep(&seat, tells);
        let keeper = Copy::begin(&self.copies.signals, true, keep)?;
        Ok(Seat {
            id,
            keeper: Some(keeper),
            is_ready: false,
        })
    }

    /// The newest image, if a copy may go on from it.
    fn newest_path(&self) -> Option<PathBuf> {
        let newest = self
            .store
            .find(&self.name)
            .ok()?
            .known_images()
            .ok()?
            .pop()?;
        (!is_refused(&self.refused, &newest.path)).then_some(newest.path)
    }

    /// The process that keeps the seat.
    pub(super) fn seat(&self) -> Option<&Copy> {
        self.moving.as_ref()?.seat.as_ref()?.keeper.as_ref()
    }

    pub(super) fn seat_mut(&mut self) -> Option<&mut Copy> {
        self.moving.as_mut()?.seat.as_mut()?.keeper.as_mut()
    }

    /// What the seat has to tell.
    pub(super) fn hear_seat(&mut self) {
        let Some(moving) = &mut self.moving else {
            return;
        };
        let Some(seat) = moving.seat.as_mut() else {
            return;
        };
        match seat.keeper.as_mut().and_then(Copy::is_seated) {
            None => {}
            Some(Ok(())) => {
                seat.is_ready = true;
                let next = match moving.is_worth_another() {
                    true => Event::Asked(MOVER, Command::Checkpoint),
                    false => {
                        let to = moving.to.clone();
                        Event::Asked(moving.who, Command::Migrate { to })
                    }
                };
                self.events.push_back(next);
            }
            // It is begun there once more when the job has left.
            Some(Err(_)) if seat.is_ready => moving.seat = None,
            Some(Err(reason)) => {
                let to = &moving.to;
                let reason = format!("{to} does not take it, so it stays where it is: {reason}");
                self.give_up_move(&reason);
            }
        }
    }

    /// The job is to leave, as the seat has been got for.
    pub(super) fn move_begins(&mut self) {
        if let Some(moving) = &mut self.moving {
            moving.has_begun = true;
        }
    }

    /// Something has happened: the job may not move any more.
    pub(super) fn look_at_move(&mut self) {
        let Some(moving) = &self.moving else {
            return;
        };
        if moving.has_begun {
            // Whoever has asked is answered by the state machine.
            if self.moves_to().is_none() || self.life.has_left() {
                self.moving = None;
            }
        } else if self.life.has_left() || self.life.is_leaving() || self.copy.is_none() {
            self.give_up_move("the job does not run any more where it was");
        }
    }

    /// Whoever has asked for it is told why it stays, unless it has begun.
    fn give_up_move(&mut self, reason: &str) {
        let Some(moving) = self.moving.take() else {
            return;
        };
        if moving.has_begun {
            return;
        }
        let (name, to) = (&self.name, &moving.to);
        self.voice
            .say(&format!("job {name} does not move to {to}: {reason}"));
        let answer = Answer::Refused(reason.to_owned());
        match self.life.has_left() {
            true => self.answers.push((moving.who, answer)),
            false => {
                let state = self.life.state().name();
                self.control.answer(moving.who, &answer, state);
            }
        }
    }

    /// The copy that waits on this machine for the image with which the job has left, and its id.
    pub(super) fn take_seat(&mut self, host: &str) -> Option<(String, Copy)> {
        let mut moving = self.moving.take().filter(|moving| moving.to == host)?;
        let mut seat = moving.seat.take().filter(|seat| seat.is_ready)?;
        let image = self.newest_path()?;
        let keeper = seat.keeper.take()?;
        keeper.is_told_of(&image, words::IMAGE).ok()?;
        Some((std::mem::take(&mut seat.id), keeper))
    }
}

impl Move {
    /// What was to be there is there: whether what has changed meanwhile is to follow before the job leaves, which it does if that is
    /// likely to be less.
    fn is_worth_another(&mut self) -> bool {
        let took = self.since.elapsed();
        let gets_less = self.before.is_none_or(|before| took < before / 2);
        (self.since, self.before) = (Instant::now(), Some(took));
        self.rounds += 1;
        gets_less && took > SHORT && self.rounds <= ROUNDS
    }
}
