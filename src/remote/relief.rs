//! A job whose undo journal is nearly full: its starter is asked for images, with which old state can go.

use crate::jobs::LifeRecord;
use crate::life::{Ask, ask};
use crate::limits;
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
    let begun = limits::thread(move || {
        loop {
            let mut is_refused = watched.wait();
            let mut pause = PAUSES.0;
            loop {
                let began = Instant::now();
                let is_relieved = relieve(&dir, &watched, is_refused);
                // Since its last image was begun.
                is_refused = watched.take_refused();
                // The job works for at least half of the time without an image being made.
                let took = began.elapsed();
                if is_relieved && !is_refused {
                    std::thread::sleep(took);
                    break;
                }
                std::thread::sleep(pause.max(took));
                pause = PAUSES.1.min(2 * pause);
                is_refused |= watched.take_refused();
                if !watched.is_reached() && !is_refused {
                    break;
                }
            }
        }
    });
    if let Err(failure) = begun {
        tracing::warn!(%failure, "nobody asks for images when the undo journal is nearly full");
    }
    brim
}

/// Has as many images made as it takes, until none that is kept needs what was old before the first of them; if a change was refused, all of them. Whether
/// that has helped.
fn relieve(dir: &Path, brim: &Brim, is_refused: bool) -> bool {
    let life = LifeRecord::load(dir).ok().flatten();
    let keep = life.map_or(1, |life| life.keep);
    for _ in 0..=keep {
        if !is_refused && !brim.is_reached() {
            return true;
        }
        brim.take_refused();
        tracing::info!("the undo journal is nearly full, so an image is asked for");
        let why = match ask(dir, Ask::Checkpoint {}, || ()) {
            Ok(reply) => reply.reason,
            Err(failure) => Some(failure.to_string()),
        };
        if let Some(why) = why {
            tracing::warn!(why, "the undo journal is nearly full, and stays so");
            return false;
        }
    }
    !brim.is_reached()
}
