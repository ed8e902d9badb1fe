//! What slots and queue are like, for who looks; and why a job does not run.

use super::Startd;
use super::queue::{Entry, Phase, file_of};
use super::record::{JobLine, SlotLine};
use crate::jobs::Life;
use classad::{Expr, Literal};
use starter::machine::{Activity, Slot, SlotId};

/// So many reasons are told.
const MOST: usize = 8;

impl Startd<'_> {
    pub(super) fn slot_line(&self, slot: &Slot) -> SlotLine {
        let (entered_state, entered_activity) = slot.entered();
        let number = |name: &str| match slot.ad().get(name).map(AsRef::as_ref) {
            Some(Expr::Literal(Literal::Integer(number))) => *number,
            _ => 0,
        };
        let job = self.job_of(slot.id());
        let (ad, job_ad) = self.ads.get(&slot.id()).cloned().unwrap_or_default();
        SlotLine {
            name: slot.name(),
            id: slot.id().number,
            sub_id: slot.id().part,
            kind: slot.kind().name().to_owned(),
            state: slot.place().state.name().to_owned(),
            activity: slot.place().activity.name().to_owned(),
            entered_state,
            entered_activity,
            job: job.map(|entry| entry.name.clone()),
            cpus: number("Cpus"),
            memory: number("Memory"),
            ad,
            job_ad,
        }
    }

    /// Writes down what the slots publish: they do at every look, so only for somebody who asks.
    pub(super) fn publish(&mut self) {
        let now = self.measured.now();
        let ids = self.machine.slots().iter().map(Slot::id);
        let ads = ids.filter_map(|id| {
            let ad = self.machine.ad(id, now)?.to_old().to_string();
            let job = self.job_of(id).map(|entry| entry.ad(&self.owner));
            let job = job.map(|job| job.to_old().to_string());
            Some((id, (ad, job.unwrap_or_default())))
        });
        self.ads = ads.collect();
    }

    /// The job in a slot.
    fn job_of(&self, slot: SlotId) -> Option<&Entry> {
        let mut entries = self.queue.entries.values();
        entries.find(|entry| entry.slot() == Some(slot))
    }

    pub(super) fn job_lines(&self) -> Vec<JobLine> {
        let mut lines: Vec<JobLine> = self
            .queue
            .entries
            .values()
            .map(|entry| self.job_line(entry))
            .collect();
        lines.extend(self.queue.damaged.iter().map(|(name, why)| JobLine {
            name: name.clone(),
            number: 0,
            state: "Damaged".to_owned(),
            slot: None,
            submitted: 0,
            starts: 0,
            images: 0,
            why: vec![why.clone()],
            hold_code: None,
            is_removed: false,
            is_admitted: false,
        }));
        lines.sort_by(|left, right| (left.number, &left.name).cmp(&(right.number, &right.name)));
        lines
    }

    fn job_line(&self, entry: &Entry) -> JobLine {
        let slot = entry.slot().and_then(|slot| self.machine.slot(slot));
        let activity = slot.map(|slot| slot.place().activity);
        let state = match (&entry.phase, activity) {
            (Phase::Idle | Phase::Claiming(_) | Phase::Claimed(_), _) => "Idle",
            (Phase::Running(_), Some(Activity::Suspended)) => "Suspended",
            (Phase::Running(_), Some(Activity::Vacating)) => "Vacating",
            (Phase::Running(_), Some(Activity::Killing)) => "Killing",
            (Phase::Running(_), _) => "Running",
            (Phase::Leaving, _) => "Leaving",
            (Phase::Held(_), _) => "Held",
        };
        let why = match &entry.phase {
            Phase::Held(reason) => vec![reason.clone()],
            Phase::Leaving => vec!["it leaves a startd that is gone".to_owned()],
            Phase::Idle => entry.why.clone(),
            _ => vec![],
        };
        JobLine {
            name: entry.name.clone(),
            number: entry.number,
            state: state.to_owned(),
            slot: slot.map(Slot::name),
            submitted: entry.submitted,
            starts: entry.starts,
            images: entry.images,
            why,
            hold_code: entry.hold_code,
            is_removed: entry.is_removed,
            is_admitted: entry.is_admitted,
        }
    }

    /// Finds out why jobs wait. It takes its time, so only somebody who asks has it done.
    pub(super) fn find_out_why(&mut self) {
        // Whoever has put such a file there may have taken it away.
        let spool = &self.queue.places.spool;
        let damaged = &mut self.queue.damaged;
        damaged.retain(|name, _| file_of(spool, name).exists());
        let idle = self.queue.entries.values();
        let idle = idle.filter(|entry| matches!(entry.phase, Phase::Idle));
        let why: Vec<_> = idle
            .map(|entry| (entry.name.clone(), self.why_idle(entry)))
            .collect();
        for (name, why) in why {
            if let Some(entry) = self.queue.entries.get_mut(&name) {
                entry.why = why;
            }
        }
    }

    fn why_idle(&self, entry: &Entry) -> Vec<String> {
        let now = self.now();
        if self.is_shutting_down {
            return vec!["the machine is shut down".to_owned()];
        }
        if !self.machine.takes_jobs() {
            return vec!["the machine is drained".to_owned()];
        }
        let mut why = vec![];
        if let Some(left) = entry.pace.left() {
            let seconds = left.as_secs() + 1;
            why.push(format!("it has just left, and waits for {seconds} s"));
        }
        let elsewhere = self.store.find(&entry.name).ok().map(|job| job.life());
        if let Some(Life::Elsewhere { host }) = elsewhere {
            why.push(format!("it runs on {host}"));
        }
        let job = entry.ad(&self.owner);
        let whole = |slot: &&Slot| slot.id().part.is_none();
        for slot in self.machine.slots().iter().filter(whole).take(MOST) {
            let name = slot.name();
            let reason = self.machine.why_not(slot.id(), &job, now);
            let Some(reason) = reason.or_else(|| entry.refused.clone()) else {
                continue;
            };
            why.push(format!("{name}: {reason}"));
        }
        why
    }
}
