//! `life.json`: what a starter writes down about its job.
//!
//! ```text
//! jobs/NAME/job.json    by whoever starts a copy or makes an image (crate::jobs)
//! jobs/NAME/life.json   by the starter alone, at each change of state; written beside and renamed
//! ```
//! Attributes are called as in Condor's job ad (condor manual, "Job ClassAd Attributes"); times are seconds since 1970, durations
//! seconds. How often it was checkpointed is the number of its last image, in `job.json`.

use super::process::ProcessName;
use super::pulse;
use super::record::{Place, RecordError, read_record, replace_record};
use crate::args::ImagesAt;
use serde::{Deserialize, Serialize};
use starter::life::{End, Hold, State};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Version of [`LifeRecord`].
const SCHEMA_VERSION: u32 = 1;

/// How many images a job's directory keeps if nobody says otherwise.
pub(crate) const IMAGES_KEPT: u32 = 2;

/// A job's life, as written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LifeRecord {
    /// [`SCHEMA_VERSION`].
    pub(crate) schema_version: u32,
    /// [`State::name`].
    pub(crate) state: String,
    /// The starter; it may have ended.
    pub(crate) starter: ProcessName,
    /// Where it runs, or ran.
    pub(crate) place: Place,
    /// The machine where its copy is, or was last, if that is another one.
    #[serde(default)]
    pub(crate) on: Option<String>,
    /// What that copy's folder there is called by.
    #[serde(default)]
    pub(crate) copy: Option<String>,
    /// So many images are kept.
    pub(crate) keep: u32,
    /// They count when the shadow has them, too.
    #[serde(default)]
    pub(crate) images_at_shadow: bool,
    /// That shadow.
    #[serde(default)]
    pub(crate) kept_at: Option<KeptAt>,
    /// A starter that has given no sign for so long has lost the job (super::pulse), in milliseconds.
    pub(crate) lease_ms: u64,
    /// It was suspended by command at some time, and so may its images be.
    #[serde(default, alias = "image_is_suspended")]
    pub(crate) may_stand: bool,
    /// What the last checkpoint was refused for, if it was.
    #[serde(default)]
    pub(crate) refused: Option<String>,
    /// The image that was passed over last, because of what.
    #[serde(default)]
    pub(crate) passed_over: Option<String>,
    /// What was cut off its files when they went back, as [`crate::raw::encode`] has it.
    #[serde(default)]
    pub(crate) tails: Vec<String>,
    /// What is carried out at its end, as [`crate::raw::encode`] has it.
    #[serde(default)]
    pub(crate) notify: Option<String>,
    /// What is known of the copy that ran when this was written, if one did.
    #[serde(default)]
    pub(crate) running: Option<RunningCopy>,
    /// What is counted.
    #[serde(flatten)]
    pub(crate) counted: Counted,
}

/// A shadow that keeps images of the job, as they are known by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptAt {
    /// As `--shadow` has it.
    pub(crate) address: String,
    /// The file of `--identity-file`, absolute, as [`crate::raw::encode`] has it.
    pub(crate) identity: Option<String>,
    /// The number by which it knows who keeps the job going.
    pub(crate) starter: u64,
}

/// A copy that has not ended yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunningCopy {
    /// Processor time in the program, and in the kernel, seconds.
    pub(crate) used: [f64; 2],
    /// Bytes that it has written to files that are served, and read from them.
    #[serde(default)]
    pub(crate) bytes: [u64; 2],
    /// It stands still.
    pub(crate) stands: bool,
}

