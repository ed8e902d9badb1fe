//! A machine of the tests: settings by hand, a clock that is told.

mod devices;
mod draining;
mod eras;
mod holds;
mod policies;
mod requests;
mod slots;
mod table;
mod worlds;

use super::*;
use classad::{ClassAd, parse_ad};
use std::collections::HashMap;

const CLAIM: ClaimId = ClaimId(1);
const BETTER: ClaimId = ClaimId(2);
const SLOT: SlotId = SlotId::of(1);
/// A Monday, at midnight.
const MONDAY: Moment = 11_575 * 86_400;

fn ann() -> Arc<ClassAd> {
    job("Owner = \"ann\"")
}

/// A machine with one processor, and what was said about it so far.
struct Bench {
    machine: Machine,
    now: Moment,
    keyboard_idle: i64,
    load: f64,
    changes: Vec<Change>,
}

fn settings(lines: &str) -> HashMap<String, String> {
    let lines = lines.lines().filter_map(|line| line.split_once('='));
    lines
        .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
        .collect()
}

fn job(text: &str) -> Arc<ClassAd> {
    Arc::new(parse_ad(format!("[ JobUniverse = 1; NumCkpts = 0; {text} ]")).expect("an ad"))
}

impl Bench {
    fn try_new(dialect: Dialect, lines: &str, cpus: i64) -> Result<Self, PolicyError> {
        let settings = settings(lines);
        let get = |name: &str| settings.get(&name.to_lowercase()).cloned();
        let detected = Detected {
            cpus,
            memory_mib: 1024 * cpus,
            disk_kib: 1 << 20,
            swap_kib: 1 << 20,
            inventories: vec![],
        };
        let machine = Machine::begin(&get, dialect, &detected, MONDAY)?;
        Ok(Bench {
            machine,
            now: MONDAY,
            keyboard_idle: 100_000,
            load: 0.0,
            changes: vec![],
        })
    }

    fn new(dialect: Dialect, lines: &str) -> Self {
        let mut lines = lines.to_owned();
        if dialect == Dialect::V25 {
            lines.push_str("\nNUM_SLOTS = 1");
        }
        lines.push_str("\nRunBenchmarks = FALSE");
        let mut bench = Self::try_new(dialect, &lines, 1).expect("a policy");
        bench.look();
        bench
    }

    fn tell(&mut self, event: Event) -> Vec<Order> {
        let orders = self.machine.step(event, self.now);
        for order in &orders {
            if let Order::Changed(change) = order {
                self.changes.push(change.clone());
            }
        }
        orders
    }

    /// The machine is looked at.
    fn look(&mut self) -> Vec<Order> {
        let mut attributes = ClassAd::new();
        attributes.insert("CheckpointPlatform", Expr::from("P"));
        self.tell(Event::Seen(Seen {
            keyboard_idle: self.keyboard_idle,
            console_idle: self.keyboard_idle,
            load: self.load,
            job_loads: vec![],
            attributes,
        }))
    }

    /// Time passes, the machine is looked at whenever it wants to be.
    fn pass(&mut self, seconds: i64) -> Vec<Order> {
        let until = self.now + seconds;
        let mut orders = vec![];
        loop {
            let next = self.machine.wake_at().max(self.now + 1).min(until);
            self.keyboard_idle += next - self.now;
            self.now = next;
            orders.extend(match self.machine.wants_to_see(self.now) {
                true => self.look(),
                false => self.tell(Event::Time),
            });
            if self.now >= until {
                return orders;
            }
        }
    }

    /// Somebody presses a key now.
    fn key(&mut self) -> Vec<Order> {
        self.keyboard_idle = 0;
        self.look()
    }

    fn claim(&mut self, job: &Arc<ClassAd>) -> Vec<Order> {
        self.tell(Event::Claimed {
            slot: SLOT,
            claim: CLAIM,
            job: Arc::clone(job),
        })
    }

    fn better(&mut self, job: &Arc<ClassAd>) -> Vec<Order> {
        self.tell(Event::Claimed {
            slot: SLOT,
            claim: BETTER,
            job: Arc::clone(job),
        })
    }

    fn start(&mut self, job: &Arc<ClassAd>) -> Vec<Order> {
        self.tell(Event::Activated {
            slot: SLOT,
            job: Arc::clone(job),
        })
    }

    /// A job that runs.
    fn run(&mut self, job: &Arc<ClassAd>) {
        self.claim(job);
        let orders = self.start(job);
        assert!(
            orders
                .iter()
                .any(|order| matches!(order, Order::Start { .. })),
            "{orders:?}"
        );
    }

    fn place(&self) -> String {
        self.machine.slots()[0].place().to_string()
    }

    fn ended(&mut self) -> Vec<Order> {
        self.tell(Event::Ended { slot: SLOT })
    }

    /// The current numbers of the changes since the last call; 0 where there is none.
    fn numbers(&mut self) -> Vec<u8> {
        let changes = std::mem::take(&mut self.changes).into_iter();
        changes
            .map(|change| change.transition.number.unwrap_or(0))
            .collect()
    }
}
