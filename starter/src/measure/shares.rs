//! Which slot sees how much of the owner's load and of his keyboard.
//!
//! ```text
//! load of the system ─ load of the jobs = load of the owner
//! slots by state: Owner, Unclaimed, Matched, Claimed, Preempting …; among claimed ones by rank, the lowest first
//!   until HTCondor 9:  1.0 to each while there is more, the rest to the next; to the last all that is left
//!   today:             as many as it has processors to each; what is left then is nobody's
//! ```
//! (manual, "Load Average for Multi-core Machines"; that the last slot gets all was given up in HTCondor 10).

use super::idle::Idle;
use super::settings::Connected;
use super::slot::{Kind, Slot, State};
use classad::config::Dialect;

/// What of a slot counts here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Its state.
    pub state: State,
    /// The rank of its job.
    pub rank: f64,
    /// Its number, and that of a dynamic slot.
    pub id: (u32, u32),
    /// Its processors.
    pub cpus: f64,
    /// Its job's part of the load.
    pub condor_load: f64,
    /// From which dynamic ones are cut.
    pub is_partitionable: bool,
}

impl From<&Slot> for Share {
    fn from(slot: &Slot) -> Self {
        Share {
            state: slot.state,
            rank: slot.rank(),
            id: (slot.id, slot.sub_id.unwrap_or(0)),
            cpus: slot.cpus,
            condor_load: slot.condor_load,
            is_partitionable: slot.kind == Kind::Partitionable,
        }
    }
}

/// Indices of slots in the order in which the owner gets them.
fn order(slots: &[Share]) -> Vec<usize> {
    let rank = |share: &Share| match share.state {
        State::Claimed | State::Preempting => share.rank,
        _ => 0.0,
    };
    let mut indices: Vec<usize> = (0..slots.len()).collect();
    indices.sort_by(|left, right| {
        let (left, right) = (&slots[*left], &slots[*right]);
        (left.state.cmp(&right.state))
            .then(rank(left).total_cmp(&rank(right)))
            .then(left.id.cmp(&right.id))
    });
    indices
}

/// The load of all jobs together, `TotalCondorLoadAvg`: never more than that of the system.
pub(super) fn condor_load(system_load: f64, slots: &[Share]) -> f64 {
    let sum = slots.iter().fold(0.0, |sum, share| sum + share.condor_load);
    sum.min(system_load)
}

/// The owner's load on each slot, in their order. `LoadAvg` of a slot is this and its own `CondorLoadAvg`.
#[must_use]
pub fn owner_loads(system_load: f64, slots: &[Share], dialect: Dialect) -> Vec<f64> {
    let mut rest = (system_load - condor_load(system_load, slots)).max(0.0);
    let mut loads = vec![0.0; slots.len()];
    let order = order(slots);
    for (place, index) in order.iter().enumerate() {
        let most = match dialect {
            Dialect::V6_1 | Dialect::V6_8 if place + 1 == order.len() => f64::INFINITY,
            Dialect::V6_1 | Dialect::V6_8 => 1.0,
            Dialect::V25 => slots[*index].cpus.trunc().max(0.0),
        };
        loads[*index] = rest.min(most);
        rest -= loads[*index];
    }
    loads
}

