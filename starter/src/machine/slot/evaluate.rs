//! What the policy says of where a slot is: the questions, in the original's order.
//!
//! ```text
//! Owner      draining? 36   IsOwner FALSE? 1
//! Unclaimed  draining? 37   IsOwner TRUE? 2   RunBenchmarks? 3   START_BACKFILL? 7
//! Matched    START locally FALSE? 8
//! Claimed    retirement over? 10 17 18   PREEMPT? 13 16   nobody waits any more? 19   SUSPEND? 14 20   CONTINUE? 15 16
//!            somebody waits? 13 10   START FALSE, worn out, draining, while Idle? 10   PERIODIC_CHECKPOINT?
//! Preempting KILL? 21
//! Backfill   EVICT_BACKFILL? 28 30   while Idle: start it
//! Drained    not draining? 34 35   all drained? 33
//! ```

use super::super::words::{Activity, Order, Place, State};
use super::{Kind, Slot, Verdict, World};

/// What follows from a look at the policy.
pub(super) enum Next {
    /// It stays.
    Stay,
    /// It goes to another place, which has questions of its own.
    Go,
}

impl Slot {
    /// Looks at the policy until it has nothing more to say.
    pub(in super::super) fn evaluate(&mut self, world: &mut World<'_>) {
        while let Next::Go = self.evaluate_once(world) {
            // Backfill is looked at again at the next poll: its command is not begun twice at once.
            if self.is_gone || self.place.state == State::Backfill && self.backfill_asked {
                return;
            }
        }
    }

    fn evaluate_once(&mut self, world: &mut World<'_>) -> Next {
        match self.place.state {
            State::Owner => self.evaluate_owner(world),
            State::Unclaimed => self.evaluate_unclaimed(world),
            State::Matched => match self.starts_locally(world) {
                Verdict::False => self.goes(State::Owner, Activity::Idle, "START is FALSE", world),
                _ => Next::Stay,
            },
            State::Claimed => self.evaluate_claimed(world),
            State::Preempting => self.evaluate_preempting(world),
            State::Backfill => self.evaluate_backfill(world),
            State::Drained => self.evaluate_drained(world),
        }
    }

    fn goes(
        &mut self,
        state: State,
        activity: Activity,
        reason: &'static str,
        world: &mut World<'_>,
    ) -> Next {
        match self.go(Place::of(state, activity), reason, world) {
            true => Next::Go,
            false => Next::Stay,
        }
    }

    fn evaluate_owner(&mut self, world: &mut World<'_>) -> Next {
        if self.kind == Kind::Dynamic {
            self.is_gone = true;
            return Next::Go;
        }
        if world.is_drained_out() {
            return self.goes(State::Drained, Activity::Retiring, "draining", world);
        }
        if !self.is_owner(world) {
            return self.goes(State::Unclaimed, Activity::Idle, "IS_OWNER is FALSE", world);
        }
        Next::Stay
    }

    fn evaluate_unclaimed(&mut self, world: &mut World<'_>) -> Next {
        if self.kind == Kind::Dynamic {
            self.is_gone = true;
            return Next::Go;
        }
        if world.is_drained_out() {
            return self.goes(State::Drained, Activity::Retiring, "draining", world);
        }
        if self.is_owner(world) {
            return self.goes(State::Owner, Activity::Idle, "IS_OWNER is TRUE", world);
        }
        if self.place.activity != Activity::Idle || world.shutdown.is_some() {
            return Next::Stay;
        }
        // Whatever RunBenchmarks says, not one set at the moment when another is done.
        let is_done_now = self.was_benchmarking && self.entered_activity == world.now;
        if !is_done_now && self.ask_machine("RunBenchmarks", world).is_true() {
            return self.goes(
                State::Unclaimed,
                Activity::Benchmarking,
                "RunBenchmarks is TRUE",
                world,
            );
        }
        if self.policy.backfills && self.ask_machine("START_BACKFILL", world).is_true() {
            return self.goes(
                State::Backfill,
                Activity::Idle,
                "START_BACKFILL is TRUE",
                world,
            );
        }
        Next::Stay
    }

