//! The home of the jobs of a simulated day: how far they are, what is kept, what was lost.

use super::report::JobReport;
use crate::machine::{Moment, SlotId};
use classad::{ClassAd, Context, Expr, Nowhere, Value};
use std::sync::Arc;

/// Seconds that a job takes to make its image and leave, where it does not say so: what it is told, and 100 MiB a second.
const LEAVING: i64 = 2;
const IMAGE_KIB_PER_SECOND: i64 = 100 << 10;

/// A job of the trace.
pub(super) struct Job {
    pub(super) ad: Arc<ClassAd>,
    /// Seconds of work; none: it has never enough.
    work: Option<i64>,
    /// Seconds that leaving with an image takes.
    pub(super) leaving: i64,
    /// Whether it can have an image.
    pub(super) checkpoints: bool,
    /// What its images are of.
    platform: Arc<Expr>,
    /// What is kept.
    saved: i64,
    /// What is kept when it is gone, if it has made its image by then.
    making: Option<i64>,
    /// How far it is.
    progress: i64,
    /// Since when it works.
    works_since: Option<Moment>,
    stands_since: Option<Moment>,
    leaves_since: Option<Moment>,
    pub(super) slot: Option<SlotId>,
    pub(super) report: JobReport,
}

impl Job {
    pub(super) fn new(ad: &Arc<ClassAd>, number: usize, at: Moment, platform: Arc<Expr>) -> Self {
        let mut ad = ClassAd::clone(ad);
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        for (name, value) in [
            ("JobUniverse", Expr::from(1)),
            ("NumCkpts", Expr::from(0)),
            ("ClusterId", Expr::from(number)),
            ("ProcId", Expr::from(0)),
            ("QDate", Expr::from(at)),
            ("Owner", Expr::from("user")),
        ] {
            if ad.get(name).is_none() {
                ad.insert(name, value);
            }
        }
        let ad = Arc::new(ad);
        let context = Context::new(&Nowhere).with_my(Arc::clone(&ad));
        let value = |name: &str| context.eval_attribute(name).unwrap_or(Value::Undefined);
        let seconds = |name: &str| match value(name) {
            Value::Integer(seconds) => Some(seconds.max(0)),
            _ => None,
        };
        let is_vanilla = matches!(value("JobUniverse"), Value::Integer(5));
        let image = seconds("ImageSize").unwrap_or(0) / IMAGE_KIB_PER_SECOND;
        let owner = match value("Owner") {
            Value::String(owner) => owner.to_string(),
            _ => "user".to_owned(),
        };
        Job {
            work: seconds("SimWork"),
            leaving: seconds("SimVacate").unwrap_or(LEAVING + image),
            checkpoints: value("SimCheckpoints").truth().unwrap_or(!is_vanilla),
            platform,
            saved: 0,
            making: None,
            progress: 0,
            works_since: None,
            stands_since: None,
            leaves_since: None,
            slot: None,
            report: JobReport {
                came: at,
                owner,
                ..JobReport::default()
            },
            ad,
        }
    }

    /// Whether it is at home and wants a slot.
    pub(super) fn waits(&self) -> bool {
        self.slot.is_none() && self.report.done.is_none() && self.report.held.is_none()
    }

    pub(super) fn works(&self) -> bool {
        self.works_since.is_some()
    }

    /// When its work is done, if it goes on like this.
    pub(super) fn done_at(&self) -> Option<Moment> {
        let left = (self.work? - self.progress).max(0);
        Some(self.works_since?.saturating_add(left))
    }

    fn count(&mut self, now: Moment) {
        if let Some(since) = self.works_since.take() {
            self.progress += now - since;
        }
        if let Some(since) = self.stands_since.take() {
            self.report.suspended += now - since;
        }
        if let Some(since) = self.leaves_since.take() {
            self.report.leaving += now - since;
        }
    }

    pub(super) fn start(&mut self, now: Moment) {
        self.report.starts += 1;
        self.progress = self.saved;
        self.works_since = Some(now);
    }

    pub(super) fn stand(&mut self, now: Moment) {
        self.count(now);
        self.stands_since = Some(now);
    }

    pub(super) fn go_on(&mut self, now: Moment) {
        self.count(now);
        self.works_since = Some(now);
    }

    /// It makes an image, and works on.
    pub(super) fn image(&mut self, now: Moment) {
        self.count(now);
        if self.checkpoints {
            self.keep(self.progress);
        }
        self.works_since = Some(now);
    }

    fn keep(&mut self, progress: i64) {
        self.saved = progress;
        self.report.images += 1;
        let count = i64::from(self.report.images);
        let ad = Arc::make_mut(&mut self.ad);
        ad.insert("NumCkpts", Expr::from(count));
        ad.insert("LastCheckpointPlatform", Arc::clone(&self.platform));
    }

    /// It makes an image, if it can have one, and leaves.
    pub(super) fn leave(&mut self, now: Moment) {
        self.count(now);
        self.making = self.checkpoints.then_some(self.progress);
        self.leaves_since = Some(now);
    }

    /// It is to be gone: an image that is not complete is none.
    pub(super) fn die(&mut self, now: Moment) {
        self.count(now);
        self.making = None;
        self.leaves_since = Some(now);
    }

    /// It goes on only when it is released.
    pub(super) fn hold(&mut self, reason: String) {
        self.report.held = Some(reason);
    }

    /// It is gone: done, or with what is in its image.
    pub(super) fn gone(&mut self, now: Moment) {
        self.count(now);
        if let Some(progress) = self.making.take() {
            self.keep(progress);
        }
        if self.work.is_some_and(|work| self.progress >= work) {
            self.report.done = Some(now);
            self.report.held = None;
            self.saved = self.progress;
        }
        let lost = self.progress - self.saved;
        if lost > 0 {
            self.report.killed += 1;
            self.report.badput += lost;
            self.progress = self.saved;
        }
        self.report.goodput = self.saved;
    }

    /// The day is over: what it does then is not lost.
    pub(super) fn end(&mut self, now: Moment) {
        self.count(now);
        self.report.goodput = self.progress;
    }
}
