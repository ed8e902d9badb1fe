//! What the machine's states order is carried out; what has happened to jobs is told to them.

use super::queue::{self, Entry, Found, Phase, Queue};
use super::runner::{Runner, Ways};
use super::{Benchmark, Startd, measured};
use crate::config::Site;
use crate::life::{self, Ask};
use crate::report::Outcome;
use crate::sys::{self, Change};
use classad::Context;
use classad::config::niceness;
use nix::unistd::Pid;
use starter::machine::{Activity, Event, Order, Place, Shutdown, SlotId, State, rules};
use starter::measure::Score;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::Duration;
use tracing::{error, info, warn};

/// How long a job that has left waits before it is offered again, the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// How a starter ends whose job can go on.
const VACATED: i32 = 85;

/// What has happened.
#[derive(Debug)]
pub(super) enum Happening {
    /// To the machine.
    Event(Event),
    /// The job of this slot is gone; its claim may be kept.
    JobGone(SlotId),
}

impl Startd<'_> {
    /// Tells the machine what has happened, and does what it orders. What follows from that is told when that is done: a job that cannot
    /// begin is followed by the next, and there may be thousands of them.
    pub(super) fn tell(&mut self, event: Event) {
        self.happens(Happening::Event(event));
    }

    fn happens(&mut self, happening: Happening) {
        if !self.pending.push(happening) {
            return;
        }
        while let Some(happening) = self.pending.next() {
            match happening {
                Happening::Event(event) => {
                    let now = self.now();
                    for order in self.machine.step(event, now) {
                        self.carry_out(order);
                    }
                }
                Happening::JobGone(slot) => self.next_in(slot),
            }
        }
    }

    pub(super) fn carry_out(&mut self, order: Order) {
        match order {
            Order::Changed(change) => {
                self.offers = true;
                let number = change.transition.number_in(self.which.dialect);
                let number = number
                    .map(|number| format!("{number}: "))
                    .unwrap_or_default();
                let (from, to, reason) = (change.from, change.to, change.reason);
                let name = self.slot_name(change.slot);
                let job = self.queue.in_slot(change.slot);
                let job = job
                    .map(|entry| format!(", job {}", entry.name))
                    .unwrap_or_default();
                info!("{name}: {from} -> {to} ({number}{reason}){job}");
            }
            Order::Accepted { slot, claim } => {
                let name = self.claims.remove(&claim);
                let entry = name.and_then(|name| self.queue.entries.get_mut(&name));
                match entry.filter(|entry| matches!(entry.phase, Phase::Claiming(_))) {
                    Some(entry) => {
                        entry.phase = Phase::Claimed(slot);
                        entry.refused = None;
                        let job = entry.ad(&self.owner);
                        self.tell(Event::Activated { slot, job });
                    }
                    None => self.tell(Event::Released { slot }),
                }
            }
            Order::Waits { slot, claim } => {
                if let Some(job) = self.claims.get(&claim) {
                    info!("job {job} waits for {}", self.slot_name(slot));
                }
            }
            Order::Refused { claim, reason, .. } => {
                let name = self.claims.remove(&claim);
                if let Some(entry) = name.and_then(|name| self.queue.entries.get_mut(&name)) {
                    entry.phase = Phase::Idle;
                    entry.refused = Some(reason.to_owned());
                }
            }
            Order::ClaimOver { slot, .. } => self.unclaim(slot, None),
            Order::Start { slot, .. } => self.start(slot),
            Order::NotStarted { slot, reason } => {
                self.unclaim(slot, Some(reason));
                self.tell(Event::Released { slot });
            }
            Order::Suspend(slot) => self.ask(slot, Ask::Suspend {}),
            Order::Continue(slot) => self.ask(slot, Ask::Continue {}),
            Order::Checkpoint(slot) => self.ask(slot, Ask::Checkpoint {}),
            Order::Hold {
                slot,
                reason,
                subcode,
            } => {
                let hold = life::by_policy(&reason, subcode);
                if let Some(entry) = self.queue.in_slot(slot) {
                    entry.to_hold = Some(hold.clone());
                }
                self.ask(slot, Ask::hold(hold, true));
            }
            // When its time is over, the machine orders to kill it.
            Order::Vacate { slot, .. } => self.ask(
                slot,
                Ask::Vacate {
                    within_ms: None,
                    insists: true,
                },
            ),
            Order::Kill(slot) => self.ask(slot, Ask::VacateLatest { at_any_price: true }),
            Order::KillAll(slot) => {
                if let Some(runner) = self.queue.in_slot(slot).and_then(|entry| entry.runner()) {
                    runner.leaves = true;
                    runner.kill();
                }
            }
            Order::Benchmark(slot) => self.benchmark(slot),
            Order::StartBackfill(slot) => self.backfill(slot),
            Order::KillBackfill(slot) => self.kill_backfill(slot),
            Order::Drained { resumes } => match resumes {
                true => {
                    self.drain = None;
                    info!("the machine is drained, and takes jobs again");
                }
                false => info!("the machine is drained"),
            },
            Order::ShutDown => self.is_over = true,
            Order::Warn {
                slot,
                name,
                value,
                counts_as,
            } => {
                warn!(
                    "{}: {name} is {value}, and counts as {counts_as}",
                    self.slot_name(slot)
                );
            }
            Order::Fatal { name, value } => {
                let place = measured::place_of(&self.config, &name);
                let why = format!("{place}{name} is {value}: nobody can say whose the machine is");
                error!("{why}");
                self.fatal = Some(why);
                self.shut_down(Shutdown::Fast);
            }
        }
    }

    pub(super) fn shut_down(&mut self, how: Shutdown) {
        self.is_shutting_down = true;
        self.tell(Event::Shutdown(how));
    }

    pub(super) fn slot_name(&self, id: SlotId) -> String {
        match self.machine.slot(id) {
            Some(slot) => slot.name(),
            // A part is gone when the orders about its end are carried out.
            None => {
                let prefix = rules(self.which.dialect).slot_prefix;
                let part = id.part.map(|part| format!("_{part}")).unwrap_or_default();
                format!("{prefix}{}{part}", id.number)
            }
        }
    }

    /// A job has its slot no more, and has not run there.
    fn unclaim(&mut self, slot: SlotId, reason: Option<&str>) {
        let entry = self.queue.in_slot(slot);
        if let Some(entry) = entry.filter(|entry| matches!(entry.phase, Phase::Claimed(_))) {
            entry.phase = Phase::Idle;
            entry.refused = reason.map(str::to_owned);
        }
    }

    fn ask(&mut self, slot: SlotId, ask: Ask) {
        if let Some(runner) = self.queue.in_slot(slot).and_then(|entry| entry.runner()) {
            runner.ask(ask);
            // Most starters listen.
            self.hear_starters();
        }
    }

    fn start(&mut self, slot: SlotId) {
        let Some(name) = self.queue.in_slot(slot).map(|entry| entry.name.clone()) else {
            return self.tell(Event::Ended { slot });
        };
        match self.begin_job(&name, slot) {
            Ok(runner) => {
                info!("job {name} begins in {}", self.slot_name(slot));
                if let Some(entry) = self.queue.entries.get_mut(&name) {
                    entry.phase = Phase::Running(Box::new(runner));
                }
            }
            Err(failure) => {
                warn!("job {name} is held: {failure}");
                if let Some(entry) = self.queue.entries.get_mut(&name) {
                    entry.phase = Phase::Held(failure.to_string());
                }
                self.tell(Event::Ended { slot });
                self.happens(Happening::JobGone(slot));
            }
        }
    }

    fn begin_job(&self, name: &str, slot: SlotId) -> Outcome<Runner> {
        let ways = Ways {
            store: self.store,
            own: &self.places.own,
            mask: self.signals.mask,
            nicer_by: self.niceness(name)?,
        };
        let job = Queue::job(self.store, name);
        let has_image = job.is_some_and(|job| job.images().is_ok_and(|images| !images.is_empty()));
        match self.queue.entries.get(name) {
            Some(entry) => Runner::begin(entry, slot, has_image, &ways),
            None => Err(crate::report::Failure::new(
                crate::report::Exit::Failed,
                format!("there is no job {name}"),
            )),
        }
    }

    /// How nice a job is to be: `JOB_RENICE_INCREMENT` as its ad has it; 0 where that is no number.
    fn niceness(&self, name: &str) -> Outcome<i64> {
        let setting = "JOB_RENICE_INCREMENT";
        let Some(expr) = self.config.expression(setting)? else {
            return Ok(0);
        };
        let Some(entry) = self.queue.entries.get(name) else {
            return Ok(0);
        };
        let site = Site::of(&self.config)?;
        let context = Context::new(&site).with_my(entry.ad(&self.owner));
        let value = context.eval(&expr);
        let number = value.as_ref().ok().and_then(niceness);
        if number.is_none() {
            let found = match value {
                Ok(value) => value.to_string(),
                Err(error) => error.to_string(),
            };
            warn!("{setting} is {found} for job {name}, which counts as 0");
        }
        Ok(number.unwrap_or(0))
    }

    /// What a starter says to what it was asked.
    pub(super) fn is_answered(
        &mut self,
        name: &str,
        slot: SlotId,
        ask: &Ask,
        answer: Result<(), String>,
    ) {
        match (ask, answer) {
            (Ask::Checkpoint {}, Ok(())) => {
                info!("job {name} has a new image");
                let job = Queue::job(self.store, name);
                let entry = self.queue.entries.get_mut(name);
                if let (Some(job), Some(entry)) = (job, entry) {
                    entry.note(&job, self.measured.platform());
                    let size_kib = i64::try_from(entry.size_kib).unwrap_or(i64::MAX);
                    let job = entry.ad(&self.owner);
                    self.tell(Event::JobChanged { slot, job });
                    self.tell(Event::Imaged { slot, size_kib });
                }
            }
            (_, Ok(())) => {}
            (ask, Err(why)) => {
                let what = match ask {
                    Ask::Checkpoint {} => "has no new image",
                    Ask::Suspend {} => "is not suspended",
                    Ask::Continue {} => "is not continued",
                    _ => "does not leave",
                };
                warn!("job {name} {what}: {why}");
            }
        }
    }

    /// Children of ours have ended.
    pub(super) fn reap(&mut self) {
        while let Some((pid, change, _)) = sys::wait_any() {
            if matches!(change, Change::Stopped(_) | Change::Continued) {
                continue;
            }
            if let Some(index) = self.backfills.iter().position(|one| one.pid == pid) {
                let backfill = self.backfills.swap_remove(index);
                self.backfill_ended(&backfill, change);
                continue;
            }
            if let Some(name) = self.runs_under(pid) {
                self.ended(&name, change);
            }
        }
    }

    fn runs_under(&self, pid: Pid) -> Option<String> {
        let mut entries = self.queue.entries.values();
        let is_it =
            |entry: &&Entry| matches!(&entry.phase, Phase::Running(runner) if runner.pid == pid);
        Some(entries.find(is_it)?.name.clone())
    }

    /// The starter of a job is gone.
    fn ended(&mut self, name: &str, change: Change) {
        self.hear_starters();
        let job = Queue::job(self.store, name);
        let here = self.measured.platform().clone();
        let Some(entry) = self.queue.entries.get_mut(name) else {
            return;
        };
        let Phase::Running(runner) = std::mem::replace(&mut entry.phase, Phase::Idle) else {
            return;
        };
        if let Some(job) = &job {
            entry.note(job, &here);
        }
        let why = runner.take_why();
        let is_told =
            runner.leaves || matches!(change, Change::Signalled(_) | Change::Exited(VACATED));
        let found = match job.as_ref().map(queue::found) {
            Some(found) => found,
            None if is_told => Found::Idle,
            None => {
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                Found::Held(format!("it could not be begun ({}){why}", said(change)))
            }
        };
        // Whatever its starter has done before it was told.
        let found = match found {
            Found::Idle | Found::Held(_) if entry.is_removed => {
                Found::Over("was removed".to_owned())
            }
            found => found,
        };
        let mut is_over = false;
        let to_hold = entry.to_hold.take();
        match found {
            Found::Over(how) => {
                info!("job {name} {how}");
                is_over = true;
            }
            Found::Held(reason) => {
                warn!("job {name} is held: {reason}");
                entry.phase = Phase::Held(reason);
            }
            Found::Leaving => entry.phase = Phase::Leaving,
            // Its starter was killed before it could say so.
            Found::Idle if to_hold.is_some() => {}
            Found::Idle => {
                let pause = entry.pace.has_ended(runner.began.elapsed(), FIRST_PAUSE);
                info!(
                    "job {name} has left, with {} images behind it, and waits for {} s",
                    entry.images,
                    pause.as_secs()
                );
            }
        }
        if is_over {
            self.queue.forget(name);
        } else if let Some(hold) = to_hold.filter(|_| self.is_idle(name)) {
            self.note_hold(name, &hold);
        }
        let slot = runner.slot;
        self.offers = true;
        self.tell(Event::Ended { slot });
        self.happens(Happening::JobGone(slot));
    }

    fn is_idle(&self, name: &str) -> bool {
        let entry = self.queue.entries.get(name);
        entry.is_some_and(|entry| matches!(entry.phase, Phase::Idle))
    }

    /// Whoever has had a slot has more jobs, or gives it back.
    fn next_in(&mut self, slot: SlotId) {
        let idle = Place::of(State::Claimed, Activity::Idle);
        let is_idle = self
            .machine
            .slot(slot)
            .is_some_and(|slot| slot.place() == idle);
        if !is_idle || self.queue.in_slot(slot).is_some() {
            return;
        }
        let next = self.best_for(slot);
        match next.and_then(|name| self.queue.entries.get_mut(&name)) {
            Some(entry) => {
                entry.phase = Phase::Claimed(slot);
                entry.refused = None;
                let job = entry.ad(&self.owner);
                self.tell(Event::Activated { slot, job });
            }
            None => self.tell(Event::Released { slot }),
        }
    }

    fn benchmark(&mut self, slot: SlotId) {
        let (send, score) = mpsc::channel();
        let wake = self.benchmarked.as_fd().try_clone_to_owned().ok();
        let begun = std::thread::Builder::new().spawn(move || {
            let _ = send.send(Score::measure());
            if let Some(wake) = wake {
                let _ = nix::unistd::write(&wake, &1u64.to_ne_bytes());
            }
        });
        match begun {
            Ok(_) => self.benchmark = Some(Benchmark { slot, score }),
            Err(error) => {
                warn!("no benchmark: {error}");
                self.tell(Event::Benchmarked { slot });
            }
        }
    }
}

/// How a process has ended.
pub(super) fn said(change: Change) -> String {
    match change {
        Change::Exited(status) => format!("status {status}"),
        Change::Signalled(signal) => crate::args::signal_name(signal),
        Change::Stopped(_) | Change::Continued => "it is there".to_owned(),
    }
}