/// What is kept over all copies of a job, under Condor's names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Counted {
    /// When it was begun first.
    pub(crate) job_start_date: u64,
    /// When its last copy was begun.
    pub(crate) job_current_start_date: u64,
    /// When it came into its present state.
    pub(crate) entered_current_status: u64,
    /// Copies that ran.
    pub(crate) num_job_starts: u64,
    /// Those of them that came from an image.
    pub(crate) num_restarts: u64,
    /// How often it was suspended by command.
    pub(crate) total_suspensions: u64,
    /// How long it stood still.
    pub(crate) cumulative_suspension_time: f64,
    /// When it was suspended last.
    pub(crate) last_suspension_time: Option<u64>,
    /// When it left a machine last.
    pub(crate) last_vacate_time: Option<u64>,
    /// Processor time of the copies that have ended, in the program.
    pub(crate) remote_user_cpu: f64,
    /// The same in the kernel.
    pub(crate) remote_sys_cpu: f64,
    /// Bytes that they have written to files that are served, and of all images.
    pub(crate) bytes_sent: u64,
    /// Bytes that they have read from such files.
    pub(crate) bytes_recvd: u64,
    /// How long copies have been there that have ended.
    pub(crate) remote_wall_clock_time: f64,
    /// How often it was held because it could not go on.
    pub(crate) num_system_holds: u64,
    /// After so long without a sign it is taken for lost: of its copy elsewhere, or of its starter.
    pub(crate) job_lease_duration: Option<u64>,
    /// Why it is held.
    pub(crate) hold_reason: Option<String>,
    /// Which of Condor's reasons that is: 1 by a user, 6 it could not be started, 21 by a machine's policy.
    pub(crate) hold_reason_code: Option<i32>,
    /// A number that belongs to it.
    #[serde(default)]
    pub(crate) hold_reason_sub_code: Option<i32>,
    /// Why it was released last.
    pub(crate) release_reason: Option<String>,
    /// It has ended by a signal.
    pub(crate) exit_by_signal: Option<bool>,
    /// Its exit status.
    pub(crate) exit_code: Option<i32>,
    /// The signal by which it ended.
    pub(crate) exit_signal: Option<i32>,
}

impl Counted {
    /// It goes on only when it is released.
    pub(crate) fn is_held(&mut self, hold: &Hold) {
        if hold.code.code != Hold::BY_USER {
            self.num_system_holds = self.num_system_holds.saturating_add(1);
        }
        self.hold_reason = Some(hold.reason.clone());
        self.hold_reason_code = Some(hold.code.code);
        self.hold_reason_sub_code = Some(hold.code.subcode);
    }

    /// It may go on.
    pub(crate) fn is_not_held(&mut self) {
        self.hold_reason = None;
        (self.hold_reason_code, self.hold_reason_sub_code) = (None, None);
    }
}

impl LifeRecord {
    /// That of a job whose starter this process is; an earlier one's numbers go on, and so does what it was asked for.
    pub(crate) fn begin(
        before: Option<LifeRecord>,
        arguments: &crate::args::Life,
    ) -> io::Result<Self> {
        let lease = arguments.pulse.saturating_mul(pulse::LEASE);
        let asked = arguments.notify.as_ref().map(crate::raw::encode);
        let (on, copy) = match &before {
            Some(before) => (before.on.clone(), before.copy.clone()),
            None => (None, None),
        };
        let passed_over = before
            .as_ref()
            .and_then(|before| before.passed_over.clone());
        let tails = before.as_ref().map(|before| before.tails.clone());
        let tails = tails.unwrap_or_default();
        let images_at_shadow = match &arguments.images {
            Some(at) => *at == ImagesAt::Shadow,
            None => before
                .as_ref()
                .is_some_and(|before| before.images_at_shadow),
        };
        let kept_at = before.as_ref().and_then(|before| before.kept_at.clone());
        let (kept, may_stand, kept_notify, counted) = match before {
            Some(before) => (before.keep, before.may_stand, before.notify, before.counted),
            None => (IMAGES_KEPT, false, None, Counted::default()),
        };
        Ok(LifeRecord {
            schema_version: SCHEMA_VERSION,
            state: State::Starting.name().to_owned(),
            starter: ProcessName::of_self()?,
            place: Place::here(),
            on,
            copy,
            keep: arguments.keep.unwrap_or(kept),
            images_at_shadow,
            // What an earlier starter has left there is there.
            kept_at,
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            may_stand,
            refused: None,
            passed_over,
            tails,
            notify: asked.or(kept_notify),
            running: None,
            counted,
        })
    }

