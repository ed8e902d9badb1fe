//! The manifest: which epochs there are, in which segments, and whether an undo has begun. It is replaced whole.
//!
//! ```text
//! byte  0          8        12        16        48  64
//!       "WAYFJMAN" version  body len  checksum  0   body
//!       8 bytes    u32      u32       32 bytes      bincode
//! ```

use super::encoding::{self, u32_at};
use super::frame;
use crate::{Durability, JournalError, fault};
use bincode::{Decode, Encode};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const MAGIC: [u8; 8] = *b"WAYFJMAN";
/// Bodies of the first version lack what is last: the journal was its first copy's.
const VERSION: u32 = 2;
const WITHOUT_COPIES: u32 = 1;
const HEAD_LEN: usize = 64;
pub(crate) const NAME: &str = "manifest";
const NEW_NAME: &str = "manifest.new";

/// The number of a job's first copy.
const FIRST: u64 = 1;

/// A segment of an epoch.
#[derive(Clone, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct SegmentEntry {
    pub(crate) number: u64,
    /// Its bytes, once nothing is added any more.
    pub(crate) len: Option<u64>,
}

/// An epoch that can be gone back to the begin of.
#[derive(Clone, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct EpochEntry {
    pub(crate) number: u64,
    /// What the caller wants to remember.
    pub(crate) mark: Vec<u8>,
    pub(crate) segments: Vec<SegmentEntry>,
}

/// A side folder.
#[derive(Clone, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct ReserveEntry {
    pub(crate) path: Vec<u8>,
    /// The numbers its device has had: some file systems get another whenever they are mounted.
    pub(crate) devices: Vec<u64>,
}

/// An undo that has begun.
#[derive(Clone, Copy, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct Undoing {
    pub(crate) to: u64,
    /// The segment that takes the place of those of this and later epochs.
    pub(crate) segment: u64,
}

/// What the manifest says.
#[derive(Clone, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct Manifest {
    pub(crate) id: [u8; 16],
    /// Never empty; the last is going on.
    pub(crate) epochs: Vec<EpochEntry>,
    pub(crate) next_epoch: u64,
    pub(crate) next_segment: u64,
    pub(crate) reserves: Vec<ReserveEntry>,
    pub(crate) undoing: Option<Undoing>,
    /// Of the newest copy of the job.
    pub(crate) incarnation: u64,
    /// Who has begun it; 0: that is not known.
    pub(crate) starter: u64,
}

impl Manifest {
    pub(crate) fn new(id: [u8; 16]) -> Self {
        Manifest {
            id,
            epochs: vec![EpochEntry {
                number: 1,
                mark: vec![],
                segments: vec![SegmentEntry {
                    number: 1,
                    len: None,
                }],
            }],
            next_epoch: 2,
            next_segment: 2,
            reserves: vec![],
            undoing: None,
            incarnation: FIRST,
            starter: 0,
        }
    }

    /// The key of a segment's records.
    pub(crate) fn key(&self, segment: u64) -> frame::Key {
        let mut hasher = blake3::Hasher::new_derive_key("wayfarer undo journal, segment, 1");
        hasher.update(&self.id).update(&segment.to_le_bytes());
        hasher.finalize().into()
    }

    /// The epoch that is going on.
    pub(crate) fn current(&self) -> u64 {
        self.epochs.last().map_or(0, |epoch| epoch.number)
    }

    /// All segments of this epoch and later ones, in order.
    pub(crate) fn segments_from(&self, epoch: u64) -> Vec<SegmentEntry> {
        let kept = self.epochs.iter().filter(|entry| entry.number >= epoch);
        kept.flat_map(|entry| entry.segments.clone()).collect()
    }

