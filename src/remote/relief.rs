//! A job whose undo journal is nearly full: its starter is asked for images, with which old state can go.

use crate::jobs::LifeRecord;
use crate::life::{Ask, ask};
use shadow::Brim;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two attempts of which the first has not helped, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Asks the starter of the job in this directory, whenever that is called for.
pub(crate) fn when_nearly_full(dir: PathBuf) -> Arc<Brim> {
    let brim = Arc::new(Brim::new());
    let watched = brim.clone();
    std::thread::spawn(move || {
        loop {
            watched.wait();
            let mut pause = PAUSES.0;
            let mut began = Instant::now();
            while !relieve(&dir, &watched) && watched.is_reached() {
                std::thread::sleep(pause);
                pause = PAUSES.1.min(2 * pause);
                began = Instant::now();
            }
            // The job works for at least half of the time without an image being made.
            std::thread::sleep(began.elapsed());
        }
    });
    brim
}

/// Has as many images made as it takes, until none that is kept needs what was old before the first of them. Whether that has helped.
fn relieve(dir: &Path, brim: &Brim) -> bool {
    let life = LifeRecord::load(dir).ok().flatten();
    let keep = life.map_or(1, |life| life.keep);
    for _ in 0..=keep {
        tracing::info!("the undo journal is nearly full, so an image is asked for");
        match ask(dir, Ask::Checkpoint {}, || ()) {
            Ok(reply) if reply.reason.is_none() => {}
            Ok(reply) => {
                let reason = reply.reason.unwrap_or_default();
                tracing::warn!(reason, "the undo journal is nearly full, and stays so");
                return false;
            }
            Err(failure) => {
                tracing::warn!(%failure, "the undo journal is nearly full, and stays so");
                return false;
            }
        }
        if !brim.is_reached() {
            return true;
        }
    }
    false
}
