//! Draining and shutting down: what all slots do together.

use super::words::{Activity, Drain, Moment, Order, Place, Shutdown, State};
use super::{Draining, Machine, Slot};
use classad::Expr;
use std::sync::Arc;

impl Machine {
    /// The longest retirement that a job has left, while all drain gracefully.
    pub(super) fn longest_retirement(&self, now: Moment) -> Option<i64> {
        if !self
            .common
            .draining
            .as_ref()
            .is_some_and(|draining| draining.how == Drain::Graceful)
        {
            return None;
        }
        let left = (0..self.slots.len()).map(|index| {
            let mut slot = self.slots[index].clone();
            slot.retirement_left(&self.common.world_of(index, &self.slots, now))
        });
        left.max()
    }

    pub(super) fn drain(
        &mut self,
        how: Drain,
        resumes: bool,
        start: Option<Arc<Expr>>,
        now: Moment,
        orders: &mut Vec<Order>,
    ) {
        let drains = self
            .slots
            .first()
            .is_some_and(|slot| slot.policy.rules.drains);
        if !drains || self.common.draining.is_some() {
            return;
        }
        self.common.draining = Some(Draining {
            how,
            resumes,
            is_told: false,
            // Only those who may retire leave time for others.
            admits: start.filter(|_| how == Drain::Graceful),
        });
        self.everywhere(now, orders, |slot, world| match how {
            Drain::Graceful => slot.retire_for_now("draining", world),
            Drain::Quick => slot.end_at_once("draining", false, world),
            Drain::Fast => slot.kill("draining", world),
        });
        self.everywhere(now, orders, Slot::evaluate);
    }

    /// Draining goes on by itself: when all are drained, it is over, or stays as it is.
    pub(super) fn drain_on(&mut self, now: Moment, orders: &mut Vec<Order>) {
        if self.common.draining.is_none() {
            return;
        }
        let retires = self.slots.iter().any(Slot::has_retiring);
        if let Some(draining) = &mut self.common.draining
            && draining.admits.is_some()
            && !retires
        {
            draining.admits = None;
            self.everywhere(now, orders, Slot::end_filler);
            self.everywhere(now, orders, Slot::evaluate);
        }
        self.everywhere(now, orders, |slot, world| {
            if matches!(
                slot.place.state,
                State::Owner | State::Unclaimed | State::Drained
            ) {
                slot.evaluate(world);
            }
        });
        self.give_back(orders);
        let drained = Place::of(State::Drained, Activity::Idle);
        let all = self.slots.iter().all(|slot| slot.place == drained);
        let Some(draining) = self
            .common
            .draining
            .as_mut()
            .filter(|draining| all && !draining.is_told)
        else {
            return;
        };
        draining.is_told = true;
        let resumes = draining.resumes;
        orders.push(Order::Drained { resumes });
        if resumes {
            self.common.draining = None;
            self.everywhere(now, orders, Slot::evaluate);
        }
    }

    pub(super) fn shut_down(&mut self, how: Shutdown, now: Moment, orders: &mut Vec<Order>) {
        // It may become faster, not slower.
        if self.common.shutdown.is_some_and(|before| before >= how) {
            return;
        }
        self.common.shutdown = Some(how);
        self.everywhere(now, orders, |slot, world| {
            slot.refuse_all(world);
            match how {
                Shutdown::Peaceful => {
                    slot.peacefully();
                    slot.retire("the machine is shut down", world);
                }
                Shutdown::Graceful => slot.retire("the machine is shut down", world),
                Shutdown::Fast => slot.kill("the machine is shut down", world),
            }
        });
        self.everywhere(now, orders, Slot::evaluate);
    }

    pub(super) fn end_shutdown(&mut self, orders: &mut Vec<Order>) {
        let busy = |slot: &Slot| match slot.place.state {
            State::Claimed | State::Preempting => true,
            State::Backfill => slot.place.activity != Activity::Idle || slot.backfill_asked,
            _ => false,
        };
        if self.common.shutdown.is_some() && !self.is_shut_down && !self.slots.iter().any(busy) {
            self.is_shut_down = true;
            orders.push(Order::ShutDown);
        }
    }
}
