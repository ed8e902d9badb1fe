//! What is asked of a slot, and what it is told.

use super::super::words::{Activity, ClaimId, Moment, Order, Place, State};
use super::claim::{Active, Claim};
use super::{Slot, Verdict, World};
use classad::{ClassAd, Expr};
use std::sync::Arc;

impl Slot {
    fn refuse(&self, claim: ClaimId, reason: &'static str, world: &mut World<'_>) {
        let slot = self.id;
        world.orders.push(Order::Refused {
            slot,
            claim,
            reason,
        });
    }

    pub(in super::super) fn matched(&mut self, claim: ClaimId, world: &mut World<'_>) {
        if world.is_closed() {
            return self.refuse(claim, "the machine takes no more jobs", world);
        }
        let until = world.now.saturating_add(self.policy.match_timeout);
        match self.place.state {
            State::Owner | State::Unclaimed => {
                self.open(world);
                if self.go(
                    Place::of(State::Matched, Activity::Idle),
                    "it is matched",
                    world,
                ) {
                    self.matched = Some((claim, until));
                }
            }
            State::Backfill if self.matched.is_none() && self.waiting.is_none() => {
                self.matched = Some((claim, until));
                self.leave_backfill(world);
            }
            _ => self.refuse(claim, "the slot is not free", world),
        }
    }

    /// Out of Owner, for somebody that START allows.
    fn open(&mut self, world: &mut World<'_>) {
        if self.place.state == State::Owner {
            self.go(
                Place::of(State::Unclaimed, Activity::Idle),
                "START allows a job",
                world,
            );
        }
    }

    pub(in super::super) fn claimed(
        &mut self,
        id: ClaimId,
        job: Arc<ClassAd>,
        world: &mut World<'_>,
    ) {
        if world.is_closed() {
            return self.refuse(id, "the machine takes no more jobs", world);
        }
        let is_matched = self.matched.is_some_and(|(matched, _)| matched == id);
        let is_free = match self.place.state {
            State::Owner | State::Unclaimed => true,
            State::Matched => is_matched,
            State::Backfill => self.waiting.is_none() && (self.matched.is_none() || is_matched),
            State::Claimed => self.waiting.is_none(),
            State::Preempting | State::Drained => false,
        };
        if !is_free {
            return self.refuse(id, "the slot is not free", world);
        }
        if !self.suits(&job, world) {
            self.refuse(id, "machine and job do not accept each other", world);
            // Somebody was expected, and his claim has failed.
            if self.place.state == State::Matched {
                self.go(
                    Place::of(State::Owner, Activity::Idle),
                    "the claim fails",
                    world,
                );
            }
            return;
        }
        let rank = self.rank(&job, world);
        let claim = Claim::new(id, job, rank, world.now);
        match self.place.state {
            State::Claimed => {
                // The same rank is for whoever knows about users' priorities to decide.
                if self.claim.as_ref().is_some_and(|now| rank < now.rank) {
                    return self.refuse(id, "the machine would rather keep the job it has", world);
                }
                self.waiting = Some(claim);
                self.is_fresh = false;
                let slot = self.id;
                world.orders.push(Order::Waits { slot, claim: id });
                if self.place.activity == Activity::Idle {
                    self.preempt("a better claim waits", world);
                }
            }
            State::Backfill => {
                self.waiting = Some(claim);
                self.matched = None;
                self.leave_backfill(world);
            }
            _ => {
                self.open(world);
                self.waiting = Some(claim);
                if !self.go(
                    Place::of(State::Claimed, Activity::Idle),
                    "it is claimed",
                    world,
                ) {
                    self.refuse_waiting("the slot is not free", world);
                }
            }
        }
    }

    pub(in super::super) fn withdrawn(&mut self, id: ClaimId, world: &mut World<'_>) {
        if self
            .waiting
            .as_ref()
            .is_some_and(|waiting| waiting.id == id)
        {
            self.refuse_waiting("it was withdrawn", world);
        }
        if self.matched.is_some_and(|(matched, _)| matched == id) {
            self.matched = None;
            if self.place.state == State::Matched {
                self.go(
                    Place::of(State::Owner, Activity::Idle),
                    "the match is withdrawn",
                    world,
                );
            }
        }
    }

