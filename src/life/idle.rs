//! A job that has no starter now is held, or released: its record and its event log say so.

use super::{Chronicle, killed};
use crate::jobs::{Job, LifeRecord, RecordError};
use starter::life::Hold;

/// It does not go on until it is released.
///
/// # Errors
/// Its record cannot be written; then nothing is in its log.
pub(crate) fn hold(job: &Job, life: &LifeRecord, hold: &Hold) -> Result<(), RecordError> {
    let mut life = life.clone();
    let lost = killed::with_its_copy(Some(&life), &job.dir);
    lost.iter().for_each(|lost| lost.count(&mut life.counted));
    life.running = None;
    life.hold(hold);
    life.save(&job.dir)?;
    let chronicle = Chronicle::open(job);
    lost.iter().for_each(|lost| lost.tell(&chronicle));
    chronicle.held(hold);
    Ok(())
}

/// It may go on; why, for its owner.
///
/// # Errors
/// As [`hold`].
pub(crate) fn release(job: &Job, life: &LifeRecord, why: &str) -> Result<(), RecordError> {
    let mut life = life.clone();
    life.release(why);
    life.save(&job.dir)?;
    Chronicle::open(job).released(why);
    Ok(())
}
