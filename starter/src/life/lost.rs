//! What is lost on the way: the line to the machine where the job runs, an image.

use super::{Action, End, Life, Remains, State};
use std::time::Duration;

/// How a start ends whose image cannot be used.
const NOT_USABLE: i32 = 4;

impl Life {
    /// The line to its machine is cut.
    pub(super) fn cut(&mut self, now: Duration) {
        self.is_cut = true;
        if matches!(self.state, State::Running | State::Suspended) {
            self.rest(now);
        }
    }

    /// There is a line again.
    pub(super) fn joined(&mut self, now: Duration, actions: &mut Vec<Action>) {
        self.is_cut = false;
        // What was said last may have been lost with the line.
        match (self.suspended, self.may_stand) {
            (true, _) => actions.push(Action::Stop),
            (false, true) => actions.push(Action::Go),
            (false, false) => {}
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
