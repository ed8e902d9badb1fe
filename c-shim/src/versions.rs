//! How often the job has changed its files, so that no process of it believes what was true before (DESIGN §6: "inside one
//! job: one local file system").
//!
//! Whoever changes something counts here before it asks the shadow and again when that has answered. What was learnt is
//! believed as long as the counts that matter are those that were read before it was asked for: so a change that has
//! been answered is never overlooked, and one that is on its way at most makes others ask again.

use core::sync::atomic::{AtomicU64, Ordering};

/// Many files share a count.
const COUNTS: usize = 4096;

/// The counts.
#[derive(Debug)]
#[repr(C)]
pub struct Versions {
    any: AtomicU64,
    contents: AtomicU64,
    names: AtomicU64,
    of_file: [AtomicU64; COUNTS],
}

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// The contents and attributes of the file with this number.
    File(u64),
    /// Names or attributes.
    Attributes,
    /// The contents of a file that is not known, and its attributes.
    Contents,
}

/// The counts at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    any: u64,
    contents: u64,
    names: u64,
    of_file: u64,
}

impl Version {
    /// Of nothing.
    pub const NONE: Version = Version {
        any: 0,
        contents: 0,
        names: 0,
        of_file: 0,
    };

    /// Whether contents that were learnt then are still what they were.
    #[must_use]
    pub fn has_contents_of(&self, now: &Version) -> bool {
        (self.contents, self.of_file) == (now.contents, now.of_file)
    }

    /// Whether attributes that were learnt then are still what they were.
    #[must_use]
    pub fn has_attributes_of(&self, now: &Version) -> bool {
        self.names == now.names && self.has_contents_of(now)
    }

    /// How often names or attributes were changed.
    #[must_use]
    pub fn names(&self) -> u64 {
        self.names
    }

    /// How often contents of files that were not known were changed.
    #[must_use]
    pub fn contents(&self) -> u64 {
        self.contents
    }

    /// How often this file's contents were changed.
    #[must_use]
    pub fn of_file(&self) -> u64 {
        self.of_file
    }

    /// Grows whenever the contents may have changed.
    #[must_use]
    pub fn contents_count(&self) -> u64 {
        self.contents.wrapping_add(self.of_file)
    }

    /// Whether nothing at all has been changed since.
    #[must_use]
    pub fn is(&self, now: &Version) -> bool {
        self == now
    }
}

impl Versions {
    fn of_file(&self, file: u64) -> &AtomicU64 {
        &self.of_file[(file % COUNTS as u64) as usize]
    }

    /// Counts a change: before it is asked for, and when it has been answered.
    pub fn count(&self, changes: Changes) {
        match changes {
            Changes::File(file) => {
                self.of_file(file).fetch_add(1, Ordering::AcqRel);
            }
            Changes::Attributes => {
                self.names.fetch_add(1, Ordering::AcqRel);
            }
            Changes::Contents => {
                self.contents.fetch_add(1, Ordering::AcqRel);
                self.names.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.any.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether contents of a file that were learnt then are still what they were.
    #[must_use]
    pub fn has_contents(&self, file: u64, then: &Version) -> bool {
        self.contents.load(Ordering::Acquire) == then.contents
            && self.of_file(file).load(Ordering::Acquire) == then.of_file
    }

    /// The counts for a file, now.
    #[must_use]
    pub fn now(&self, file: u64) -> Version {
        Version {
            any: self.any.load(Ordering::Acquire),
            contents: self.contents.load(Ordering::Acquire),
            names: self.names.load(Ordering::Acquire),
            of_file: self.of_file(file).load(Ordering::Acquire),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zeroed::zeroed;

    #[test]
    fn what_matters_is_noticed_and_nothing_else() {
        let versions = zeroed::<Versions>();
        let (mine, other) = (7, 8);
        let before = versions.now(mine);
        versions.count(Changes::File(other));
        let now = versions.now(mine);
        assert!(before.has_contents_of(&now) && !before.is(&now));
        assert!(before.has_attributes_of(&now));
        versions.count(Changes::Attributes);
        assert!(before.has_contents_of(&versions.now(mine)));
        assert!(!before.has_attributes_of(&versions.now(mine)));
        versions.count(Changes::Contents);
        assert!(!before.has_contents_of(&versions.now(mine)));
        let before = versions.now(mine);
        versions.count(Changes::File(mine));
        assert!(!before.has_contents_of(&versions.now(mine)));
    }
}