    /// Whether the claim is to end: somebody waits, or it may not go on.
    pub(super) fn is_closing(&self, world: &World<'_>) -> bool {
        self.waiting.is_some() || !self.may_unretire(world)
    }

    fn may_unretire(&self, world: &World<'_>) -> bool {
        let claim = self.claim.as_ref();
        let leaves = claim.is_some_and(|claim| claim.leaves);
        let drains = match claim.is_some_and(|claim| claim.is_filler) {
            true => world.is_drained_out(),
            false => world.draining,
        };
        !drains && !leaves && self.waiting.is_none()
    }

    fn evaluate_claimed(&mut self, world: &mut World<'_>) -> Next {
        use Activity as A;
        let activity = self.place.activity;
        if activity != A::Idle {
            self.heed_numbers(world);
        }
        if self.is_closing(world) && activity != A::Busy && self.retirement_is_over(world) {
            self.ask_once_more(world);
            return self.preempt("retirement is over", world);
        }
        if activity == A::Idle {
            return self.evaluate_idle(world);
        }
        let wants_suspend = self.ask("WANT_SUSPEND", world);
        let wants_preempt = match wants_suspend {
            Verdict::True => false,
            Verdict::False => true,
            Verdict::Unknown => self.policy.rules.unknown_preempts,
        };
        let was_true = self.claim.as_ref().is_some_and(|claim| claim.preempted);
        let looks = match activity {
            A::Busy => wants_preempt,
            A::Retiring => wants_preempt && !was_true,
            _ => !was_true,
        };
        if looks && self.ask("PREEMPT", world).is_true() {
            if let Some(claim) = &mut self.claim {
                claim.preempted = true;
                claim.leaves = true;
            }
            if activity == A::Retiring {
                return Next::Go;
            }
            return self.goes(State::Claimed, A::Retiring, "PREEMPT is TRUE", world);
        }
        if activity == A::Retiring {
            if self.may_unretire(world) {
                return self.goes(State::Claimed, A::Busy, "nobody waits any more", world);
            }
        } else if activity == A::Busy && !self.may_unretire(world) {
            let reason = match self.waiting {
                Some(_) => "a better claim waits",
                None => "the claim is to end",
            };
            return self.goes(State::Claimed, A::Retiring, reason, world);
        }
        // A look suspends or continues, whatever both say: the next is a POLLING_INTERVAL later.
        let active = self.claim.as_ref().and_then(|claim| claim.active.as_ref());
        let turns = active.is_some_and(|active| active.turned != Some(world.now));
        let works = matches!(activity, A::Busy | A::Retiring);
        if turns && works && wants_suspend.is_true() && self.ask("SUSPEND", world).is_true() {
            self.note_turn(world);
            return self.goes(State::Claimed, A::Suspended, "SUSPEND is TRUE", world);
        }
        let may_go_on = turns && activity == A::Suspended && !self.held_still;
        if may_go_on && self.ask("CONTINUE", world).is_true() {
            self.note_turn(world);
            let to = match self.is_closing(world) {
                true => A::Retiring,
                false => A::Busy,
            };
            return self.goes(State::Claimed, to, "CONTINUE is TRUE", world);
        }
        if works
            && self.policy.attributes.get("PERIODIC_CHECKPOINT").is_some()
            && self.ask_of_job("PERIODIC_CHECKPOINT", world).is_true()
        {
            self.checkpoint(world);
        }
        Next::Stay
    }

    /// Before a claim leaves whose time is over, PREEMPT is looked at once more: WANT_VACATE and WANT_HOLD have a say then, as in the original.
    fn ask_once_more(&mut self, world: &mut World<'_>) {
        let may_ask = self.policy.rules.holds && self.is_active();
        let claim = self.claim.as_ref();
        let is_open = claim.is_some_and(|claim| !claim.preempted && !claim.is_killed);
        let is_preempted = may_ask && is_open && self.ask("PREEMPT", world).is_true();
        if let Some(claim) = self.claim.as_mut().filter(|_| is_preempted) {
            claim.preempted = true;
            claim.leaves = true;
        }
    }