    /// Whether there is one, readable or not.
    pub(crate) fn is_in(dir: &Path) -> bool {
        dir.join(NAME).exists()
    }

    /// What is counted, with what the copy that runs had done when this was written.
    pub(crate) fn counted_so_far(&self) -> Counted {
        let mut counted = self.counted.clone();
        if let Some(running) = self.running {
            let ([user, system], [sent, received]) = (running.used, running.bytes);
            counted.remote_user_cpu += user;
            counted.remote_sys_cpu += system;
            counted.bytes_sent = counted.bytes_sent.saturating_add(sent);
            counted.bytes_recvd = counted.bytes_recvd.saturating_add(received);
        }
        counted
    }

    /// The state it was in when it was written.
    pub(crate) fn state(&self) -> Option<State> {
        State::from_name(&self.state)
    }

    /// The end of a job that is completed.
    pub(crate) fn end(&self) -> Option<End> {
        match (
            self.state()?,
            self.counted.exit_code,
            self.counted.exit_signal,
        ) {
            (State::Completed, Some(code), _) => Some(End::Exited(code)),
            (State::Completed, _, Some(signal)) => Some(End::Signalled(signal)),
            _ => None,
        }
    }

    /// Refuses one whose end is final.
    pub(crate) fn check_not_over(&self, name: &str) -> crate::report::Outcome<()> {
        match self.state() {
            Some(State::Completed | State::Removed) => {
                let message = format!("job {name} is {}", self.state);
                Err(crate::report::Failure::new(
                    crate::report::Exit::Failed,
                    message,
                ))
            }
            _ => Ok(()),
        }
    }

    /// It does not go on until it is released.
    pub(crate) fn hold(&mut self, hold: &Hold) {
        self.state = State::Held.name().to_owned();
        self.counted.is_held(hold);
        self.counted.entered_current_status = super::unix_now();
    }

    /// It may go on, because of that.
    pub(crate) fn release(&mut self, why: &str) {
        self.state = State::Idle.name().to_owned();
        self.counted.is_not_held();
        self.counted.release_reason = Some(why.to_owned());
        self.counted.entered_current_status = super::unix_now();
    }

    /// How long until its starter, on another machine, has lost it; none if it has.
    pub(crate) fn lease_left(&self, dir: &Path) -> Option<Duration> {
        if self.state().is_some_and(State::is_last) {
            return None;
        }
        pulse::left(dir, Duration::from_millis(self.lease_ms))
    }

    /// Whether the starter is there.
    pub(crate) fn has_starter(&self) -> bool {
        !self.state().is_some_and(State::is_last)
            && Place::here().same_pids(&self.place)
            && self.starter.is_alive()
    }

    /// That of a job's directory, if it has one.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>, RecordError> {
        match read_record(dir.join(NAME), SCHEMA_VERSION) {
            Err(RecordError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            read => read.map(|record: LifeRecord| Some(record.checked())),
        }
    }

    /// Without numbers that make no sense: it is a file that anybody may have edited.
    fn checked(mut self) -> Self {
        self.keep = self.keep.max(1);
        let counted = &mut self.counted;
        counted.exit_signal = counted
            .exit_signal
            .filter(|signal| (1..=64).contains(signal));
        counted.exit_code = counted.exit_code.filter(|code| (0..=255).contains(code));
        self
    }

    /// Writes it into a job's directory, beside the old one, and renames it; it outlives a power failure.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), RecordError> {
        replace_record(dir.join(NAME), self, true)
    }

    /// Removes that of a job that has not begun.
    pub(crate) fn withdraw(dir: &Path) {
        let _ = fs::remove_file(dir.join(NAME));
    }
}

const NAME: &str = "life.json";