/// What each slot notices of keyboard and console, in their order. Slots that are connected to neither see the seconds since the beginning of
/// the startd and some more (manual, "Configuration Specific to Multi-core Machines").
#[must_use]
pub fn idle_shares(
    idle: Idle,
    age_s: i64,
    slots: &[Share],
    connected: &Connected,
    dialect: Dialect,
) -> Vec<Idle> {
    let away = age_s.saturating_add(connected.boost_s);
    let (mut consoles, mut keyboards) = (connected.consoles, connected.keyboards);
    let mut seen = vec![Idle::FOR_EVER; slots.len()];
    let mut now = idle;
    for index in order(slots) {
        // What is cut into dynamic slots is not counted as one; there were none in former times.
        if !(slots[index].is_partitionable && dialect == Dialect::V25) {
            match consoles.checked_sub(1) {
                Some(rest) => consoles = rest,
                None => now.console_s = away,
            }
            match keyboards.checked_sub(1) {
                Some(rest) => keyboards = rest,
                None => now.keyboard_s = now.console_s,
            }
        }
        seen[index] = now;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot(id: u32, state: State, condor_load: f64) -> Share {
        Share {
            state,
            rank: 0.0,
            id: (id, 0),
            cpus: 1.0,
            condor_load,
            is_partitionable: false,
        }
    }

    fn sums(system_load: f64, slots: &[Share], dialect: Dialect) -> Vec<f64> {
        let loads = owner_loads(system_load, slots, dialect);
        let sum =
            |(share, load): (&Share, f64)| ((share.condor_load + load) * 1000.0).round() / 1000.0;
        slots.iter().zip(loads).map(sum).collect()
    }

    /// The two logs that the manual shows ("Debug Logging in the Multi-Core condor_startd Daemon").
    #[test]
    fn loads_and_keyboards_are_shared_as_in_the_manuals_logs() {
        let all = |slots| Connected {
            consoles: slots,
            keyboards: slots,
            boost_s: 1200,
        };
        for dialect in Dialect::ALL {
            let idle = [slot(1, State::Owner, 0.0), slot(2, State::Owner, 0.0)];
            assert_eq!(sums(0.340, &idle, dialect), [0.340, 0.0]);
            let typed = Idle {
                keyboard_s: 0,
                console_s: 4,
            };
            let seen = idle_shares(typed, 100, &idle, &all(2), dialect);
            assert_eq!(seen, [typed, typed]);

            let working = [slot(1, State::Owner, 0.0), slot(2, State::Claimed, 0.996)];
            assert_eq!(sums(1.250, &working, dialect), [0.254, 0.996]);
            let typed = Idle {
                keyboard_s: 0,
                console_s: 0,
            };
            let away = Idle {
                keyboard_s: 1496,
                console_s: 1496,
            };
            let seen = idle_shares(typed, 296, &working, &all(1), dialect);
            assert_eq!(seen, [typed, away]);
        }
    }

    /// Three busy slots and an idle one, while the owner begins one program, then a second, then a third.
    #[test]
    fn no_slot_gets_more_of_the_owner_than_one_while_there_are_others() {
        let slots = [
            slot(1, State::Claimed, 1.0),
            slot(2, State::Claimed, 1.0),
            slot(3, State::Claimed, 1.0),
            slot(4, State::Unclaimed, 0.0),
        ];
        for dialect in Dialect::ALL {
            assert_eq!(sums(4.0, &slots, dialect), [1.0, 1.0, 1.0, 1.0]);
            // The next is the first of the claimed ones: their ranks are the same.
            assert_eq!(sums(4.3, &slots, dialect), [1.3, 1.0, 1.0, 1.0]);
            assert_eq!(sums(5.0, &slots, dialect), [2.0, 1.0, 1.0, 1.0]);
            assert_eq!(sums(5.7, &slots, dialect), [2.0, 1.7, 1.0, 1.0]);
            // Too little for all.
            assert_eq!(sums(3.25, &slots, dialect), [1.0, 1.0, 1.0, 0.25]);
        }
        // No slot is left.
        assert_eq!(sums(9.5, &slots, Dialect::V6_8), [2.0, 2.0, 4.5, 1.0]);
        assert_eq!(sums(9.5, &slots, Dialect::V25), [2.0, 2.0, 2.0, 1.0]);
    }

    #[test]
    fn the_owner_gets_the_slot_whose_job_is_wanted_least() {
        let mut slots = [slot(1, State::Claimed, 1.0), slot(2, State::Claimed, 1.0)];
        (slots[0].rank, slots[1].rank) = (10.0, 5.0);
        assert_eq!(sums(2.6, &slots, Dialect::V6_8), [1.0, 1.6]);
    }

    #[test]
    fn a_slot_of_many_processors_bears_as_many_loads_today() {
        let mut slots = [slot(1, State::Unclaimed, 0.0), slot(2, State::Claimed, 0.0)];
        (slots[0].cpus, slots[1].cpus) = (4.0, 4.0);
        assert_eq!(sums(5.5, &slots, Dialect::V25), [4.0, 1.5]);
        assert_eq!(sums(5.5, &slots, Dialect::V6_8), [1.0, 4.5]);
    }

    #[test]
    fn dynamic_slots_do_not_take_the_keyboard_from_those_that_are_connected() {
        let mut slots = [slot(1, State::Unclaimed, 0.0), slot(1, State::Claimed, 0.0)];
        slots[0].is_partitionable = true;
        slots[1].id = (1, 1);
        let idle = Idle {
            keyboard_s: 7,
            console_s: 9,
        };
        let one = Connected {
            consoles: 1,
            keyboards: 1,
            boost_s: 1200,
        };
        let seen = idle_shares(idle, 60, &slots, &one, Dialect::V25);
        assert_eq!(seen, [idle, idle]);
        // With the console only: the keyboard is what the console is.
        let console = Connected {
            keyboards: 0,
            ..one
        };
        let seen = idle_shares(idle, 60, &slots[1..], &console, Dialect::V25);
        let expected = Idle {
            keyboard_s: 9,
            console_s: 9,
        };
        assert_eq!(seen, [expected]);
    }

    fn shares() -> impl Strategy<Value = Vec<Share>> {
        let one = (0..State::ALL.len(), 0.0..3.0, 1u32..9);
        prop::collection::vec(one, 0..9).prop_map(|rows| {
            let share = |(at, (state, load, cpus))| Share {
                cpus: f64::from(cpus),
                ..slot(at, State::ALL[state], load)
            };
            (1..).zip(rows).map(share).collect()
        })
    }

    proptest! {
        #[test]
        fn no_load_is_made_and_none_is_lost_in_former_times(load in 0.0..50.0f64, slots in shares()) {
            for dialect in Dialect::ALL {
                let loads = owner_loads(load, &slots, dialect);
                let owner = load - condor_load(load, &slots);
                let sum: f64 = loads.iter().sum();
                prop_assert!(loads.iter().all(|load| *load >= 0.0));
                prop_assert!(sum <= owner + 1e-9);
                if dialect != Dialect::V25 && !slots.is_empty() {
                    prop_assert!((sum - owner).abs() < 1e-9, "found {sum}, expected {owner}");
                }
            }
        }
    }
}
