//! The ads of a machine's slots (manual 6.8 §3.5.1; docs/MACHINE_AD.md has every attribute, its units and its source).

use super::bench::Benchmarks;
use super::busy::BusyTime;
use super::custom::share;
use super::dialect::Era as _;
use super::facts::Facts;
use super::idle::Idle;
use super::look::Look;
use super::settings::Settings;
use super::shares::{Share, condor_load, idle_shares, owner_loads};
use super::slot::{Kind, Slot};
use classad::config::Dialect;
use classad::{ClassAd, Expr, Literal};
use std::sync::Arc;

/// All that is known of a machine at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// What it is.
    pub facts: &'a Facts,
    /// How busy it is.
    pub look: &'a Look,
    /// What the configuration says.
    pub settings: &'a Settings,
    /// How fast it is.
    pub benchmarks: &'a Benchmarks,
    /// Its slots.
    pub slots: &'a [Slot],
    /// When what offers it was started, in seconds since 1970.
    pub started_at: i64,
}

/// An ad of an era: what the era does not have is not written.
struct Page {
    dialect: Dialect,
    ad: ClassAd,
}

impl Page {
    fn put(&mut self, name: &str, value: impl Into<Arc<Expr>>) {
        if self.dialect.has(name) {
            self.ad.insert(name, value);
        }
    }

    fn put_some(&mut self, name: &str, value: Option<impl Into<Expr>>) {
        if let Some(value) = value {
            self.put(name, value.into());
        }
    }

    /// Beyond 2^63: the largest there is.
    fn put_count(&mut self, name: &str, value: u64) {
        self.put(name, count(value));
    }

    fn put_if_any(&mut self, name: &str, value: i64) {
        if value > 0 {
            self.put(name, Expr::from(value));
        }
    }
}

fn count(value: u64) -> Expr {
    Expr::from(i64::try_from(value).unwrap_or(i64::MAX))
}

/// An integer if it is one.
fn quantity(value: f64) -> Expr {
    let whole = value.trunc();
    match whole == value && whole.abs() < 1e15 {
        true => Expr::from(whole as i64),
        false => Expr::from(value),
    }
}

fn share_of(kib: u64, share: f64) -> u64 {
    (kib as f64 * share.clamp(0.0, 1.0)).floor() as u64
}

/// Two digits behind the point, as the original has loads.
fn load(value: f64) -> Expr {
    Expr::from((value * 100.0).round_ties_even() / 100.0)
}

