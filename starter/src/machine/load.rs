//! Whose load is it: the machine's load, slot by slot (current manual, "Load Average for Multi-core Machines").

use super::words::{SlotId, State};

/// A slot's part of the load: all of it, and what its job makes.
pub(super) type Part = (f64, f64);

/// Divides a load: first what jobs make goes to their slots, then what is left goes, at most 1.0 each, to slots that are their owners',
/// then to those without a job, then to the others; what is left after that goes to all alike.
pub(super) fn divide(total: f64, slots: &[(SlotId, State)], jobs: &[(SlotId, f64)]) -> Vec<Part> {
    let job = |id: SlotId| {
        let mine = jobs.iter().filter(|(slot, _)| *slot == id);
        mine.map(|(_, load)| load.max(0.0)).sum::<f64>()
    };
    let mut parts: Vec<Part> = slots.iter().map(|(id, _)| (job(*id), job(*id))).collect();
    let mut left = (total - parts.iter().map(|part| part.0).sum::<f64>()).max(0.0);
    let rank = |state: State| match state {
        State::Owner => 0,
        State::Claimed | State::Preempting => 2,
        _ => 1,
    };
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|index| rank(slots[*index].1));
    for index in order {
        let some = left.min(1.0);
        parts[index].0 += some;
        left -= some;
    }
    #[allow(clippy::cast_precision_loss, reason = "a few slots")]
    let each = left / (slots.len().max(1) as f64);
    for part in &mut parts {
        part.0 += each;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owners_load_goes_to_his_slots_first_and_at_most_one_each() {
        let slots = [
            (SlotId::of(1), State::Claimed),
            (SlotId::of(2), State::Owner),
            (SlotId::of(3), State::Unclaimed),
        ];
        // As in the manual's log: a job that makes 0.996, and 0.254 of the owner.
        let jobs = [(SlotId::of(1), 0.996)];
        let parts = divide(1.25, &slots, &jobs);
        assert_eq!(parts[0], (0.996, 0.996));
        assert!((parts[1].0 - 0.254).abs() < 1e-9 && parts[2] == (0.0, 0.0));
        let parts = divide(0.996 + 1.5, &slots, &jobs);
        assert!((parts[1].0 - 1.0).abs() < 1e-9 && (parts[2].0 - 0.5).abs() < 1e-9);
        let parts = divide(0.996 + 6.0, &slots, &jobs);
        assert!((parts[0].0 - 2.996).abs() < 1e-9 && (parts[1].0 - 2.0).abs() < 1e-9);
    }
}
