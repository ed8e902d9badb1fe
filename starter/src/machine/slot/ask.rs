//! Questions to the policy: each has an answer, or is not TRUE with a warning.

use super::super::policy::{number, whole};
use super::super::words::{Activity, Moment, Order, State};
use super::claim::Claim;
use super::{Clock, Kind, Slot, World};
use classad::{ClassAd, Context, Value};
use std::sync::Arc;

/// Universes with expressions of their own.
const VANILLA: i64 = 5;
const VIRTUAL_MACHINE: i64 = 13;

/// What an expression says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is TRUE.
    True,
    /// It is FALSE.
    False,
    /// It is UNDEFINED, ERROR, no condition, or not there.
    Unknown,
}

/// Who does not accept the other, and what his expression says instead.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// The machine: START.
    Start {
        /// FALSE, UNDEFINED, ERROR …
        value: String,
    },
    /// The machine: images of the job do not go on on it.
    Platform {
        /// FALSE, UNDEFINED, ERROR …
        value: String,
    },
    /// The job asks for more than the slot has.
    Resources {
        /// `Cpus`, `Memory` …
        name: String,
        /// What it asks for.
        wanted: f64,
        /// What there is.
        there: f64,
    },
    /// What the job asks for is no number, or less than nothing.
    NoNumber {
        /// `RequestCpus` …
        name: String,
        /// ERROR, UNDEFINED, a string …
        value: String,
    },
    /// The job: its `Requirements`.
    Requirements {
        /// FALSE, UNDEFINED, ERROR …
        value: String,
    },
}

/// The resource that an attribute of a job asks for (`RequestGPUs`), if it does.
#[must_use]
pub fn resource_of(attribute: &str) -> Option<&str> {
    let begins = |text: &str, with: &str| {
        let begin = text.get(..with.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(with))
    };
    // `RequestedChroot` is something else.
    let asks = begins(attribute, "Request") && !begins(attribute, "Requested");
    attribute
        .get("Request".len()..)
        .filter(|name| asks && !name.is_empty())
}

/// How much of a resource a job asks for, if it does.
///
/// # Errors
/// [`Refusal::NoNumber`].
pub(in super::super) fn requested(
    job: &Arc<ClassAd>,
    resource: &str,
    slot: &Arc<ClassAd>,
    clock: &Clock<'_>,
) -> Result<Option<f64>, Refusal> {
    let name = format!("Request{resource}");
    if job.get(name.as_str()).is_none() {
        return Ok(None);
    }
    let context = Context::new(clock)
        .with_my(Arc::clone(job))
        .with_target(Arc::clone(slot));
    let value = match context.eval_attribute(name.as_str()) {
        Ok(value) => match number(&value) {
            Some(wanted) if wanted.is_finite() && wanted >= 0.0 => return Ok(Some(wanted)),
            _ => value.to_string(),
        },
        Err(error) => error.to_string(),
    };
    Err(Refusal::NoNumber { name, value })
}

impl Verdict {
    pub(super) fn is_true(self) -> bool {
        self == Verdict::True
    }
}

impl Slot {
    fn context<'w>(&self, world: &'w World<'_>, job: Option<&Arc<ClassAd>>) -> Context<'w> {
        let context = Context::new(&world.clock).with_my(Arc::clone(&self.ad));
        match job {
            Some(job) => context.with_target(Arc::clone(job)),
            None => context,
        }
    }

    pub(super) fn verdict(
        &self,
        name: &str,
        job: Option<&Arc<ClassAd>>,
        world: &World<'_>,
    ) -> (Verdict, String) {
        match self.context(world, job).eval_attribute(name) {
            Ok(value) => match value.truth() {
                Some(true) => (Verdict::True, String::new()),
                Some(false) => (Verdict::False, String::new()),
                None => (Verdict::Unknown, value.to_string()),
            },
            Err(error) => (Verdict::Unknown, error.to_string()),
        }
    }

