//! A slot: where it is, whose it is, and what its ad says.
//!
//! ```text
//! event --commands--> claim, waiting, destination        due, or seen --evaluate--> policy
//!                 `----------> changes: from place to place by the table <---------'
//!                                 `--> orders
//! ```
//! # What callers may rely on
//! `evaluate` has the order of questions of the original's `ResState::eval_policy`, and `changes` is the one door from place to place.
//!
//! # What it does not do
//! It knows other slots, draining and shutting down only as [`World`] shows them.

pub(super) mod ad;
pub(super) mod ask;
mod changes;
pub(super) mod claim;
mod commands;
mod evaluate;

pub use ask::{Refusal, Verdict, resource_of};

use super::devices::Devices;
use super::load::Part;
use super::policy::Policy;
use super::words::{Activity, ClaimId, Event, Moment, Order, Place, Shutdown, SlotId, State};
use claim::Claim;
use classad::config::UserMaps;
use classad::{ClassAd, Expr, Surroundings};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many seconds behind a change a job is as it was told to be.
const SETTLED: i64 = 3;

/// Whether a slot can be divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// It is as it is.
    #[default]
    Static,
    /// Its parts become slots of jobs.
    Partitionable,
    /// It is such a part, and goes back when it is free.
    Dynamic,
}

impl Kind {
    /// `SlotType`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Static => "Static",
            Kind::Partitionable => "Partitionable",
            Kind::Dynamic => "Dynamic",
        }
    }
}

/// A slot of the machine.
#[derive(Clone, Debug)]
pub struct Slot {
    pub(super) id: SlotId,
    pub(super) kind: Kind,
    pub(super) policy: Arc<Policy>,
    /// What it has: `Cpus`, `Memory`, `Disk` …, and what it had at first.
    pub(super) resources: ClassAd,
    /// What it has that has names.
    pub(super) devices: Devices,
    pub(super) place: Place,
    pub(super) entered_state: Moment,
    pub(super) entered_activity: Moment,
    /// Who has it.
    pub(super) claim: Option<Claim>,
    /// For whom it was made, if it is a part: it is never too small for who asks for no more.
    pub(super) made_for: Option<Arc<ClassAd>>,
    /// Who is to have it next.
    pub(super) waiting: Option<Claim>,
    /// Who was matched, and until when he is waited for.
    pub(super) matched: Option<(ClaimId, Moment)>,
    /// It goes to the owner when the backfill command is gone.
    pub(super) evicts: bool,
    pub(super) backfill_asked: bool,
    pub(super) vacates_until: Option<Moment>,
    pub(super) kill_again_at: Option<Moment>,
    /// Its job was suspended by command, and goes on by command.
    pub(super) held_still: bool,
    was_benchmarking: bool,
    busy_since: Option<Moment>,
    latches: BTreeMap<String, (i64, Moment)>,
    ad: Arc<ClassAd>,
    is_fresh: bool,
    is_gone: bool,
    warned: BTreeSet<(String, String)>,
    changes_now: u32,
    /// Seconds at each place, but for the time at this one.
    pub(super) spent: BTreeMap<Place, i64>,
}

/// What a slot sees of the machine, and where its orders go.
pub(super) struct World<'w> {
    pub(super) now: Moment,
    pub(super) clock: Clock<'w>,
    /// The load of the machine.
    pub(super) load: f64,
    /// What the machine is called, if that is known.
    pub(super) name: Option<&'w str>,
    /// How many slots there are.
    pub(super) slots: usize,
    /// This slot's part of load and keys.
    pub(super) part: Part,
    /// The load of all jobs.
    pub(super) job_load: f64,
    /// What other slots are, as attributes.
    pub(super) others: Vec<(String, Arc<classad::Expr>)>,
    pub(super) draining: bool,
    /// START of a machine that is being drained and still takes jobs.
    pub(super) admits: Option<Arc<Expr>>,
    /// Whether jobs keep their retirement time, and how much the longest has left.
    pub(super) drain_time: Option<i64>,
    pub(super) all_drained: bool,
    pub(super) shutdown: Option<Shutdown>,
    /// Whoever claims a slot is who keeps the machine, and needs no lease.
    pub(super) claimants_are_here: bool,
    pub(super) orders: Vec<Order>,
}

impl World<'_> {
    /// Whether no job begins any more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_drained_out() || self.shutdown.is_some()
    }

    /// Whether draining takes all slots.
    pub(super) fn is_drained_out(&self) -> bool {
        self.draining && self.admits.is_none()
    }
}

