//! A slot as its state machine has it, and the claim and the job on it: plain records.

use super::busy::Busy;
pub use crate::machine::{Activity, Kind, State};
use classad::Expr;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who has claimed a slot. Times are whole seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// `ClientMachine`.
    pub client_machine: Option<String>,
    /// `RemoteOwner`: who has claimed it.
    pub remote_owner: Option<String>,
    /// `RemoteUser`: who uses it.
    pub remote_user: Option<String>,
    /// `CurrentRank`.
    pub rank: f64,
    /// Who will have it next.
    pub preempting: Option<Preempting>,
    /// `TotalClaimRunTime`.
    pub run_s: i64,
    /// `TotalClaimSuspendTime`.
    pub suspended_s: i64,
}

/// Who waits until the job is gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preempting {
    /// `PreemptingOwner`.
    pub owner: Option<String>,
    /// `PreemptingUser`.
    pub user: Option<String>,
    /// `PreemptingRank`.
    pub rank: f64,
}

/// The job on a slot. Moments are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// `JobId`: `152.3`.
    pub id: String,
    /// `JobStart`.
    pub started_at: i64,
    /// `LastPeriodicCheckpoint`: when the last one began.
    pub checkpoint_at: Option<i64>,
    /// `ImageSize`, KiB.
    pub image_size_kib: Option<u64>,
    /// `TotalJobRunTime`.
    pub run_s: i64,
    /// `TotalJobSuspendTime`.
    pub suspended_s: i64,
    /// Attributes of the job that the slot shows too (STARTD_JOB_ATTRS, STARTD_JOB_EXPRS).
    pub shown: BTreeMap<String, Arc<Expr>>,
}

/// A slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// From 1.
    pub id: u32,
    /// Of a dynamic slot, its number in the partitionable one.
    pub sub_id: Option<u32>,
    /// What it is.
    pub kind: Kind,
    /// Of SLOT_TYPE_n; 0 for none.
    pub type_id: u32,
    /// `Cpus`: what is not given away.
    pub cpus: f64,
    /// `TotalSlotCpus`.
    pub total_cpus: f64,
    /// `Memory`, MiB.
    pub memory_mib: u64,
    /// `TotalSlotMemory`, MiB.
    pub total_memory_mib: u64,
    /// Its share of the disk, 0 to 1.
    pub disk_share: f64,
    /// And what it had before dynamic slots were cut from it.
    pub total_disk_share: f64,
    /// Its share of the virtual memory, 0 to 1.
    pub swap_share: f64,
    /// MACHINE_RESOURCE_x: what is not given away, and all of it.
    pub resources: BTreeMap<String, (f64, f64)>,
    /// `SlotWeight`; none for `Cpus`.
    pub weight: Option<Arc<Expr>>,
    /// Its state.
    pub state: State,
    /// Its activity.
    pub activity: Activity,
    /// When it entered the state.
    pub entered_state_at: i64,
    /// When it entered the activity.
    pub entered_activity_at: i64,
    /// Seconds in each state and activity so far, also in the present one.
    pub times: Vec<(State, Activity, i64)>,
    /// Its claim.
    pub claim: Option<Claim>,
    /// Its job.
    pub job: Option<Job>,
    /// Its job's part of the load ([`super::Minute::load`]).
    pub condor_load: f64,
    /// CpuBusy.
    pub busy: Busy,
}

impl Slot {
    /// A slot that has the whole machine, as it begins: with the owner, idle, since `now`.
    #[must_use]
    pub fn whole(cpus: u32, memory_mib: u64, now: i64) -> Self {
        Slot {
            id: 1,
            sub_id: None,
            kind: Kind::Static,
            type_id: 0,
            cpus: f64::from(cpus),
            total_cpus: f64::from(cpus),
            memory_mib,
            total_memory_mib: memory_mib,
            disk_share: 1.0,
            total_disk_share: 1.0,
            swap_share: 1.0,
            resources: BTreeMap::new(),
            weight: None,
            state: State::Owner,
            activity: Activity::Idle,
            entered_state_at: now,
            entered_activity_at: now,
            times: vec![],
            claim: None,
            job: None,
            condor_load: 0.0,
            busy: Busy::default(),
        }
    }

    /// The rank of its job, 0 without a claim.
    #[must_use]
    pub fn rank(&self) -> f64 {
        self.claim.as_ref().map_or(0.0, |claim| claim.rank)
    }
}