    /// Asks an expression that may be another one for vanilla jobs or virtual machines: those say nothing, it is asked.
    pub(super) fn ask(&mut self, name: &str, world: &mut World<'_>) -> Verdict {
        self.freshen(world);
        let job = self.claim.as_ref().map(|claim| Arc::clone(&claim.job));
        let universe = job.as_ref().and_then(|job| {
            let context = Context::new(&world.clock).with_my(Arc::clone(job));
            whole(&context.eval_attribute("JobUniverse").ok()?)
        });
        let suffix = match universe {
            Some(VANILLA) => Some("VANILLA"),
            Some(VIRTUAL_MACHINE) => Some("VM"),
            _ => None,
        };
        if let Some(suffix) = suffix {
            let name = format!("{name}_{suffix}");
            if self.policy.attributes.get(name.as_str()).is_some() {
                let (verdict, value) = self.verdict(&name, job.as_ref(), world);
                self.heed(&name, verdict, value, world);
                if verdict != Verdict::Unknown {
                    return verdict;
                }
            }
        }
        let (verdict, value) = self.verdict(name, job.as_ref(), world);
        self.heed(name, verdict, value, world);
        verdict
    }

    /// Warns of what says nothing: once for each thing it says instead.
    pub(super) fn heed(
        &mut self,
        name: &str,
        verdict: Verdict,
        value: String,
        world: &mut World<'_>,
    ) {
        match verdict {
            Verdict::Unknown => self.warn(name, value, "not TRUE", &mut world.orders),
            _ => self.warned.retain(|(warned, _)| warned != name),
        }
    }

    /// Warns of a value, once.
    fn warn(
        &mut self,
        name: &str,
        value: String,
        counts_as: &'static str,
        orders: &mut Vec<Order>,
    ) {
        if self.warned.insert((name.to_owned(), value.clone())) {
            orders.push(Order::Warn {
                slot: self.id,
                name: name.to_owned(),
                value,
                counts_as,
            });
        }
    }

    /// START, and IS_VALID_CHECKPOINT_PLATFORM, that say nothing of a job: whoever waits for a slot in vain has his warning. Once for each value,
    /// whatever they say of others.
    pub(in super::super) fn heed_start(&mut self, job: &Arc<ClassAd>, world: &mut World<'_>) {
        self.freshen(world);
        for name in ["START", "IS_VALID_CHECKPOINT_PLATFORM"] {
            match self.verdict(name, Some(job), world) {
                (Verdict::True, _) => {}
                (Verdict::False, _) => return,
                (Verdict::Unknown, value) => {
                    return self.warn(name, value, "not TRUE", &mut world.orders);
                }
            }
        }
    }

    /// Expressions that are to be numbers, and are none where a job runs.
    pub(super) fn heed_numbers(&mut self, world: &mut World<'_>) {
        self.freshen(world);
        let Some(job) = self.claim.as_ref().map(|claim| Arc::clone(&claim.job)) else {
            return;
        };
        let rules = self.policy.rules;
        for (name, attribute, is_asked, counts_as) in [
            ("RANK", "Rank", true, "0"),
            (
                "MAXJOBRETIREMENTTIME",
                "MaxJobRetirementTime",
                rules.retires,
                "0",
            ),
            (
                "MachineMaxVacateTime",
                "MachineMaxVacateTime",
                rules.limits_vacating,
                "0",
            ),
            (
                "CLAIM_WORKLIFE",
                "CLAIM_WORKLIFE",
                true,
                "-1, without an end",
            ),
        ] {
            if !is_asked || self.policy.attributes.get(attribute).is_none() {
                continue;
            }
            // The claim is not the job's.
            let target = (attribute != "CLAIM_WORKLIFE").then_some(&job);
            let value = match self.context(world, target).eval_attribute(attribute) {
                Ok(value) if number(&value).is_some() => {
                    self.warned.retain(|(warned, _)| warned != name);
                    continue;
                }
                Ok(value) => value.to_string(),
                Err(error) => error.to_string(),
            };
            self.warn(name, value, counts_as, &mut world.orders);
        }
    }

    /// START, as far as the machine alone can say (current manual, "The START Expression").
    pub(super) fn starts_locally(&mut self, world: &World<'_>) -> Verdict {
        self.freshen(world);
        self.verdict("START", None, world).0
    }