impl Machine<'_> {
    /// NUM_CPUS, or what was detected.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.settings.cpus_of(self.facts)
    }

    /// An ad for each slot, in their order. START and Requirements are not in it ([`super::Offer::publish`]).
    #[must_use]
    pub fn ads(&self) -> Vec<ClassAd> {
        let dialect = self.settings.dialect;
        let shares: Vec<Share> = self.slots.iter().map(Share::from).collect();
        let owner = owner_loads(self.look.load, &shares, dialect);
        let age_s = self.look.at.saturating_sub(self.started_at).max(0);
        let connected = &self.settings.connected;
        let idle = idle_shares(self.look.idle, age_s, &shares, connected, dialect);
        let condor = condor_load(self.look.load, &shares);
        let mut ads = vec![];
        for ((slot, owner), idle) in self.slots.iter().zip(owner).zip(idle) {
            let ad = ClassAd::new();
            let mut page = Page { dialect, ad };
            self.put_machine(&mut page);
            self.put_loads(&mut page, slot, owner, condor);
            self.put_idle(&mut page, idle);
            self.put_slot(&mut page, slot);
            self.put_size(&mut page, slot);
            put_life(&mut page, slot);
            self.put_busy(&mut page, slot);
            put_claim(&mut page, slot);
            self.settings.custom.put(slot.id, &mut page.ad);
            ads.push(page.ad);
        }
        let ids = self.slots.iter().map(|slot| (slot.id, slot.sub_id));
        let ids: Vec<_> = ids.collect();
        share(dialect, &ids, &self.settings.shared, &mut ads);
        ads
    }

    fn host(&self) -> &str {
        let own = &self.facts.host;
        self.settings.host.as_ref().unwrap_or(own)
    }

    /// What all slots have alike.
    fn put_machine(&self, page: &mut Page) {
        let (facts, settings, look) = (self.facts, self.settings, self.look);
        let host = self.host();
        let or_host = |domain: &Option<String>| domain.as_deref().unwrap_or(host).to_owned();
        page.put("MyType", Expr::from("Machine"));
        page.put("TargetType", Expr::from("Job"));
        page.put("Machine", Expr::from(host));
        page.put(
            "FileSystemDomain",
            Expr::from(or_host(&settings.file_system_domain)),
        );
        page.put("UidDomain", Expr::from(or_host(&settings.uid_domain)));
        page.put_some("StartdIpAddr", settings.address.clone());
        page.put_some("MyAddress", settings.address.clone());
        page.put_some("CheckpointPlatform", settings.checkpoint_platform.clone());
        let has = settings.has_user_namespaces.filter(|has| *has);
        page.put_some("HasUserNamespaces", has);
        page.put("Arch", Expr::from(facts.arch.as_str()));
        self.put_system(page);
        self.put_processors(page);
        page.put("TotalCpus", Expr::from(i64::from(self.cpus())));
        page.put_count("TotalMemory", settings.memory_mib_of(facts));
        page.put_count("DetectedMemory", facts.memory_mib());
        page.put_count("TotalVirtualMemory", look.virtual_memory_kib);
        page.put_count("TotalDisk", look.disk_kib);
        let slots = i64::try_from(self.slots.len()).unwrap_or(i64::MAX);
        page.put("TotalSlots", Expr::from(slots));
        page.put("TotalVirtualMachines", Expr::from(slots));
        page.put("ClockDay", Expr::from(look.local.day));
        page.put("ClockMin", Expr::from(look.local.minute));
        // It is evaluated where it is asked for: the clock goes on.
        let now = Expr::Call {
            name: "time".into(),
            arguments: vec![],
        };
        page.put("CurrentTime", now);
        page.put("MyCurrentTime", Expr::from(look.at));
        self.put_expressions(page);
        page.put_some("Mips", self.benchmarks.mips());
        page.put_some("KFlops", self.benchmarks.kflops());
        page.put("LastBenchmark", Expr::from(self.benchmarks.last_at()));
    }

    /// What the configuration says of jobs, for others to evaluate.
    fn put_expressions(&self, page: &mut Page) {
        let settings = self.settings;
        let or = |expr: &Option<Arc<Expr>>, default: Expr| {
            let expr = expr.clone();
            expr.unwrap_or_else(|| Arc::new(default))
        };
        page.put("Rank", or(&settings.rank, Expr::from(0.0)));
        let retirement = or(&settings.max_job_retirement_time, Expr::from(0));
        page.put("MaxJobRetirementTime", retirement);
        let optional = [
            ("CpuBusy", &settings.cpu_busy),
            ("MachineMaxVacateTime", &settings.machine_max_vacate_time),
        ];
        for (name, expr) in optional {
            if let Some(expr) = expr {
                page.put(name, expr.clone());
            }
        }
    }

    fn put_system(&self, page: &mut Page) {
        let system = &self.facts.operating_system;
        let distribution = &system.distribution;
        page.put("OpSys", Expr::from(system.opsys.as_str()));
        page.put("OpSysLegacy", Expr::from(system.opsys.as_str()));
        page.put("OpSysName", Expr::from(distribution.name));
        page.put("OpSysShortName", Expr::from(distribution.name));
        let long_name = distribution.long_name.as_str();
        page.put("OpSysLongName", Expr::from(long_name));
        page.put("OpSysAndVer", Expr::from(distribution.and_version()));
        page.put_if_any("OpSysMajorVer", distribution.major);
        page.put_if_any("OpSysVer", distribution.version);
        let uname = &self.facts.system;
        page.put("UtsnameSysname", Expr::from(uname.sysname.as_str()));
        page.put("UtsnameNodename", Expr::from(uname.nodename.as_str()));
        page.put("UtsnameRelease", Expr::from(uname.release.as_str()));
        page.put("UtsnameVersion", Expr::from(uname.version.as_str()));
        page.put("UtsnameMachine", Expr::from(uname.machine.as_str()));
    }

    fn put_processors(&self, page: &mut Page) {
        let processors = &self.facts.processors;
        page.put(
            "DetectedCpus",
            Expr::from(i64::from(self.settings.detected(self.facts))),
        );
        page.put("Microarch", Expr::from(processors.microarch()));
        page.put_some("CpuFamily", processors.family);
        page.put_some("CpuModelNumber", processors.model);
        page.put_some("CpuCacheSize", processors.cache_kib);
        if page.dialect == Dialect::V25 {
            for flag in processors.published_flags() {
                page.ad.insert(format!("has_{flag}"), Expr::from(true));
            }
        }
    }

    fn put_loads(&self, page: &mut Page, slot: &Slot, owner: f64, condor: f64) {
        page.put("TotalLoadAvg", load(self.look.load));
        page.put("TotalCondorLoadAvg", load(condor));
        page.put("CondorLoadAvg", load(slot.condor_load));
        page.put("LoadAvg", load(owner + slot.condor_load));
    }

    fn put_idle(&self, page: &mut Page, idle: Idle) {
        page.put("KeyboardIdle", Expr::from(idle.keyboard_s));
        page.put("ConsoleIdle", Expr::from(idle.console_s));
    }

    fn put_slot(&self, page: &mut Page, slot: &Slot) {
        let dialect = page.dialect;
        let host = self.settings.name.as_deref().unwrap_or(self.host());
        // A machine with one slot had no numbers in former times.
        let name = match dialect != Dialect::V25 && self.slots.len() == 1 {
            true => host.to_owned(),
            false => format!("{}@{host}", dialect.slot_name(slot.id, slot.sub_id)),
        };
        page.put("Name", Expr::from(name));
        page.put("VirtualMachineID", Expr::from(i64::from(slot.id)));
        page.put("SlotID", Expr::from(i64::from(slot.id)));
        page.put("SlotType", Expr::from(slot.kind.name()));
        page.put("SlotTypeID", Expr::from(i64::from(slot.type_id)));
        match slot.kind {
            Kind::Static => {}
            Kind::Partitionable => page.put("PartitionableSlot", Expr::from(true)),
            Kind::Dynamic => {
                page.put("DynamicSlot", Expr::from(true));
                page.put("ParentSlotId", Expr::from(i64::from(slot.id)));
                page.put_some("DSlotId", slot.sub_id.map(i64::from));
            }
        }
        let weight = slot.weight.clone();
        let weight = weight.unwrap_or_else(|| Arc::new(Expr::attribute("Cpus")));
        page.put("SlotWeight", weight);
    }

    fn put_size(&self, page: &mut Page, slot: &Slot) {
        let look = self.look;
        page.put("Cpus", quantity(slot.cpus));
        page.put("TotalSlotCpus", quantity(slot.total_cpus));
        page.put_count("Memory", slot.memory_mib);
        page.put_count("TotalSlotMemory", slot.total_memory_mib);
        page.put_count("Disk", share_of(look.disk_kib, slot.disk_share));
        let total = share_of(look.disk_kib, slot.total_disk_share);
        page.put_count("TotalSlotDisk", total);
        let swap = share_of(look.virtual_memory_kib, slot.swap_share);
        page.put_count("VirtualMemory", swap);
        let mut resources = "Cpus Memory Disk Swap".to_owned();
        if page.dialect == Dialect::V25 {
            for (name, (left, all)) in &slot.resources {
                resources = format!("{resources} {name}");
                page.ad.insert(name.as_str(), quantity(*left));
                page.ad.insert(format!("TotalSlot{name}"), quantity(*all));
                let sum: f64 = self.slots.iter().map(|slot| all_of(slot, name)).sum();
                page.ad.insert(format!("Total{name}"), quantity(sum));
                page.ad.insert(format!("Detected{name}"), quantity(sum));
            }
        }
        page.put("MachineResources", Expr::from(resources));
    }

    fn put_busy(&self, page: &mut Page, slot: &Slot) {
        let busy = &slot.busy;
        match self.settings.busy_time {
            BusyTime::Seconds => {
                page.put("CpuBusyTime", Expr::from(busy.seconds(self.look.at)));
                page.put("CpuIsBusy", Expr::from(busy.is_busy()));
            }
            BusyTime::Moment => {
                page.put_some("CpuBusyValue", busy.value().map(i64::from));
                page.put_some("CpuBusyTime", busy.changed_at());
            }
        }
    }
}

