//! A slot's ad: what expressions see as MY.

use super::super::division::{OF_EVERY_MACHINE, resource_names};
use super::super::policy::whole;
use super::super::words::{Activity, State};
use super::super::{devices, dialect};
use super::{Kind, Slot, World};
use classad::{ClassAd, Context, Expr};
use std::sync::Arc;

/// Attributes of a claim: not there where there is none.
const OF_A_CLAIM: &[&str] = &[
    "RemoteOwner",
    "RemoteUser",
    "ClientMachine",
    "CurrentRank",
    "TotalClaimRunTime",
    "TotalClaimSuspendTime",
    "PreemptingRank",
    "PreemptingOwner",
    "PreemptingUser",
    "JobId",
    "JobStart",
    "LastPeriodicCheckpoint",
    "TotalJobRunTime",
    "TotalJobSuspendTime",
];

impl Slot {
    /// Makes the ad true for this moment.
    pub(in super::super) fn refresh(&mut self, world: &World<'_>) {
        let mut ad = std::mem::take(&mut self.ad);
        self.fill(Arc::make_mut(&mut ad), world);
        self.ad = ad;
        self.latch(world);
        self.is_fresh = true;
    }

    /// Whatever was seen of the machine anew; what its owner says of the slot is stronger.
    pub(in super::super) fn overlay(&mut self, attributes: &ClassAd) {
        let ad = Arc::make_mut(&mut self.ad);
        for (name, expr) in attributes.iter() {
            let is_said = [&self.resources, &self.policy.attributes]
                .iter()
                .any(|said| said.get(name.clone()).is_some());
            if !is_said {
                ad.insert(name.clone(), Arc::clone(expr));
            }
        }
        for name in &self.policy.withheld {
            ad.remove(name.as_str());
        }
        self.is_fresh = false;
    }

    /// Another policy: what only the last one has said is forgotten.
    pub(in super::super) fn goes_by(&mut self, policy: Arc<super::super::policy::Policy>) {
        let ad = Arc::make_mut(&mut self.ad);
        for (name, _) in self.policy.attributes.iter() {
            ad.remove(name.clone());
        }
        for (name, expr) in policy.attributes.iter() {
            ad.insert(name.clone(), Arc::clone(expr));
        }
        for name in &policy.withheld {
            ad.remove(name.as_str());
        }
        self.policy = policy;
        self.is_fresh = false;
    }

    fn fill(&self, ad: &mut ClassAd, world: &World<'_>) {
        let rules = &self.policy.rules;
        let now = world.now;
        let mut set = |name: &str, value: Expr| {
            ad.insert(name, value);
        };
        set("Name", Expr::string(self.full_name(world).as_str()));
        let count = i64::try_from(world.slots).unwrap_or(i64::MAX);
        set(rules.slot_count, count.into());
        set(rules.slot_number, i64::from(self.id.number).into());
        match self.kind {
            Kind::Static => set("SlotType", "Static".into()),
            Kind::Partitionable => {
                set("SlotType", "Partitionable".into());
                set("PartitionableSlot", true.into());
            }
            Kind::Dynamic => {
                set("SlotType", "Dynamic".into());
                set("DynamicSlot", true.into());
                set("DSlotID", i64::from(self.id.part.unwrap_or(0)).into());
                set("ParentSlotId", i64::from(self.id.number).into());
            }
        }
        set("State", format!("{:?}", self.place.state).into());
        set("Activity", format!("{:?}", self.place.activity).into());
        set("EnteredCurrentState", self.entered_state.into());
        set("EnteredCurrentActivity", self.entered_activity.into());
        let (minute, day) = dialect::clock(now, world.clock.utc_offset);
        set("ClockMin", minute.into());
        set("ClockDay", day.into());
        if rules.current_time {
            set("CurrentTime", now.into());
        } else {
            set("MyCurrentTime", now.into());
            let slot_type = self.policy.slot_type.unwrap_or(0);
            set("SlotTypeID", i64::from(slot_type).into());
            for (place, seconds) in self.spent(now).into_iter().filter(|(_, time)| *time > 0) {
                let (state, activity) = (place.state.name(), place.activity.name());
                set(&format!("TotalTime{state}{activity}"), seconds.into());
            }
        }
        set("ConsoleIdle", world.part.console_idle.into());
        set("KeyboardIdle", world.part.keyboard_idle.into());
        set("LoadAvg", world.part.load.into());
        set("CondorLoadAvg", world.part.job_load.into());
        set("TotalLoadAvg", world.load.into());
        set("TotalCondorLoadAvg", world.job_load.into());
        for (name, value) in &world.others {
            ad.insert(name.as_str(), Arc::clone(value));
        }
        for (name, expr) in self.resources.iter() {
            ad.insert(name.clone(), Arc::clone(expr));
        }
        devices::publish(&self.devices, ad);
        if !rules.current_time {
            let own = resource_names(&self.resources)
                .filter(|name| !OF_EVERY_MACHINE.contains(&name.as_str()));
            let all = "Cpus Memory Disk Swap".to_owned();
            let all = own.fold(all, |all, name| format!("{all} {name}"));
            ad.insert("MachineResources", Expr::string(all.as_str()));
        }
        // While the machine drains, another START may count.
        let own = self.policy.attributes.get("START");
        if let Some(start) = world.admits.as_ref().or(own) {
            ad.insert("START", Arc::clone(start));
        }
        for name in OF_A_CLAIM {
            ad.remove(*name);
        }
        for name in &self.policy.of_the_job {
            ad.remove(name.as_str());
        }
        self.fill_claim(ad, world);
    }

