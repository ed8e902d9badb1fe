//! A machine and its slots: one state machine, without clocks, processes, files or configurations of its own.
//!
//! ```text
//!   settings ──Machine::begin──> slots (division/), policies (policy.rs)
//!
//!   Event: time, what was seen, claims, jobs that are gone, commands
//!      │
//!      v                         every slot, in the order of their numbers
//!   Machine::step ──> timers ──> slot/commands ──> slot/evaluate ──> slot/changes: a row of transitions::TABLE
//!      │                                                                 │
//!      `──< Order: start, suspend, continue, checkpoint, vacate, kill <──'
//! ```
//! The diagram of places and the table are in `transitions.rs`, what changed between the eras of Condor in `dialect.rs`.
//!
//! # What callers may rely on
//! The same events at the same moments give the same orders. A slot changes its place by a row of the table only. A job is started at
//! most once for each [`Event::Activated`], and a slot has one job at most.
//!
//! # What it does not do
//! It reads no clock: [`Machine::step`] is told the moment, and [`Machine::wake_at`] says when it wants to be called though nothing has happened.
//! It matches nobody with anybody: who wants a slot says so. It does not know how a job is suspended, or how an image is made.

mod closing;
mod devices;
mod dialect;
mod division;
mod load;
mod own;
mod part;
mod policy;
mod reconfigure;
mod slot;
#[cfg(test)]
mod tests;
pub mod transitions;
mod why;
mod words;

pub use classad::config::{Dialect, UserMaps};
pub use dialect::{Rules, rules};
pub use division::{Detected, resources_of, settings_of};
pub use policy::{Policy, PolicyError, Settings, draining_start, job_defaults, with_defaults};
pub use slot::{Kind, Refusal, Slot, Verdict, resource_of};
pub use words::{
    Activity, Change, ClaimId, Drain, Event, Moment, Order, Place, Seen, Shutdown, SlotId, State,
};

use classad::{ClassAd, Expr};
use part::Division;
use slot::{Clock, World};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A drain that goes on.
#[derive(Clone, Debug)]
struct Draining {
    how: Drain,
    resumes: bool,
    is_told: bool,
    /// START, while it still takes jobs.
    admits: Option<Arc<Expr>>,
}

/// A machine. See the module.
#[derive(Clone, Debug)]
pub struct Machine {
    slots: Vec<Slot>,
    divisions: BTreeMap<u32, Division>,
    common: Common,
    next_poll: Moment,
    polling_interval: i64,
    update_interval: i64,
    is_shut_down: bool,
}

/// What all slots have in common.
#[derive(Clone, Debug)]
struct Common {
    seen: Seen,
    seen_at: Moment,
    began: Moment,
    utc_offset: i32,
    chance: Cell<u64>,
    draining: Option<Draining>,
    shutdown: Option<Shutdown>,
    claimants_are_here: bool,
    /// What it is called, for the names of its slots.
    name: Option<String>,
    /// For `userMap`.
    users: Arc<UserMaps>,
}

impl Common {
    /// What a slot sees, as far as it is the same for all.
    fn world(&self, now: Moment) -> World<'_> {
        World {
            now,
            clock: self.clock(now),
            load: self.seen.load,
            name: self.name.as_deref(),
            slots: 0,
            part: load::Part::default(),
            job_load: 0.0,
            others: vec![],
            draining: self.draining.is_some(),
            admits: self
                .draining
                .as_ref()
                .and_then(|drain| drain.admits.clone()),
            drain_time: None,
            all_drained: false,
            shutdown: self.shutdown,
            claimants_are_here: self.claimants_are_here,
            orders: vec![],
        }
    }

    fn clock(&self, now: Moment) -> Clock<'_> {
        Clock {
            now,
            utc_offset: self.utc_offset,
            chance: &self.chance,
            users: &self.users,
        }
    }

    /// What one of the slots sees.
    fn world_of(&self, index: usize, slots: &[Slot], now: Moment) -> World<'_> {
        let mut world = self.world(now);
        let parts = load::divide(slots, &self.seen, self.seen_at, self.began, now);
        world.part = parts.get(index).copied().unwrap_or_default();
        world.job_load = parts.iter().fold(0.0, |sum, part| sum + part.job_load);
        world.slots = slots.len();
        world.others = slots.iter().flat_map(Slot::shown).collect();
        world.all_drained = slots.iter().all(|slot| slot.place.state == State::Drained);
        world
    }
}