    pub(in super::super) fn activated(&mut self, job: Arc<ClassAd>, world: &mut World<'_>) {
        let slot = self.id;
        let mut refuse = |reason| world.orders.push(Order::NotStarted { slot, reason });
        if self.place != Place::of(State::Claimed, Activity::Idle) {
            return refuse("the slot is not claimed, or has a job");
        }
        if self.is_worn_out(world) {
            return world.orders.push(Order::NotStarted {
                slot,
                reason: "the claim takes no more jobs",
            });
        }
        let closing = self.is_closing(world) || world.is_closed();
        if closing || !self.suits(&job, world) {
            let reason = match closing {
                true => "the claim is to end",
                false => "machine and job do not accept each other",
            };
            return world.orders.push(Order::NotStarted { slot, reason });
        }
        let rank = self.rank(&job, world);
        let vacate_time = self.promised_vacate_time(&job, world);
        let now = world.now;
        if let Some(claim) = &mut self.claim {
            claim.job = Arc::clone(&job);
            claim.rank = rank;
            claim.activations += 1;
            claim.active = Some(Active {
                since: now,
                last_image: now,
                ran: 0,
                stood: 0,
                turned: None,
                vacate_time,
            });
        }
        self.go(
            Place::of(State::Claimed, Activity::Busy),
            "a job starts",
            world,
        );
        world.orders.push(Order::Start { slot, job });
    }

    pub(in super::super) fn alive(&mut self, world: &World<'_>) {
        if let Some(mut claim) = self.claim.take() {
            claim.lease_ends = self.lease_ends(&claim, world);
            self.claim = Some(claim);
        }
    }

    pub(in super::super) fn job_changed(&mut self, job: Arc<ClassAd>) {
        if let Some(claim) = &mut self.claim {
            claim.job = job;
            self.is_fresh = false;
        }
    }

    /// An image is as large as the job's memory (6.8, section 3.5.2).
    pub(in super::super) fn imaged(&mut self, size_kib: i64) {
        if let Some(claim) = &mut self.claim {
            Arc::make_mut(&mut claim.job).insert("ImageSize", Expr::from(size_kib));
            self.is_fresh = false;
        }
    }

    /// The job is gone.
    pub(in super::super) fn ended(&mut self, world: &mut World<'_>) {
        // Its time is the job's, which is gone only then.
        let ended = match (self.place.state, self.place.activity) {
            (State::Claimed, Activity::Busy | Activity::Suspended | Activity::Retiring) => true,
            (State::Preempting, _) => self.is_active(),
            _ => false,
        };
        if !ended {
            return;
        }
        if self.place.state == State::Preempting {
            self.forget_job();
            return self.leave_preempting(world);
        }
        let retiring = self.place.activity == Activity::Retiring;
        // Whoever is suspended and gone needs no order to go on.
        self.forget_job();
        if retiring {
            self.preempt("the job is gone", world);
        } else {
            let idle = Place::of(State::Claimed, Activity::Idle);
            self.go(idle, "the job is gone", world);
        }
    }

    fn forget_job(&mut self) {
        if let Some(claim) = &mut self.claim {
            claim.active = None;
        }
        self.is_fresh = false;
    }

    pub(in super::super) fn benchmarked(&mut self, world: &mut World<'_>) {
        if self.place == Place::of(State::Unclaimed, Activity::Benchmarking) {
            self.go(
                Place::of(State::Unclaimed, Activity::Idle),
                "the benchmarks are done",
                world,
            );
        }
    }

    pub(in super::super) fn backfill_runs(&mut self, world: &mut World<'_>) {
        if self.place == Place::of(State::Backfill, Activity::Idle) {
            self.go(
                Place::of(State::Backfill, Activity::Busy),
                "the backfill command runs",
                world,
            );
        }
    }

    pub(in super::super) fn backfill_ended(&mut self, world: &mut World<'_>) {
        if self.place.state != State::Backfill {
            return;
        }
        let was_killed = self.place.activity == Activity::Killing;
        if self.place.activity != Activity::Idle {
            self.go(
                Place::of(State::Backfill, Activity::Idle),
                "the backfill command is gone",
                world,
            );
        }
        self.backfill_asked = false;
        if was_killed {
            self.leave_backfill(world);
        }
    }

    /// Whoever was to come is not waited for.
    pub(in super::super) fn refuse_all(&mut self, world: &mut World<'_>) {
        self.refuse_waiting("the machine is shut down", world);
    }

    /// Somebody says that he has no more work.
    pub(in super::super) fn released(&mut self, world: &mut World<'_>) {
        self.end_at_once("the claim is released", false, world);
    }

    pub(in super::super) fn vacate(&mut self, fast: bool, world: &mut World<'_>) {
        let reason = "condor_vacate";
        match fast {
            true => self.kill(reason, world),
            false => self.retire(reason, world),
        }
    }

    /// The claim is to end when its job's time is over.
    pub(in super::super) fn retire(&mut self, reason: &'static str, world: &mut World<'_>) {
        if self.place.state != State::Claimed {
            return self.end_at_once(reason, false, world);
        }
        if let Some(claim) = &mut self.claim {
            claim.leaves = true;
        }
        self.start_retiring(reason, world);
    }

