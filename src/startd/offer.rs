//! Who gets which slot: what the machine wants most (RANK), then what its owner's jobs' user wants first (JobPrio), then the oldest.

use super::Startd;
use super::queue::{Entry, Phase, Turn};
use classad::{ClassAd, Context, Value};
use starter::machine::{ClaimId, Event, Kind, Slot, SlotId, State};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many jobs are looked at in a round: one half those that come first, one half the others in turn.
const MOST_JOBS: usize = 256;
/// So many of those that wait are asked about once more, for a warning.
const MOST_DOUBTED: usize = 8;
/// So many slots are given in a round.
const MOST_CLAIMS: usize = 1024;

impl Startd<'_> {
    /// Gives slots that are free to jobs that wait, and then those of jobs that the machine wants less.
    pub(super) fn offer(&mut self) {
        if self.is_shutting_down || !self.machine.takes_jobs() {
            return;
        }
        let last = self.in_turn().1;
        // Who was refused a slot in this round asks for it again in the next.
        let mut asked: Vec<(SlotId, String)> = vec![];
        for _ in 0..MOST_CLAIMS {
            let Some((name, slot, is_free)) = self.best_pair(&asked) else {
                break;
            };
            asked.push((slot, name.clone()));
            self.last_claim += 1;
            let claim = ClaimId(self.last_claim);
            let Some(entry) = self.queue.entries.get_mut(&name) else {
                break;
            };
            entry.phase = Phase::Claiming(claim);
            let job = entry.ad(&self.owner);
            self.claims.insert(claim, name);
            let kind = self.machine.slot(slot).map(Slot::kind);
            if is_free && kind == Some(Kind::Static) {
                self.tell(Event::Matched { slot, claim });
            }
            if self.claims.contains_key(&claim) {
                self.tell(Event::Claimed { slot, claim, job });
            }
        }
        self.offered = last;
        self.doubt_start();
    }

    /// Of whom no slot is for, START may say nothing at all: that is warned of.
    fn doubt_start(&mut self) {
        let now = self.now();
        let (waiting, _) = self.in_turn();
        let first = waiting.iter().take(MOST_DOUBTED);
        let jobs: Vec<Arc<ClassAd>> = first.map(|entry| entry.ad(&self.owner)).collect();
        for job in jobs {
            for order in self.machine.doubts_of_start(&job, now) {
                self.carry_out(order);
            }
        }
    }

    /// The jobs of this round, those that come first first; and the last of them that had its turn, if not all are among them.
    fn in_turn(&self) -> (Vec<&Entry>, Option<Turn>) {
        let waiting = self.queue.waiting();
        in_turn(
            waiting,
            MOST_JOBS,
            |entry| entry.turn(),
            self.offered.as_ref(),
        )
    }

    fn best_pair(&self, asked: &[(SlotId, String)]) -> Option<(String, SlotId, bool)> {
        let now = self.now();
        let (waiting, _) = self.in_turn();
        let waiting: Vec<(&Entry, Arc<ClassAd>)> = waiting
            .into_iter()
            .map(|entry| (entry, entry.ad(&self.owner)))
            .collect();
        if waiting.is_empty() {
            return None;
        }
        let may_ask = |slot: SlotId, entry: &Entry| {
            !asked
                .iter()
                .any(|(other, name)| *other == slot && *name == entry.name)
        };
        let is_free = |slot: &&Slot| {
            let state = slot.place().state;
            slot.id().part.is_none()
                && slot.waiting().is_none()
                && matches!(state, State::Owner | State::Unclaimed | State::Backfill)
        };
        // What the machine wants most; among those, the first of the queue; for that, the slot that it wants most.
        let mut best: Option<(f64, usize, f64, SlotId)> = None;
        for slot in self.machine.slots().iter().filter(is_free) {
            for (index, (entry, job)) in waiting.iter().enumerate() {
                if !may_ask(slot.id(), entry) || !self.machine.suits(slot.id(), job, now) {
                    continue;
                }
                let rank = self.machine.rank(slot.id(), job, now).unwrap_or(0.0);
                let wish = wish(job, slot.ad());
                let is_better = best.is_none_or(|(best_rank, best_index, best_wish, _)| {
                    (rank, std::cmp::Reverse(index), wish)
                        > (best_rank, std::cmp::Reverse(best_index), best_wish)
                });
                if is_better {
                    best = Some((rank, index, wish, slot.id()));
                }
            }
        }
        if let Some((_, index, _, slot)) = best {
            return Some((waiting[index].0.name.clone(), slot, true));
        }
        let ranks = self.ranks(now);
        for (entry, job) in &waiting {
            let mut taken = ranks.iter().filter(|(slot, _)| may_ask(**slot, entry));
            let found = taken.find(|(slot, rank)| {
                self.machine.rank(**slot, job, now).unwrap_or(0.0) > **rank
                    && self.machine.suits(**slot, job, now)
            });
            if let Some((slot, _)) = found {
                return Some((entry.name.clone(), *slot, false));
            }
        }
        None
    }

    /// Slots that have a job, and for which nobody waits, with the rank of that job.
    fn ranks(&self, now: i64) -> BTreeMap<SlotId, f64> {
        let rank = |slot: &Slot| {
            let mut entries = self.queue.entries.values();
            let entry = entries.find(|entry| entry.slot() == Some(slot.id()))?;
            let rank = self.machine.rank(slot.id(), &entry.ad(&self.owner), now);
            Some((slot.id(), rank.unwrap_or(0.0)))
        };
        let is_taken =
            |slot: &&Slot| slot.place().state == State::Claimed && slot.waiting().is_none();
        self.machine
            .slots()
            .iter()
            .filter(is_taken)
            .filter_map(rank)
            .collect()
    }

    /// The job that comes first for a slot that its claim keeps.
    pub(super) fn best_for(&self, slot: SlotId) -> Option<String> {
        let now = self.now();
        if self.is_shutting_down || !self.machine.takes_jobs() {
            return None;
        }
        let mut best: Option<(f64, &Entry)> = None;
        for entry in self.in_turn().0 {
            let job = entry.ad(&self.owner);
            if !self.machine.suits(slot, &job, now) {
                continue;
            }
            let rank = self.machine.rank(slot, &job, now).unwrap_or(0.0);
            if best.is_none_or(|(most, _)| rank > most) {
                best = Some((rank, entry));
            }
        }
        best.map(|(_, entry)| entry.name.clone())
    }
}

