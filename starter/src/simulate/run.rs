//! The day itself: from moment to moment.

use super::home::Job;
use super::report::{Report, Step};
use super::trace::{Command, Keys, Trace};
use crate::machine::{
    Activity, ClaimId, Detected, Dialect, Event, Kind, Machine, Moment, Order, Place, PolicyError,
    Seen, Settings, Shutdown, SlotId, State, UserMaps, draining_start, job_defaults, with_defaults,
};
use classad::{ClassAd, Expr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thiserror::Error;

/// Seconds between rounds in which jobs are given to slots (`NEGOTIATOR_INTERVAL`).
const ROUND: i64 = 60;
/// Seconds that benchmarks take.
const BENCHMARKS: i64 = 20;
/// Seconds that it takes to kill, or to begin a command.
const MOMENT: i64 = 1;
/// Of so many jobs it is said why they have never started, and of so many slots.
const MOST_WHYS: usize = 64;
/// The last key was long before the trace began.
const LONG_IDLE: i64 = 7 * 86_400;
/// What may happen in a day: beyond that a policy goes round in circles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most changes, and the most moments at which something happens.
    pub(super) steps: usize,
    /// So many questions whether a job and the slots suit each other.
    pub(super) questions: usize,
}

impl Limits {
    pub(super) const USUAL: Limits = Limits {
        steps: 2_000_000,
        questions: 5_000_000,
    };
}

/// A day that cannot be simulated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The policy is none.
    #[error("the policy cannot be used")]
    Policy {
        /// Why.
        #[from]
        reason: PolicyError,
    },
    /// The trace has no rows.
    #[error("the trace has no rows: there is no moment to begin at")]
    Empty,
    /// Too much happens.
    #[error("more than {limit} things happen before {at}")]
    TooMuch {
        /// The limit.
        limit: usize,
        /// When.
        at: String,
    },
}

/// Where and how long.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Whose rules.
    pub dialect: Dialect,
    /// What the machine has.
    pub detected: Detected,
    /// How long after the first row it ends; none: with the last row.
    pub seconds: Option<i64>,
    /// More attributes of the machine.
    pub attributes: ClassAd,
    /// Maps of users, for `userMap()`.
    pub users: UserMaps,
}

/// What is going to happen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Soon {
    /// A copy is gone. The number is that of the start, so that nothing happens to a later copy.
    Gone(SlotId, usize, u32),
    Benchmarked(SlotId),
    BackfillRuns(SlotId),
    BackfillEnds(SlotId),
}

struct Day<'d> {
    trace: &'d Trace,
    next_row: usize,
    machine: Machine,
    setting: &'d Setting,
    limits: Limits,
    drain_start: Option<Arc<Expr>>,
    job_defaults: ClassAd,
    now: Moment,
    keyboard: (Keys, Moment),
    console: (Keys, Moment),
    load: f64,
    jobs: Vec<Job>,
    /// Whose claim is for which job.
    claims: BTreeMap<ClaimId, usize>,
    last_claim: u64,
    soon: BTreeSet<(Moment, Soon)>,
    next_round: Moment,
    timeline: Vec<Step>,
    moments: usize,
    questions: usize,
    spent: BTreeMap<(String, Place), i64>,
}

/// A day of a policy.
///
/// # Errors
/// [`Fault`]: the policy is none, or nothing can be said about the day.
pub fn simulate(
    settings: &Settings<'_>,
    setting: &Setting,
    trace: &Trace,
) -> Result<Report, Fault> {
    simulate_within(settings, setting, trace, Limits::USUAL)
}

/// The same, within other limits.
pub(super) fn simulate_within(
    settings: &Settings<'_>,
    setting: &Setting,
    trace: &Trace,
    limits: Limits,
) -> Result<Report, Fault> {
    let (Some(first), Some(last)) = (trace.rows.first(), trace.rows.last()) else {
        return Err(Fault::Empty);
    };
    let began = first.at;
    let until = setting
        .seconds
        .map_or(last.at, |seconds| began.saturating_add(seconds));
    let machine = Machine::begin(settings, setting.dialect, &setting.detected, began)?
        .with_claimants_here()
        .with_users(setting.users.clone());
    let long_ago = (Keys::Idle(LONG_IDLE), began);
    let doubts = machine.doubts();
    let mut day = Day {
        trace,
        next_row: 0,
        machine,
        setting,
        limits,
        drain_start: draining_start(settings)?,
        job_defaults: job_defaults(settings)?,
        now: began,
        keyboard: long_ago,
        console: long_ago,
        load: 0.0,
        jobs: vec![],
        claims: BTreeMap::new(),
        last_claim: 0,
        soon: BTreeSet::new(),
        next_round: began,
        timeline: vec![],
        moments: 0,
        questions: 0,
        spent: BTreeMap::new(),
    };
    loop {
        day.moment()?;
        let next = day.next().max(day.now + 1);
        if next > until {
            break;
        }
        day.now = next;
    }
    day.now = until;
    for slot in day.machine.slots() {
        for (place, seconds) in slot.spent(until) {
            *day.spent.entry((slot.name(), place)).or_default() += seconds;
        }
    }
    day.find_out_why();
    for job in &mut day.jobs {
        job.end(until);
    }
    Ok(Report {
        began,
        ended: until,
        timeline: day.timeline,
        spent: day.spent,
        jobs: day.jobs.into_iter().map(|job| job.report).collect(),
        doubts,
    })
}

