//! This machine, as its owner's configuration has it looked at, and told to the machine's states.
//!
//! ```text
//! Config ──settings──> starter::measure::Settings ──> Look, ads ──Measured::seen──> starter::machine::Seen
//! processes of the jobs ──────────────────────────────────'
//! ```

use crate::config::{Site, user_maps};
use crate::inventory;
use crate::report::{Exit, Explain, Failure, Outcome};
use ::classad::config::{Config, Dialect};
use ::classad::{ClassAd, Context, Expr, Nowhere, Surroundings, Value};
use ckpt_lib::platform::Platform;
use starter::machine::{Detected, Event, PolicyError, Seen, SlotId, settings_of};
use starter::measure::{
    Benchmarks, Busy, Connected, Custom, Facts, Here, JobUse, Look, Machine, Minute, Score,
    Settings, Slot, Source, Watch,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// The kernel feature of [`Platform`] that HTCondor calls HasUserNamespaces.
const OWN_IDS: &str = "own_ids";

/// Attributes that are a slot's, or that its policy has: they are no part of what is seen of a machine.
const OF_SLOTS: &[&str] = &[
    "Activity",
    "ConsoleIdle",
    "CondorLoadAvg",
    "CpuBusy",
    "CpuBusyTime",
    "CpuBusyValue",
    "CpuIsBusy",
    "CurrentRank",
    "CurrentTime",
    "EnteredCurrentActivity",
    "EnteredCurrentState",
    "KeyboardIdle",
    "LastBenchmark",
    "LoadAvg",
    "MachineMaxVacateTime",
    "MaxJobRetirementTime",
    "MyCurrentTime",
    "Name",
    "Rank",
    "Requirements",
    "SlotID",
    "SlotType",
    "SlotTypeID",
    "SlotWeight",
    "Start",
    "State",
    "TotalCondorLoadAvg",
    "TotalLoadAvg",
    "TotalSlots",
    "TotalVirtualMachines",
    "VirtualMachineID",
    "ClockDay",
    "ClockMin",
];

/// The measuring that a configuration asks for.
///
/// # Errors
/// A setting is no number, or no expression.
pub(crate) fn settings(config: &Config, facts: &Facts, platform: &Platform) -> Outcome<Settings> {
    let dialect = config.dialect();
    let mut settings = Settings::default_of(dialect, facts.processors.threads);
    let size = |name: &str| -> Outcome<Option<u64>> {
        Ok(number(config, name)?.map(|number| u64::try_from(number).unwrap_or(0)))
    };
    let either = |new: &str, old: &str| -> Outcome<Option<u32>> {
        let found = match number(config, new)? {
            None => number(config, old)?,
            found => found,
        };
        Ok(found.map(|number| u32::try_from(number.max(0)).unwrap_or(u32::MAX)))
    };
    settings.name = config.get("STARTD_NAME");
    settings.host = config
        .get("FULL_HOSTNAME")
        .filter(|host| host.contains('.'));
    settings.file_system_domain = config.get("FILESYSTEM_DOMAIN");
    settings.uid_domain = config.get("UID_DOMAIN");
    // 0 is what was detected.
    let some = |size: &u64| *size > 0;
    settings.cpus = size("NUM_CPUS")?
        .filter(some)
        .map(|cpus| u32::try_from(cpus).unwrap_or(u32::MAX));
    settings.counts_threads = truth(config, "COUNT_HYPERTHREAD_CPUS").unwrap_or(true);
    settings.memory_mib = size("MEMORY")?.filter(some);
    settings.reserved_memory_mib = size("RESERVED_MEMORY")?.unwrap_or(0);
    settings.reserved_disk_mib = size("RESERVED_DISK")?.unwrap_or(0);
    if let Some(execute) = config.get("EXECUTE") {
        settings.execute = PathBuf::from(execute);
    }
    let paths = |name: &str| {
        config
            .get(name)
            .map(|list| words(&list).map(PathBuf::from).collect())
    };
    if let Some(consoles) = paths("CONSOLE_DEVICES") {
        settings.watched.consoles = consoles;
    }
    if let Some(stamps) = paths("CONSOLE_STAMPS") {
        settings.watched.stamps = stamps;
    }
    settings.watched.distrusts_logins = truth(config, "STARTD_HAS_BAD_UTMP").unwrap_or(false);
    settings.watched.terminals = config.get("KEYBOARD_DEVICES").map(|list| {
        let devices = words(&list).map(|name| PathBuf::from("/dev").join(name));
        devices.collect()
    });
    let connected = &mut settings.connected;
    if let Some(slots) = either(
        "SLOTS_CONNECTED_TO_CONSOLE",
        "VIRTUAL_MACHINES_CONNECTED_TO_CONSOLE",
    )? {
        connected.consoles = slots;
    }
    if let Some(slots) = either(
        "SLOTS_CONNECTED_TO_KEYBOARD",
        "VIRTUAL_MACHINES_CONNECTED_TO_KEYBOARD",
    )? {
        connected.keyboards = slots;
    }
    if let Some(boost) = number(config, "DISCONNECTED_KEYBOARD_IDLE_BOOST")? {
        connected.boost_s = boost;
    }
    let expression =
        |name: &str| -> Outcome<Option<Arc<Expr>>> { Ok(config.expression(name)?.map(Arc::new)) };
    settings.rank = expression("RANK")?;
    settings.cpu_busy = expression("CpuBusy")?;
    settings.max_job_retirement_time = expression("MAXJOBRETIREMENTTIME")?;
    settings.machine_max_vacate_time = expression("MachineMaxVacateTime")?;
    settings.checkpoint_platform = Some(platform.to_string());
    settings.has_user_namespaces = Some(platform.kernel.contains(OWN_IDS));
    Ok(settings)
}

/// What the configuration adds to the ads of the first `slots` slots, for whoever has no [`starter::machine::Machine`] that says it.
///
/// # Errors
/// An attribute is no expression.
pub(crate) fn add_listed(settings: &mut Settings, config: &Config, slots: u32) -> Outcome<()> {
    settings.custom = Custom::read(settings.dialect, slots, |name| config.get(name))?;
    settings.shared = [
        "STARTD_SLOT_ATTRS",
        "STARTD_SLOT_EXPRS",
        "STARTD_VM_ATTRS",
        "STARTD_VM_EXPRS",
    ]
    .iter()
    .filter_map(|name| config.get(name))
    .collect();
    Ok(())
}

/// Whether this machine could go by a configuration: divided into slots, with every expression of each.
///
/// # Errors
/// What a startd would say.
pub(crate) fn fits(config: &Config) -> Outcome<()> {
    published(config).map(drop)
}

/// The first slot's ad, as this machine would publish it now.
///
/// # Errors
/// As [`fits`].
pub(crate) fn published(config: &Config) -> Outcome<ClassAd> {
    let mut measured = Measured::once(config)?;
    let detected = measured.detected(config)?;
    let (settings, now) = (settings_of(config), measured.now());
    let begun = starter::machine::Machine::begin(&settings, config.dialect(), &detected, now);
    let machine = begun.map_err(|error| placed(config, error))?;
    let mut machine = machine.with_users(user_maps(config)?);
    machine.step(Event::Seen(measured.seen(&[], 1)?.0), now);
    Ok(machine.ad(SlotId::of(1), now).unwrap_or_default())
}

/// What is wrong with a policy, with the place of the setting.
pub(crate) fn placed(config: &Config, error: PolicyError) -> Failure {
    let is_count = |name: &str| {
        let name = name.to_ascii_uppercase();
        ["NUM_SLOTS", "SLOT_TYPE_", "NUM_VIRTUAL_MACHINES"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    let place = match &error {
        PolicyError::NotAnExpression { name, .. }
        | PolicyError::NotANumber { name, .. }
        | PolicyError::NotAShare { name, .. }
        | PolicyError::NoResource { name, .. }
        | PolicyError::TooManySlots { name, .. } => config.setting(name),
        // They want too much together: the first that says how much.
        PolicyError::TooMuch { .. } => config
            .settings()
            .into_iter()
            .find(|setting| !setting.is_built_in && is_count(setting.name)),
        _ => None,
    };
    let failure = Failure::from(error);
    match place.filter(|setting| !setting.is_built_in) {
        Some(setting) => {
            let place = format!("{}: {}", setting.origin, setting.name);
            Failure::new(Exit::Failed, format!("{place}: {failure}"))
        }
        None => failure,
    }
}

/// Where a setting is from, to be said before its name; nothing if it is built in.
pub(crate) fn place_of(config: &Config, name: &str) -> String {
    let setting = config.setting(name);
    let setting = setting.filter(|setting| !setting.is_built_in);
    setting.map_or(String::new(), |setting| format!("{}: ", setting.origin))
}

/// What a platform offers jobs, for a machine that nobody has configured.
pub(crate) fn offer(settings: &mut Settings, platform: &Platform) {
    settings.connected = Connected::ALL;
    settings.has_user_namespaces = Some(platform.kernel.contains(OWN_IDS));
    settings.checkpoint_platform = Some(platform.to_string());
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    let parts = list.split(|c: char| c == ',' || c.is_whitespace());
    parts.filter(|word| !word.is_empty())
}

/// A setting that is a whole number, or an expression of constants.
///
/// # Errors
/// It is neither.
pub(crate) fn number(config: &Config, name: &str) -> Outcome<Option<i64>> {
    let Some(expr) = config.expression(name)? else {
        return Ok(None);
    };
    match Context::new(&Nowhere).eval(&expr) {
        Ok(Value::Integer(number)) => Ok(Some(number)),
        #[allow(clippy::cast_possible_truncation, reason = "cut, as the original does")]
        Ok(Value::Real(number)) if number.is_finite() => Ok(Some(number as i64)),
        _ => {
            let message = format!("{name} = {expr}: not a number");
            Err(Failure::new(Exit::Failed, message))
        }
    }
}

/// A setting that is true or false.
pub(crate) fn truth(config: &Config, name: &str) -> Option<bool> {
    let expr = config.expression(name).ok()??;
    Context::new(&Nowhere).eval(&expr).ok()?.truth()
}

/// What the processes of a job have used.
#[derive(Debug, Default)]
struct Used {
    minute: Minute,
    last: Option<(JobUse, Instant)>,
}

/// A machine that is looked at again and again.
pub(crate) struct Measured {
    here: Here,
    site: Site,
    watch: Watch,
    facts: Facts,
    settings: Settings,
    platform: Platform,
    benchmarks: Benchmarks,
    began: i64,
    used: BTreeMap<SlotId, Used>,
}

impl Measured {
    /// By this configuration.
    ///
    /// # Errors
    /// The machine does not say what it is, or a setting says nothing.
    pub(crate) fn begin(config: &Config) -> Outcome<Self> {
        Self::with(config, Watch::over_time())
    }

    /// By this configuration, for one look.
    ///
    /// # Errors
    /// As [`Measured::begin`].
    pub(crate) fn once(config: &Config) -> Outcome<Self> {
        Self::with(config, Watch::once())
    }

    fn with(config: &Config, watch: Watch) -> Outcome<Self> {
        let here = Here::new();
        let facts = Facts::of(&here).context(unmeasured)?;
        let platform = Platform::of_this_machine();
        let settings = settings(config, &facts, &platform)?;
        let began = here.now();
        Ok(Measured {
            here,
            site: Site::new(),
            watch,
            facts,
            settings,
            platform,
            benchmarks: Benchmarks::default(),
            began,
            used: BTreeMap::new(),
        })
    }

    /// By another configuration from now on.
    ///
    /// # Errors
    /// A setting says nothing; all is as it was.
    pub(crate) fn reconfigure(&mut self, config: &Config) -> Outcome<()> {
        self.settings = settings(config, &self.facts, &self.platform)?;
        Ok(())
    }

    pub(crate) fn now(&self) -> i64 {
        self.here.now()
    }

    pub(crate) fn utc_offset(&self) -> i32 {
        self.site.utc_offset(self.now())
    }

    pub(crate) fn platform(&self) -> &Platform {
        &self.platform
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.settings.dialect
    }

    /// What it is called: `slot1@NAME`.
    pub(crate) fn name(&self) -> String {
        let names = [&self.settings.name, &self.settings.host];
        let name = names.into_iter().flatten().next();
        name.unwrap_or(&self.facts.host).clone()
    }

    /// What it has for slots, with what the configuration's inventories say.
    ///
    /// # Errors
    /// It cannot be looked at, or an inventory cannot be taken.
    pub(crate) fn detected(&mut self, config: &Config) -> Outcome<Detected> {
        let look = self.look()?;
        let number = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
        Ok(Detected {
            cpus: i64::from(self.settings.cpus_of(&self.facts)),
            memory_mib: number(self.settings.memory_mib_of(&self.facts)),
            disk_kib: number(look.disk_kib),
            swap_kib: number(look.virtual_memory_kib),
            inventories: inventory::taken(config)?,
        })
    }

    fn look(&mut self) -> Outcome<Look> {
        Look::now(&self.here, &mut self.watch, &self.settings).context(unmeasured)
    }

    /// What a benchmark has found.
    pub(crate) fn note_score(&mut self, score: Score) {
        self.benchmarks.note(self.here.now(), score);
    }

    /// Looks at it, and at the processes of its jobs; the `ImageSize` of each in KiB.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(crate) fn seen(
        &mut self,
        jobs: &[(SlotId, Vec<i32>)],
        polling_interval_s: i64,
    ) -> Outcome<(Seen, BTreeMap<SlotId, u64>)> {
        let look = self.look()?;
        let processors = self.settings.cpus_of(&self.facts);
        let mut loads = vec![];
        let mut sizes = BTreeMap::new();
        self.used
            .retain(|slot, _| jobs.iter().any(|(other, _)| other == slot));
        for (slot, pids) in jobs {
            let use_now = JobUse::of(&self.here, pids);
            let used = self.used.entry(*slot).or_default();
            let now = Instant::now();
            let percent = match &used.last {
                Some((before, at)) => use_now.percent_since(before, (now - *at).as_secs_f64()),
                None => 0.0,
            };
            used.last = Some((use_now, now));
            used.minute.note(look.at, percent, polling_interval_s);
            loads.push((*slot, used.minute.load(processors, look.load)));
            sizes.insert(*slot, use_now.image_size_kib);
        }
        let seen = Seen {
            keyboard_idle: look.idle.keyboard_s,
            console_idle: look.idle.console_s,
            load: look.load,
            job_loads: loads,
            attributes: self.attributes(&look),
        };
        Ok((seen, sizes))
    }

    /// What all slots have alike.
    fn attributes(&self, look: &Look) -> ClassAd {
        let memory = self.settings.memory_mib_of(&self.facts);
        let mut slot = Slot::whole(self.settings.cpus_of(&self.facts), memory, look.at);
        slot.busy = Busy::default();
        let machine = Machine {
            facts: &self.facts,
            look,
            settings: &self.settings,
            benchmarks: &self.benchmarks,
            slots: &[slot],
            started_at: self.began,
        };
        let mut ad = machine.ads().into_iter().next().unwrap_or_default();
        for name in OF_SLOTS {
            ad.remove(*name);
        }
        let of_time: Vec<_> = ad
            .iter()
            .filter(|(name, _)| {
                name.text()
                    .to_str()
                    .is_some_and(|name| name.starts_with("TotalTime"))
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in of_time {
            ad.remove(name);
        }
        ad
    }
}

fn unmeasured() -> String {
    "this machine cannot be measured".to_owned()
}
