//! What belongs to a job besides its directory, and goes with it: the journals by which its files could have gone back.
//!
//! ```text
//! jobs/NAME/outset.json, images ── states of its sessions ──> DIR/journals/...
//! ```
//! # What it does not do
//! What was cut off a file of the user's (`*.wayfarer-tail`) is the user's, and stays.

use super::elsewhere;
use super::images::images_in;
use super::{IMAGES_KEPT, Job, Outset};
use crate::report::{chain, tell};
use ckpt_lib::image::Image;
use ckpt_lib::snapshot::DescriptionKind;
use shadow::{Durability, Epoch, JobId, Journals, UndoError};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a shadow that has lost its job may hold the journal.
const LET_GO_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// So many marks are told: the first of them that there is counts.
const MOST_MARKS: usize = 64;

/// Removes a job's directory, and its journals.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    let states = states(dir);
    elsewhere::release(dir);
    fs::remove_dir_all(dir)?;
    remove_journals(dir, &states);
    Ok(())
}

/// Nobody goes back to a state of this job any more.
pub(crate) fn forget_journals(dir: &Path) {
    remove_journals(dir, &states(dir));
}

/// The states of its sessions that are known. What cannot be read has none.
fn states(dir: &Path) -> Vec<Vec<u8>> {
    let outset = Outset::load(dir).ok().flatten();
    let images = images_in(dir).unwrap_or_default().into_iter();
    let saved = images.filter_map(|stored| state_in(&stored.path));
    saved.chain(outset.map(|outset| outset.state)).collect()
}

/// The state of the job's session in an image.
pub(crate) fn state_in(image: &Path) -> Option<Vec<u8>> {
    let snapshot = Image::open(image).ok()?.snapshot().ok()?;
    let mut kinds = snapshot.descriptions.into_iter().map(|one| one.kind);
    kinds.find_map(|kind| match kind {
        DescriptionKind::Session { state } => Some(state),
        _ => None,
    })
}

impl Job {
    /// The marks in its undo journal to which its files may have to go back for now, oldest first: with each image that there is, and with its beginning, until
    /// so many images were made as are kept, or if there is none.
    pub(crate) fn marks(&self) -> Vec<u64> {
        let images = self.known_images().unwrap_or_default();
        let keep = self.life.as_ref().map_or(IMAGES_KEPT, |life| life.keep);
        let outset = Outset::load(&self.dir).ok().flatten();
        let outset = outset.and_then(|outset| shadow::mark_of(&outset.state));
        let states = images.iter().filter_map(|stored| state_in(&stored.path));
        let of_images = states.filter_map(|state| shadow::mark_of(&state));
        let of_images: Vec<_> = of_images.collect();
        let made = self.next_generation() - 1;
        let is_young = made < u64::from(keep) || of_images.is_empty();
        needed(outset.filter(|_| is_young), &of_images)
    }
}

/// Of these, those in the journal that was used last. Without images all that there is to go back to is the outset.
fn needed(outset: Option<(JobId, Epoch)>, of_images: &[(JobId, Epoch)]) -> Vec<u64> {
    let Some((last, _)) = of_images.last().or(outset.as_ref()) else {
        return vec![];
    };
    let all = outset.iter().chain(of_images);
    let marks = all.filter(|(job, _)| job == last);
    marks.map(|(_, mark)| mark.0).take(MOST_MARKS).collect()
}

/// Removes the journals of these sessions, beside `jobs/`. What cannot be removed is told.
fn remove_journals(dir: &Path, states: &[Vec<u8>]) {
    let store = dir.parent().and_then(Path::parent);
    let folder = store.map(|store| store.join("journals"));
    let Some(folder) = folder.filter(|folder| folder.is_dir() && !states.is_empty()) else {
        return;
    };
    let journals = match Journals::new(&folder, Durability::PowerLoss) {
        Ok(journals) => journals,
        Err(error) => return tell(&format!("{}: {error}", crate::raw::shown_path(&folder))),
    };
    let end = Instant::now() + LET_GO_WITHIN;
    for state in states {
        let mut removed = journals.remove_of(state);
        while matches!(removed, Err(UndoError::InUse)) && Instant::now() < end {
            std::thread::sleep(LOOK_AGAIN);
            removed = journals.remove_of(state);
        }
        if let Err(error) = removed {
            tell(&format!("a journal of the job stays: {}", chain(&error)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_of_the_last_journal_with_the_outset_before_them() {
        let (old, new) = (JobId([1; 16]), JobId([2; 16]));
        let mark = |job, number| (job, Epoch(number));
        assert!(needed(None, &[]).is_empty());
        assert_eq!(needed(Some(mark(old, 1)), &[]), [1]);
        let images = [mark(old, 3), mark(old, 5)];
        assert_eq!(needed(Some(mark(old, 1)), &images), [1, 3, 5]);
        assert_eq!(needed(None, &images), [3, 5]);
        let images = [mark(old, 7), mark(new, 2), mark(new, 3)];
        assert_eq!(needed(Some(mark(old, 1)), &images), [2, 3]);
        let many: Vec<_> = (0..1000).map(|number| mark(new, number)).collect();
        assert_eq!(needed(None, &many).len(), MOST_MARKS);
    }
}
