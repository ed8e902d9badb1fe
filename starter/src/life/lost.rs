//! What is lost on the way: the line to the machine where the job runs, an image.

use super::{Action, End, Life, Remains, State};
use std::time::Duration;

/// How long a line may be dead before that is noticed.
const DEAD_UNNOTICED: Duration = Duration::from_secs(120);
/// How a start ends whose image cannot be used.
const NOT_USABLE: i32 = 4;

impl Life {
    /// The line to its machine is cut.
    pub(super) fn cut(&mut self, now: Duration) {
        self.is_cut = true;
        self.cut_at = now;
        if matches!(self.state, State::Running | State::Suspended) {
            self.rest(now);
        }
    }

    /// There is a line again.
    pub(super) fn joined(&mut self, now: Duration, actions: &mut Vec<Action>) {
        self.is_cut = false;
        // What was said last may have been lost with the line.
        let is_lost = |said: Duration| said + DEAD_UNNOTICED >= self.cut_at;
        match self.state {
            State::Killing => actions.push(Action::Kill),
            _ if !self.told_at.is_some_and(is_lost) => {}
            _ if self.suspended => actions.push(Action::Stop),
            _ => actions.push(Action::Go),
        }
        if self.state == State::Reconnecting {
            self.rest(now);
        }
    }

    /// It was to go on from an image that cannot be used.
    pub(super) fn refused(&mut self, remains: Remains, now: Duration, actions: &mut Vec<Action>) {
        let begins_again = remains == Remains::Nothing && self.outset == Some(true);
        if self.state != State::Restarting || !begins_again && remains != Remains::Older {
            return self.ended(End::NotBegun(NOT_USABLE), now, actions);
        }
        if begins_again {
            self.image = false;
        }
        let (state, action) = self.beginning();
        self.enter(state, now);
        actions.push(action);
    }
}