    pub(crate) fn has_epoch(&self, epoch: u64) -> bool {
        self.epochs.iter().any(|entry| entry.number == epoch)
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let body = encoding::encode(self)?;
        let mut bytes = Vec::with_capacity(HEAD_LEN + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(body.len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(blake3::hash(&body).as_bytes());
        bytes.resize(HEAD_LEN, 0);
        bytes.extend_from_slice(&body);
        Some(bytes)
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<Self, JournalError> {
        let damaged = |what, found: String, expected: String| {
            Err(JournalError::damaged(path, what, found, expected))
        };
        let Some((head, body)) = bytes.split_at_checked(HEAD_LEN) else {
            let expected = format!("at least {HEAD_LEN} bytes");
            return damaged("length", format!("{} bytes", bytes.len()), expected);
        };
        if head[..8] != MAGIC {
            let found = String::from_utf8_lossy(&head[..8]).into_owned();
            return damaged("magic", format!("{found:?}"), "\"WAYFJMAN\"".to_owned());
        }
        let found = u32_at(head, 8);
        if ![WITHOUT_COPIES, VERSION].contains(&found) {
            let expected = VERSION;
            let path = path.to_owned();
            return Err(JournalError::Version {
                path,
                found,
                expected,
            });
        }
        let body_len = u32_at(head, 12) as usize;
        if body_len != body.len() {
            let (found, expected) = (body.len(), body_len);
            return damaged(
                "length of the body",
                found.to_string(),
                expected.to_string(),
            );
        }
        let checksum = blake3::hash(body);
        if checksum.as_bytes() != &head[16..48] {
            let expected = hex(&head[16..48]);
            return damaged("checksum", checksum.to_hex().to_string(), expected);
        }
        let mut body = body.to_vec();
        if found == WITHOUT_COPIES {
            body.extend(encoding::encode(&(FIRST, 0_u64)).unwrap_or_default());
        }
        let manifest: Option<Manifest> = encoding::decode(&body);
        match manifest.filter(Manifest::means_something) {
            Some(manifest) => Ok(manifest),
            None => damaged(
                "body",
                "something else".to_owned(),
                "epochs in order".to_owned(),
            ),
        }
    }

    /// Epochs and segments ascend, nothing but the last segment may grow, and an undo leads to an epoch there is.
    fn means_something(&self) -> bool {
        let numbers: Vec<u64> = self.epochs.iter().map(|entry| entry.number).collect();
        let segments = self.segments_from(0);
        let Some((last, sealed)) = segments.split_last() else {
            return false;
        };
        let ascends = |numbers: &[u64], next: u64| {
            numbers.is_sorted_by(|a, b| a < b)
                && numbers.first().is_some_and(|first| *first > 0)
                && numbers.last().is_some_and(|last| *last < next)
        };
        let segment_numbers: Vec<u64> = segments.iter().map(|entry| entry.number).collect();
        let undo = self.undoing.is_none_or(|undoing| {
            self.has_epoch(undoing.to)
                && undoing.segment > last.number
                && undoing.segment < self.next_segment
        });
        ascends(&numbers, self.next_epoch)
            && ascends(&segment_numbers, self.next_segment)
            && self.epochs.iter().all(|entry| !entry.segments.is_empty())
            && sealed.iter().all(|entry| entry.len.is_some())
            && last.len.is_none()
            && undo
    }

    /// Reads it; none if there is none.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, JournalError> {
        let path = dir.join(NAME);
        match std::fs::read(&path) {
            Ok(bytes) => Self::decode(&path, &bytes).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(JournalError::io("read", path, error)),
        }
    }

    /// Replaces it: beside, fsync, rename, fsync of the folder.
    pub(crate) fn write(&self, dir: &Path, durability: Durability) -> Result<(), JournalError> {
        let (path, new_path) = (dir.join(NAME), dir.join(NEW_NAME));
        let failed = |error| JournalError::io("write", &new_path, error);
        let bytes = self
            .encode()
            .ok_or_else(|| JournalError::damaged(&path, "body", "too many epochs", "a few"))?;
        fault::at("manifest-written")?;
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new_path).map_err(failed)?;
        file.write_all(&bytes).map_err(failed)?;
        if durability == Durability::PowerLoss {
            file.sync_all().map_err(failed)?;
        }
        fault::at("manifest-renamed")?;
        std::fs::rename(&new_path, &path).map_err(failed)?;
        if durability == Durability::PowerLoss {
            let folder = File::open(dir).map_err(failed)?;
            folder.sync_all().map_err(failed)?;
        }
        Ok(())
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_from_before_copies_were_counted_is_that_of_a_first_copy() {
        let mut manifest = Manifest::new([7; 16]);
        let path = Path::new("manifest");
        let bytes = manifest.encode().expect("fits");
        let last = bytes.len() - encoding::encode(&(FIRST, 0_u64)).expect("fits").len();
        let mut old = bytes[..last].to_vec();
        old[8..12].copy_from_slice(&WITHOUT_COPIES.to_le_bytes());
        let len = u32::try_from(last - HEAD_LEN).expect("is short");
        old[12..16].copy_from_slice(&len.to_le_bytes());
        let checksum = *blake3::hash(&old[HEAD_LEN..]).as_bytes();
        old[16..48].copy_from_slice(&checksum);
        assert_eq!(Manifest::decode(path, &old).ok().as_ref(), Some(&manifest));
        (manifest.incarnation, manifest.starter) = (300, 7);
        let bytes = manifest.encode().expect("fits");
        assert_eq!(Manifest::decode(path, &bytes).ok(), Some(manifest));
        old[8] = 3;
        let error = Manifest::decode(path, &old).expect_err("is of another version");
        assert!(
            matches!(
                error,
                JournalError::Version {
                    found: 3,
                    expected: VERSION,
                    ..
                }
            ),
            "{error}"
        );
    }
}
