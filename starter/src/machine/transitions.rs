//! The table of transitions: every way from one place to another, as the current manual numbers them.
//!
//! ```text
//!            A1               C6             G9          11              13         18
//!   Owner <------> Unclaimed ----> Matched ----> Claimed ===> Idle <==> Busy ===> Retiring ===> Preempting
//!     ^  \    B2    | |  ^ \ 5D ----------------> |        12  |^       |  ^                     Vacating
//!     |   \ N36     | |  3 4 Benchmarking         | 10        14||15  20|  |16,19                 21 |
//!     |    v     P37| |E7                         `-----------> v|      v  |          23,24 <----- Killing
//!     |  Drained <--' `-> Backfill --L32,M31--> Matched, Claimed Suspended -17-> Preempting   |
//!     `---O34,35---'         `--K30--> Owner                            Owner <--J22,25-------'
//! ```
//! # What callers may rely on
//! No slot ever changes its place but by a row of [`TABLE`]; each row is reached (`starter/src/machine/tests/table.rs`).
//!
//! # What it does not do
//! It says what may happen; when it does, `slot/` says.

use super::words::{Activity, Place, State};
use classad::config::Dialect;

/// A row: a way from one place to another.
#[derive(Debug, PartialEq, Eq)]
pub struct Transition {
    /// The current manual's number; none: the original does it, and no manual has a number for it.
    pub number: Option<u8>,
    /// The current manual's letter, where the state changes.
    pub letter: Option<char>,
    /// The section of the current manual, "State and Activity Transitions", which it is in.
    pub section: &'static str,
    /// From one of these.
    pub from: &'static [Place],
    /// To one of these.
    pub to: &'static [Place],
    /// On what condition.
    pub condition: &'static str,
    /// Condor 6.8's number (its section 3.5.8).
    pub number_6_8: Option<u8>,
    /// Condor 6.1's number.
    pub number_6_1: Option<u8>,
}

impl Transition {
    /// The number in a dialect's manual.
    pub fn number_in(&self, dialect: Dialect) -> Option<u8> {
        match dialect {
            Dialect::V6_1 => self.number_6_1,
            Dialect::V6_8 => self.number_6_8,
            Dialect::V25 => self.number,
        }
    }

    /// The row for a way.
    pub fn between(from: Place, to: Place) -> Option<&'static Transition> {
        TABLE
            .iter()
            .find(|row| row.from.contains(&from) && row.to.contains(&to))
    }
}

const fn at(state: State, activity: Activity) -> Place {
    Place::of(state, activity)
}

const OWNER: Place = at(State::Owner, Activity::Idle);
const UNCLAIMED: Place = at(State::Unclaimed, Activity::Idle);
const BENCHMARKING: Place = at(State::Unclaimed, Activity::Benchmarking);
const MATCHED: Place = at(State::Matched, Activity::Idle);
const CLAIMED: Place = at(State::Claimed, Activity::Idle);
const BUSY: Place = at(State::Claimed, Activity::Busy);
const SUSPENDED: Place = at(State::Claimed, Activity::Suspended);
const RETIRING: Place = at(State::Claimed, Activity::Retiring);
const VACATING: Place = at(State::Preempting, Activity::Vacating);
const KILLING: Place = at(State::Preempting, Activity::Killing);
const BACKFILL: Place = at(State::Backfill, Activity::Idle);
const BACKFILL_BUSY: Place = at(State::Backfill, Activity::Busy);
const BACKFILL_KILLING: Place = at(State::Backfill, Activity::Killing);
const DRAINING: Place = at(State::Drained, Activity::Retiring);
const DRAINED: Place = at(State::Drained, Activity::Idle);

macro_rules! rows {
    ($($number:tt $letter:tt $old:tt $oldest:tt $section:literal: $($from:ident)|+ => $($to:ident)|+, $condition:literal;)*) => {
        &[$(Transition {
            number: rows!(@some $number),
            letter: rows!(@some $letter),
            section: $section,
            from: &[$($from),+],
            to: &[$($to),+],
            condition: $condition,
            number_6_8: rows!(@some $old),
            number_6_1: rows!(@some $oldest),
        }),*]
    };
    (@some -) => { None };
    (@some $value:tt) => { Some($value) };
}

