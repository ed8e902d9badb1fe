//! What a starter writes down of its job: in its record at each change of state, in its event log.

use super::Starter;
use super::copy::Copy;
use super::counting::Spent;
use crate::jobs::{CheckpointNote, RunningCopy, unix_now};
use crate::report::chain;
use crate::sys::Usage;
use starter::life::{Event, State};
use std::time::Instant;

impl Starter<'_> {
    pub(super) fn note(&mut self, made: &Result<(), String>) {
        match made {
            Ok(()) => {
                self.record.refused = None;
                let last = self.last_image();
                let size = last.as_ref().map_or(0, CheckpointNote::size);
                let sent = last.map_or(0, |last| last.sent_bytes.unwrap_or(last.image_bytes));
                self.record.counted.add(Spent {
                    sent_bytes: sent,
                    ..Spent::default()
                });
                if self.life.is_leaving() {
                    self.leaves_with_image = true;
                } else {
                    self.chronicle
                        .checkpointed(self.spent_by_this(), size, sent);
                }
            }
            Err(reason) => {
                self.hosts().into_iter().for_each(|hosts| hosts.want(None));
                if self.record.refused.as_ref() != Some(reason) && self.left.is_none() {
                    let name = &self.name;
                    let message = format!("no image of job {name} now: {reason}");
                    self.voice.say(&message);
                }
                self.record.refused = Some(reason.clone());
            }
        }
        self.save();
    }

    /// It stands still since now, or does no longer; whether that is new.
    pub(super) fn note_standing(&mut self) -> bool {
        let state = self.life.state();
        let is_there = !state.is_last()
            && !matches!(state, State::Starting | State::Restarting | State::Killing);
        match (is_there && self.life.is_still(), self.stands_since) {
            (true, None) => {
                self.stands_since = Some(Instant::now());
                // It stands still yet if the copy before this one did.
                if !std::mem::take(&mut self.stood_before) {
                    self.record.counted.suspended();
                }
                let count = self.copy.as_ref().map_or(0, Copy::count);
                self.chronicle.suspended(count);
                true
            }
            (false, Some(since)) => {
                self.stands_since = None;
                self.record.counted.stood(since.elapsed());
                self.stood_before = !is_there;
                if is_there {
                    self.chronicle.unsuspended();
                }
                true
            }
            _ => {
                self.stood_before &= !is_there || self.life.is_still();
                false
            }
        }
    }

    /// Where nothing comes of us it is still to be told, by whoever is next.
    pub(super) fn tell_lost(&mut self) {
        if let Some(lost) = self.lost.take() {
            lost.tell(&self.chronicle);
        }
    }

    /// What the copy that there is has spent, and its images.
    fn spent_by_this(&self) -> Spent {
        let so_far = self.copy.as_ref().map(Copy::spent_so_far);
        let counted = self.record.counted.spent().since(self.spent_before);
        counted.plus(so_far.unwrap_or_default())
    }

    pub(super) fn last_image(&self) -> Option<CheckpointNote> {
        self.store.find(&self.name).ok()?.record.last_checkpoint
    }

    pub(super) fn entered(&mut self, before: State, state: State) {
        // A copy that was refused has never run.
        if matches!(state, State::Restarting | State::Starting) && before != State::Restarting {
            let spent = self.record.counted.spent();
            let by_last = spent.since(self.spent_before);
            self.spent_before = spent;
            self.record.counted.last_vacate_time = Some(unix_now());
            let was_cut = std::mem::take(&mut self.is_cut);
            let is_keeper_lost = std::mem::take(&mut self.is_keeper_lost);
            match self.moves_to() {
                // It was killed before it ran.
                _ if !self.chronicle.runs() => {}
                _ if was_cut => {
                    let host = self.record.on.clone().unwrap_or_default();
                    self.chronicle.not_reconnected(&host);
                }
                _ if is_keeper_lost => {
                    let host = self.record.on.clone().unwrap_or_default();
                    self.chronicle.shadow_lost(&host, by_last);
                }
                Some(_) => {
                    let with_image = std::mem::take(&mut self.leaves_with_image);
                    self.chronicle
                        .evicted(by_last, with_image, "goes on elsewhere");
                }
                None => {
                    let why = match self.inside.goes_back {
                        true => "goes back by itself",
                        false => "killed by somebody",
                    };
                    self.chronicle.evicted(by_last, false, why);
                }
            }
        }
        self.record.counted.entered();
        tracing::info!("{}", state.name());
        self.record.state = state.name().to_owned();
        // The last is written when nothing is left of the job.
        if !self.life.has_left() {
            self.save();
        }
    }

    pub(super) fn save(&mut self) {
        // What is committed stands until the last word.
        if self.is_fenced || self.is_committed && !self.life.has_left() {
            return;
        }
        let copy = self.copy.as_ref().filter(|_| self.copy_runs);
        self.record.running = copy.map(|copy| {
            let spent = copy.spent_so_far();
            let Usage { user, system } = spent.used;
            RunningCopy {
                used: [user, system].map(|time| time.as_secs_f64()),
                bytes: [spent.sent_bytes, spent.received_bytes],
                stands: self.stands_since.is_some(),
            }
        });
        if self.is_taken() {
            return self.lose("another starter has it");
        }
        let saved = self.record.save(&self.dir);
        if let Err(error) = &saved
            && !self.unwritten
        {
            let name = &self.name;
            let message = format!("how job {name} fares is not written down: {}", chain(error));
            self.voice.say(&message);
        }
        self.unwritten = saved.is_err();
    }

    /// The line to the machine of the copy is cut, or there is another.
    pub(super) fn line_is(&mut self, is_there: bool) {
        self.is_cut = !is_there;
        let host = self.record.on.clone().unwrap_or_default();
        match is_there {
            true => self.chronicle.reconnected(&host),
            false => self.chronicle.disconnected(&host),
        }
        let event = match is_there {
            true => Event::Joined,
            false => Event::Cut,
        };
        self.events.push_back(event);
    }
}
