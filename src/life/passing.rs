//! Images that a job does not go on from: damaged, or refused by what was to start a copy from them. The one before is tried.
//!
//! ```text
//! copy ── which image, which damaged ones were passed over ──> starter    before anything else that it says (copy.rs)
//!      ── it is refused, why, status 1, 3 or 4 ──────────────>            and the next copy does not take that one
//! ```
//! # What callers may rely on
//! Whatever is passed over is said: in `starter.log`, in the job's record (`status`), and in its event log.

use super::{How, Starter, tails};
use crate::jobs::Job;
use crate::raw;
use crate::report::Outcome;
use crate::verbs::restart::{Chosen, latest_good};
use ckpt_lib::image::Image;
use serde::{Deserialize, Serialize};
use starter::life::{End, Event, Remains};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// An image that a copy could not go on from.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    image: PathBuf,
    why: String,
}

/// Whether this image is one of them.
pub(super) fn is_refused(refused: &[Refused], image: &Path) -> bool {
    refused.iter().any(|one| one.image == image)
}

/// What a copy goes on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Choice {
    /// None: no image verifies.
    #[serde(with = "crate::raw::some_path")]
    image: Option<PathBuf>,
    /// Damaged images that are newer, and what is wrong with them.
    pub(super) passed_over: Vec<String>,
    /// How what is cut off the job's files would be called (super::tails).
    pub(super) tails: Vec<String>,
}

impl Choice {
    pub(super) fn of(chosen: &Chosen) -> Self {
        let snapshot = chosen.snapshot();
        Choice {
            image: Some(chosen.path.clone()),
            passed_over: chosen.passed_over.clone(),
            tails: snapshot.map(|one| tails::next(&one)).unwrap_or_default(),
        }
    }

    /// The one that has been made just now, for a copy that waits for it.
    pub(crate) fn of_new(image: &Image) -> Self {
        let snapshot = image.snapshot();
        Choice {
            image: Some(image.path().to_owned()),
            passed_over: vec![],
            tails: snapshot.map(|one| tails::next(&one)).unwrap_or_default(),
        }
    }

    /// Tells the starter, in one line.
    pub(crate) fn tell(&self, tells: &impl AsFd) -> Outcome<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        File::from(tells.as_fd().try_clone_to_owned()?).write_all(&line)?;
        Ok(())
    }

    /// Takes it from the beginning of what a copy has said, if all of it is there.
    pub(super) fn take(said: &mut Vec<u8>) -> Option<Self> {
        if said.first() != Some(&b'{') {
            return None;
        }
        let end = said.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = said.drain(..=end).collect();
        serde_json::from_slice(&line).ok()
    }
}

/// In a copy: the newest good image of the job that was not refused. The starter is told if there is none.
pub(super) fn latest(job: Job, refused: &[Refused], tells: &OwnedFd) -> Outcome<Chosen> {
    latest_good(job, |image| is_refused(refused, image)).or_else(|none| {
        // What cannot even be looked for is not damaged.
        if !none.damaged.is_empty() {
            let choice = Choice {
                image: None,
                passed_over: none.damaged.clone(),
                tails: vec![],
            };
            choice.tell(tells)?;
        }
        Err(none.failure())
    })
}

impl Starter<'_> {
    /// These images are not gone on from.
    pub(super) fn pass_over(&mut self, damaged: &[String]) {
        for why in damaged {
            self.note_passed_over(why);
        }
    }

    fn note_passed_over(&mut self, why: &str) {
        // It is damaged at each restart.
        if self.record.passed_over.as_deref() == Some(why) {
            return;
        }
        self.voice.say(&format!("image passed over: {why}"));
        self.chronicle.passed_over(why);
        self.record.passed_over = Some(why.to_owned());
        self.save();
    }

    /// What follows if a copy has ended so because what it was to go on from cannot be used.
    pub(super) fn refusal(&mut self, choice: Option<Choice>, end: End) -> Option<Event> {
        let End::NotBegun(status) = end else {
            return None;
        };
        let Choice {
            image, passed_over, ..
        } = choice?;
        let Some(image) = image else {
            self.not_begun = Some(passed_over.join("; "));
            return Some(Event::Refused(self.none_is_left()));
        };
        let why = match self.not_begun.take() {
            Some(why) => why,
            // By the loader of an older image.
            None => {
                let image = raw::shown_path(&image);
                format!("image {image}: its loader refuses it (status {status})")
            }
        };
        let is_only_one = matches!(&self.copies.how, How::Here { image: Some((named, _)), is_named: true, .. } if *named == image);
        let is_last = is_only_one || !self.has_other(&image);
        self.refused.push(Refused {
            image,
            why: why.clone(),
        });
        if is_last {
            return Some(Event::Refused(self.none_is_left()));
        }
        self.note_passed_over(&why);
        self.passes_over = true;
        self.not_begun = Some(why);
        self.hosts().into_iter().for_each(super::away::Hosts::runs);
        Some(Event::Refused(Remains::Older))
    }

    /// Whether there is an image besides this one that was not refused yet.
    fn has_other(&self, image: &Path) -> bool {
        let job = self.store.find(&self.name).ok();
        let images = job.and_then(|job| job.known_images().ok());
        let mut images = images.unwrap_or_default().into_iter();
        images.any(|one| one.path != image && !is_refused(&self.refused, &one.path))
    }

    /// No image can be used: the first that was refused says why.
    fn none_is_left(&mut self) -> Remains {
        let refused = self.refused.iter().map(|one| one.why.as_str());
        let all: Vec<&str> = refused.collect();
        if all.is_empty() {
            self.passes_over = true;
            return Remains::Nothing;
        }
        self.not_begun = Some(all.join("; "));
        Remains::Unusable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_taken_when_it_is_whole_and_the_rest_stays() {
        let choice = Choice {
            image: Some(PathBuf::from("/a\nb")),
            passed_over: vec!["damaged".to_owned()],
            tails: vec![],
        };
        let mut line = serde_json::to_vec(&choice).expect("JSON");
        line.extend(b"\nr");
        for len in 0..line.len() - 1 {
            let mut part = line[..len].to_vec();
            assert_eq!(Choice::take(&mut part), None);
        }
        assert_eq!(Choice::take(&mut line), Some(choice));
        assert_eq!(line, b"r");
    }

    #[test]
    fn what_is_no_choice_stays() {
        let mut said = b"re".to_vec();
        assert_eq!(Choice::take(&mut said), None);
        assert_eq!(said, b"re");
    }
}
