//! What a job wants of its own queue now and then: `periodic_hold`, `periodic_release`, `periodic_remove`.
//!
//! ```text
//! job's ad, JobStatus, EnteredCurrentStatus ... --every PERIODIC_EXPR_INTERVAL--> PeriodicHold?  PeriodicRelease?  PeriodicRemove?
//! ```
//! UNDEFINED and ERROR are not TRUE. Who was held by his user is not released.

use super::Startd;
use super::queue::{Entry, Phase, Queue};
use crate::life::{Ask, idle};
use crate::measured;
use crate::verbs::classad::Here;
use classad::{ClassAd, Context, Expr, Value};
use starter::life::Hold;
use starter::machine::Activity;
use std::sync::Arc;
use tracing::{info, warn};

/// Seconds between two looks, where nothing is said.
const USUAL_INTERVAL: i64 = 60;
/// `HoldReasonCode`: "The PERIODIC_HOLD expression evaluated to True" (6.8, "Job ClassAd Attributes").
const BY_JOB: i32 = 3;
/// What makes a job one of those that are looked at.
const WISHES: &[&str] = &["PeriodicHold", "PeriodicRelease", "PeriodicRemove"];

/// What a job wants.
enum Wish {
    Hold(Hold),
    /// With this reason.
    Release(String),
    Remove,
}

impl Startd<'_> {
    /// Asks all jobs that want something now and then.
    pub(super) fn look_at_wishes(&mut self) {
        let now = self.now();
        let interval = measured::number(&self.config, "PERIODIC_EXPR_INTERVAL")
            .ok()
            .flatten();
        let interval = interval.unwrap_or(USUAL_INTERVAL).max(1);
        // A clock that was set back does not make us deaf for as long.
        if now < self.next_wishes && self.next_wishes <= now.saturating_add(interval) {
            return;
        }
        self.next_wishes = now.saturating_add(interval);
        let entries = self.queue.entries.values();
        let asked =
            entries.filter(|entry| WISHES.iter().any(|wish| entry.spec.ad.get(*wish).is_some()));
        let wishes = asked.filter_map(|entry| Some((entry.name.clone(), self.wish_of(entry)?)));
        for (name, wish) in wishes.collect::<Vec<_>>() {
            let done = match wish {
                Wish::Hold(hold) => {
                    self.put_on_hold(&name, &hold);
                    Ok(())
                }
                Wish::Release(why) => self.release(&name, &why),
                Wish::Remove => {
                    info!("job {name}: PeriodicRemove is true");
                    self.remove(&name)
                }
            };
            if let Err(why) = done {
                warn!("job {name}: {why}");
            }
        }
    }

    fn wish_of(&self, entry: &Entry) -> Option<Wish> {
        let ad = self.ad_with_status(entry);
        let clock = Here::new();
        let context = Context::new(&clock).with_my(Arc::clone(&ad));
        let is_true = |name: &str| {
            let value = context.eval_attribute(name).ok();
            value.and_then(|value| value.truth()) == Some(true)
        };
        let is_held = matches!(entry.phase, Phase::Held(_));
        if !is_held && is_true("PeriodicHold") {
            let said = match context.eval_attribute("PeriodicHoldReason") {
                Ok(Value::String(text)) => Some(text.to_string()).filter(|text| !text.is_empty()),
                _ => None,
            };
            let reason = said.unwrap_or_else(|| {
                let expr = ad.get("PeriodicHold").map(|expr| expr.to_string());
                let expr = expr.unwrap_or_default();
                format!("The job attribute PeriodicHold expression '{expr}' evaluated to TRUE")
            });
            let mut hold = Hold::new(reason, BY_JOB);
            if let Ok(Value::Integer(subcode)) = context.eval_attribute("PeriodicHoldSubCode") {
                hold.code.subcode = i32::try_from(subcode).unwrap_or(0);
            }
            return Some(Wish::Hold(hold));
        }
        let by_user = || {
            ad.get("HoldReasonCode")
                .is_some_and(|code| **code == Expr::from(i64::from(Hold::BY_USER)))
        };
        if is_held && !by_user() && is_true("PeriodicRelease") {
            let expr = ad.get("PeriodicRelease").map(|expr| expr.to_string());
            let expr = expr.unwrap_or_default();
            return Some(Wish::Release(format!(
                "The job attribute PeriodicRelease expression '{expr}' evaluated to TRUE"
            )));
        }
        is_true("PeriodicRemove").then_some(Wish::Remove)
    }

    /// The job's ad, with what changes while it is in the queue.
    fn ad_with_status(&self, entry: &Entry) -> Arc<ClassAd> {
        let mut ad = ClassAd::clone(&entry.ad(&self.owner));
        let slot = entry.slot().and_then(|slot| self.machine.slot(slot));
        let stands = slot.is_some_and(|slot| slot.place().activity == Activity::Suspended);
        // Current manual, "Job ClassAd Attributes": JobStatus.
        let status = match &entry.phase {
            Phase::Idle | Phase::Claiming(_) | Phase::Claimed(_) => 1,
            Phase::Running(_) if stands => 7,
            Phase::Running(_) | Phase::Leaving => 2,
            Phase::Held(_) => 5,
        };
        ad.insert("JobStatus", Expr::from(status));
        if let Phase::Held(reason) = &entry.phase {
            let code = entry.hold_code.unwrap_or(Hold::NOT_STARTED);
            ad.insert("HoldReason", Expr::string(reason.as_str()));
            ad.insert("HoldReasonCode", Expr::from(i64::from(code)));
        }
        let mut since = entry.submitted;
        if let Some(life) = Queue::job(self.store, &entry.name).and_then(|job| job.life) {
            since = i64::try_from(life.counted.entered_current_status).unwrap_or(since);
            if let Some(code) = life.counted.hold_reason_code {
                ad.insert("HoldReasonCode", Expr::from(i64::from(code)));
            }
        }
        ad.insert("EnteredCurrentStatus", Expr::from(since));
        Arc::new(ad)
    }

    /// A job does not go on until it is released. One that runs makes its image before, and leaves.
    pub(super) fn put_on_hold(&mut self, name: &str, hold: &Hold) {
        let Some(entry) = self.queue.entries.get_mut(name) else {
            return;
        };
        match &mut entry.phase {
            Phase::Running(runner) => {
                info!("job {name} is to be held: {}", hold.reason);
                runner.ask_once(Ask::hold(hold.clone(), true));
                self.hear_starters();
            }
            Phase::Idle => self.note_hold(name, hold),
            // It is on its way: the next look finds it somewhere else.
            Phase::Claiming(_) | Phase::Claimed(_) | Phase::Leaving | Phase::Held(_) => {}
        }
    }

    /// A job that does not run is held, also for who looks into its directory.
    pub(super) fn note_hold(&mut self, name: &str, hold: &Hold) {
        if let Some(job) = Queue::job(self.store, name)
            && let Some(life) = &job.life
            && let Err(error) = idle::hold(&job, life, hold)
        {
            warn!("{}", crate::report::chain(&error));
        }
        warn!("job {name} is held: {}", hold.reason);
        if let Some(entry) = self.queue.entries.get_mut(name) {
            entry.phase = Phase::Held(hold.reason.clone());
            entry.hold_code = Some(hold.code.code);
        }
    }
}