impl Machine {
    /// The beginning: every slot is its owner's, until the first step.
    ///
    /// # Errors
    /// [`PolicyError`]: a setting that says nothing, or slots that want more than there is.
    pub fn begin(
        settings: &Settings<'_>,
        dialect: Dialect,
        detected: &Detected,
        now: Moment,
    ) -> Result<Self, PolicyError> {
        let mut slots = vec![];
        let mut divisions = BTreeMap::new();
        let mut policies: BTreeMap<Option<u32>, Arc<Policy>> = BTreeMap::new();
        for (planned, number) in division::plan(settings, dialect, detected)?
            .into_iter()
            .zip(1..)
        {
            let slot_type = planned.slot_type;
            let policy = match policies.get(&slot_type) {
                Some(policy) => Arc::clone(policy),
                None => {
                    let policy = Arc::new(Policy::read(settings, dialect, slot_type)?);
                    policies.insert(slot_type, Arc::clone(&policy));
                    policy
                }
            };
            let mut slot = Slot::new(
                SlotId::of(number),
                planned.kind,
                policy.of_slot(settings, number)?,
                planned.resources,
                now,
            );
            slot.devices = planned.devices;
            if planned.kind == Kind::Partitionable {
                divisions.insert(number, Division::read(settings, &slot, slot_type)?);
            }
            slots.push(slot);
        }
        let first = slots.first().map(|slot: &Slot| Arc::clone(&slot.policy));
        let (polling_interval, update_interval) = match first {
            Some(policy) => (policy.polling_interval, policy.update_interval),
            None => (5, 300),
        };
        let mut machine = Machine {
            slots,
            divisions,
            common: Common {
                seen: Seen::default(),
                seen_at: now,
                began: now,
                utc_offset: 0,
                chance: Cell::new(1),
                draining: None,
                shutdown: None,
                claimants_are_here: false,
                name: None,
                users: Arc::default(),
            },
            next_poll: now,
            polling_interval,
            update_interval,
            is_shut_down: false,
        };
        // No benchmark was run yet.
        let mut first = ClassAd::new();
        first.insert("LastBenchmark", Expr::from(0));
        machine.overlay(&first);
        Ok(machine)
    }

    /// With a local clock that is so many seconds ahead of Greenwich's.
    #[must_use]
    pub fn with_utc_offset(mut self, seconds: i32) -> Self {
        self.common.utc_offset = seconds;
        self
    }

    /// The local clock is so many seconds ahead of Greenwich's now.
    pub fn set_utc_offset(&mut self, seconds: i32) {
        self.common.utc_offset = seconds;
    }

    /// Whoever claims its slots is who keeps this machine: claims have no lease, which a clock that was set or a computer that slept
    /// would end.
    #[must_use]
    pub fn with_claimants_here(mut self) -> Self {
        self.common.claimants_are_here = true;
        self
    }

    /// Of this name: its slots are called `slot1@NAME`.
    #[must_use]
    pub fn with_name(mut self, name: String) -> Self {
        self.common.name = Some(name);
        self
    }

    /// With these maps of users, for `userMap()`.
    #[must_use]
    pub fn with_users(mut self, users: UserMaps) -> Self {
        self.set_users(users);
        self
    }

    /// Other maps of users from now on.
    pub fn set_users(&mut self, users: UserMaps) {
        self.common.users = Arc::new(users);
    }

