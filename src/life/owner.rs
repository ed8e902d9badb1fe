//! The owner of the machine has a say about a lone job (`run --policy FILE`): the machine's states, with one slot that the job has.
//!
//! ```text
//! FILE ──> starter::machine, one slot ──SUSPEND, CONTINUE, PREEMPT, WANT_VACATE, WANT_HOLD, KILL, PERIODIC_CHECKPOINT──> Command ──> Life
//! ```
//! # What callers may rely on
//! A job that was begun runs: START, `IS_OWNER`, RANK and slots of the configuration are not asked. One that has to leave does so as told
//! by a signal, and it is for whoever has begun it to begin it again.

use super::{NOBODY, Starter};
use crate::config::user_maps;
use crate::jobs::Job;
use crate::measured::{self, Measured};
use crate::raw;
use crate::report::Outcome;
use crate::startd::configuration;
use classad::config::Dialect;
use classad::{ClassAd, Expr};
use nix::unistd::Uid;
use starter::life::{Command, Event as Told, Hold, State};
use starter::machine::{Activity, ClaimId, Event, Machine, Order, SlotId, settings_of};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a lone job is not asked for.
const OURS: &[(&str, &str)] = &[
    ("START", "True"),
    ("IS_OWNER", "False"),
    ("IS_VALID_CHECKPOINT_PLATFORM", "True"),
    ("RunBenchmarks", "False"),
    ("ENABLE_BACKFILL", "False"),
    ("CLAIM_WORKLIFE", "-1"),
    ("NUM_SLOTS", "1"),
];
/// Settings about types of slots.
const TYPES: &[&str] = &[
    "SLOT_TYPE_",
    "NUM_SLOTS_TYPE_",
    "NUM_VIRTUAL_MACHINES_TYPE_",
];
const SLOT: SlotId = SlotId::of(1);
/// The longest reason, in characters, each of which may be six bytes of JSON.
const LONGEST_REASON: usize = 500;

pub(super) struct Owner {
    measured: Measured,
    machine: Machine,
    polling_interval: i64,
    next: i64,
    /// What he wanted of it when it began.
    first: Vec<Command>,
    /// What is to be said of his policy.
    said: Vec<String>,
    /// How often the job had been started when he was heard last.
    starts: u64,
}

impl Owner {
    /// By this configuration.
    ///
    /// # Errors
    /// What is wrong with it, with file and line.
    pub(super) fn begin(path: &Path, dialect: Dialect, job: &Job) -> Outcome<Self> {
        let config = configuration(path, dialect)?;
        let mut measured = Measured::begin(&config)?;
        let detected = measured.detected(&config)?;
        let settings = |name: &str| {
            let named = |ours: &&(&str, &str)| ours.0.eq_ignore_ascii_case(name);
            let upper = name.to_ascii_uppercase();
            match OURS.iter().find(named) {
                Some((_, value)) => Some((*value).to_owned()),
                None if TYPES.iter().any(|prefix| upper.starts_with(prefix)) => None,
                None => settings_of(&config)(name),
            }
        };
        let now = measured.now();
        let machine = Machine::begin(&settings, dialect, &detected, now)?
            .with_utc_offset(measured.utc_offset())
            .with_claimants_here()
            .with_name(measured.name())
            .with_users(user_maps(&config)?);
        let polling_interval = measured::number(&config, "POLLING_INTERVAL")?
            .unwrap_or(5)
            .max(1);
        let warnings = config.warnings().iter().map(ToString::to_string);
        let said = warnings.chain(machine.doubts()).collect();
        let mut owner = Owner {
            measured,
            machine,
            polling_interval,
            next: now,
            first: vec![],
            said,
            starts: 0,
        };
        let ad = ad(job);
        let claim = ClaimId(1);
        for event in [
            Event::Time,
            Event::Claimed {
                slot: SLOT,
                claim,
                job: Arc::clone(&ad),
            },
            Event::Activated {
                slot: SLOT,
                job: ad,
            },
        ] {
            let commands = owner.step(event, now);
            owner.first.extend(commands);
        }
        Ok(owner)
    }

    /// When it wants to be asked.
    pub(super) fn wakes_in(&self) -> Duration {
        let at = self.next.min(self.machine.wake_at());
        let at = Duration::from_secs(u64::try_from(at).unwrap_or(0));
        at.saturating_sub(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        )
    }

    /// Whether the job is to stand still.
    fn wants_it_still(&self) -> bool {
        let slot = self.machine.slot(SLOT);
        slot.is_some_and(|slot| slot.place().activity == Activity::Suspended)
    }

    /// The job was suspended by its user, or goes on by him.
    fn by_hand(&self, job: &Job, now: i64) -> Option<Event> {
        let stands = job.life.as_ref()?.state() == Some(State::Suspended);
        self.machine.slot(SLOT)?.told_by_hand(stands, now)
    }

    /// What he wants when something has happened; what his policy could not say is kept.
    fn step(&mut self, event: Event, now: i64) -> Vec<Command> {
        let mut commands = vec![];
        for order in self.machine.step(event, now) {
            if let Order::Warn {
                name,
                value,
                counts_as,
                ..
            } = &order
            {
                let warning = format!("{name} is {value}, and counts as {counts_as}");
                self.said.push(warning);
            }
            commands.extend(command(order));
        }
        commands
    }

