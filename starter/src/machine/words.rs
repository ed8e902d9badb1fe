//! What a machine is told, what it orders, and what its slots can be.

use super::transitions::Transition;
use classad::{ClassAd, Expr};
use std::fmt;
use std::sync::Arc;

/// Seconds since 1970 began in Greenwich.
pub type Moment = i64;

/// What a slot is to its owner and to those who want it (current manual, "Machine States").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "named as the manual names them")]
pub enum State {
    Owner,
    Unclaimed,
    Matched,
    Claimed,
    Preempting,
    Backfill,
    Drained,
}

impl State {
    /// All of them, in the order in which slots get the owner's load and keyboard.
    pub const ALL: [State; 7] = [
        State::Owner,
        State::Unclaimed,
        State::Matched,
        State::Claimed,
        State::Preempting,
        State::Backfill,
        State::Drained,
    ];

    /// As in ads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Owner => "Owner",
            State::Unclaimed => "Unclaimed",
            State::Matched => "Matched",
            State::Claimed => "Claimed",
            State::Preempting => "Preempting",
            State::Backfill => "Backfill",
            State::Drained => "Drained",
        }
    }
}

/// What a slot does (current manual, "Machine Activities").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "named as the manual names them")]
pub enum Activity {
    Idle,
    Benchmarking,
    Busy,
    Suspended,
    Retiring,
    Vacating,
    Killing,
}

impl Activity {
    /// All of them.
    pub const ALL: [Activity; 7] = [
        Activity::Idle,
        Activity::Benchmarking,
        Activity::Busy,
        Activity::Suspended,
        Activity::Retiring,
        Activity::Vacating,
        Activity::Killing,
    ];

    /// As in ads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Activity::Idle => "Idle",
            Activity::Benchmarking => "Benchmarking",
            Activity::Busy => "Busy",
            Activity::Suspended => "Suspended",
            Activity::Retiring => "Retiring",
            Activity::Vacating => "Vacating",
            Activity::Killing => "Killing",
        }
    }
}

/// A state and an activity: where a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Its state.
    pub state: State,
    /// Its activity.
    pub activity: Activity,
}

impl Place {
    /// The pairs that there are, in the manual's order.
    pub const ALL: [Place; 15] = {
        use Activity as A;
        use State as S;
        [
            Place::of(S::Owner, A::Idle),
            Place::of(S::Unclaimed, A::Idle),
            Place::of(S::Unclaimed, A::Benchmarking),
            Place::of(S::Matched, A::Idle),
            Place::of(S::Claimed, A::Idle),
            Place::of(S::Claimed, A::Busy),
            Place::of(S::Claimed, A::Suspended),
            Place::of(S::Claimed, A::Retiring),
            Place::of(S::Preempting, A::Vacating),
            Place::of(S::Preempting, A::Killing),
            Place::of(S::Backfill, A::Idle),
            Place::of(S::Backfill, A::Busy),
            Place::of(S::Backfill, A::Killing),
            Place::of(S::Drained, A::Retiring),
            Place::of(S::Drained, A::Idle),
        ]
    };

    /// A pair.
    pub const fn of(state: State, activity: Activity) -> Self {
        Place { state, activity }
    }

    /// Whether a job makes progress here.
    pub fn works(self) -> bool {
        self.state == State::Claimed && matches!(self.activity, Activity::Busy | Activity::Retiring)
    }

    /// Whether there may be a job here, moving or not.
    pub fn holds_job(self) -> bool {
        self.works()
            || self.state == State::Preempting
            || (self.state, self.activity) == (State::Claimed, Activity::Suspended)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}", self.state, self.activity)
    }
}

/// Which slot: `SlotID`, and the number behind the underscore of a dynamic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    /// `SlotID`, from 1.
    pub number: u32,
    /// `DSlotID`, from 1; none: a slot of its own.
    pub part: Option<u32>,
}

impl SlotId {
    /// A slot that is no part of another one.
    pub const fn of(number: u32) -> Self {
        SlotId { number, part: None }
    }
}

/// Who claims a slot: a number of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub u64);

/// What was seen of the machine.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Seconds since the last key at any terminal.
    pub keyboard_idle: i64,
    /// Seconds since the last key at the console.
    pub console_idle: i64,
    /// The load of the whole machine.
    pub load: f64,
    /// The part of the load that its jobs make, slot by slot: those that are not named make none.
    pub job_loads: Vec<(SlotId, f64)>,
    /// More attributes of the machine: memory, platform, benchmarks … They win over what was seen before.
    pub attributes: ClassAd,
}

/// How a machine is drained (current manual, "Defragmenting Dynamic Slots").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Jobs have their retirement time, and time to vacate.
    Graceful,
    /// Jobs have time to vacate.
    Quick,
    /// Jobs are killed.
    Fast,
}

