//! Whose load is it: the machine's load, slot by slot, as [`crate::measure::owner_loads`] divides it.

use super::slot::{Kind, Slot};
use super::words::SlotId;
use crate::measure::{Share, owner_loads};
use classad::config::Dialect;
use classad::{Expr, Literal};

/// A slot's part of the load: all of it, and what its job makes.
pub(super) type Part = (f64, f64);

/// Divides a load: what jobs make goes to their slots, and what is left to the owner's.
pub(super) fn divide(
    total: f64,
    slots: &[Slot],
    jobs: &[(SlotId, f64)],
    dialect: Dialect,
) -> Vec<Part> {
    let job = |id: SlotId| {
        let mine = jobs.iter().filter(|(slot, _)| *slot == id);
        mine.map(|(_, load)| load.max(0.0)).sum::<f64>()
    };
    let share = |slot: &Slot| Share {
        state: slot.place.state,
        rank: slot.claim.as_ref().map_or(0.0, |claim| claim.rank),
        id: (slot.id.number, slot.id.part.unwrap_or(0)),
        cpus: cpus(slot),
        condor_load: job(slot.id),
        is_partitionable: slot.kind == Kind::Partitionable,
    };
    let shares: Vec<Share> = slots.iter().map(share).collect();
    let owners = owner_loads(total, &shares, dialect);
    let part = |(share, owner): (&Share, f64)| (share.condor_load + owner, share.condor_load);
    shares.iter().zip(owners).map(part).collect()
}

fn cpus(slot: &Slot) -> f64 {
    match slot.resources.get("Cpus").map(AsRef::as_ref) {
        #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
        Some(Expr::Literal(Literal::Integer(cpus))) => *cpus as f64,
        _ => 1.0,
    }
}
