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
use shadow::{Durability, Journals, UndoError};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a shadow that has lost its job may hold the journal.
const LET_GO_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

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
fn state_in(image: &Path) -> Option<Vec<u8>> {
    let snapshot = Image::open(image).ok()?.snapshot().ok()?;
    let mut kinds = snapshot.descriptions.into_iter().map(|one| one.kind);
    kinds.find_map(|kind| match kind {
        DescriptionKind::Session { state } => Some(state),
        _ => None,
    })
}

impl Job {
    /// The marks in its undo journal to which its files may have to go back for now, oldest first: with the images that are kept, and, while there are
    /// fewer, with its beginning. An image that is damaged is of no use.
    pub(crate) fn marks(&self) -> Vec<u64> {
        let images = self.known_images().unwrap_or_default();
        let keep = self.life.as_ref().map_or(IMAGES_KEPT, |life| life.keep) as usize;
        let outset = match images.len() < keep {
            true => Outset::load(&self.dir).ok().flatten(),
            false => None,
        };
        let kept = images.iter().skip(images.len().saturating_sub(keep));
        let states = kept.filter_map(|stored| state_in(&stored.path));
        let states = outset.map(|outset| outset.state).into_iter().chain(states);
        let marks = states.filter_map(|state| shadow::mark_of(&state));
        marks.map(|mark| mark.0).collect()
    }
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