/// How a machine is shut down (current manual, "Claimed State").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shutdown {
    /// Jobs may run as long as they want to.
    Peaceful,
    /// Jobs have their retirement time, and time to vacate.
    Graceful,
    /// Jobs are killed.
    Fast,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed: what is due is looked at.
    Time,
    /// The machine was looked at.
    Seen(Seen),
    /// A slot was given to somebody who has not come yet.
    Matched {
        /// Which.
        slot: SlotId,
        /// To whom.
        claim: ClaimId,
    },
    /// Somebody wants a slot for a job.
    Claimed {
        /// Which.
        slot: SlotId,
        /// Who.
        claim: ClaimId,
        /// For what.
        job: Arc<ClassAd>,
    },
    /// Who waits for a slot does not want it any more.
    Withdrawn {
        /// Which.
        slot: SlotId,
        /// Who.
        claim: ClaimId,
    },
    /// Who has a slot has a job that is to run.
    Activated {
        /// Which.
        slot: SlotId,
        /// The job.
        job: Arc<ClassAd>,
    },
    /// Who has a slot has no more work.
    Released {
        /// Which.
        slot: SlotId,
    },
    /// Who has a slot is still there.
    Alive {
        /// Which.
        slot: SlotId,
    },
    /// The job's ad has changed (its size, say).
    JobChanged {
        /// Which slot.
        slot: SlotId,
        /// The ad.
        job: Arc<ClassAd>,
    },
    /// There is an image of the job: `ImageSize` is its size.
    Imaged {
        /// Which slot.
        slot: SlotId,
        /// How large it is, in KiB.
        size_kib: i64,
    },
    /// The job is gone: it has ended, or left as it was told.
    Ended {
        /// Which slot.
        slot: SlotId,
    },
    /// Benchmarks are done.
    Benchmarked {
        /// Which slot.
        slot: SlotId,
    },
    /// The backfill command runs.
    BackfillRuns {
        /// Which slot.
        slot: SlotId,
    },
    /// The backfill command is gone.
    BackfillEnded {
        /// Which slot.
        slot: SlotId,
    },
    /// `condor_vacate`: a slot, or all of them.
    Vacate {
        /// Which; none: all.
        slot: Option<SlotId>,
        /// Without time to vacate.
        fast: bool,
    },
    /// `condor_checkpoint`: a slot, or all of them.
    Checkpoint {
        /// Which; none: all.
        slot: Option<SlotId>,
    },
    /// The job is to stand still until it is told otherwise.
    Suspend {
        /// Which slot.
        slot: SlotId,
    },
    /// It may go on.
    Continue {
        /// Which slot.
        slot: SlotId,
    },
    /// The machine is to be drained.
    Drain {
        /// How.
        how: Drain,
        /// Whether it goes on when it is drained.
        resumes: bool,
        /// START until those who are there have left, while it drains gracefully (`DEFRAG_DRAINING_START_EXPR`); none: no job begins.
        start: Option<Arc<Expr>>,
    },
    /// It is not to be drained any more.
    CancelDrain,
    /// The machine is to be shut down.
    Shutdown(Shutdown),
}

/// Why a slot went from one place to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which slot.
    pub slot: SlotId,
    /// When.
    pub at: Moment,
    /// The row of the table.
    pub transition: &'static Transition,
    /// From where.
    pub from: Place,
    /// To where.
    pub to: Place,
    /// Because of what, in a few words.
    pub reason: &'static str,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Nothing: it has gone to another place. Comes before what that place orders.
    Changed(Change),
    /// The claim was accepted: the slot is the claim's, which may be a dynamic slot that was made for it.
    Accepted {
        /// Which slot.
        slot: SlotId,
        /// Whose it is now.
        claim: ClaimId,
    },
    /// The claim waits until the slot is free.
    Waits {
        /// Which slot.
        slot: SlotId,
        /// Who.
        claim: ClaimId,
    },
    /// The claim was not accepted, or is over.
    Refused {
        /// Which slot.
        slot: SlotId,
        /// Who.
        claim: ClaimId,
        /// Why.
        reason: &'static str,
    },
    /// The job that runs is the last of this claim; or there is none, and the claim is over.
    ClaimOver {
        /// Which slot.
        slot: SlotId,
        /// Who had it.
        claim: ClaimId,
    },
    /// Start the job.
    Start {
        /// In which slot.
        slot: SlotId,
        /// The job.
        job: Arc<ClassAd>,
    },
    /// The job cannot be started.
    NotStarted {
        /// In which slot.
        slot: SlotId,
        /// Why.
        reason: &'static str,
    },
    /// Let the job stand still.
    Suspend(SlotId),
    /// Let the job go on.
    Continue(SlotId),
    /// Make an image of the job, which runs on.
    Checkpoint(SlotId),
    /// The job that is to leave goes on only when somebody releases it. Comes before the order to leave.
    Hold {
        /// Which slot.
        slot: SlotId,
        /// `HoldReason`.
        reason: String,
        /// `HoldReasonSubCode`.
        subcode: i64,
    },
    /// Make an image of the job, and let it leave: within so many seconds, where there is a limit.
    Vacate {
        /// Which slot.
        slot: SlotId,
        /// The limit.
        within: Option<i64>,
    },
    /// Kill the job.
    Kill(SlotId),
    /// Kill whatever is left of the job, and who runs it: it has not gone.
    KillAll(SlotId),
    /// Measure how fast the machine is.
    Benchmark(SlotId),
    /// Begin the backfill command.
    StartBackfill(SlotId),
    /// End the backfill command, and all that it has begun.
    KillBackfill(SlotId),
    /// The machine is drained, and goes on or not.
    Drained {
        /// Whether it goes on.
        resumes: bool,
    },
    /// Every job is gone: the shutdown may go on.
    ShutDown,
    /// An expression has no value that says something.
    Warn {
        /// Which slot.
        slot: SlotId,
        /// The expression's name.
        name: String,
        /// UNDEFINED, ERROR, or why there is no value.
        value: String,
        /// What it counts as: `not TRUE`, `0` …
        counts_as: &'static str,
    },
    /// `IS_OWNER` (`IsOwner`) has no value that says something, which the original does not survive: all jobs are killed, as in a fast shutdown.
    Fatal {
        /// The expression's name.
        name: String,
        /// UNDEFINED, ERROR, or why there is no value.
        value: String,
    },
}
