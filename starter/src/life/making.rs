//! How an image comes to be, or not.

use super::{Action, Answer, FIRST_PAUSE, LONGEST_PAUSE, Life, State, Who};
use std::time::Duration;

/// A checkpoint that is being made.
#[derive(Clone, Debug)]
pub(super) struct Making {
    leaves: bool,
    for_whom: Vec<Who>,
    /// Who wants it to be given up.
    against: Vec<Who>,
}

impl Life {
    pub(super) fn checkpoint(
        &mut self,
        for_whom: Vec<Who>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let leaves = self.leaving.is_some();
        self.making = Some(Making {
            leaves,
            for_whom,
            against: vec![],
        });
        let state = if leaves {
            State::Vacating
        } else {
            State::Checkpointing
        };
        self.enter(state, now);
        actions.push(Action::Checkpoint { leaves });
    }

    pub(super) fn checkpointed(
        &mut self,
        made: Result<(), String>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some(making) = self.making.take() else {
            return;
        };
        let is_aborted = made.is_err() && !making.against.is_empty();
        let late = Answer::Refused("the image had been made already".to_owned());
        let aborted = if is_aborted { Answer::Done } else { late };
        let against = making.against.into_iter();
        actions.extend(against.map(|who| Action::Answer(who, aborted.clone())));
        let pause = match &made {
            Ok(()) => {
                self.image = true;
                (self.refused_in_a_row, self.restarts_from_this) = (0, 0);
                self.policy.every.unwrap_or_default()
            }
            // Whoever does not want it does not want it a second later.
            Err(_) if is_aborted => self.policy.every.unwrap_or_default(),
            Err(_) => self.pause(),
        };
        self.due = self.policy.every.map(|_| self.work(now) + pause);
        let answer = match &made {
            Ok(()) => Answer::Done,
            Err(reason) => Answer::Refused(reason.clone()),
        };
        for who in making.for_whom {
            actions.push(Action::Answer(who, answer.clone()));
        }
        if let Some(end) = self.met.take() {
            return self.ended(end, now, actions);
        }
        match self.state {
            State::Vacating if !making.leaves => self.checkpoint(vec![], now, actions),
            State::Vacating => match made {
                // The checkpoint has killed it.
                Ok(()) => self.kill_within(now),
                Err(reason) => self.not_vacated(reason, now, actions),
            },
            State::Checkpointing => {
                self.rest(now);
                self.make_wanted(now, actions);
            }
            _ => {}
        }
    }

    /// Somebody does not want the image that is being made.
    pub(super) fn abort(&mut self, who: Who, actions: &mut Vec<Action>) {
        let Some(making) = &mut self.making else {
            let reason = "no image of the job is being made".to_owned();
            return actions.push(Action::Answer(who, Answer::Refused(reason)));
        };
        making.against.push(who);
        actions.push(Action::AbortCheckpoint);
    }

    /// Begins the checkpoint that was asked for meanwhile.
    pub(super) fn make_wanted(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if !self.wanted.is_empty() {
            let wanted = std::mem::take(&mut self.wanted);
            self.checkpoint(wanted, now, actions);
        }
    }

    /// How long to wait after one more refusal.
    fn pause(&mut self) -> Duration {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.refused_in_a_row.min(16));
        self.refused_in_a_row += 1;
        let most = self.policy.every.unwrap_or(LONGEST_PAUSE);
        doubled.min(most.max(FIRST_PAUSE)).min(LONGEST_PAUSE)
    }
}