    /// With other chances than usual, for `random()`.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.common.chance.set(seed.max(1));
        self
    }

    /// What the owner of the machine may not have meant.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts: Vec<String> = vec![];
        for doubt in self.slots.iter().flat_map(|slot| &slot.policy.doubts) {
            if !doubts.contains(doubt) {
                doubts.push(doubt.clone());
            }
        }
        doubts
    }

    /// Its slots.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// A slot.
    pub fn slot(&self, id: SlotId) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.id == id)
    }

    /// Whether it is being drained.
    pub fn is_draining(&self) -> bool {
        self.common.draining.is_some()
    }

    /// Whether jobs may begin: it is neither shut down nor drained, or is drained and has a START for that.
    pub fn takes_jobs(&self) -> bool {
        let drains = self.common.draining.as_ref();
        self.common.shutdown.is_none() && drains.is_none_or(|drain| drain.admits.is_some())
    }

    /// Whether all jobs are gone after a shutdown.
    pub fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }

    /// When it wants to be called though nothing has happened: something is due, or it is time to look at the machine again.
    pub fn wake_at(&self) -> Moment {
        let due = self.slots.iter().filter_map(Slot::due).min();
        due.map_or(self.next_poll, |due| due.min(self.next_poll))
    }

    /// Whether the machine is to be looked at ([`Event::Seen`]) before the next step.
    pub fn wants_to_see(&self, now: Moment) -> bool {
        // A clock that was set back does not make it blind for as long.
        let longest = self.polling_interval.max(self.update_interval);
        self.next_poll <= now || self.next_poll > now.saturating_add(longest)
    }

    /// A slot's ad as it is published, with `Requirements`.
    pub fn ad(&self, id: SlotId, now: Moment) -> Option<ClassAd> {
        self.ask(id, now, |slot, world| {
            slot.refresh(world);
            slot.published(world)
        })
    }

    /// How much the machine wants a job in a slot: its RANK.
    pub fn rank(&self, id: SlotId, job: &Arc<ClassAd>, now: Moment) -> Option<f64> {
        self.ask(id, now, |slot, world| slot.rank(job, world))
    }

    /// Whether machine and job accept each other: START and the platform, and the job's `Requirements`.
    pub fn suits(&self, id: SlotId, job: &Arc<ClassAd>, now: Moment) -> bool {
        self.slot(id).is_some() && self.refusal(id, job, now).is_none()
    }

    /// Who of the two does not accept the other, if one does not; the machine is asked first.
    pub fn refusal(&self, id: SlotId, job: &Arc<ClassAd>, now: Moment) -> Option<Refusal> {
        let refusal = self.ask(id, now, |slot, world| slot.refusal(job, world))?;
        refusal.or_else(|| self.lack_of_part(id, job, now))
    }

    /// Warnings of what START says of a job that no slot is for, where it says nothing: neither TRUE nor FALSE.
    pub fn doubts_of_start(&mut self, job: &Arc<ClassAd>, now: Moment) -> Vec<Order> {
        let mut orders = vec![];
        self.everywhere(now, &mut orders, |slot, world| {
            if slot.id.part.is_none() {
                slot.heed_start(job, world);
            }
        });
        orders
    }

    /// How often who has a slot says that he is there ([`Event::Alive`]), in seconds.
    pub fn alive_interval(&self, id: SlotId, now: Moment) -> Option<i64> {
        self.ask(id, now, |slot, world| slot.alive_interval(world))?
    }

    fn ask<T>(
        &self,
        id: SlotId,
        now: Moment,
        what: impl FnOnce(&mut Slot, &World<'_>) -> T,
    ) -> Option<T> {
        let index = self.slots.iter().position(|slot| slot.id == id)?;
        let mut slot = self.slots[index].clone();
        slot.begin_step();
        Some(what(
            &mut slot,
            &self.common.world_of(index, &self.slots, now),
        ))
    }

    /// What follows from what has happened at a moment.
    pub fn step(&mut self, event: Event, now: Moment) -> Vec<Order> {
        let mut orders = vec![];
        let mut polls = self.wants_to_see(now);
        for slot in &mut self.slots {
            slot.begin_step();
        }
        // Whoever says now that he is there has been there until now.
        if let Event::Alive { slot } = event {
            self.at(slot, now, &mut orders, |slot, world| slot.alive(world));
        }
        for index in 0..self.slots.len() {
            self.with(index, now, &mut orders, Slot::timers);
        }
        match event {
            Event::Time | Event::Alive { .. } => {}
            Event::Seen(seen) => {
                polls = true;
                self.overlay(&seen.attributes);
                (self.common.seen, self.common.seen_at) = (seen, now);
            }
            other => self.apply(other, now, &mut orders),
        }
        self.settle(polls, now, &mut orders);
        if polls {
            let often = self.slots.iter().any(Slot::needs_polling);
            self.next_poll = now.saturating_add(if often {
                self.polling_interval
            } else {
                self.update_interval
            });
        } else if self.slots.iter().any(Slot::needs_polling) {
            self.next_poll = self
                .next_poll
                .min(now.saturating_add(self.polling_interval));
        }
        orders
    }

    /// Looks at the policies: of all slots where it is time to, of those that something happened to in any case.
    fn settle(&mut self, polls: bool, now: Moment, orders: &mut Vec<Order>) {
        let mut from = 0;
        let mut first = true;
        // Whoever was to have a part may not have taken it.
        self.give_back(orders);
        // Whatever a slot does, others may have to say something about.
        for _ in 0..4 {
            let mut touched: Vec<SlotId> = orders[from..].iter().filter_map(changed).collect();
            if first && polls {
                touched = self.slots.iter().map(|slot| slot.id).collect();
            }
            first = false;
            if touched.is_empty() && self.is_quiet() {
                break;
            }
            from = orders.len();
            for id in touched {
                if let Some(index) = self.slots.iter().position(|slot| slot.id == id) {
                    self.with(index, now, orders, Slot::evaluate);
                }
            }
            self.give_back(orders);
            self.drain_on(now, orders);
        }
        self.end_shutdown(orders);
    }

    fn is_quiet(&self) -> bool {
        self.common.draining.is_none() && self.common.shutdown.is_none()
    }

    /// Does something with a slot.
    fn with(
        &mut self,
        index: usize,
        now: Moment,
        orders: &mut Vec<Order>,
        what: impl FnOnce(&mut Slot, &mut World<'_>),
    ) {
        let longest = self.longest_retirement(now);
        if index >= self.slots.len() {
            return;
        }
        let mut world = self.common.world_of(index, &self.slots, now);
        world.drain_time = longest;
        what(&mut self.slots[index], &mut world);
        orders.append(&mut world.orders);
    }

    fn overlay(&mut self, attributes: &ClassAd) {
        for slot in &mut self.slots {
            slot.overlay(attributes);
        }
    }

    fn at(
        &mut self,
        id: SlotId,
        now: Moment,
        orders: &mut Vec<Order>,
        what: impl FnOnce(&mut Slot, &mut World<'_>),
    ) -> bool {
        let Some(index) = self.slots.iter().position(|slot| slot.id == id) else {
            return false;
        };
        self.with(index, now, orders, what);
        true
    }

    fn everywhere(
        &mut self,
        now: Moment,
        orders: &mut Vec<Order>,
        what: impl Fn(&mut Slot, &mut World<'_>),
    ) {
        for index in 0..self.slots.len() {
            self.with(index, now, orders, &what);
        }
    }

    fn apply(&mut self, event: Event, now: Moment, orders: &mut Vec<Order>) {
        let refuse = |slot, claim, orders: &mut Vec<Order>| {
            let reason = "there is no such slot";
            orders.push(Order::Refused {
                slot,
                claim,
                reason,
            });
        };
        match event {
            Event::Time | Event::Seen(_) | Event::Alive { .. } => {}
            Event::Matched { slot, claim } => {
                if !self.at(slot, now, orders, |slot, world| slot.matched(claim, world)) {
                    refuse(slot, claim, orders);
                }
            }
            Event::Claimed { slot, claim, job } => {
                let id = match self.part_for(slot, claim, &job, now, orders) {
                    Ok(id) => id,
                    Err(()) => return,
                };
                if !self.at(id, now, orders, |slot, world| {
                    slot.claimed(claim, job, world)
                }) {
                    refuse(slot, claim, orders);
                }
                // A part that was not claimed after all goes back.
                if id.part.is_some() {
                    self.at(id, now, orders, |slot, world| {
                        if slot.place.state == State::Unclaimed {
                            slot.evaluate(world);
                        }
                    });
                }
            }
            Event::Withdrawn { slot, claim } => {
                self.at(slot, now, orders, |slot, world| {
                    slot.withdrawn(claim, world)
                });
                self.at(slot, now, orders, Slot::evaluate);
            }
            Event::Activated { slot, job } => {
                if !self.at(slot, now, orders, |slot, world| slot.activated(job, world)) {
                    let reason = "there is no such slot";
                    orders.push(Order::NotStarted { slot, reason });
                }
            }
            Event::Released { slot } => {
                self.at(slot, now, orders, Slot::released);
            }
            Event::JobChanged { slot, job } => {
                self.at(slot, now, orders, |slot, _| slot.job_changed(job));
            }
            Event::Imaged { slot, size_kib } => {
                self.at(slot, now, orders, |slot, _| slot.imaged(size_kib));
            }
            Event::Ended { slot } => {
                self.at(slot, now, orders, Slot::ended);
            }
            Event::Benchmarked { slot } => {
                let mut last = ClassAd::new();
                last.insert("LastBenchmark", Expr::from(now));
                self.overlay(&last);
                self.at(slot, now, orders, Slot::benchmarked);
            }
            Event::BackfillRuns { slot } => {
                self.at(slot, now, orders, Slot::backfill_runs);
            }
            Event::BackfillEnded { slot } => {
                self.at(slot, now, orders, Slot::backfill_ended);
            }
            Event::Vacate {
                slot: Some(slot),
                fast,
            } => {
                self.at(slot, now, orders, |slot, world| slot.vacate(fast, world));
            }
            Event::Vacate { slot: None, fast } => {
                self.everywhere(now, orders, |slot, world| slot.vacate(fast, world));
            }
            Event::Checkpoint { slot: Some(slot) } => {
                self.at(slot, now, orders, Slot::ask_checkpoint);
            }
            Event::Checkpoint { slot: None } => {
                self.everywhere(now, orders, Slot::ask_checkpoint);
            }
            Event::Suspend { slot } => {
                self.at(slot, now, orders, Slot::suspend);
            }
            Event::Continue { slot } => {
                self.at(slot, now, orders, Slot::go_on);
            }
            Event::Drain {
                how,
                resumes,
                start,
            } => self.drain(how, resumes, start, now, orders),
            Event::CancelDrain => {
                self.common.draining = None;
                self.everywhere(now, orders, Slot::evaluate);
            }
            Event::Shutdown(how) => self.shut_down(how, now, orders),
        }
    }
}

/// The slot that an order says has changed.
fn changed(order: &Order) -> Option<SlotId> {
    match order {
        Order::Changed(change) => Some(change.slot),
        Order::Waits { slot, .. } => Some(*slot),
        _ => None,
    }
}
