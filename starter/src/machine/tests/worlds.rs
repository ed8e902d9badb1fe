//! Random worlds: whatever happens, slots go by the table, and have one job at most.

use super::super::transitions::TABLE;
use super::*;
use std::collections::{BTreeMap, BTreeSet};

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % sides
    }

    fn pick<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.roll(texts.len() as u64) as usize]
    }
}

/// Conditions of any kind, also such that depend on the place, or say nothing.
const CONDITIONS: &[&str] = &[
    "TRUE",
    "FALSE",
    "KeyboardIdle < 60",
    "KeyboardIdle > 300",
    "LoadAvg - CondorLoadAvg > 0.5",
    "Activity == \"Suspended\" && time() - EnteredCurrentActivity > 60",
    "State == \"Unclaimed\"",
    "Owner == \"ann\"",
    "UNDEFINED",
    "1 / 0",
    "random(2) == 1",
    "slot1_Activity == \"Busy\" || vm1_Activity == \"Busy\"",
    "ClockMin % 7 < 3",
];

fn policy(dice: &mut Dice) -> String {
    let mut lines = String::new();
    for name in [
        "START",
        "SUSPEND",
        "CONTINUE",
        "PREEMPT",
        "KILL",
        "WANT_SUSPEND",
        "WANT_VACATE",
        "WANT_HOLD",
        "IS_OWNER",
        "RunBenchmarks",
        "PERIODIC_CHECKPOINT",
        "START_BACKFILL",
        "EVICT_BACKFILL",
        "SUSPEND_VANILLA",
        "WANT_VACATE_VM",
    ] {
        if dice.roll(4) != 0 {
            let condition = dice.pick(CONDITIONS);
            lines.push_str(&format!("{name} = {condition}\n"));
        }
    }
    lines.push_str("ENABLE_BACKFILL = TRUE\nRANK = TARGET.Prio ?: 0\n");
    let retirement = dice.pick(&["0", "100", "5000", "Prio * 50", "-1", "undefined"]);
    lines.push_str(&format!("MAXJOBRETIREMENTTIME = {retirement}\n"));
    lines.push_str(dice.pick(&[
        "NUM_SLOTS = 3\n",
        "NUM_SLOTS = 1\n",
        "",
        "NUM_SLOTS_TYPE_1 = 2\nSLOT_TYPE_1 = 50%\nSLOT_TYPE_1_PARTITIONABLE = TRUE\n",
    ]));
    lines
}

fn event(dice: &mut Dice, bench: &Bench, claims: &mut u64) -> Event {
    let slots = bench.machine.slots();
    let slot = slots[dice.roll(slots.len() as u64) as usize].id();
    let owner = dice.pick(&["ann", "bob"]);
    let universe = dice.pick(&["1", "5", "13"]);
    let prio = dice.roll(4);
    let ad = format!(
        "[ Owner = \"{owner}\"; JobUniverse = {universe}; NumCkpts = 0; Prio = {prio}; RequestCpus = 1; RequestMemory = 100 ]"
    );
    let job = Arc::new(parse_ad(&ad).expect("an ad"));
    *claims += 1;
    let claim = ClaimId(*claims);
    let waits = slots
        .iter()
        .find_map(|slot| Some((slot.id(), slot.waiting()?)));
    if let Some((slot, claim)) = waits.filter(|_| dice.roll(6) == 0) {
        return Event::Withdrawn { slot, claim };
    }
    match dice.roll(40) {
        0..=2 => Event::Matched { slot, claim },
        3..=8 => Event::Claimed { slot, claim, job },
        9 => Event::Claimed {
            slot,
            claim: ClaimId(*claims - 1),
            job,
        },
        10 => Event::Withdrawn { slot, claim },
        11..=17 => Event::Activated { slot, job },
        18 => Event::Released { slot },
        19 => Event::Alive { slot },
        20 => Event::JobChanged { slot, job },
        21 => Event::Imaged {
            slot,
            size_kib: 5000,
        },
        22..=27 => Event::Ended { slot },
        28 => Event::Benchmarked { slot },
        29..=30 => Event::BackfillRuns { slot },
        31 => Event::BackfillEnded { slot },
        32 => Event::Vacate {
            slot: Some(slot),
            fast: dice.roll(2) == 0,
        },
        33 => Event::Vacate {
            slot: None,
            fast: dice.roll(2) == 0,
        },
        34 => Event::Checkpoint { slot: None },
        35 => Event::Suspend { slot },
        36 => Event::Continue { slot },
        37 => {
            let how = [Drain::Graceful, Drain::Quick, Drain::Fast][dice.roll(3) as usize];
            Event::Drain {
                how,
                resumes: dice.roll(2) == 0,
                start: None,
            }
        }
        38 => Event::CancelDrain,
        _ if dice.roll(20) == 0 => {
            let how =
                [Shutdown::Peaceful, Shutdown::Graceful, Shutdown::Fast][dice.roll(3) as usize];
            Event::Shutdown(how)
        }
        _ => Event::Time,
    }
}