impl Day<'_> {
    /// The next moment that matters.
    fn next(&self) -> Moment {
        let row = self.trace.rows.get(self.next_row).map(|row| row.at);
        let soon = self.soon.first().map(|(at, _)| *at);
        let done = self.jobs.iter().filter_map(Job::done_at).min();
        let wants = self.jobs.iter().any(Job::waits) || self.has_claims();
        let round = wants.then_some(self.next_round);
        let all = [row, soon, done, round, Some(self.machine.wake_at())];
        all.into_iter().flatten().min().unwrap_or(Moment::MAX)
    }

    fn has_claims(&self) -> bool {
        self.machine
            .slots()
            .iter()
            .any(|slot| slot.claim().is_some())
    }

    fn moment(&mut self) -> Result<(), Fault> {
        self.moments += 1;
        for (count, limit) in [
            (self.timeline.len(), self.limits.steps),
            (self.moments, self.limits.steps),
            (self.questions, self.limits.questions),
        ] {
            if count > limit {
                let at = super::trace::civil(self.now);
                return Err(Fault::TooMuch { limit, at });
            }
        }
        while let Some(row) = self
            .trace
            .rows
            .get(self.next_row)
            .filter(|row| row.at <= self.now)
        {
            self.next_row += 1;
            self.keyboard = row.keyboard.map_or(self.keyboard, |keys| (keys, row.at));
            self.console = row.console.map_or(self.console, |keys| (keys, row.at));
            self.load = row.load.unwrap_or(self.load);
            if let Some(ad) = &row.job {
                let ad = with_defaults(ClassAd::clone(ad), &self.job_defaults);
                let job = Job::new(
                    &Arc::new(ad),
                    self.jobs.len() + 1,
                    self.now,
                    self.platform(),
                );
                self.jobs.push(job);
                // It is told at once, and matched in the next round.
                self.next_round = self.next_round.min(self.now);
            }
            if let Some(command) = row.command {
                self.told(command);
            }
        }
        while let Some((_, soon)) = self.soon.first().copied().filter(|(at, _)| *at <= self.now) {
            self.soon.pop_first();
            self.happens(soon);
        }
        for index in 0..self.jobs.len() {
            if self.jobs[index].done_at().is_some_and(|at| at <= self.now) {
                self.gone(index);
            }
        }
        match self.machine.wants_to_see(self.now) {
            true => self.look(),
            false => self.tell(Event::Time),
        }
        if self.next_round <= self.now {
            self.next_round = self.now + ROUND;
            self.round();
        }
        Ok(())
    }

    /// The machine's platform: images of it go on on it.
    fn platform(&self) -> Arc<Expr> {
        let known = self.setting.attributes.get("CheckpointPlatform");
        known.map_or_else(|| Arc::new(Expr::from("SIMULATED")), Arc::clone)
    }

    fn look(&mut self) {
        let idle = |(keys, at): (Keys, Moment)| match keys {
            Keys::Busy => 0,
            Keys::Idle(seconds) => seconds + self.now - at,
        };
        let console_idle = idle(self.console);
        let mut attributes = self.setting.attributes.clone();
        attributes.insert("CheckpointPlatform", self.platform());
        let working = self.jobs.iter().filter(|job| job.works());
        let job_loads: Vec<_> = working.filter_map(|job| Some((job.slot?, 1.0))).collect();
        #[allow(clippy::cast_precision_loss, reason = "a few jobs")]
        let of_jobs = job_loads.len() as f64;
        self.tell(Event::Seen(Seen {
            keyboard_idle: idle(self.keyboard).min(console_idle),
            console_idle,
            load: self.load + of_jobs,
            job_loads,
            attributes,
        }));
    }

    fn tell(&mut self, event: Event) {
        let names: BTreeMap<SlotId, String> = self.parts();
        let before: Vec<_> = self
            .machine
            .slots()
            .iter()
            .filter(|slot| slot.id().part.is_some())
            .cloned()
            .collect();
        let orders = self.machine.step(event, self.now);
        // Parts that are given back take their times with them.
        for slot in before {
            if self.machine.slot(slot.id()).is_none() {
                let name = names
                    .get(&slot.id())
                    .cloned()
                    .unwrap_or_else(|| slot.name());
                for (place, seconds) in slot.spent(self.now) {
                    *self.spent.entry((name.clone(), place)).or_default() += seconds;
                }
            }
        }
        for order in orders {
            self.carry_out(order);
        }
    }

    fn parts(&self) -> BTreeMap<SlotId, String> {
        let slots = self.machine.slots().iter();
        slots.map(|slot| (slot.id(), slot.name())).collect()
    }

    fn job_in(&self, slot: SlotId) -> Option<usize> {
        self.jobs.iter().position(|job| job.slot == Some(slot))
    }

    fn later(&mut self, seconds: i64, soon: Soon) {
        self.soon.insert((self.now.saturating_add(seconds), soon));
    }

    fn carry_out(&mut self, order: Order) {
        let now = self.now;
        let about = match &order {
            Order::Changed(change) => Some(change.slot),
            Order::Start { slot, .. } | Order::Vacate { slot, .. } => Some(*slot),
            Order::Hold { slot, .. } => Some(*slot),
            Order::Suspend(slot) | Order::Continue(slot) | Order::Checkpoint(slot) => Some(*slot),
            Order::Kill(slot) | Order::KillAll(slot) => Some(*slot),
            _ => None,
        };
        let job = about.and_then(|slot| self.job_in(slot));
        self.timeline.push(Step {
            at: now,
            order: order.clone(),
            job: job.map(|index| index + 1),
        });
        match (order, job) {
            (Order::Accepted { slot, claim }, _) => self.accepted(slot, claim),
            (Order::Refused { claim, .. }, _) => {
                self.claims.remove(&claim);
            }
            (Order::ClaimOver { slot, .. }, _) => {
                if let Some(index) = self.job_in(slot) {
                    self.jobs[index].slot = None;
                }
            }
            (Order::Start { .. }, Some(index)) => self.jobs[index].start(now),
            (Order::NotStarted { slot, .. }, job) => {
                if let Some(index) = job.or_else(|| self.job_in(slot)) {
                    self.jobs[index].slot = None;
                }
                self.tell(Event::Released { slot });
            }
            (Order::Suspend(_), Some(index)) => self.jobs[index].stand(now),
            (Order::Continue(_), Some(index)) => self.jobs[index].go_on(now),
            (Order::Checkpoint(slot), Some(index)) => {
                self.jobs[index].image(now);
                let image = self.jobs[index]
                    .ad
                    .get("ImageSize")
                    .map(|size| size.to_string());
                if let Some(size_kib) = image.and_then(|size| size.parse().ok()) {
                    self.tell(Event::Imaged { slot, size_kib });
                }
            }
            (Order::Hold { reason, .. }, Some(index)) => self.jobs[index].hold(reason),
            (Order::Vacate { slot, .. }, Some(index)) => {
                self.jobs[index].leave(now);
                let (leaving, start) = (self.jobs[index].leaving, self.jobs[index].report.starts);
                self.later(leaving, Soon::Gone(slot, index, start));
            }
            (Order::Kill(slot) | Order::KillAll(slot), Some(index)) => {
                self.jobs[index].die(now);
                let start = self.jobs[index].report.starts;
                self.later(MOMENT, Soon::Gone(slot, index, start));
            }
            // The original's daemon ends, and its jobs with it.
            (Order::Fatal { .. }, _) => self.tell(Event::Shutdown(Shutdown::Fast)),
            (Order::Benchmark(slot), _) => self.later(BENCHMARKS, Soon::Benchmarked(slot)),
            (Order::StartBackfill(slot), _) => self.later(MOMENT, Soon::BackfillRuns(slot)),
            (Order::KillBackfill(slot), _) => self.later(MOMENT, Soon::BackfillEnds(slot)),
            _ => {}
        }
    }

    fn told(&mut self, command: Command) {
        let event = match command {
            Command::Vacate { fast } => Event::Vacate { slot: None, fast },
            Command::Checkpoint => Event::Checkpoint { slot: None },
            Command::Drain { how, resumes } => Event::Drain {
                how,
                resumes,
                start: self.drain_start.clone(),
            },
            Command::CancelDrain => Event::CancelDrain,
            Command::Shutdown(how) => Event::Shutdown(how),
            Command::Release => return self.release(),
        };
        self.tell(event);
    }

    /// Jobs that are held are told of in the next round.
    fn release(&mut self) {
        for job in &mut self.jobs {
            job.report.held = None;
        }
        self.next_round = self.next_round.min(self.now);
    }

    fn happens(&mut self, soon: Soon) {
        match soon {
            Soon::Gone(slot, index, start) => {
                let job = &self.jobs[index];
                if job.slot == Some(slot) && job.report.starts == start && job.report.done.is_none()
                {
                    self.gone(index);
                }
            }
            Soon::Benchmarked(slot) => self.tell(Event::Benchmarked { slot }),
            Soon::BackfillRuns(slot) => self.tell(Event::BackfillRuns { slot }),
            Soon::BackfillEnds(slot) => self.tell(Event::BackfillEnded { slot }),
        }
    }

    /// A job's copy is gone: it is done, or at home again. The claim goes to another job of its owner's, or is given back.
    fn gone(&mut self, index: usize) {
        let Some(slot) = self.jobs[index].slot.take() else {
            return;
        };
        self.jobs[index].gone(self.now);
        self.tell(Event::Ended { slot });
        let idle = Place::of(State::Claimed, Activity::Idle);
        if self
            .machine
            .slot(slot)
            .is_none_or(|slot| slot.place() != idle)
            || self.job_in(slot).is_some()
        {
            return;
        }
        let owner = self.jobs[index].report.owner.clone();
        let next = self
            .jobs
            .iter()
            .position(|job| job.waits() && job.report.owner == owner);
        match next {
            Some(next) => {
                self.jobs[next].slot = Some(slot);
                let job = Arc::clone(&self.jobs[next].ad);
                self.tell(Event::Activated { slot, job });
            }
            None => self.tell(Event::Released { slot }),
        }
    }

    /// The slot is a job's now.
    fn accepted(&mut self, slot: SlotId, claim: ClaimId) {
        let Some(index) = self
            .claims
            .remove(&claim)
            .filter(|index| self.jobs[*index].waits())
        else {
            return self.tell(Event::Released { slot });
        };
        self.jobs[index].slot = Some(slot);
        let job = Arc::clone(&self.jobs[index].ad);
        self.tell(Event::Activated { slot, job });
    }

    /// Why jobs wait that have never had a slot.
    fn find_out_why(&mut self) {
        let machine = &self.machine;
        let never = |job: &&mut Job| job.waits() && job.report.starts == 0;
        for job in self.jobs.iter_mut().filter(never).take(MOST_WHYS) {
            let slots = machine.slots().iter();
            let whole = slots.filter(|slot| slot.id().part.is_none());
            let whys = whole.take(MOST_WHYS).map(|slot| {
                let why = machine.why_not(slot.id(), &job.ad, self.now);
                let why = why.unwrap_or_else(|| "it is free, and nobody has come yet".to_owned());
                format!("{}: {why}", slot.name())
            });
            job.report.why = whys.collect();
        }
    }

    /// Jobs are given to slots.
    fn round(&mut self) {
        for index in 0..self.jobs.len() {
            if !self.jobs[index].waits() || self.claims.values().any(|waits| *waits == index) {
                continue;
            }
            let job = Arc::clone(&self.jobs[index].ad);
            self.questions += self.machine.slots().len();
            let Some((slot, is_free)) = self.best_slot(&job) else {
                for order in self.machine.doubts_of_start(&job, self.now) {
                    self.carry_out(order);
                }
                continue;
            };
            self.last_claim += 1;
            let claim = ClaimId(self.last_claim);
            self.claims.insert(claim, index);
            if is_free {
                self.tell(Event::Matched { slot, claim });
            }
            self.tell(Event::Claimed { slot, claim, job });
        }
    }

    /// A slot that is free, or has a job that the machine wants less; and whether it is to be matched first.
    fn best_slot(&self, job: &Arc<ClassAd>) -> Option<(SlotId, bool)> {
        let suits = |slot: SlotId| self.machine.suits(slot, job, self.now);
        let slots = self.machine.slots();
        let is_free = |state| matches!(state, State::Unclaimed | State::Owner | State::Backfill);
        let mut free = slots
            .iter()
            .filter(|slot| is_free(slot.place().state) && slot.id().part.is_none());
        if let Some(slot) = free.find(|slot| suits(slot.id())) {
            return Some((slot.id(), slot.kind() == Kind::Static));
        }
        let mut taken = slots
            .iter()
            .filter(|slot| slot.place().state == State::Claimed && slot.waiting().is_none());
        let better = taken.find(|slot| {
            let mine = self
                .job_in(slot.id())
                .map(|index| Arc::clone(&self.jobs[index].ad));
            let rank =
                |job: &Arc<ClassAd>| self.machine.rank(slot.id(), job, self.now).unwrap_or(0.0);
            suits(slot.id()) && mine.is_some_and(|mine| rank(job) > rank(&mine))
        });
        better.map(|slot| (slot.id(), false))
    }
}