    /// `Name`. In former times a machine with one slot had no numbers.
    fn full_name(&self, world: &World<'_>) -> String {
        match world.name {
            None => self.name(),
            Some(machine) if self.policy.rules.current_time && world.slots == 1 => {
                machine.to_owned()
            }
            Some(machine) => format!("{}@{machine}", self.name()),
        }
    }

    fn fill_claim(&self, ad: &mut ClassAd, world: &World<'_>) {
        let Some(claim) = &self.claim else {
            ad.insert("CurrentRank", Expr::from(0.0));
            return;
        };
        let copy = |ad: &mut ClassAd, from: &ClassAd, theirs: &str, ours: &str| {
            if let Some(expr) = from.get(theirs) {
                ad.insert(ours, Arc::clone(expr));
            }
        };
        let here = world.now - self.entered_activity;
        let works = self.place.works();
        let stands = self.place.activity == Activity::Suspended;
        let mut set = |name: &str, value: i64| {
            ad.insert(name, Expr::from(value));
        };
        set("TotalClaimRunTime", claim.ran + here * i64::from(works));
        set(
            "TotalClaimSuspendTime",
            claim.stood + here * i64::from(stands),
        );
        if let Some(active) = &claim.active {
            set("JobStart", active.since);
            set("LastPeriodicCheckpoint", active.last_image);
            set("TotalJobRunTime", active.ran + here * i64::from(works));
            set(
                "TotalJobSuspendTime",
                active.stood + here * i64::from(stands),
            );
        }
        ad.insert("CurrentRank", Expr::from(claim.rank));
        copy(ad, &claim.job, "Owner", "RemoteOwner");
        copy(ad, &claim.job, "Owner", "RemoteUser");
        // Whoever claims a slot of a machine that has a name is on that machine.
        if let Some(name) = world.name {
            ad.insert("ClientMachine", Expr::string(name));
        }
        if claim.active.is_some() {
            for name in &self.policy.of_the_job {
                copy(ad, &claim.job, name, name);
            }
            let part = |name| claim.job.get(name).map(|expr| expr.to_string());
            if let (Some(cluster), Some(process)) = (part("ClusterId"), part("ProcId")) {
                ad.insert("JobId", Expr::from(format!("{cluster}.{process}")));
            }
        }
        if let Some(waiting) = &self.waiting {
            ad.insert("PreemptingRank", Expr::from(waiting.rank));
            copy(ad, &waiting.job, "Owner", "PreemptingOwner");
            copy(ad, &waiting.job, "Owner", "PreemptingUser");
        }
    }

    /// Since when the processor is busy, and what other latches say.
    fn latch(&mut self, world: &World<'_>) {
        let now = world.now;
        let value = |slot: &Slot, name: &str| {
            let mut context = Context::new(&world.clock).with_my(Arc::clone(&slot.ad));
            if let Some(claim) = &slot.claim {
                context = context.with_target(Arc::clone(&claim.job));
            }
            context.eval_attribute(name).ok().as_ref().and_then(whole)
        };
        let busy = value(self, "CpuBusy").is_some_and(|busy| busy != 0);
        self.busy_since = match busy {
            true => self.busy_since.or(Some(now)),
            false => None,
        };
        let mut ad = vec![("CpuIsBusy".to_owned(), Expr::from(busy))];
        let busy_time = self.busy_since.map_or(0, |since| now - since);
        ad.push(("CpuBusyTime".to_owned(), busy_time.into()));
        // A latch's time is a moment, not a span: HTCondor's newer policies reckon with that.
        let policy = Arc::clone(&self.policy);
        for name in &policy.latches {
            let Some(value) = value(self, name) else {
                continue;
            };
            let latch = self.latches.entry(name.clone()).or_insert((value, now));
            if latch.0 != value {
                *latch = (value, now);
            }
            ad.push((format!("{name}Value"), latch.0.into()));
            ad.push((format!("{name}Time"), latch.1.into()));
        }
        let all = Arc::make_mut(&mut self.ad);
        for (name, value) in ad {
            all.insert(name.as_str(), value);
        }
    }

    /// What other slots see of it, under its own name: `slot1_State` …
    pub(in super::super) fn shown(&self) -> Vec<(String, Arc<Expr>)> {
        let name = self.name();
        let mut shown = vec![
            (
                format!("{name}_State"),
                Arc::new(format!("{:?}", self.place.state).into()),
            ),
            (
                format!("{name}_Activity"),
                Arc::new(format!("{:?}", self.place.activity).into()),
            ),
        ];
        for attribute in &self.policy.shared {
            let known = ["State", "Activity"];
            let known = known
                .iter()
                .any(|name| attribute.eq_ignore_ascii_case(name));
            if let Some(expr) = self.ad.get(attribute.as_str()).filter(|_| !known) {
                shown.push((format!("{name}_{attribute}"), Arc::clone(expr)));
            }
        }
        shown
    }

    /// The ad as it is published: `Requirements`, and START only where somebody has to look at it (current manual, "The START Expression").
    pub(in super::super) fn published(&self, world: &World<'_>) -> ClassAd {
        let mut ad = ClassAd::clone(&self.ad);
        let available = !world.is_closed()
            && !matches!(
                self.place.state,
                State::Matched | State::Preempting | State::Drained
            );
        if !available {
            ad.insert("Requirements", Expr::from(false));
            return ad;
        }
        let locally = Context::new(&world.clock)
            .with_my(Arc::clone(&self.ad))
            .eval_attribute("START");
        let start = match locally.ok().and_then(|value| value.truth()) {
            Some(true) => {
                ad.remove("START");
                Expr::from(true)
            }
            _ => Expr::attribute("START"),
        };
        let platform = Expr::attribute("IS_VALID_CHECKPOINT_PLATFORM");
        let both = Expr::Binary(classad::BinaryOp::And, Arc::new(start), Arc::new(platform));
        ad.insert("Requirements", both);
        ad
    }
}
