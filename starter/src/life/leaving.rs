//! How a job leaves the machine: with a new image, with the last, or without.

use super::{Action, Answer, Command, End, Hold, Leave, Life, State, Who};
use std::time::Duration;

/// A job that is to leave.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    pub(super) to: To,
    /// When it leaves without an image.
    pub(super) until: Option<Duration>,
    /// It is tried again if no image can be made.
    insists: bool,
    pub(super) for_whom: Vec<Who>,
    /// When the next attempt is made.
    pub(super) again_at: Option<Duration>,
    pause: Duration,
}

/// The shortest time before the next attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum To {
    Elsewhere,
    Idle,
    Held(Hold),
    Removed,
}

impl To {
    pub(super) fn leave(&self) -> Leave {
        match self {
            // Without an image, it cannot go on at once.
            To::Elsewhere | To::Idle => Leave::Vacated,
            To::Held(hold) => Leave::Held(hold.clone()),
            To::Removed => Leave::Killed,
        }
    }

    fn strength(&self) -> u8 {
        match self {
            To::Elsewhere => 0,
            To::Idle => 1,
            To::Held(_) => 2,
            To::Removed => 3,
        }
    }
}

impl Life {
    pub(super) fn asked_to_leave(
        &mut self,
        who: Who,
        command: Command,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let mut at_once = false;
        let (to, within, insists) = match command {
            Command::VacateLatest { at_any_price } => {
                if !at_any_price && !self.image {
                    let reason = "there is no image of the job yet".to_owned();
                    actions.push(Action::Answer(who, Answer::Refused(reason)));
                    return;
                }
                at_once = true;
                (To::Idle, None, false)
            }
            Command::Vacate { within, insists } => (To::Idle, within, insists),
            Command::Migrate { .. } => (To::Elsewhere, None, false),
            Command::Hold { hold, insists } => (To::Held(hold), None, insists),
            Command::Kill => {
                at_once = true;
                (To::Removed, None, false)
            }
            Command::Suspend
            | Command::Continue
            | Command::Checkpoint
            | Command::Abort
            | Command::GoBack => return,
        };
        let until = within.map(|within| now + within);
        let before = self.leaving.take();
        let was_leaving = before.is_some();
        let mut leaving = before.unwrap_or(Leaving {
            to: to.clone(),
            until: None,
            insists: false,
            for_whom: vec![],
            again_at: None,
            pause: FIRST_PAUSE,
        });
        if to.strength() > leaving.to.strength() {
            leaving.to = to;
        }
        leaving.until = [leaving.until, until].into_iter().flatten().min();
        leaving.insists |= insists;
        leaving.for_whom.push(who);
        let goes_elsewhere = leaving.to == To::Elsewhere;
        self.leaving = Some(leaving);
        if self.state == State::Killing {
            return;
        }
        if self.begins_at.is_some() && !goes_elsewhere {
            // There is no copy that could leave.
            self.begins_at = None;
            self.ended(End::Gone, now, actions);
        } else if at_once {
            self.kill(now, actions);
        } else if !was_leaving && !matches!(self.state, State::Starting | State::Restarting) {
            self.vacate(now, actions);
        }
    }

    /// Begins the checkpoint with which it leaves, as soon as no other is being made.
    pub(super) fn vacate(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.making.is_some() {
            self.enter(State::Vacating, now);
        } else {
            self.checkpoint(vec![], now, actions);
        }
    }

    /// No image could be made: it is tried again, or the job stays.
    pub(super) fn not_vacated(&mut self, reason: String, now: Duration, actions: &mut Vec<Action>) {
        let Some(mut leaving) = self.leaving.take() else {
            return;
        };
        if leaving.insists || leaving.until.is_some() {
            leaving.again_at = Some(now + leaving.pause);
            leaving.pause = (2 * leaving.pause).min(LONGEST_PAUSE);
            self.leaving = Some(leaving);
            self.let_work(now, actions);
            return;
        }
        for who in leaving.for_whom {
            actions.push(Action::Answer(who, Answer::Refused(reason.clone())));
        }
        self.rest(now);
        self.make_wanted(now, actions);
    }

    /// What keeps a job from leaving goes away only while it works: one that stands still would do so for ever.
    fn let_work(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.suspended || self.stopped {
            (self.suspended, self.stopped) = (false, false);
            self.enter(State::Vacating, now);
            actions.push(Action::Go);
        }
    }

    /// Ends this copy without a new image.
    pub(super) fn kill(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.making.is_some() {
            actions.push(Action::AbandonCheckpoint);
        }
        self.kill_within(now);
        actions.push(Action::Kill);
    }

    /// It is to be gone after a while.
    pub(super) fn kill_within(&mut self, now: Duration) {
        self.enter(State::Killing, now);
        self.kill_again_at = Some(now + self.policy.killing_timeout);
    }
}