    /// The job is to leave, as somebody else wants: how long it may take to is still the owner's to say (KILL, MachineMaxVacateTime).
    pub(super) fn is_to_leave(&mut self) {
        let now = self.measured.now();
        let slot = Some(SLOT);
        let commands = self.step(Event::Vacate { slot, fast: false }, now);
        self.first.extend(commands);
        self.next = now;
    }

    /// What he wants now.
    pub(super) fn wants(&mut self, job: &Job) -> Vec<Command> {
        let now = self.measured.now();
        // A clock that was set back does not make us blind for as long.
        let is_early = now < self.next && self.next <= now.saturating_add(self.polling_interval);
        if is_early && now < self.machine.wake_at() {
            return vec![];
        }
        self.next = now.saturating_add(self.polling_interval);
        self.machine.set_utc_offset(self.measured.utc_offset());
        let mut ad = ad(job);
        let pids = job.processes().all;
        let mut events = vec![];
        match self.measured.seen(&[(SLOT, pids)], self.polling_interval) {
            Ok((seen, sizes)) => {
                if let (Some(kib), None) = (sizes.get(&SLOT), ad.get("ImageSize")) {
                    let kib = i64::try_from(*kib).unwrap_or(i64::MAX);
                    Arc::make_mut(&mut ad).insert("ImageSize", Expr::from(kib));
                }
                events.push(Event::JobChanged {
                    slot: SLOT,
                    job: ad,
                });
                events.push(Event::Seen(seen));
                events.extend(self.by_hand(job, now));
            }
            Err(failure) => {
                tracing::warn!("{failure}");
                events.push(Event::Time);
            }
        }
        let mut commands = std::mem::take(&mut self.first);
        for event in events {
            commands.extend(self.step(event, now));
        }
        commands
    }
}

impl Starter<'_> {
    /// A command that has not come from the owner, and of which he is to know.
    pub(super) fn tell_owner(&mut self, command: &Command) {
        if let (Command::Vacate { .. }, Some(owner)) = (command, &mut self.owner) {
            owner.is_to_leave();
        }
    }

    /// What the owner wants of a copy that is there is asked.
    pub(super) fn hear_owner(&mut self) {
        let is_there = self.copy.is_some();
        let starts = self.record.counted.num_job_starts;
        let Some(owner) = self.owner.as_mut().filter(|_| is_there) else {
            return;
        };
        // A copy that goes on from an image does not know that it is to stand still.
        if std::mem::replace(&mut owner.starts, starts) != starts && owner.wants_it_still() {
            self.events.push_back(Told::Asked(NOBODY, Command::Suspend));
        }
        if let Ok(job) = self.store.find(&self.name) {
            let asked = owner.wants(&job).into_iter();
            self.events
                .extend(asked.map(|command| Told::Asked(NOBODY, command)));
            for warning in std::mem::take(&mut owner.said) {
                self.voice.say(&warning);
            }
        }
    }
}

fn command(order: Order) -> Option<Command> {
    match order {
        Order::Changed(change) => {
            tracing::info!("{} -> {} ({})", change.from, change.to, change.reason);
            None
        }
        Order::Suspend(_) => Some(Command::Suspend),
        Order::Continue(_) => Some(Command::Continue),
        Order::Checkpoint(_) => Some(Command::Checkpoint),
        Order::Hold {
            reason, subcode, ..
        } => Some(Command::Hold {
            hold: by_policy(&reason, subcode),
            insists: true,
        }),
        Order::Vacate { .. } => Some(Command::Vacate {
            within: None,
            insists: true,
        }),
        // Whatever does not end then, the starter ends.
        Order::Kill(_) => Some(Command::VacateLatest { at_any_price: true }),
        _ => None,
    }
}

/// The hold that a policy wants (`WANT_HOLD`), with as much of its reason as a starter listens to.
pub(crate) fn by_policy(reason: &str, subcode: i64) -> Hold {
    let reason = reason.chars().take(LONGEST_REASON).collect();
    let mut hold = Hold::new(reason, Hold::BY_MACHINE);
    hold.code.subcode = i32::try_from(subcode).unwrap_or(0);
    hold
}

/// The job, as a policy sees it.
fn ad(job: &Job) -> Arc<ClassAd> {
    let record = &job.record;
    let count = |number: u64| Expr::from(i64::try_from(number).unwrap_or(i64::MAX));
    let owner = crate::users::name_of(Uid::effective());
    let mut ad = ClassAd::new();
    ad.insert("MyType", Expr::from("Job"));
    ad.insert("JobUniverse", Expr::from(1));
    ad.insert("Owner", Expr::string(owner.as_str()));
    ad.insert("User", Expr::string(owner.as_str()));
    ad.insert("ClusterId", count(record.number.into()));
    ad.insert("ProcId", Expr::from(0));
    ad.insert("NumCkpts", count(record.generation));
    if let Some(program) = record.command.first() {
        ad.insert("Cmd", Expr::string(raw::shown(program).as_str()));
    }
    if let Some(last) = &record.last_checkpoint {
        ad.insert("ImageSize", count(last.size() >> 10));
    }
    Arc::new(ad)
}
