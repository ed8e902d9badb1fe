//! Giving jobs to this machine, as its owner allows (`wayfarer startd`; docs/POLICY.md, docs/adr/0026).
//!
//! ```text
//! spool/NAME.job ──> Queue ──offer──> claims ─┐                     ┌──> starters, children of ours (runner.rs)
//! keys, load, jobs ──Measured──> Seen ────────┼──> Machine::step ───┼──> backfill.rs
//! startd/control, signals ──> commands.rs ────┘   (starter::machine)└──> startd.json, the log
//! ```
//! # What callers may rely on
//! One thread, which waits for what happens and for the next moment that matters; it waits for no starter. One of these for each directory.
//! No job runs without it: when it is killed, jobs make images and leave, and the next one goes on with them.
//!
//! # What it does not do
//! It matches over one machine, for one user. What is decided about a slot is decided in `starter::machine` alone.

mod admission;
mod ask;
mod backfill;
mod commands;
mod job_file;
mod offer;
mod orders;
mod pace;
mod pending;
mod periodic;
mod queue;
mod record;
mod runner;
mod signals;
mod why;
mod words;

pub(crate) use ask::{Ask, How, Places};
pub(crate) use job_file::{Surrounding, read as read_job};
pub(crate) use queue::{file_of, load, name_of, owner, read_limited};
use record::DrainLine;
pub(crate) use record::{JobLine, Record, SlotLine};

use crate::args::{Startd as Arguments, Which};
use crate::config::user_maps;
use crate::jobs::{JobStore, Place, ProcessName};
use crate::life::Control;
use crate::measured::{self, Measured};
use crate::report::{Exit, Failure, Outcome, chain};
use crate::verbs;
use backfill::{Backfill, BackfillTurn};
use classad::config::{Config, Dialect};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use orders::Happening;
use pending::Pending;
use queue::{Found, Phase, Queue, Turn};
use runner::Runner;
use signals::{Meaning, Signals};
use starter::life::{Answer, State as LifeState, Who};
use starter::machine::{ClaimId, Event, Machine, SlotId, State, settings_of};
use starter::measure::Score;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::{error, info, warn};

/// Between two looks whether a starter listens, or a job of another startd is gone.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The longest that is slept.
const LONGEST: Duration = Duration::from_secs(60);

/// Benchmarks that are being run, in a thread of their own.
struct Benchmark {
    slot: SlotId,
    score: mpsc::Receiver<Score>,
}

struct Startd<'a> {
    store: &'a JobStore,
    which: Which,
    config: Config,
    places: Places,
    owner: String,
    since: i64,
    machine: Machine,
    measured: Measured,
    polling_interval: i64,
    next_look: i64,
    queue: Queue,
    /// Whose claim is for which job.
    claims: BTreeMap<ClaimId, String>,
    last_claim: u64,
    pending: Pending<Happening>,
    /// Who was offered last to the slots (offer.rs).
    offered: Option<Turn>,
    /// Something has happened that a job may wait for.
    offers: bool,
    backfills: Vec<Backfill>,
    backfill_turns: BTreeMap<SlotId, BackfillTurn>,
    benchmark: Option<Benchmark>,
    benchmarked: EventFd,
    control: Control<Ask>,
    /// Who waits until all jobs are gone.
    waiting: Vec<Who>,
    signals: Signals,
    is_shutting_down: bool,
    is_over: bool,
    /// How the machine is being drained.
    drain: Option<DrainLine>,
    /// Jobs that were not let in, and why: whoever hands one in is about to ask.
    refused: BTreeMap<String, String>,
    /// When jobs are asked next what they want now and then.
    next_wishes: i64,
    /// What whoever asked last is to know besides.
    notice: Option<String>,
    /// The ads of slots and of their jobs, as of the last time somebody asked.
    ads: BTreeMap<SlotId, (String, String)>,
    /// What the owner's policy could not say.
    fatal: Option<String>,
    written: Option<Record>,
}

/// Reads a configuration for the machine.
///
/// # Errors
/// What is wrong with it, with file and line.
pub(crate) fn configuration(path: &Path, dialect: Dialect) -> Outcome<Config> {
    Ok(verbs::config::read(&which(path, dialect))?.and_then(Config::sound)?)
}

fn which(path: &Path, dialect: Dialect) -> Which {
    Which {
        config: Some(path.to_owned()),
        dialect,
        subsystem: "STARTD".to_owned(),
        local_name: None,
        json: false,
    }
}

