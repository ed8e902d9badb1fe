//! What came out of a simulated day.

use crate::machine::{Change, Moment, Order, Place, SlotId};
use std::collections::BTreeMap;

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When.
    pub at: Moment,
    /// What the machine did or ordered.
    pub order: Order,
    /// Which job it is about, by its number in the trace, from 1.
    pub job: Option<usize>,
}

/// What became of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobReport {
    /// When it came.
    pub came: Moment,
    /// Its owner.
    pub owner: String,
    /// When it was done.
    pub done: Option<Moment>,
    /// How often it was started.
    pub starts: u32,
    /// How many images it made.
    pub images: u32,
    /// How often it left without one.
    pub killed: u32,
    /// Why it is held, if it is at the end.
    pub held: Option<String>,
    /// Why it waits at the end, if it has never started: slot by slot.
    pub why: Vec<String>,
    /// Seconds of work that is kept: done, or in an image, or of the copy that runs at the end.
    pub goodput: i64,
    /// Seconds of work that was lost.
    pub badput: i64,
    /// Seconds that it stood still in a slot.
    pub suspended: i64,
    /// Seconds that it took to leave.
    pub leaving: i64,
}

/// A simulated day.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// When it began.
    pub began: Moment,
    /// When it ended.
    pub ended: Moment,
    /// What happened, in order.
    pub timeline: Vec<Step>,
    /// Seconds at each place, slot by slot, by name; parts that came and went count for the slot that they were parts of.
    pub spent: BTreeMap<(String, Place), i64>,
    /// What became of each job.
    pub jobs: Vec<JobReport>,
    /// What the owner of the machine may not have meant.
    pub doubts: Vec<String>,
}

impl Report {
    /// The changes of place, in order.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.timeline.iter().filter_map(|step| match &step.order {
            Order::Changed(change) => Some(change),
            _ => None,
        })
    }

    /// Where a slot was at a moment; none: it was not there.
    pub fn place_at(&self, slot: SlotId, at: Moment) -> Option<Place> {
        let mine = || self.changes().filter(|change| change.slot == slot);
        let last = mine().take_while(|change| change.at <= at).last();
        last.map(|change| change.to)
            .or_else(|| Some(mine().next()?.from))
    }

    /// Seconds of work that is kept.
    pub fn goodput(&self) -> i64 {
        self.jobs.iter().map(|job| job.goodput).sum()
    }

    /// Seconds of work that was lost.
    pub fn badput(&self) -> i64 {
        self.jobs.iter().map(|job| job.badput).sum()
    }
}