/// What the orders mean for jobs: who runs, who stands still.
#[derive(Default)]
struct Jobs(BTreeMap<SlotId, bool>);

impl Jobs {
    fn heed(&mut self, order: &Order) {
        match order {
            Order::Start { slot, .. } => {
                assert_eq!(self.0.insert(*slot, true), None, "two jobs in {slot:?}");
            }
            Order::Suspend(slot) => assert_eq!(
                self.0.insert(*slot, false),
                Some(true),
                "{slot:?} did not run"
            ),
            Order::Continue(slot) => assert_eq!(
                self.0.insert(*slot, true),
                Some(false),
                "{slot:?} did not stand still"
            ),
            Order::Checkpoint(slot)
            | Order::Hold { slot, .. }
            | Order::Vacate { slot, .. }
            | Order::Kill(slot) => {
                assert_eq!(
                    self.0.get(slot),
                    Some(&true),
                    "{order:?}: there is no job that moves"
                );
            }
            Order::KillAll(slot) => {
                assert!(self.0.contains_key(slot), "{order:?}: there is no job")
            }
            _ => {}
        }
    }
}

#[test]
fn whatever_happens_slots_go_by_the_table_and_have_one_job_at_most() {
    let mut reached = BTreeSet::new();
    let mut changes = 0;
    for seed in 1..=100_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let dialect = [Dialect::V6_1, Dialect::V6_8, Dialect::V25][dice.roll(3) as usize];
        let lines = policy(&mut dice);
        let mut bench = Bench::try_new(dialect, &lines, 3).expect("a policy");
        let mut places: BTreeMap<SlotId, Place> = BTreeMap::new();
        let mut jobs = Jobs::default();
        let mut claims = 0;
        for _ in 0..300 {
            let ended = |event: &Event, slots: &[Slot]| match event {
                Event::Ended { slot } => slots
                    .iter()
                    .any(|known| known.id() == *slot && known.place().holds_job()),
                _ => false,
            };
            let event = event(&mut dice, &bench, &mut claims);
            let is_end = ended(&event, bench.machine.slots());
            let shown = format!("{event:?}");
            if let (Event::Ended { slot }, true) = (&event, is_end) {
                jobs.0.remove(slot);
            }
            let mut orders = bench.tell(event);
            if dice.roll(3) == 0 {
                bench.keyboard_idle = [0, 30, 200, 5000][dice.roll(4) as usize];
                bench.load = [0.0, 0.2, 0.9, 3.0][dice.roll(4) as usize];
                bench.now += [0, 1, 5, 61, 700][dice.roll(5) as usize];
                orders.extend(bench.look());
            }
            for order in &orders {
                jobs.heed(order);
                let Order::Changed(change) = order else {
                    continue;
                };
                changes += 1;
                let row = change.transition;
                assert!(TABLE.iter().any(|known| std::ptr::eq(known, row)));
                assert!(
                    row.from.contains(&change.from) && row.to.contains(&change.to),
                    "{seed}: {change:?}"
                );
                let before = places.insert(change.slot, change.to);
                let first = match change.slot.part {
                    None => Place::of(State::Owner, Activity::Idle),
                    Some(_) => Place::of(State::Unclaimed, Activity::Idle),
                };
                assert_eq!(
                    before.unwrap_or(first),
                    change.from,
                    "{seed}: {shown}: {change:?}"
                );
                reached.insert(row.number.unwrap_or(0));
            }
            // A part that was given back begins anew.
            places.retain(|slot, _| bench.machine.slot(*slot).is_some());
            for slot in bench.machine.slots() {
                if let Some(place) = places.get(&slot.id()) {
                    assert_eq!(*place, slot.place(), "{seed}: {shown}");
                }
                assert_eq!(
                    slot.job().is_some(),
                    jobs.0.contains_key(&slot.id()),
                    "{seed}: {shown}: {:?} at {}",
                    slot.id(),
                    slot.place()
                );
            }
        }
    }
    assert!(changes > 5_000, "{changes}");
    let all: BTreeSet<u8> = TABLE.iter().map(|row| row.number.unwrap_or(0)).collect();
    assert_eq!(reached, all, "the random worlds are too poor");
}
