//! Whose load is it, and whose keys: what each slot sees of the machine (`measure` knows the rules).

use super::policy::Policy;
use super::slot::{Kind, Slot};
use super::words::{Moment, Seen, SlotId};
use crate::measure::{Connected, Idle, Share, idle_shares, owner_loads};
use classad::{Expr, Literal};

/// What a slot sees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Part {
    /// `LoadAvg`.
    pub(super) load: f64,
    /// `CondorLoadAvg`.
    pub(super) job_load: f64,
    /// `KeyboardIdle`.
    pub(super) keyboard_idle: i64,
    /// `ConsoleIdle`.
    pub(super) console_idle: i64,
}

/// What each slot sees of a machine that was looked at before, and began before that.
pub(super) fn divide(
    slots: &[Slot],
    seen: &Seen,
    seen_at: Moment,
    began: Moment,
    now: Moment,
) -> Vec<Part> {
    let shares: Vec<Share> = slots
        .iter()
        .map(|slot| share(slot, &seen.job_loads))
        .collect();
    let Some(policy) = slots.first().map(|slot| &slot.policy) else {
        return vec![];
    };
    let dialect = policy.dialect;
    let passed = now - seen_at;
    let idle = Idle {
        keyboard_s: seen.keyboard_idle.saturating_add(passed),
        console_s: seen.console_idle.saturating_add(passed),
    };
    let loads = owner_loads(seen.load, &shares, dialect);
    let idles = idle_shares(idle, now - began, &shares, &connected(policy), dialect);
    let all = shares.iter().zip(loads).zip(idles);
    all.map(|((share, owners), idle)| Part {
        load: owners + share.condor_load,
        job_load: share.condor_load,
        keyboard_idle: idle.keyboard_s,
        console_idle: idle.console_s,
    })
    .collect()
}

fn connected(policy: &Policy) -> Connected {
    Connected {
        consoles: policy.console_slots,
        keyboards: policy.keyboard_slots,
        boost_s: policy.disconnected_boost,
    }
}

fn share(slot: &Slot, job_loads: &[(SlotId, f64)]) -> Share {
    let mine = job_loads.iter().filter(|(id, _)| *id == slot.id);
    let cpus = match slot.resources.get("Cpus").map(AsRef::as_ref) {
        #[allow(clippy::cast_precision_loss, reason = "a few processors")]
        Some(Expr::Literal(Literal::Integer(cpus))) => *cpus as f64,
        _ => 1.0,
    };
    Share {
        state: slot.place.state,
        rank: slot.claim.as_ref().map_or(0.0, |claim| claim.rank),
        id: (slot.id.number, slot.id.part.unwrap_or(0)),
        cpus,
        // The sum of nothing is -0.0, which an ad would show.
        condor_load: mine.fold(0.0, |sum, (_, load)| sum + load.max(0.0)),
        is_partitionable: slot.kind == Kind::Partitionable,
    }
}