/// All rows: current number, letter, 6.8's number, 6.1's number, section.
///
/// In 6.1 there is no retirement: its 12 is our 13 and 18, its 15 our 16 and 18, at one moment. Of its 11 to 15 only the places
/// in order are printed; who is which follows from 6.8's order of the same transitions. Which of 34 and 35 is which no text says.
pub static TABLE: &[Transition] = rows! {
    1 'A' 1 1 "Owner State": OWNER => UNCLAIMED, "IS_OWNER is FALSE, or somebody comes whom START allows";
    2 'B' 2 2 "Unclaimed State": UNCLAIMED | BENCHMARKING => OWNER, "IS_OWNER is TRUE";
    3 - 3 3 "Unclaimed State": UNCLAIMED => BENCHMARKING, "RunBenchmarks is TRUE";
    4 - 4 4 "Unclaimed State": BENCHMARKING => UNCLAIMED, "the benchmarks are done";
    5 'D' 5 5 "Unclaimed State": UNCLAIMED | BENCHMARKING => CLAIMED, "it is claimed before it hears of a match";
    6 'C' 6 6 "Unclaimed State": UNCLAIMED | BENCHMARKING => MATCHED, "it is matched";
    7 'E' 7 - "Unclaimed State": UNCLAIMED => BACKFILL, "START_BACKFILL is TRUE";
    8 'F' 8 7 "Matched State": MATCHED => OWNER, "MATCH_TIMEOUT is over, START is locally FALSE, the claim fails, or the machine is vacated or shut down";
    9 'G' 9 8 "Matched State": MATCHED => CLAIMED, "it is claimed";
    10 'H' 10 9 "Claimed State": CLAIMED => VACATING | KILLING, "START is FALSE, CLAIM_WORKLIFE or the lease is over, somebody better waits, the claim is released, or the machine is vacated, drained or shut down";
    11 - 11 10 "Claimed State": CLAIMED => BUSY, "the claim is activated: a job starts";
    12 - 12 11 "Claimed State": BUSY => CLAIMED, "the job is gone";
    13 - 13 12 "Claimed State": BUSY => RETIRING, "PREEMPT is TRUE and WANT_SUSPEND is not, somebody better waits, the claim is released or its lease over, or the machine is vacated, drained or shut down";
    14 - 14 13 "Claimed State": BUSY => SUSPENDED, "WANT_SUSPEND and SUSPEND are TRUE";
    15 - 15 14 "Claimed State": SUSPENDED => BUSY, "CONTINUE is TRUE, and nobody waits";
    16 - 16 15 "Claimed State": SUSPENDED => RETIRING, "PREEMPT is TRUE, or CONTINUE is and the claim was preempted before";
    17 'H' 17 - "Claimed State": SUSPENDED => VACATING | KILLING, "the retirement time is over during a suspension";
    18 'H' 18 - "Claimed State": RETIRING => VACATING | KILLING, "the job is gone, or the retirement time is over";
    19 - 19 - "Claimed State": RETIRING => BUSY, "nobody better waits any more, and there was no other reason; or draining is cancelled";
    20 - 20 - "Claimed State": RETIRING => SUSPENDED, "WANT_SUSPEND and SUSPEND are TRUE";
    21 - 21 16 "Preempting State": VACATING => KILLING, "KILL is TRUE, the time to vacate is over, or the machine is vacated or shut down fast";
    22 'J' 22 17 "Preempting State": VACATING => OWNER, "the job is gone, and nobody better waits";
    23 'I' 23 18 "Preempting State": VACATING => CLAIMED, "the job is gone, and somebody better waits";
    24 'I' 24 20 "Preempting State": KILLING => CLAIMED, "the job is gone, and somebody better waits";
    25 'J' 25 19 "Preempting State": KILLING => OWNER, "the job is gone, and nobody better waits";
    26 - 26 - "Backfill State": BACKFILL => BACKFILL_BUSY, "the backfill command runs";
    27 - 27 - "Backfill State": BACKFILL_BUSY => BACKFILL, "the backfill command is gone by itself";
    28 - 28 - "Backfill State": BACKFILL_BUSY => BACKFILL_KILLING, "EVICT_BACKFILL is TRUE, it is matched or claimed, or the machine is vacated, drained or shut down";
    29 - 29 - "Backfill State": BACKFILL_KILLING => BACKFILL, "the backfill command is gone";
    30 'K' 30 - "Backfill State": BACKFILL => OWNER, "EVICT_BACKFILL is or was TRUE, or the machine is vacated, drained or shut down";
    31 'M' 31 - "Backfill State": BACKFILL => CLAIMED, "it was claimed";
    32 'L' 32 - "Backfill State": BACKFILL => MATCHED, "it was matched";
    33 - - - "Drained State": DRAINING => DRAINED, "every slot is drained";
    34 'O' - - "Drained State": DRAINED => OWNER, "draining is finalized or cancelled";
    35 'O' - - "Drained State": DRAINING => OWNER, "draining is cancelled";
    36 'N' - - "Owner State": OWNER => DRAINING, "draining is initiated";
    37 'P' - - "Unclaimed State": UNCLAIMED | BENCHMARKING => DRAINING, "draining is initiated";
    - - - - "Claimed State": SUSPENDED => CLAIMED, "the job is gone while it is suspended";
};
