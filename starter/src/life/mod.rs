//! A job's life under a starter: one state machine, without clocks, processes or files of its own.
//!
//! ```text
//!                 it runs               due, or asked for
//!   Starting ───────────────> Running <──────────────────> Checkpointing
//!       │   Restarting ────────^ │ ^ suspend, continue
//!       │       ^                │ `─────────────────────> Suspended
//!       │       │          (the line to another machine is cut: Reconnecting, until there is another)
//!       │       ├─ its image is refused: the one before it; none verifies, but it can begin again: to Starting
//!       │       └─ killed by somebody else, and there is an image: from each of these three (no image, but it can begin again: to Starting);
//!       │          or it wants to go back: through Killing
//!       │                        │
//!       │            vacate, hold│           the time is over, kill
//!       │                        `──> Vacating ───────────> Killing
//!       │ did not begin                  │ image made          │ nothing is left
//!       v                                `──> Killing          v
//!    NotBegun                                        Idle, Held, Removed
//!
//!   its program has ended by itself, in any state: Completed
//! ```
//! # What callers may rely on
//! There is never more than one copy of the job, nor more than one checkpoint of it at a time. After [`Action::Leave`] comes nothing.
//! Whoever asked for something that a job can do only once it runs is answered then; who is left over is the caller's to answer.
//!
//! # What it does not do
//! It reads no clock: [`Life::step`] is told how long the starter has been there, and [`Life::wake_at`] says when it wants to be called.

mod leaving;
mod lost;
mod making;
#[cfg(test)]
mod tests;
mod words;

pub use words::{
    Action, Answer, Command, End, Event, First, Hold, Leave, Policy, Remains, State, Who,
};

use leaving::Leaving;
use making::Making;
use std::time::Duration;

/// The shortest time before a checkpoint that was refused is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A job's life. See the module.
#[derive(Clone, Debug)]
pub struct Life {
    policy: Policy,
    state: State,
    /// There is an image to go on from.
    image: bool,
    /// It was suspended by command at some time, and so may an image be: when it came there, and what was made before it came, nobody knows.
    may_stand: bool,
    /// Without one, it can begin again as if it had not been there: at once, or only where it is started anew.
    outset: Option<bool>,
    /// By command.
    suspended: bool,
    /// As far as we were told.
    stopped: bool,
    /// The line to its machine.
    is_cut: bool,
    /// When it was last.
    cut_at: Duration,
    /// When this copy was told last to stand still, or to go on.
    told_at: Option<Duration>,
    leaving: Option<Leaving>,
    making: Option<Making>,
    /// Checkpoints that were asked for while another was being made.
    wanted: Vec<Who>,
    /// Who waits until it runs elsewhere.
    moving: Vec<Who>,
    /// What was asked for before it ran.
    waiting: Vec<(Who, Command)>,
    /// It ended while a checkpoint was being made.
    met: Option<End>,
    worked: Duration,
    works_since: Option<Duration>,
    /// How much work it has done when the next checkpoint is due.
    due: Option<Duration>,
    refused_in_a_row: u32,
    restarts_from_this: u32,
    /// It was killed by us, to go on from its last image.
    goes_back: bool,
    kill_again_at: Option<Duration>,
    /// The last copy was killed before it ran, and there is none before this moment.
    begins_at: Option<Duration>,
}

impl Life {
    /// The beginning, and what is to be done first.
    pub fn begin(policy: Policy, first: First) -> (Self, Vec<Action>) {
        let (state, image, action) = match first {
            First::Start => (State::Starting, false, Action::Start),
            First::Restart { .. } => (State::Restarting, true, Action::Restart),
        };
        let life = Life {
            policy,
            state,
            image,
            may_stand: first == First::Restart { may_stand: true },
            outset: None,
            suspended: false,
            stopped: false,
            is_cut: false,
            cut_at: Duration::ZERO,
            told_at: None,
            leaving: None,
            making: None,
            wanted: vec![],
            moving: vec![],
            waiting: vec![],
            met: None,
            worked: Duration::ZERO,
            works_since: None,
            due: policy.every,
            refused_in_a_row: 0,
            restarts_from_this: 0,
            goes_back: false,
            kill_again_at: None,
            begins_at: None,
        };
        (life, vec![action])
    }