/// The clock of a step.
pub(super) struct Clock<'w> {
    pub(super) now: Moment,
    pub(super) utc_offset: i32,
    pub(super) chance: &'w Cell<u64>,
    pub(super) users: &'w UserMaps,
}

impl Surroundings for Clock<'_> {
    fn now(&self) -> i64 {
        self.now
    }

    fn utc_offset(&self, _at_seconds: i64) -> i32 {
        self.utc_offset
    }

    fn random(&self) -> i32 {
        // xorshift64: what it was seeded with decides all.
        let mut state = self.chance.get().max(1);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.chance.set(state);
        i32::try_from(state >> 33).unwrap_or(0)
    }

    fn map_user(&self, map: &str, user: &str) -> Option<String> {
        self.users.find(map, user)
    }
}

impl Slot {
    /// What its owner has decided.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) fn new(
        id: SlotId,
        kind: Kind,
        policy: Arc<Policy>,
        resources: ClassAd,
        now: Moment,
    ) -> Self {
        let state = match kind {
            // It was made of what was free already.
            Kind::Dynamic => State::Unclaimed,
            Kind::Static | Kind::Partitionable => State::Owner,
        };
        let ad = Arc::new(policy.attributes.clone());
        Slot {
            id,
            kind,
            policy,
            resources,
            devices: Devices::new(),
            place: Place::of(state, Activity::Idle),
            entered_state: now,
            entered_activity: now,
            claim: None,
            made_for: None,
            waiting: None,
            matched: None,
            evicts: false,
            backfill_asked: false,
            vacates_until: None,
            kill_again_at: None,
            held_still: false,
            was_benchmarking: false,
            busy_since: None,
            latches: BTreeMap::new(),
            ad,
            is_fresh: false,
            is_gone: false,
            warned: BTreeSet::new(),
            changes_now: 0,
            spent: BTreeMap::new(),
        }
    }

    /// Which.
    pub fn id(&self) -> SlotId {
        self.id
    }

    /// Whether it can be divided, or is a part.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Since when it is in its state, and since when in its activity.
    pub fn entered(&self) -> (Moment, Moment) {
        (self.entered_state, self.entered_activity)
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Who has it.
    pub fn claim(&self) -> Option<ClaimId> {
        self.claim.as_ref().map(|claim| claim.id)
    }

    /// Who waits for it.
    pub fn waiting(&self) -> Option<ClaimId> {
        self.waiting.as_ref().map(|claim| claim.id)
    }

    /// The job's ad, if there is a job.
    pub fn job(&self) -> Option<&Arc<ClassAd>> {
        let claim = self.claim.as_ref()?;
        claim.active.as_ref().map(|_| &claim.job)
    }

    /// What its user has done with the job, if that stands still, or not, and the slot does not know it. Nothing just behind a change: who carries
    /// that out may not have done so yet.
    pub fn told_by_hand(&self, stands: bool, now: Moment) -> Option<Event> {
        let slot = self.id;
        let suspended = self.place == Place::of(State::Claimed, Activity::Suspended);
        match stands {
            _ if now < self.entered_activity.saturating_add(SETTLED) => None,
            true if self.place.works() => Some(Event::Suspend { slot }),
            false if suspended && self.held_still => Some(Event::Continue { slot }),
            _ => None,
        }
    }

    /// Its ad, as of the last time it was looked at.
    pub fn ad(&self) -> &Arc<ClassAd> {
        &self.ad
    }

    /// Seconds it was at each place.
    pub fn spent(&self, now: Moment) -> BTreeMap<Place, i64> {
        let mut spent = self.spent.clone();
        *spent.entry(self.place).or_default() += now - self.entered_activity;
        spent
    }

    /// Its name without the machine's: `slot1`, `slot1_2`, `vm1`.
    pub fn name(&self) -> String {
        let name = format!("{}{}", self.policy.rules.slot_prefix, self.id.number);
        match self.id.part {
            Some(part) => format!("{name}_{part}"),
            None => name,
        }
    }

    /// Whether the machine is to be looked at often because of it.
    pub(super) fn needs_polling(&self) -> bool {
        matches!(
            self.place.state,
            State::Claimed | State::Preempting | State::Backfill
        )
    }

    /// When something is due that is no policy.
    pub(super) fn due(&self) -> Option<Moment> {
        let matched = self.matched.map(|(_, until)| until);
        let lease = self.claim.as_ref().and_then(|claim| claim.lease_ends);
        [matched, lease, self.vacates_until, self.kill_again_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether it is a part that goes back to the whole.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    fn is_active(&self) -> bool {
        self.claim
            .as_ref()
            .is_some_and(|claim| claim.active.is_some())
    }
}