    /// START, for a job.
    pub(super) fn starts(&mut self, job: &Arc<ClassAd>, world: &World<'_>) -> Verdict {
        self.freshen(world);
        self.verdict("START", Some(job), world).0
    }

    /// Whether machine and job accept each other: `Requirements` of both.
    pub(in super::super) fn suits(&mut self, job: &Arc<ClassAd>, world: &World<'_>) -> bool {
        self.refusal(job, world).is_none()
    }

    /// Who of the two does not accept the other; the machine is asked first.
    pub(in super::super) fn refusal(
        &mut self,
        job: &Arc<ClassAd>,
        world: &World<'_>,
    ) -> Option<Refusal> {
        self.freshen(world);
        let refuses = |name| match self.verdict(name, Some(job), world) {
            (Verdict::True, _) => None,
            (Verdict::False, _) => Some("false".to_owned()),
            (Verdict::Unknown, value) => Some(value),
        };
        if let Some(value) = refuses("START") {
            return Some(Refusal::Start { value });
        }
        if let Some(value) = refuses("IS_VALID_CHECKPOINT_PLATFORM") {
            return Some(Refusal::Platform { value });
        }
        if let Some(lack) = self.lack(job, world).or_else(|| self.has_not(job, world)) {
            return Some(lack);
        }
        job.get("Requirements")?;
        let context = Context::new(&world.clock)
            .with_my(Arc::clone(job))
            .with_target(Arc::clone(&self.ad));
        let value = match context.eval_attribute("Requirements") {
            Ok(value) if value.truth() == Some(true) => return None,
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        Some(Refusal::Requirements { value })
    }

    /// What a job asks for (`RequestCpus` …) and a slot of its own size does not have. The original has the clauses for it appended to the job's
    /// `Requirements` when it is submitted. A partitionable slot is asked by its consumption instead.
    fn lack(&self, job: &Arc<ClassAd>, world: &World<'_>) -> Option<Refusal> {
        if self.kind == Kind::Partitionable {
            return None;
        }
        let asks = |job: &Arc<ClassAd>, name: &str| {
            requested(job, name, &self.ad, &world.clock).ok().flatten()
        };
        self.resources.iter().find_map(|(name, _)| {
            let name = name.to_string();
            let wanted = match requested(job, &name, &self.ad, &world.clock) {
                Ok(wanted) => wanted?,
                Err(refusal) => return Some(refusal),
            };
            let has = Context::new(&world.clock)
                .with_my(Arc::clone(&self.ad))
                .eval_attribute(name.as_str());
            let has = has.ok().as_ref().and_then(number)?;
            // A part is as large as the machine's owner had it made for the job that it was made for.
            let made_for = self.made_for.as_ref();
            let made_for = made_for.and_then(|job| asks(job, &name)).unwrap_or(0.0);
            let there = has.max(made_for);
            (wanted > there).then_some(Refusal::Resources {
                name,
                wanted,
                there,
            })
        })
    }

    /// What a job asks for and the machine has nothing of.
    fn has_not(&self, job: &Arc<ClassAd>, world: &World<'_>) -> Option<Refusal> {
        job.iter().find_map(|(name, _)| {
            let name = name.to_string();
            let resource = resource_of(&name)?;
            if self.resources.get(resource).is_some() {
                return None;
            }
            match requested(job, resource, &self.ad, &world.clock) {
                Ok(Some(wanted)) if wanted > 0.0 => Some(Refusal::Resources {
                    name: resource.to_owned(),
                    wanted,
                    there: 0.0,
                }),
                Ok(_) => None,
                Err(refusal) => Some(refusal),
            }
        })
    }

    /// `IsOwner`; what says nothing is fatal, and is TRUE: no job runs by mistake.
    pub(super) fn is_owner(&mut self, world: &mut World<'_>) -> bool {
        self.freshen(world);
        let (verdict, value) = self.verdict("IsOwner", None, world);
        let name = self.policy.owner_setting;
        if verdict == Verdict::Unknown && self.warned.insert((name.to_owned(), value.clone())) {
            let name = name.to_owned();
            world.orders.push(Order::Fatal { name, value });
        }
        verdict != Verdict::False
    }

    /// Why the job that has to leave is held, with a number of the owner's (current manual, "WANT_HOLD"); none: it is not, or was told
    /// so already. Asked only if PREEMPT was TRUE; no universe has one of its own.
    pub(super) fn hold_reason(&mut self, world: &mut World<'_>) -> Option<(String, i64)> {
        let claim = self.claim.as_ref();
        let claim = claim.filter(|claim| claim.preempted && !claim.held)?;
        if !self.policy.rules.holds {
            return None;
        }
        let job = Arc::clone(&claim.job);
        self.freshen(world);
        let (verdict, value) = self.verdict("WANT_HOLD", Some(&job), world);
        self.heed("WANT_HOLD", verdict, value, world);
        if !verdict.is_true() {
            return None;
        }
        let said = self
            .context(world, Some(&job))
            .eval_attribute("WANT_HOLD_REASON");
        let said = match said {
            Ok(Value::String(text)) => text.to_string(),
            _ => String::new(),
        };
        let usual = || {
            let expr = self.policy.attributes.get("WANT_HOLD");
            let expr = expr.map(|expr| expr.to_string()).unwrap_or_default();
            format!("the machine's owner wants it held: WANT_HOLD = {expr}")
        };
        let reason = Some(said).filter(|said| !said.is_empty());
        let reason = reason.unwrap_or_else(usual);
        let subcode = self.whole("WANT_HOLD_SUBCODE", Some(&job), world);
        Some((reason, subcode.unwrap_or(0)))
    }

    /// An expression that has no say of a job.
    pub(super) fn ask_machine(&mut self, name: &str, world: &mut World<'_>) -> Verdict {
        self.freshen(world);
        if self.policy.attributes.get(name).is_none() {
            return Verdict::Unknown;
        }
        let (verdict, value) = self.verdict(name, None, world);
        self.heed(name, verdict, value, world);
        verdict
    }

    /// How much the machine wants a job.
    pub(in super::super) fn rank(&mut self, job: &Arc<ClassAd>, world: &World<'_>) -> f64 {
        self.freshen(world);
        let value = self.context(world, Some(job)).eval_attribute("Rank");
        value.ok().as_ref().and_then(number).unwrap_or(0.0)
    }

    fn whole(&self, name: &str, job: Option<&Arc<ClassAd>>, world: &World<'_>) -> Option<i64> {
        whole(&self.context(world, job).eval_attribute(name).ok()?)
    }

    /// A number of a job's ad, which the machine's is the TARGET of.
    fn of_job(&self, name: &str, job: &Arc<ClassAd>, world: &World<'_>) -> Option<Option<i64>> {
        job.get(name)?;
        let context = Context::new(&world.clock)
            .with_my(Arc::clone(job))
            .with_target(Arc::clone(&self.ad));
        Some(context.eval_attribute(name).ok().as_ref().and_then(whole))
    }

    /// How long the job may go on though it is to leave. The job may have less than the machine gives, never more.
    pub(in super::super) fn retirement_left(&mut self, world: &World<'_>) -> i64 {
        self.freshen(world);
        let (Some(claim), true) = (&self.claim, self.policy.rules.retires) else {
            return 0;
        };
        let Some(active) = &claim.active else {
            return 0;
        };
        if claim.at_once || claim.is_filler {
            return 0;
        }
        let mut most = self
            .whole("MaxJobRetirementTime", Some(&claim.job), world)
            .unwrap_or(0);
        // -1 says "at once" even to those who may take their time.
        if claim.peaceful && most != -1 {
            most = i64::MAX;
        }
        if let Some(Some(wanted)) = self.of_job("MaxJobRetirementTime", &claim.job, world) {
            most = most.min(wanted);
        }
        let here = match self.place.works() {
            true => world.now - self.entered_activity,
            false => 0,
        };
        most.saturating_sub(active.ran + here).max(0)
    }

    /// How long the job may take to leave (current manual, "`MachineMaxVacateTime`").
    pub(super) fn vacate_time(&mut self, world: &World<'_>) -> i64 {
        // Before there was such a limit, KILL alone said when.
        if !self.policy.rules.limits_vacating {
            return 0;
        }
        let left = self.retirement_left(world);
        let Some((claim, active)) = self
            .claim
            .as_ref()
            .and_then(|claim| Some((claim, claim.active.as_ref()?)))
        else {
            return 0;
        };
        let most = active.vacate_time;
        let wanted = self
            .of_job("JobMaxVacateTime", &claim.job, world)
            .or_else(|| self.of_job("KillSigTimeout", &claim.job, world));
        match wanted.map(|wanted| wanted.unwrap_or(0)) {
            None => most,
            Some(wanted) if wanted <= most => wanted,
            // It may have of its retirement time.
            Some(wanted) if left >= wanted => wanted,
            Some(_) => most.max(left),
        }
    }

    /// The time to vacate that a job is promised when it starts.
    pub(super) fn promised_vacate_time(&self, job: &Arc<ClassAd>, world: &World<'_>) -> i64 {
        match self.policy.rules.limits_vacating {
            true => self
                .whole("MachineMaxVacateTime", Some(job), world)
                .unwrap_or(0)
                .max(0),
            false => 0,
        }
    }

    /// Whether it is time to leave.
    pub(super) fn retirement_is_over(&mut self, world: &World<'_>) -> bool {
        let own = self.retirement_left(world);
        let idle = self.place.activity == Activity::Idle && self.place.state == State::Claimed;
        // While all drain, nobody leaves before the one with the longest time has to.
        let left = match world.drain_time {
            Some(longest) if self.is_retiring_with_others(world) && (idle || own > 0) => longest,
            _ => own,
        };
        if left <= 0 {
            return true;
        }
        self.vacate_time(world) >= left
    }

    fn is_retiring_with_others(&self, world: &World<'_>) -> bool {
        let is_filler = self.claim.as_ref().is_some_and(|claim| claim.is_filler);
        world.draining && !is_filler
    }

    /// Whether the claim takes no more jobs.
    pub(super) fn is_worn_out(&mut self, world: &World<'_>) -> bool {
        self.freshen(world);
        let Some(claim) = self.claim.as_ref().filter(|claim| claim.activations > 0) else {
            return false;
        };
        let life = self.whole("CLAIM_WORKLIFE", None, world).unwrap_or(-1);
        life >= 0 && world.now - claim.since > life
    }

    /// When a claim is over without a word; never, if whoever claims is who keeps the machine.
    pub(super) fn lease_ends(&self, claim: &Claim, world: &World<'_>) -> Option<Moment> {
        (!world.claimants_are_here).then(|| world.now.saturating_add(self.lease(claim, world)))
    }

    /// How long a claim lasts without a word: the job's `JobLeaseDuration`, or as many words as may be missed.
    fn lease(&self, claim: &Claim, world: &World<'_>) -> i64 {
        let job = self.of_job("JobLeaseDuration", &claim.job, world).flatten();
        let ours = self
            .policy
            .alives_missed
            .saturating_mul(self.policy.alive_interval);
        job.filter(|lease| *lease > 0).unwrap_or(ours)
    }

    /// How often who has the slot says that he is there: as the configuration says, or three times in his lease, but not more than every 10 s.
    pub(in super::super) fn alive_interval(&self, world: &World<'_>) -> Option<i64> {
        let claim = self.claim.as_ref()?;
        let usual = self.policy.alive_interval;
        let job = self.of_job("JobLeaseDuration", &claim.job, world).flatten();
        let third = job
            .filter(|lease| *lease > 0)
            .map(|lease| (lease / 3).max(10));
        Some(third.map_or(usual, |third| third.min(usual)))
    }

    /// Makes the ad true, if something has changed.
    pub(super) fn freshen(&mut self, world: &World<'_>) {
        if !self.is_fresh {
            self.refresh(world);
        }
    }
}