/// How much of a resource a slot has in all. What dynamic slots have is a part of their partitionable slot's.
fn all_of(slot: &Slot, resource: &str) -> f64 {
    match slot.kind {
        Kind::Dynamic => 0.0,
        _ => slot.resources.get(resource).map_or(0.0, |(_, all)| *all),
    }
}

fn put_life(page: &mut Page, slot: &Slot) {
    page.put("State", Expr::from(slot.state.name()));
    page.put("Activity", Expr::from(slot.activity.name()));
    page.put("EnteredCurrentState", Expr::from(slot.entered_state_at));
    page.put(
        "EnteredCurrentActivity",
        Expr::from(slot.entered_activity_at),
    );
    for (state, activity, seconds) in &slot.times {
        let name = format!("TotalTime{}{}", state.name(), activity.name());
        page.put_if_any(&name, *seconds);
    }
}

fn put_claim(page: &mut Page, slot: &Slot) {
    page.put("CurrentRank", Expr::Literal(Literal::Real(slot.rank())));
    if let Some(claim) = &slot.claim {
        page.put_some("ClientMachine", claim.client_machine.clone());
        page.put_some("RemoteOwner", claim.remote_owner.clone());
        page.put_some("RemoteUser", claim.remote_user.clone());
        page.put_if_any("TotalClaimRunTime", claim.run_s);
        page.put_if_any("TotalClaimSuspendTime", claim.suspended_s);
        if let Some(next) = &claim.preempting {
            page.put_some("PreemptingOwner", next.owner.clone());
            page.put_some("PreemptingUser", next.user.clone());
            page.put("PreemptingRank", Expr::from(next.rank));
        }
    }
    if let Some(job) = &slot.job {
        for (name, expr) in &job.shown {
            page.ad.insert(name.as_str(), expr.clone());
        }
        page.put("JobId", Expr::from(job.id.as_str()));
        page.put("JobStart", Expr::from(job.started_at));
        page.put_some("LastPeriodicCheckpoint", job.checkpoint_at);
        page.put_some("ImageSize", job.image_size_kib.map(count));
        page.put_if_any("TotalJobRunTime", job.run_s);
        page.put_if_any("TotalJobSuspendTime", job.suspended_s);
    }
}
