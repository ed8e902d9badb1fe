//! Who has a slot, and the job that runs for him.

use super::super::words::{ClaimId, Moment};
use classad::ClassAd;
use std::sync::Arc;

/// A claim: its job's ad, and what was decided about it.
#[derive(Clone, Debug)]
pub(in super::super) struct Claim {
    pub(in super::super) id: ClaimId,
    /// The job's ad; the last job's, while there is none.
    pub(in super::super) job: Arc<ClassAd>,
    pub(in super::super) rank: f64,
    pub(in super::super) since: Moment,
    /// The job, if one runs or stands still.
    pub(in super::super) active: Option<Active>,
    /// How many jobs it has had.
    pub(in super::super) activations: u32,
    /// When it is over unless somebody says that he is there.
    pub(in super::super) lease_ends: Option<Moment>,
    /// PREEMPT was TRUE.
    pub(in super::super) preempted: bool,
    /// Its job was told that it will be held.
    pub(in super::super) held: bool,
    /// It is to leave, and nothing can change that.
    pub(in super::super) leaves: bool,
    /// It came while the machine was being drained: it has no time to retire, and leaves when those who were there have left.
    pub(in super::super) is_filler: bool,
    /// It may retire for as long as it wants.
    pub(in super::super) peaceful: bool,
    /// It may not retire at all.
    pub(in super::super) at_once: bool,
    /// It may not even vacate.
    pub(in super::super) is_killed: bool,
    /// Seconds that its jobs have run, and stood still.
    pub(in super::super) ran: i64,
    pub(in super::super) stood: i64,
}

/// A job that runs or stands still.
#[derive(Clone, Debug)]
pub(in super::super) struct Active {
    pub(in super::super) since: Moment,
    /// When its last image was asked for; its start, before that.
    pub(in super::super) last_image: Moment,
    /// Seconds it has run, up to the last change.
    pub(in super::super) ran: i64,
    pub(in super::super) stood: i64,
    /// When SUSPEND or CONTINUE was TRUE of it last.
    pub(in super::super) turned: Option<Moment>,
    /// The time to vacate that it was promised when it started.
    pub(in super::super) vacate_time: i64,
}

impl Claim {
    pub(in super::super) fn new(id: ClaimId, job: Arc<ClassAd>, rank: f64, now: Moment) -> Self {
        Claim {
            id,
            job,
            rank,
            since: now,
            active: None,
            activations: 0,
            lease_ends: None,
            preempted: false,
            held: false,
            leaves: false,
            is_filler: false,
            peaceful: false,
            at_once: false,
            is_killed: false,
            ran: 0,
            stood: 0,
        }
    }

    /// Counts time that has passed at a place.
    pub(in super::super) fn count(&mut self, seconds: i64, works: bool, stands: bool) {
        let (ran, stood) = (seconds * i64::from(works), seconds * i64::from(stands));
        self.ran += ran;
        self.stood += stood;
        if let Some(active) = &mut self.active {
            active.ran += ran;
            active.stood += stood;
        }
    }
}