/// What the startd of this directory has written down, if one is there.
pub(crate) fn record(store: &JobStore) -> Outcome<Option<Record>> {
    let places = Places::of(store.dir());
    match places.is_watched() {
        true => Ok(Record::load(&places.record)?),
        false => Ok(None),
    }
}

/// Gives jobs to this machine until it is told to end.
pub(crate) fn run(store: &JobStore, arguments: &Arguments) -> Outcome {
    // Jobs would have what we were given.
    crate::sys::close_from(3);
    let Some(path) = &arguments.config else {
        let message = "which policy? --config FILE";
        return Err(Failure::new(Exit::Usage, message));
    };
    let absolute = std::path::absolute(path)?;
    let which = which(&absolute, arguments.dialect);
    let config = configuration(&absolute, arguments.dialect)?;
    crate::rights::lay_down()?;
    let places = Places::of(store.dir());
    places.make()?;
    let Some(_lock) = places.lock()? else {
        let dir = crate::raw::shown_path(store.dir());
        let message = format!("there is a startd already for the jobs in {dir}");
        return Err(Failure::new(Exit::Failed, message).advise("wayfarer startd status"));
    };
    crate::report::log(tracing_subscriber::filter::LevelFilter::INFO);
    for warning in config.warnings() {
        warn!("{warning}");
    }
    let mut startd = Startd::begin(store, which, config, places)?;
    startd.work()?;
    startd.conclude()
}

impl<'a> Startd<'a> {
    fn begin(store: &'a JobStore, which: Which, config: Config, places: Places) -> Outcome<Self> {
        let signals = Signals::open()?;
        let mut measured = Measured::begin(&config)?;
        let detected = measured.detected(&config)?;
        let now = measured.now();
        let machine = Machine::begin(&settings_of(&config), config.dialect(), &detected, now)
            .map_err(|error| measured::placed(&config, error))?
            .with_utc_offset(measured.utc_offset())
            .with_claimants_here()
            .with_name(measured.name())
            .with_users(user_maps(&config)?)
            .with_seed(u64::from(std::process::id()) << 32 | now.cast_unsigned());
        for doubt in machine.doubts() {
            warn!("{doubt}");
        }
        let before = match Record::load(&places.record) {
            Ok(before) => before,
            Err(error) => {
                warn!("{}, and is left out", chain(&error));
                None
            }
        };
        let left = backfill::kill_left(&places.own);
        if left > 0 {
            warn!("{left} processes of backfill were left by a startd that was killed");
        }
        let control = Control::open(&places.own)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let mut startd = Startd {
            store,
            polling_interval: polling_interval(&config)?,
            which,
            config,
            owner: queue::owner(),
            since: now,
            machine,
            measured,
            next_look: now,
            queue: Queue::new(places.clone()),
            places,
            claims: BTreeMap::new(),
            last_claim: 0,
            pending: Pending::new(),
            offered: None,
            offers: true,
            backfills: vec![],
            backfill_turns: BTreeMap::new(),
            benchmark: None,
            benchmarked: EventFd::from_value_and_flags(0, flags)?,
            control,
            waiting: vec![],
            signals,
            is_shutting_down: false,
            is_over: false,
            drain: None,
            refused: BTreeMap::new(),
            next_wishes: now,
            notice: None,
            ads: BTreeMap::new(),
            fatal: None,
            written: None,
        };
        startd.read_spool(before.as_ref())?;
        if let Some(drain) = before.and_then(|before| before.drain) {
            startd.drains_on(drain);
        }
        info!(
            "{} slots, {} jobs",
            startd.machine.slots().len(),
            startd.queue.entries.len()
        );
        Ok(startd)
    }

    /// Until all is over.
    fn work(&mut self) -> Outcome<()> {
        loop {
            while let Some(meaning) = self.signals.next() {
                match meaning {
                    Meaning::Child => self.reap(),
                    Meaning::Asked(ask) => self.told(ask),
                }
            }
            for (who, ask) in self.control.asked() {
                self.is_asked(who, ask);
            }
            self.hear_starters();
            self.hear_benchmark();
            self.take_turns();
            self.see();
            if std::mem::take(&mut self.offers) {
                self.offer();
            }
            self.save();
            if self.is_over {
                return Ok(());
            }
            self.wait()?;
        }
    }

    fn conclude(mut self) -> Outcome {
        self.waiting.clear();
        self.find_out_why();
        self.save();
        self.control.close(&Answer::Done, "Off");
        info!("all jobs are gone");
        match self.fatal.take() {
            None => Ok(Exit::Done),
            Some(why) => Err(Failure::new(Exit::Failed, why)),
        }
    }