/// At most so many of those that wait, which are in their order: the first ones always, of the others those that come behind the one that was
/// the last before; after the last of all, the first of them again. In their order; with the last that had its turn, if not all are among them.
fn in_turn<T, K: Ord>(
    mut waiting: Vec<T>,
    most: usize,
    key: impl Fn(&T) -> K,
    before: Option<&K>,
) -> (Vec<T>, Option<K>) {
    if waiting.len() <= most {
        return (waiting, None);
    }
    let mut others = waiting.split_off(most / 2);
    let begins = before.map_or(0, |last| others.partition_point(|one| key(one) <= *last));
    others.rotate_left(begins);
    others.truncate(most - most / 2);
    let last = others.last().map(&key);
    waiting.extend(others);
    waiting.sort_by_cached_key(key);
    (waiting, last)
}

/// How much a job wants a slot: its Rank.
fn wish(job: &Arc<ClassAd>, slot: &Arc<ClassAd>) -> f64 {
    let context = Context::new(&classad::Nowhere)
        .with_my(Arc::clone(job))
        .with_target(Arc::clone(slot));
    match context.eval_attribute("Rank") {
        #[allow(clippy::cast_precision_loss, reason = "ranks are reals")]
        Ok(Value::Integer(rank)) => rank as f64,
        Ok(Value::Real(rank)) => rank,
        Ok(Value::Boolean(rank)) => f64::from(u8::from(rank)),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_job_has_its_turn_and_the_first_ones_always() {
        let jobs: Vec<u32> = (0..1000).collect();
        let mut seen = BTreeSet::new();
        let mut last = None;
        // 990 others, by ten.
        for _ in 0..99 {
            let (round, next) = in_turn(jobs.clone(), 20, |job| *job, last.as_ref());
            assert_eq!(round.len(), 20);
            assert!(round.is_sorted());
            assert!(round.iter().copied().take(10).eq(0..10));
            seen.extend(round);
            last = next;
        }
        assert_eq!(seen.len(), jobs.len());
        // Over the end, and on from its beginning.
        let (round, next) = in_turn(jobs.clone(), 20, |job| *job, Some(&995));
        let expected = (0..10).chain(10..16).chain(996..1000);
        assert!(round.into_iter().eq(expected));
        assert_eq!(next, Some(15));
        // Whoever was the last is gone meanwhile, or there are few.
        let few: Vec<u32> = vec![3, 5, 7];
        assert_eq!(in_turn(few.clone(), 2, |job| *job, Some(&6)).0, [3, 7]);
        assert_eq!(in_turn(few.clone(), 3, |job| *job, Some(&6)), (few, None));
    }
}