    fn note_turn(&mut self, world: &World<'_>) {
        let active = self.claim.as_mut().and_then(|claim| claim.active.as_mut());
        if let Some(active) = active {
            active.turned = Some(world.now);
        }
    }

    fn evaluate_idle(&mut self, world: &mut World<'_>) -> Next {
        let job = self
            .claim
            .as_ref()
            .map(|claim| std::sync::Arc::clone(&claim.job));
        if job.is_some_and(|job| self.starts(&job, world) == Verdict::False) {
            return self.preempt("START is FALSE", world);
        }
        if self.is_worn_out(world) {
            return self.preempt("CLAIM_WORKLIFE is over", world);
        }
        Next::Stay
    }

    /// To Preempting, the way that WANT_VACATE says.
    pub(super) fn preempt(&mut self, reason: &'static str, world: &mut World<'_>) -> Next {
        let claim = self.claim.as_ref();
        let asked =
            self.policy.rules.always_asks_vacate || claim.is_some_and(|claim| claim.preempted);
        let activity = if claim.is_some_and(|claim| claim.is_killed) {
            Activity::Killing
        } else if !self.is_active() || !asked || self.ask("WANT_VACATE", world).is_true() {
            Activity::Vacating
        } else {
            Activity::Killing
        };
        self.goes(State::Preempting, activity, reason, world)
    }

    fn evaluate_preempting(&mut self, world: &mut World<'_>) -> Next {
        if self.place.activity == Activity::Vacating {
            if self.claim.as_ref().is_some_and(|claim| claim.is_killed) {
                return self.goes(
                    State::Preempting,
                    Activity::Killing,
                    "it is to be killed",
                    world,
                );
            }
            if self.ask("KILL", world).is_true() {
                return self.goes(State::Preempting, Activity::Killing, "KILL is TRUE", world);
            }
        }
        Next::Stay
    }

    fn evaluate_backfill(&mut self, world: &mut World<'_>) -> Next {
        if self.place.activity == Activity::Killing {
            return Next::Stay;
        }
        if self.ask_machine("EVICT_BACKFILL", world).is_true() {
            self.evicts = true;
        }
        if self.evicts || world.is_closed() {
            return self.leave_backfill(world);
        }
        if self.place.activity == Activity::Idle && !self.backfill_asked {
            self.backfill_asked = true;
            world.orders.push(Order::StartBackfill(self.id));
        }
        Next::Stay
    }

    /// Out of Backfill: at once, or when the command is gone.
    pub(super) fn leave_backfill(&mut self, world: &mut World<'_>) -> Next {
        if self.place.activity == Activity::Busy {
            return self.goes(
                State::Backfill,
                Activity::Killing,
                "backfill is to leave",
                world,
            );
        }
        if self.place.activity == Activity::Killing {
            return Next::Stay;
        }
        // A command that was begun, and has not said that it runs.
        if self.backfill_asked {
            world.orders.push(Order::KillBackfill(self.id));
        }
        let is_wanted = !self.evicts && !world.is_closed();
        if is_wanted && self.waiting.is_some() {
            return self.goes(State::Claimed, Activity::Idle, "it is claimed", world);
        }
        if is_wanted && self.matched.is_some() {
            return self.goes(State::Matched, Activity::Idle, "it is matched", world);
        }
        self.goes(State::Owner, Activity::Idle, "backfill is evicted", world)
    }

    fn evaluate_drained(&mut self, world: &mut World<'_>) -> Next {
        if !world.draining {
            return self.goes(State::Owner, Activity::Idle, "draining is over", world);
        }
        if self.place.activity == Activity::Retiring && world.all_drained {
            return self.goes(
                State::Drained,
                Activity::Idle,
                "every slot is drained",
                world,
            );
        }
        Next::Stay
    }
}