    fn now(&self) -> i64 {
        self.measured.now()
    }

    fn wait(&self) -> Outcome<()> {
        let runners = || {
            let phases = self.queue.entries.values().map(|entry| &entry.phase);
            phases.filter_map(|phase| match phase {
                Phase::Running(runner) => Some(runner),
                _ => None,
            })
        };
        let mut fds = vec![self.signals.watched(), self.benchmarked.as_fd()];
        fds.extend(self.control.watched());
        fds.extend(runners().flat_map(|runner| Runner::watched(runner)));
        let mut fds: Vec<PollFd<'_>> = fds
            .into_iter()
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let is_leaving = |entry: &queue::Entry| matches!(entry.phase, Phase::Leaving);
        let again =
            runners().any(|runner| runner.waits()) || self.queue.entries.values().any(is_leaving);
        let next = self.machine.wake_at().min(self.next_look);
        let next = Duration::from_secs(u64::try_from(next).unwrap_or(0));
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let times = [
            Some(next.saturating_sub(since_epoch)),
            self.control.wakes_in(),
            again.then_some(LOOK_AGAIN),
            self.next_turn(),
            Some(LONGEST),
        ];
        let time = times.into_iter().flatten().min().unwrap_or(LONGEST);
        // Not before its time.
        let ms = time.as_micros().div_ceil(1000);
        let timeout = PollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at the machine if it is time to, and lets it go on.
    fn see(&mut self) {
        let now = self.now();
        let is_time = self.next_look <= now
            || self.is_watchful() && self.next_look > now.saturating_add(self.polling_interval)
            || self.machine.wants_to_see(now);
        if !is_time {
            if self.machine.wake_at() <= now {
                self.tell(Event::Time);
            }
            return;
        }
        self.offers = true;
        self.look_at_waiting();
        self.look_at_wishes();
        let mut jobs = vec![];
        let mut by_hand = vec![];
        for entry in self.queue.entries.values_mut() {
            if let Phase::Running(runner) = &entry.phase {
                let job = Queue::job(self.store, &entry.name);
                let life = job.as_ref().and_then(|job| job.life.as_ref());
                entry.starts = life.map_or(entry.starts, |life| life.counted.num_job_starts);
                let stands = life.map(|life| life.state() == Some(LifeState::Suspended));
                let pids = job
                    .as_ref()
                    .map(|job| job.processes().all)
                    .unwrap_or_default();
                jobs.push((runner.slot, pids));
                if let Some(stands) = stands.filter(|_| runner.is_done()) {
                    by_hand.push((runner.slot, stands));
                }
            }
        }
        self.next_look = match self.is_watchful() {
            true => now.saturating_add(self.polling_interval),
            false => i64::MAX,
        };
        self.machine.set_utc_offset(self.measured.utc_offset());
        let (seen, sizes) = match self.measured.seen(&jobs, self.polling_interval) {
            Ok(seen) => seen,
            Err(failure) => {
                warn!("{failure}");
                self.next_look = now.saturating_add(self.polling_interval);
                return self.tell(Event::Time);
            }
        };
        for (slot, kib) in sizes {
            let Some(entry) = self.queue.in_slot(slot) else {
                continue;
            };
            if entry.images == 0 {
                entry.size_kib = entry.size_kib.max(kib);
            }
            let job = entry.ad(&self.owner);
            self.tell(Event::JobChanged { slot, job });
        }
        self.tell(Event::Seen(seen));
        // Its user may have suspended a job, or let it go on.
        for (slot, stands) in by_hand {
            let told = self.machine.slot(slot);
            if let Some(event) = told.and_then(|slot| slot.told_by_hand(stands, now)) {
                self.tell(event);
            }
        }
    }

    /// Whether something may change that nobody tells.
    fn is_watchful(&self) -> bool {
        !self.queue.entries.is_empty()
    }

    /// Jobs that left another startd, or were held, may go on.
    fn look_at_waiting(&mut self) {
        let names: Vec<String> = self
            .queue
            .entries
            .values()
            .filter(|entry| matches!(entry.phase, Phase::Leaving | Phase::Held(_) | Phase::Idle))
            .map(|entry| entry.name.clone())
            .collect();
        for name in names {
            self.look_at_job(&name);
        }
    }

    /// What the directory of a job says that does not run for us.
    fn look_at_job(&mut self, name: &str) {
        let job = Queue::job(self.store, name);
        let Some(entry) = self.queue.entries.get_mut(name) else {
            return;
        };
        let found = job.as_ref().map_or(Found::Idle, queue::found);
        let how = match found {
            Found::Over(ref how) => Some(how.as_str()),
            Found::Idle | Found::Held(_) if entry.is_removed => Some("was removed"),
            _ => None,
        };
        if let Some(how) = how {
            info!("job {name} {how}");
            self.queue.forget(name);
            return;
        }
        let Some(job) = job else {
            return;
        };
        let was_leaving = matches!(entry.phase, Phase::Leaving);
        entry.phase = match found {
            Found::Held(reason) => Phase::Held(reason),
            Found::Leaving => Phase::Leaving,
            Found::Idle | Found::Over(_) => Phase::Idle,
        };
        if !matches!(entry.phase, Phase::Leaving) && (was_leaving || entry.images == 0) {
            entry.note(&job, self.measured.platform());
        }
    }

    fn read_spool(&mut self, before: Option<&Record>) -> Outcome<()> {
        let news = self.queue.read(before)?;
        // Whoever hands one in to us waits for an answer.
        self.admit_all(&news, before.is_none() && self.written.is_some());
        for name in news {
            if !self.queue.entries.contains_key(&name) && !self.queue.damaged.contains_key(&name) {
                continue;
            }
            match self.queue.damaged.get(&name) {
                Some(why) => warn!("job {name} is damaged: {why}"),
                None => {
                    info!("job {name} waits");
                    self.look_at_job(&name);
                }
            }
        }
        self.offers = true;
        self.next_look = self.next_look.min(self.now());
        Ok(())
    }

    fn hear_starters(&mut self) {
        let entries = self.queue.entries.values();
        let there =
            entries.filter(|entry| matches!(entry.phase, Phase::Running(_) | Phase::Leaving));
        for name in there.map(|entry| entry.name.clone()).collect::<Vec<_>>() {
            let Some(entry) = self.queue.entries.get_mut(&name) else {
                continue;
            };
            if matches!(entry.phase, Phase::Leaving) {
                self.look_at_job(&name);
                self.offers = true;
                continue;
            }
            let Some(runner) = entry.runner() else {
                continue;
            };
            let slot = runner.slot;
            for (ask, answer) in runner.answers() {
                self.is_answered(&name, slot, &ask, answer);
            }
        }
    }

    fn hear_benchmark(&mut self) {
        let Some(benchmark) = &self.benchmark else {
            return;
        };
        let slot = benchmark.slot;
        match benchmark.score.try_recv() {
            Err(mpsc::TryRecvError::Empty) => return,
            Ok(score) => self.measured.note_score(score),
            Err(mpsc::TryRecvError::Disconnected) => {}
        }
        let _ = self.benchmarked.read();
        self.benchmark = None;
        self.tell(Event::Benchmarked { slot });
    }

    fn save(&mut self) {
        let record = self.as_record();
        if self.written.as_ref() == Some(&record) {
            return;
        }
        match record.save(&self.places.record) {
            Ok(()) => self.written = Some(record),
            Err(error) => error!("{}", chain(&error)),
        }
    }

    fn as_record(&self) -> Record {
        let all_drained = || {
            let mut slots = self.machine.slots().iter();
            slots.all(|slot| slot.place().state == State::Drained)
        };
        let state = match (
            self.is_over,
            self.is_shutting_down,
            self.machine.is_draining(),
        ) {
            (true, ..) => "Off",
            (_, true, _) => "ShuttingDown",
            (_, _, true) if all_drained() => "Drained",
            (_, _, true) => "Draining",
            _ => "Running",
        };
        Record {
            schema_version: record::SCHEMA_VERSION,
            startd: ProcessName::of_self().unwrap_or(ProcessName {
                pid: std::process::id().cast_signed(),
                start_ticks: 0,
            }),
            place: Place::here(),
            since: self.since,
            config: self
                .which
                .config
                .as_deref()
                .map(crate::raw::encode)
                .unwrap_or_default(),
            dialect: self.which.dialect.to_string(),
            state: state.to_owned(),
            drain: self.drain.clone().filter(|_| !self.is_over),
            slots: self
                .machine
                .slots()
                .iter()
                .map(|slot| self.slot_line(slot))
                .collect(),
            jobs: self.job_lines(),
        }
    }
}

fn polling_interval(config: &Config) -> Outcome<i64> {
    Ok(measured::number(config, "POLLING_INTERVAL")?
        .unwrap_or(5)
        .max(1))
}
