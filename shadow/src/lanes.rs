//! Once: a request that comes again on a stream that was made anew is not done again (DESIGN §6).
//!
//! ```text
//! lane 5: request 41 -> done, answer kept -> (the stream breaks) -> lane 5 again: request 41 -> the kept answer
//! ```
//! A lane is a stream that a process of the job makes anew, under the same number, whenever it breaks. One request at a time is on
//! it, so that one answer is enough.

use crate::saved::SavedAnswer;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::Reply;

/// Lanes without a stream that are kept in mind: those of processes that have ended are never used again.
const MOST_IDLE: usize = 4096;

/// The last request and its answer.
pub(crate) type Last = Option<(u64, Reply<'static>)>;

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    /// As its process calls it.
    pub(crate) number: u64,
    last: Mutex<Last>,
}

impl Lane {
    /// Held while a request is answered: the stream before may still be at it.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lanes of a session.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    lanes: HashMap<u64, (u64, Arc<Lane>)>,
    begun: u64,
}

impl Lanes {
    /// The lane with this number; none has the number 0.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Lane>> {
        if number == 0 {
            return None;
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.begun += 1;
        let begun = all.begun;
        if all.lanes.len() >= 2 * MOST_IDLE && !all.lanes.contains_key(&number) {
            all.forget_idle();
        }
        let new = || {
            let last = Mutex::default();
            (begun, Arc::new(Lane { number, last }))
        };
        let (last_begun, lane) = all.lanes.entry(number).or_insert_with(new);
        *last_begun = begun;
        Some(lane.clone())
    }

    /// Of a session that goes on.
    pub(crate) fn remember(&self, number: u64, request: u64, reply: Reply<'static>) {
        if let Some(lane) = self.get(number) {
            *lane.hold() = Some((request, reply));
        }
    }

    /// All that may be asked for again. Nothing is being answered.
    pub(crate) fn answers(&self) -> Vec<SavedAnswer> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let lanes = all.lanes.iter();
        let mut answers: Vec<_> = lanes
            .filter_map(|(number, (_, lane))| {
                let (request, reply) = (*lane.hold())?;
                SavedAnswer::new(*number, request, &reply)
            })
            .collect();
        answers.sort_by_key(|answer| answer.lane);
        answers
    }
}

impl All {
    /// Forgets the older half of those that have no stream.
    fn forget_idle(&mut self) {
        let idle = |lane: &Arc<Lane>| Arc::strong_count(lane) == 1;
        let mut begun: Vec<u64> = self
            .lanes
            .values()
            .filter_map(|(begun, lane)| idle(lane).then_some(*begun))
            .collect();
        begun.sort_unstable();
        let Some(oldest_kept) = begun
            .len()
            .checked_sub(MOST_IDLE)
            .and_then(|at| begun.get(at))
        else {
            return;
        };
        let oldest_kept = *oldest_kept;
        self.lanes
            .retain(|_, (begun, lane)| *begun >= oldest_kept || !idle(lane));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_found_again_and_only_idle_ones_are_forgotten() {
        let lanes = Lanes::default();
        assert!(lanes.get(0).is_none());
        let held = lanes.get(1).expect("a lane");
        *held.hold() = Some((41, Reply::Done));
        for number in 2..20_000 {
            lanes.remember(number, number, Reply::Number(number));
        }
        assert_eq!(
            *lanes.get(1).expect("the same").hold(),
            Some((41, Reply::Done))
        );
        let last = lanes.get(19_999).expect("the last");
        assert_eq!(*last.hold(), Some((19_999, Reply::Number(19_999))));
        let answers = lanes.answers();
        assert!(
            (MOST_IDLE..3 * MOST_IDLE).contains(&answers.len()),
            "{}",
            answers.len()
        );
        assert_eq!(answers[0].lane, 1);
    }
}
