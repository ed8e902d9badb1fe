//! What is said to the machine and by it: states, commands, events, actions.

use crate::events::ReasonCode;
use std::time::Duration;

/// What has been settled about a job's life before it begins.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// A checkpoint after so much work; none by itself if there is no such time.
    pub every: Option<Duration>,
    /// How long a vacate by signal tries to make an image before it leaves without.
    pub vacate_within: Option<Duration>,
    /// After so long, a copy that is to be gone is killed with everything around it.
    pub killing_timeout: Duration,
    /// So many times a job that somebody else has killed goes on from the same image.
    pub restarts_per_image: u32,
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its first copy is being started.
    Starting,
    /// It works.
    Running,
    /// It stands still, by command or by somebody else's signal.
    Suspended,
    /// It works or stands still, and an image is being made.
    Checkpointing,
    /// An image is being made, with which this copy ends.
    Vacating,
    /// This copy is to be gone.
    Killing,
    /// The line to the machine where it runs is cut, and is made anew.
    Reconnecting,
    /// A copy is being started from an image.
    Restarting,
    /// There is no copy; it can go on.
    Idle,
    /// Its program has ended.
    Completed,
    /// It has been killed by command.
    Removed,
    /// There is no copy, and it goes on only when somebody releases it.
    Held,
}

impl State {
    /// Its name, as `status` and the record have it.
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "Starting",
            State::Running => "Running",
            State::Suspended => "Suspended",
            State::Checkpointing => "Checkpointing",
            State::Vacating => "Vacating",
            State::Killing => "Killing",
            State::Reconnecting => "Reconnecting",
            State::Restarting => "Restarting",
            State::Idle => "Idle",
            State::Completed => "Completed",
            State::Removed => "Removed",
            State::Held => "Held",
        }
    }

    /// Whether there is no copy in it, and no starter needed.
    pub fn is_last(self) -> bool {
        matches!(
            self,
            State::Idle | State::Completed | State::Removed | State::Held
        )
    }

    /// The state of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [
            State::Starting,
            State::Running,
            State::Suspended,
            State::Checkpointing,
            State::Vacating,
            State::Killing,
            State::Reconnecting,
            State::Restarting,
            State::Idle,
            State::Completed,
            State::Removed,
            State::Held,
        ]
        .into_iter()
        .find(|state| state.name() == name)
    }
}

/// Who has asked; the caller's number for him.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who(pub u64);

impl Who {
    /// A signal, or we ourselves: there is nobody to answer.
    pub const NOBODY: Who = Who(0);
}

/// Why a job goes on only when it is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// In words.
    pub reason: String,
    /// `HoldReasonCode` and `HoldReasonSubCode` (current manual, "Job ClassAd Attributes").
    pub code: ReasonCode,
}

impl Hold {
    /// By a user.
    pub const BY_USER: i32 = 1;
    /// The job could not be started.
    pub const NOT_STARTED: i32 = 6;
    /// By the policy of the machine's owner (`WANT_HOLD`).
    pub const BY_MACHINE: i32 = 21;

    /// For one of these reasons.
    #[must_use]
    pub fn new(reason: String, code: i32) -> Self {
        let code = ReasonCode { code, subcode: 0 };
        Hold { reason, code }
    }
}

/// What can be asked of a starter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Let the job stand still (Condor's SIGUSR1).
    Suspend,
    /// Let it work again (SIGCONT).
    Continue,
    /// Make an image (SIGUSR2).
    Checkpoint,
    /// Give up the image that is being made (Condor's mode *abort*).
    Abort,
    /// Be again as at the last image (the job's own `restart()`).
    GoBack,
    /// Make an image, then leave (SIGTSTP, SIGTERM).
    Vacate {
        /// Give up making it after so long, and leave without.
        within: Option<Duration>,
        /// Try again if no image can be made just now, rather than refuse.
        insists: bool,
    },
    /// Make an image, leave, and go on from it on another machine.
    Migrate {
        /// Its name, which is the caller's to know.
        to: String,
    },
    /// Leave with the last image, without a new one (SIGINT).
    VacateLatest {
        /// Leave even if there is no image.
        at_any_price: bool,
    },
    /// Make an image, leave, and go on only after a release.
    Hold {
        /// Why.
        hold: Hold,
        /// Try again if no image can be made just now, rather than refuse.
        insists: bool,
    },
    /// Leave without an image, for good.
    Kill,
}

/// How a copy has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its first process has exited with this status.
    Exited(i32),
    /// Its first process was killed by this signal.
    Signalled(i32),
    /// What supervises it went without a word about it.
    Gone,
    /// It has never run; what was to start it ended with this status.
    NotBegun(i32),
    /// It has never run: what was to start it was told by this signal to end.
    Interrupted(i32),
}

/// What there is to go on from when an image cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// An older image.
    Older,
    /// No image that verifies.
    Nothing,
    /// None that could be used, though it verifies.
    Unusable,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The copy that was started runs.
    Runs,
    /// It stands still.
    Stopped,
    /// It does no longer.
    Continued,
    /// It has ended.
    Ended(End),
    /// It has never run: the image it was to go on from cannot be used.
    Refused(Remains),
    /// The line to its machine is cut.
    Cut,
    /// There is another.
    Joined,
    /// The checkpoint that was begun is over: an image was committed, or why not.
    Checkpointed(Result<(), String>),
    /// Somebody asks for something.
    Asked(Who, Command),
    /// Time has passed.
    Time,
}

/// What somebody who asked is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has been done.
    Done,
    /// It has not, and why.
    Refused(String),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start the job's first copy.
    Start,
    /// Start a copy from the newest good image.
    Restart,
    /// Nothing, for so long: the last copy was killed before it ran. [`Action::Start`] or [`Action::Restart`] comes then.
    Pause(Duration),
    /// Begin a checkpoint.
    Checkpoint {
        /// The copy ends with it.
        leaves: bool,
    },
    /// End the checkpoint that is being made; its [`Event::Checkpointed`] comes as ever.
    AbandonCheckpoint,
    /// Give it up, unless the image counts already; [`Event::Checkpointed`] says which.
    AbortCheckpoint,
    /// Stop all processes of the job.
    Stop,
    /// Let them go on.
    Go,
    /// Kill the job.
    Kill,
    /// Kill the job, and what supervises it.
    KillAll,
    /// Tell him.
    Answer(Who, Answer),
    /// The starter's work is done.
    Leave(Leave),
}

/// How a starter ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The job has ended so, once and for all.
    Completed(End),
    /// It can go on elsewhere, or later.
    Vacated,
    /// It does not go on until somebody releases it.
    Held(Hold),
    /// It was killed by command.
    Killed,
    /// It could not be started.
    NotBegun(i32),
}

/// How a starter begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The job is new.
    Start,
    /// It goes on from an image.
    Restart {
        /// It had been suspended by command at some time before.
        may_stand: bool,
    },
}
