//! Days of the tests: what happens when, and what came of it.

use classad::config::{Config, ConfigOptions, Dialect, Sources};
use classad::{Surroundings, parse_ad};
use starter::machine::{Detected, Order, Place, SlotId, UserMaps};
use starter::simulate::{Keys, Report, Row, Setting, Trace, moment, simulate};
use std::sync::Arc;

/// The day: a Monday.
const MONDAY: &str = "2026-11-23";

/// What happens on a day.
#[derive(Default)]
pub(crate) struct Day {
    rows: Vec<Row>,
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) report: Report,
}

/// The moment of a time of day, or of `DAYS+TIME`.
fn at(time: &str) -> i64 {
    let (days, time) = match time.split_once('+') {
        Some((days, time)) => (days.parse::<i64>().expect("days"), time),
        None => (0, time),
    };
    let midnight = moment(&format!("{MONDAY} {time}")).expect("a time");
    midnight + days * 86_400
}

/// A machine without anything but its processors.
struct Machine {
    cpus: i64,
}

impl Surroundings for Machine {
    fn now(&self) -> i64 {
        at("00:00")
    }
}

impl Sources for Machine {
    fn detected(&self) -> Vec<(String, String)> {
        let names = ["DETECTED_CPUS", "DETECTED_CORES"];
        let mut all: Vec<_> = names
            .map(|name| (name.to_owned(), self.cpus.to_string()))
            .into();
        all.push(("DETECTED_MEMORY".to_owned(), "4096".to_owned()));
        all
    }
}

impl Day {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn row(mut self, time: &str, row: Row) -> Self {
        self.rows.push(Row {
            at: at(time),
            ..row
        });
        self
    }

    /// A key is pressed once.
    pub(crate) fn key(self, time: &str) -> Self {
        let keyboard = Some(Keys::Idle(0));
        self.row(
            time,
            Row {
                keyboard,
                ..Row::default()
            },
        )
    }

    /// Somebody types.
    pub(crate) fn types(self, from: &str, until: &str) -> Self {
        let keyboard = Some(Keys::Busy);
        self.row(
            from,
            Row {
                keyboard,
                ..Row::default()
            },
        )
        .key(until)
    }

    /// The load of the owner's own programs, from now on.
    pub(crate) fn load(self, time: &str, load: f64) -> Self {
        let load = Some(load);
        self.row(
            time,
            Row {
                load,
                ..Row::default()
            },
        )
    }

    /// A job comes.
    pub(crate) fn job(self, time: &str, ad: &str) -> Self {
        let job = Some(Arc::new(parse_ad(format!("[ {ad} ]")).expect("an ad")));
        self.row(
            time,
            Row {
                job,
                ..Row::default()
            },
        )
    }

    /// `condor_vacate`.
    pub(crate) fn vacate(self, time: &str) -> Self {
        let command = Some(starter::simulate::Command::Vacate { fast: false });
        self.row(
            time,
            Row {
                command,
                ..Row::default()
            },
        )
    }

    /// Lives through it, from midnight until a moment.
    pub(crate) fn until(
        mut self,
        time: &str,
        policy: &str,
        dialect: Dialect,
        cpus: i64,
    ) -> Outcome {
        self.rows.push(Row {
            at: at("00:00"),
            ..Row::default()
        });
        self.rows.sort_by_key(|row| row.at);
        let options = ConfigOptions {
            dialect,
            ..ConfigOptions::default()
        };
        let config = Config::parse(policy, &Machine { cpus }, &options);
        let config = config.unwrap_or_else(|error| panic!("{error}\n{policy}"));
        let detected = Detected {
            cpus,
            memory_mib: 4096,
            disk_kib: 1 << 24,
            swap_kib: 1 << 22,
            inventories: vec![],
        };
        let setting = Setting {
            dialect,
            detected,
            seconds: Some(at(time) - at("00:00")),
            attributes: classad::ClassAd::new(),
            users: UserMaps::default(),
        };
        let settings = |name: &str| config.get(name);
        let report = simulate(&settings, &setting, &Trace { rows: self.rows }).expect("a day");
        Outcome { report }
    }
}

impl Outcome {
    /// Where a slot is.
    pub(crate) fn place_of(&self, slot: u32, time: &str) -> String {
        let place = self.report.place_at(SlotId::of(slot), at(time));
        place
            .map(|place: Place| place.to_string())
            .unwrap_or_default()
    }

    /// The first slot's places are what they should be, each at its time.
    pub(crate) fn is(&self, expected: &[(&str, &str)]) {
        self.slot_is(1, expected);
    }

    /// The same of a slot.
    pub(crate) fn slot_is(&self, slot: u32, expected: &[(&str, &str)]) {
        for (time, place) in expected {
            assert_eq!(
                self.place_of(slot, time),
                *place,
                "at {time}\n{}",
                self.story()
            );
        }
    }

    /// Orders of a kind, from one time to another.
    pub(crate) fn count(&self, from: &str, until: &str, what: impl Fn(&Order) -> bool) -> usize {
        let steps = self.report.timeline.iter();
        let then = steps.filter(|step| (at(from)..=at(until)).contains(&step.at));
        then.filter(|step| what(&step.order)).count()
    }

    pub(crate) fn vacated(&self, from: &str, until: &str) -> usize {
        self.count(from, until, |order| matches!(order, Order::Vacate { .. }))
    }

    pub(crate) fn killed(&self, from: &str, until: &str) -> usize {
        self.count(from, until, |order| matches!(order, Order::Kill(_)))
    }

    pub(crate) fn suspended(&self, from: &str, until: &str) -> usize {
        self.count(from, until, |order| matches!(order, Order::Suspend(_)))
    }

    pub(crate) fn started(&self, from: &str, until: &str) -> usize {
        self.count(from, until, |order| matches!(order, Order::Start { .. }))
    }

    /// How many images were made of jobs that went on.
    pub(crate) fn images(&self, from: &str, until: &str) -> usize {
        self.count(from, until, |order| matches!(order, Order::Checkpoint(_)))
    }

    /// All changes, to read when something is wrong.
    pub(crate) fn story(&self) -> String {
        let line = |change: &starter::machine::Change| {
            let at = starter::simulate::civil(change.at);
            format!(
                "{at} {:?} {} -> {}: {}\n",
                change.slot, change.from, change.to, change.reason
            )
        };
        self.report.changes().map(line).collect()
    }
}