    /// As when draining: it may stay after all.
    pub(in super::super) fn retire_for_now(&mut self, reason: &'static str, world: &mut World<'_>) {
        match self.place.state {
            State::Claimed => self.start_retiring(reason, world),
            State::Matched | State::Backfill => self.end_at_once(reason, false, world),
            _ => {}
        }
    }

    /// Whoever came while the machine was being drained leaves with those who were there before.
    pub(in super::super) fn end_filler(&mut self, world: &mut World<'_>) {
        if self.claim.as_ref().is_some_and(|claim| claim.is_filler) {
            self.end_at_once("draining", false, world);
        }
    }

    /// Whether somebody is there who was there before draining began.
    pub(in super::super) fn has_retiring(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| !claim.is_filler)
    }

    fn start_retiring(&mut self, reason: &'static str, world: &mut World<'_>) {
        match self.place.activity {
            Activity::Busy | Activity::Suspended => {
                self.go(Place::of(State::Claimed, Activity::Retiring), reason, world);
            }
            Activity::Idle => {
                self.preempt(reason, world);
            }
            _ => {}
        }
        self.is_fresh = false;
    }

    /// The claim is to end at once; its job may take its time to leave.
    pub(in super::super) fn end_at_once(
        &mut self,
        reason: &'static str,
        kill: bool,
        world: &mut World<'_>,
    ) {
        if let Some(claim) = &mut self.claim {
            claim.leaves = true;
            claim.at_once = true;
            claim.peaceful = false;
            claim.is_killed |= kill;
        }
        match self.place.state {
            State::Claimed => {
                if matches!(self.place.activity, Activity::Busy | Activity::Suspended) {
                    self.go(Place::of(State::Claimed, Activity::Retiring), reason, world);
                }
                self.preempt(reason, world);
            }
            State::Preempting if kill && self.place.activity == Activity::Vacating => {
                self.go(
                    Place::of(State::Preempting, Activity::Killing),
                    reason,
                    world,
                );
            }
            State::Matched => {
                self.go(Place::of(State::Owner, Activity::Idle), reason, world);
            }
            State::Backfill => {
                self.evicts = true;
                self.leave_backfill(world);
            }
            _ => {}
        }
        self.is_fresh = false;
    }

    /// The job is to be gone.
    pub(in super::super) fn kill(&mut self, reason: &'static str, world: &mut World<'_>) {
        self.end_at_once(reason, true, world);
    }

    pub(in super::super) fn peacefully(&mut self) {
        if let Some(claim) = &mut self.claim {
            claim.peaceful = true;
        }
    }

    pub(in super::super) fn ask_checkpoint(&mut self, world: &mut World<'_>) {
        if self.place.works() {
            self.checkpoint(world);
        }
    }

    pub(in super::super) fn suspend(&mut self, world: &mut World<'_>) {
        if self.place.works()
            && self.go(
                Place::of(State::Claimed, Activity::Suspended),
                "suspended by command",
                world,
            )
        {
            self.held_still = true;
        }
    }

    pub(in super::super) fn go_on(&mut self, world: &mut World<'_>) {
        if self.place == Place::of(State::Claimed, Activity::Suspended) && self.held_still {
            let to = match self.is_closing(world) {
                true => Activity::Retiring,
                false => Activity::Busy,
            };
            self.go(Place::of(State::Claimed, to), "continued by command", world);
        }
    }

    /// What was waited for, and did not come.
    pub(in super::super) fn timers(&mut self, world: &mut World<'_>) {
        let now = world.now;
        let over = |at: Option<Moment>| at.is_some_and(|at| at <= now);
        if over(self.matched.map(|(_, until)| until)) {
            self.matched = None;
            if self.place.state == State::Matched {
                self.go(
                    Place::of(State::Owner, Activity::Idle),
                    "MATCH_TIMEOUT is over",
                    world,
                );
            }
        }
        if over(self.claim.as_ref().and_then(|claim| claim.lease_ends)) {
            if let Some(claim) = &mut self.claim {
                claim.lease_ends = None;
            }
            self.kill("the lease is over", world);
        }
        if over(self.vacates_until) {
            self.go(
                Place::of(State::Preempting, Activity::Killing),
                "the time to vacate is over",
                world,
            );
        }
        if over(self.kill_again_at) {
            self.kill_again_at = Some(world.now.saturating_add(self.policy.killing_timeout.max(1)));
            world.orders.push(Order::KillAll(self.id));
        }
    }

    /// An expression about the job that has no variant for universes.
    pub(super) fn ask_of_job(&mut self, name: &str, world: &mut World<'_>) -> Verdict {
        self.freshen(world);
        let job = self.claim.as_ref().map(|claim| Arc::clone(&claim.job));
        let (verdict, value) = self.verdict(name, job.as_ref(), world);
        self.heed(name, verdict, value, world);
        verdict
    }
}