    /// It has run, and can begin again as if it had not: `at_once`, or only where it is started anew.
    pub fn note_outset(&mut self, at_once: bool) {
        self.outset = Some(at_once);
    }

    fn can_go_on(&self) -> bool {
        self.image || self.outset.is_some()
    }

    fn can_go_on_at_once(&self) -> bool {
        self.image || self.outset == Some(true)
    }

    /// Where it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether there is an image to go on from.
    pub fn has_image(&self) -> bool {
        self.image
    }

    /// Somebody else has made an image; whether that is newer than the one it went on from.
    pub fn note_image(&mut self, is_new: bool) {
        self.image = true;
        if is_new {
            self.restarts_from_this = 0;
        }
    }

    /// Whether it stands still, while an image is made of it or not.
    pub fn is_still(&self) -> bool {
        self.suspended || self.stopped
    }

    /// Whether it was suspended by command.
    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Whether it is to leave.
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Whether there is nothing left to do: [`Action::Leave`] has been said.
    pub fn has_left(&self) -> bool {
        self.state.is_last()
    }

    /// Whether its images may be of a job that was suspended by command.
    pub fn may_stand(&self) -> bool {
        self.may_stand
    }

    /// When it wants to be called though nothing has happened.
    pub fn wake_at(&self, now: Duration) -> Option<Duration> {
        let leaving = self.leaving.as_ref();
        let until = leaving.and_then(|leaving| leaving.until);
        let again = leaving.and_then(|leaving| leaving.again_at);
        let due = match (self.state, self.due) {
            (State::Running, Some(due)) => Some(now + due.saturating_sub(self.work(now))),
            _ => None,
        };
        let until = until.filter(|_| self.state != State::Killing);
        [until, again, due, self.kill_again_at, self.begins_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// What follows from what has happened, `now` after the starter began.
    pub fn step(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = vec![];
        match event {
            Event::Runs => self.runs(now, &mut actions),
            Event::Stopped => self.stands_still(true, now),
            Event::Continued => self.stands_still(false, now),
            Event::Ended(end) if self.making.is_some() => self.met = Some(end),
            Event::Ended(end) => self.ended(end, now, &mut actions),
            Event::Cut => self.cut(now),
            Event::Joined => self.joined(now, &mut actions),
            Event::Refused(remains) => self.refused(remains, now, &mut actions),
            Event::Checkpointed(made) => self.checkpointed(made, now, &mut actions),
            Event::Asked(who, command) => self.asked(who, command, now, &mut actions),
            Event::Time => self.time(now, &mut actions),
        }
        let tells = |action: &Action| matches!(action, Action::Stop | Action::Go);
        if actions.iter().any(tells) {
            self.told_at = Some(now);
        }
        actions
    }

    /// Work done so far.
    fn work(&self, now: Duration) -> Duration {
        let running = self.works_since.map(|since| now.saturating_sub(since));
        self.worked + running.unwrap_or_default()
    }

    fn enter(&mut self, state: State, now: Duration) {
        self.worked = self.work(now);
        let works = matches!(
            state,
            State::Running | State::Checkpointing | State::Reconnecting
        );
        let works = works && !self.suspended && !self.stopped;
        self.works_since = works.then_some(now);
        self.state = state;
    }

    /// Where it is when nothing is being done with it.
    fn rest(&mut self, now: Duration) {
        let state = match self.suspended || self.stopped {
            _ if self.is_cut => State::Reconnecting,
            true => State::Suspended,
            false => State::Running,
        };
        self.enter(state, now);
    }

    fn runs(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let restarted = self.state == State::Restarting;
        if !restarted && self.state != State::Starting {
            return;
        }
        if self.suspended {
            actions.push(Action::Stop);
        } else if restarted && self.may_stand {
            self.stopped = false;
            actions.push(Action::Go);
        }
        self.rest(now);
        let arrived = std::mem::take(&mut self.moving);
        actions.extend(
            arrived
                .into_iter()
                .map(|who| Action::Answer(who, Answer::Done)),
        );
        if self.leaving.is_some() {
            self.vacate(now, actions);
        }
        for (who, command) in std::mem::take(&mut self.waiting) {
            self.asked(who, command, now, actions);
        }
    }

    fn stands_still(&mut self, stopped: bool, now: Duration) {
        self.stopped = stopped;
        match self.state {
            State::Running | State::Suspended | State::Reconnecting => self.rest(now),
            State::Checkpointing => self.enter(State::Checkpointing, now),
            _ => {}
        }
    }

    fn ended(&mut self, end: End, now: Duration, actions: &mut Vec<Action>) {
        (self.stopped, self.is_cut, self.told_at) = (false, false, None);
        let goes_back = std::mem::take(&mut self.goes_back);
        let is_to_be_gone = matches!(self.state, State::Killing | State::Vacating);
        let is_by_us = matches!(
            end,
            End::NotBegun(_) | End::Interrupted(_) | End::Gone | End::Signalled(SIGKILL)
        );
        if is_to_be_gone && is_by_us && self.moves_on(now, actions) {
            return;
        }
        let leaves = self.leaving.as_ref().map(|leaving| leaving.to.leave());
        let leave = match (end, leaves) {
            (_, Some(leave)) if is_to_be_gone && is_by_us => leave,
            // Whoever has told us to leave may have told the job, too, by a signal to all.
            (End::Signalled(SIGHUP | SIGINT | SIGQUIT | SIGTERM), Some(leave))
                if self.can_go_on() =>
            {
                leave
            }
            (End::Interrupted(_), Some(leave)) if self.can_go_on() => leave,
            (End::Interrupted(_), None) if self.can_go_on() => Leave::Vacated,
            (End::Interrupted(signal), _) => Leave::NotBegun(128 + signal),
            (End::Gone | End::Signalled(SIGKILL), _)
                if self.state == State::Starting && !self.can_go_on() =>
            {
                Leave::NotBegun(128 + SIGKILL)
            }
            (End::NotBegun(status), _) => match self.can_go_on() {
                false => Leave::NotBegun(status),
                true => held(format!("it cannot be restarted (status {status})")),
            },
            // Nothing has been read yet.
            (End::Gone | End::Signalled(SIGKILL), None)
                if self.state == State::Starting && !self.can_go_on_at_once() =>
            {
                Leave::Vacated
            }
            (End::Gone | End::Signalled(SIGKILL), leaves) if self.can_go_on_at_once() => {
                match leaves {
                    Some(leave) => leave,
                    None if goes_back
                        || self.restarts_from_this < self.policy.restarts_per_image =>
                    {
                        return self.goes_on(goes_back, now, actions);
                    }
                    None => {
                        let since = match self.image {
                            true => "since its last image",
                            false => "before there was an image of it",
                        };
                        let times = self.restarts_from_this + 1;
                        held(format!("it was killed {times} times {since}"))
                    }
                }
            }
            _ => Leave::Completed(end),
        };
        self.leave(leave, now, actions);
    }

    /// Another copy is begun in the place of one that was killed: after a while, if that has never run, since what has killed it is likely to
    /// be there still.
    fn goes_on(&mut self, goes_back: bool, now: Duration, actions: &mut Vec<Action>) {
        let has_run = !matches!(self.state, State::Starting | State::Restarting);
        let pause = FIRST_PAUSE.saturating_mul(1 << self.restarts_from_this.min(16));
        self.restarts_from_this += u32::from(!goes_back);
        self.kill_again_at = None;
        let (state, action) = self.beginning();
        self.enter(state, now);
        if has_run || goes_back {
            return actions.push(action);
        }
        let pause = pause.min(LONGEST_PAUSE);
        self.begins_at = Some(now + pause);
        actions.push(Action::Pause(pause));
    }

    /// How another copy begins.
    fn beginning(&self) -> (State, Action) {
        match self.image {
            true => (State::Restarting, Action::Restart),
            false => (State::Starting, Action::Start),
        }
    }

    /// This copy was to go on elsewhere, and there is an image: whether it does.
    fn moves_on(&mut self, now: Duration, actions: &mut Vec<Action>) -> bool {
        let moves = |leaving: &Leaving| leaving.to == leaving::To::Elsewhere;
        if !self.image || !self.leaving.as_ref().is_some_and(moves) {
            return false;
        }
        let leaving = self.leaving.take().into_iter();
        self.moving
            .extend(leaving.flat_map(|leaving| leaving.for_whom));
        self.kill_again_at = None;
        self.enter(State::Restarting, now);
        actions.push(Action::Restart);
        true
    }

    fn leave(&mut self, leave: Leave, now: Duration, actions: &mut Vec<Action>) {
        let (state, answer) = match &leave {
            Leave::Completed(_) | Leave::NotBegun(_) => {
                let answer = Answer::Refused("the job has ended by itself".to_owned());
                (State::Completed, answer)
            }
            Leave::Vacated => (State::Idle, Answer::Done),
            Leave::Held(_) => (State::Held, Answer::Done),
            Leave::Killed => (State::Removed, Answer::Done),
        };
        self.enter(state, now);
        self.kill_again_at = None;
        let stays = Answer::Refused("it has left, and does not run elsewhere".to_owned());
        let moving = std::mem::take(&mut self.moving).into_iter();
        actions.extend(moving.map(|who| Action::Answer(who, stays.clone())));
        let leaving = self.leaving.take().into_iter();
        for who in leaving.flat_map(|leaving| leaving.for_whom) {
            actions.push(Action::Answer(who, answer.clone()));
        }
        actions.push(Action::Leave(leave));
    }

    fn asked(&mut self, who: Who, command: Command, now: Duration, actions: &mut Vec<Action>) {
        let waits = self.goes_back || matches!(self.state, State::Starting | State::Restarting);
        let refuse = |reason: &str| Action::Answer(who, Answer::Refused(reason.to_owned()));
        let done = Action::Answer(who, Answer::Done);
        match command {
            Command::Suspend | Command::Continue | Command::Checkpoint | Command::GoBack
                if self.leaving.is_some() =>
            {
                actions.push(refuse("the job is leaving"));
            }
            Command::Suspend | Command::Continue | Command::Checkpoint | Command::GoBack
                if waits =>
            {
                self.waiting.push((who, command));
            }
            Command::Suspend => {
                if !self.suspended {
                    (self.suspended, self.may_stand) = (true, true);
                    actions.push(Action::Stop);
                    self.stands_as_asked(now);
                }
                actions.push(done);
            }
            Command::Continue => {
                if self.suspended || self.stopped {
                    (self.suspended, self.stopped) = (false, false);
                    actions.push(Action::Go);
                    self.stands_as_asked(now);
                } else if self.may_stand || who != Who::NOBODY {
                    // It may stand still without our knowing.
                    actions.push(Action::Go);
                }
                actions.push(done);
            }
            Command::Checkpoint if self.making.is_some() => self.wanted.push(who),
            Command::Checkpoint => self.checkpoint(vec![who], now, actions),
            Command::Abort => self.abort(who, actions),
            Command::GoBack if !self.image => {
                actions.push(refuse("there is no image of the job yet"));
            }
            Command::GoBack => {
                self.goes_back = true;
                if self.making.is_some() {
                    actions.push(Action::AbandonCheckpoint);
                }
                self.kill_within(now);
                actions.extend([Action::Kill, done]);
            }
            leaving => self.asked_to_leave(who, leaving, now, actions),
        }
    }

    fn stands_as_asked(&mut self, now: Duration) {
        match self.state {
            State::Checkpointing => self.enter(State::Checkpointing, now),
            _ => self.rest(now),
        }
    }

    fn time(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let passed = |moment: Option<Duration>| moment.is_some_and(|moment| moment <= now);
        if passed(self.kill_again_at) {
            self.kill_again_at = Some(now + self.policy.killing_timeout);
            actions.push(Action::KillAll);
        }
        if passed(self.begins_at) {
            self.begins_at = None;
            actions.push(self.beginning().1);
        }
        let Some(leaving) = &mut self.leaving else {
            let is_due = self.due.is_some_and(|due| due <= self.work(now));
            if self.state == State::Running && self.making.is_none() && is_due {
                self.checkpoint(vec![], now, actions);
            }
            return;
        };
        if self.state == State::Killing {
            return;
        }
        if passed(leaving.until) {
            self.kill(now, actions);
        } else if passed(leaving.again_at) && self.making.is_none() {
            leaving.again_at = None;
            self.checkpoint(vec![], now, actions);
        }
    }
}

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGTERM: i32 = 15;
/// What somebody else kills with: the kernel for want of memory, a batch system, a person.
const SIGKILL: i32 = 9;

fn held(reason: String) -> Leave {
    Leave::Held(Hold::new(reason, Hold::NOT_STARTED))
}
