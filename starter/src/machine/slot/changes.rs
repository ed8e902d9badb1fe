//! From place to place: the one door.

use super::super::transitions::Transition;
use super::super::words::{Activity, Change, Order, Place, State};
use super::{Slot, World};
use std::sync::Arc;

/// How often a slot may change its place at one moment: expressions that depend on the place may say yes and no for ever.
const MOST_CHANGES: u32 = 12;

impl Slot {
    /// A new moment, or a new event.
    pub(in super::super) fn begin_step(&mut self) {
        self.changes_now = 0;
        self.is_fresh = false;
    }

    /// Goes to another place, and does what leaving and entering mean. Whether it did: there must be a row for it, and it must not be
    /// one change too many.
    pub(super) fn go(&mut self, to: Place, reason: &'static str, world: &mut World<'_>) -> bool {
        let from = self.place;
        let Some(transition) = Transition::between(from, to) else {
            debug_assert!(false, "no transition from {from} to {to}");
            return false;
        };
        if self.changes_now >= MOST_CHANGES {
            return false;
        }
        self.changes_now += 1;
        self.count(world.now);
        if from.state != to.state {
            self.entered_state = world.now;
        }
        self.was_benchmarking = from.activity == Activity::Benchmarking;
        self.entered_activity = world.now;
        self.place = to;
        self.is_fresh = false;
        world.orders.push(Order::Changed(Change {
            slot: self.id,
            at: world.now,
            transition,
            from,
            to,
            reason,
        }));
        self.leave(from, world);
        self.enter(from, world);
        true
    }

    /// Counts the time at this place.
    fn count(&mut self, now: i64) {
        let here = now - self.entered_activity;
        *self.spent.entry(self.place).or_default() += here;
        let (works, stands) = (
            self.place.works(),
            self.place.activity == Activity::Suspended,
        );
        if let Some(claim) = &mut self.claim {
            claim.count(here, works, stands);
        }
    }

    fn leave(&mut self, from: Place, world: &mut World<'_>) {
        match (from.state, from.activity) {
            // Whoever stands still can neither make an image nor leave.
            (State::Claimed, Activity::Suspended) => {
                self.held_still = false;
                if self.is_active() {
                    world.orders.push(Order::Continue(self.id));
                }
            }
            (State::Matched, _) => self.matched = None,
            (State::Backfill, _) => self.backfill_asked = false,
            (State::Preempting, _) => (self.vacates_until, self.kill_again_at) = (None, None),
            _ => {}
        }
    }

    fn enter(&mut self, from: Place, world: &mut World<'_>) {
        match (self.place.state, self.place.activity) {
            (State::Owner, _) => {
                self.end_claim(world);
                self.refuse_waiting("the slot is its owner's", world);
                (self.matched, self.evicts) = (None, false);
            }
            (State::Unclaimed, Activity::Benchmarking) => {
                world.orders.push(Order::Benchmark(self.id));
            }
            (State::Claimed, Activity::Idle) if from.state != State::Claimed => {
                self.end_claim(world);
                self.accept(world);
            }
            (State::Claimed, Activity::Suspended) => world.orders.push(Order::Suspend(self.id)),
            (State::Preempting, Activity::Vacating) if self.is_active() => {
                let limit = self.policy.rules.limits_vacating;
                let within = limit.then(|| self.vacate_time(world));
                self.vacates_until = within.map(|within| world.now.saturating_add(within));
                self.hold(world);
                world.orders.push(Order::Vacate {
                    slot: self.id,
                    within,
                });
            }
            (State::Preempting, Activity::Killing) if self.is_active() => {
                self.vacates_until = None;
                self.hold(world);
                self.kill_again_at = Some(world.now.saturating_add(self.policy.killing_timeout));
                world.orders.push(Order::Kill(self.id));
            }
            (State::Preempting, _) => self.leave_preempting(world),
            (State::Backfill, Activity::Killing) => world.orders.push(Order::KillBackfill(self.id)),
            _ => {}
        }
    }

    /// The job that has to leave is held, if WANT_HOLD says so.
    fn hold(&mut self, world: &mut World<'_>) {
        let Some((reason, subcode)) = self.hold_reason(world) else {
            return;
        };
        if let Some(claim) = &mut self.claim {
            claim.held = true;
        }
        world.orders.push(Order::Hold {
            slot: self.id,
            reason,
            subcode,
        });
    }

    /// Who waited has the slot now.
    fn accept(&mut self, world: &mut World<'_>) {
        let Some(mut claim) = self.waiting.take() else {
            return;
        };
        claim.since = world.now;
        claim.is_filler = world.draining;
        claim.lease_ends = self.lease_ends(&claim, world);
        let (slot, id) = (self.id, claim.id);
        self.claim = Some(claim);
        self.is_fresh = false;
        world.orders.push(Order::Accepted { slot, claim: id });
    }

    /// Nobody has the slot any more.
    fn end_claim(&mut self, world: &mut World<'_>) {
        if let Some(claim) = self.claim.take() {
            self.is_fresh = false;
            world.orders.push(Order::ClaimOver {
                slot: self.id,
                claim: claim.id,
            });
        }
    }

    pub(super) fn refuse_waiting(&mut self, reason: &'static str, world: &mut World<'_>) {
        if let Some(claim) = self.waiting.take() {
            self.is_fresh = false;
            world.orders.push(Order::Refused {
                slot: self.id,
                claim: claim.id,
                reason,
            });
        }
    }

    /// Nothing is left of the job: to who waits, if START lets him, or to the owner.
    pub(super) fn leave_preempting(&mut self, world: &mut World<'_>) {
        let job = self
            .waiting
            .as_ref()
            .map(|waiting| Arc::clone(&waiting.job));
        let wanted = job.is_some_and(|job| {
            !world.is_closed() && self.starts(&job, world) != super::Verdict::False
        });
        match wanted {
            true => self.go(
                Place::of(State::Claimed, Activity::Idle),
                "the job is gone",
                world,
            ),
            false => self.go(
                Place::of(State::Owner, Activity::Idle),
                "the job is gone",
                world,
            ),
        };
    }

    /// Asks for an image of the job, which goes on.
    pub(super) fn checkpoint(&mut self, world: &mut World<'_>) {
        let active = self.claim.as_mut().and_then(|claim| claim.active.as_mut());
        if let Some(active) = active {
            active.last_image = world.now;
            self.is_fresh = false;
            world.orders.push(Order::Checkpoint(self.id));
        }
    }
}
