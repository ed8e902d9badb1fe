//! The snapshot as bytes: the section `.wf.meta`.
//!
//! # What callers may rely on
//! Decoding arbitrary bytes returns an error or a snapshot, and allocates no more than a small
//! multiple of the bytes given.

use super::error::{ImageError, in_full};
use super::reader::Image;
use super::{limits, meaning};
use crate::snapshot::{Enforcement, JobLabel, SnapshotV1};
use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use std::path::PathBuf;

/// Why bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// They cannot be decoded.
    #[error("the bytes are no snapshot")]
    Decode(#[source] bincode::error::DecodeError),
    /// Something follows the snapshot.
    #[error("{found} bytes found, {expected} expected")]
    Trailing {
        /// Bytes given.
        found: usize,
        /// Bytes used.
        expected: usize,
    },
    /// Its records do not fit together.
    #[error("{0}")]
    Meaning(String),
}

const LIMIT: usize = limits::META_LEN as usize;

fn config() -> Configuration<LittleEndian, Varint, Limit<LIMIT>> {
    bincode::config::standard().with_limit::<LIMIT>()
}

/// A snapshot from its bytes, all of which must belong to it; its indices lead somewhere.
///
/// # Errors
/// [`MetaError`].
pub fn decode_snapshot(bytes: &[u8]) -> Result<SnapshotV1, MetaError> {
    let decoded = bincode::serde::decode_from_slice(bytes, config());
    let (mut snapshot, mut used): (SnapshotV1, usize) = decoded.map_err(MetaError::Decode)?;
    if used < bytes.len() {
        let decoded = bincode::serde::decode_from_slice(&bytes[used..], config());
        let (label, more): (JobLabel, usize) = decoded.map_err(MetaError::Decode)?;
        snapshot.job = label;
        used += more;
    }
    if used < bytes.len() {
        let decoded = bincode::serde::decode_from_slice(&bytes[used..], config());
        let (enforcement, more): (Enforcement, usize) = decoded.map_err(MetaError::Decode)?;
        snapshot.enforcement = enforcement;
        used += more;
    }
    if used != bytes.len() {
        return Err(MetaError::Trailing {
            found: bytes.len(),
            expected: used,
        });
    }
    meaning::check(&snapshot).map_err(MetaError::Meaning)?;
    Ok(snapshot)
}

impl Image {
    /// The snapshot.
    ///
    /// # Errors
    /// [`ImageError::Meta`].
    pub fn snapshot(&self) -> Result<SnapshotV1, ImageError> {
        decode_snapshot(self.meta_bytes()).map_err(|error| ImageError::Meta {
            image: self.path().to_owned(),
            what: in_full(&error),
        })
    }

    /// The bytes of a snapshot as [`Image::snapshot`] reads them.
    ///
    /// # Errors
    /// [`ImageError::Meta`].
    pub fn encode_snapshot(snapshot: &SnapshotV1) -> Result<Vec<u8>, ImageError> {
        bincode::serde::encode_to_vec((snapshot, &snapshot.job, &snapshot.enforcement), config())
            .map_err(|error| ImageError::Meta {
                image: PathBuf::new(),
                what: error.to_string(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::KernelPath;

    #[test]
    fn what_the_job_was_called_reads_back_and_may_be_absent() {
        let job = JobLabel {
            name: "night".to_owned(),
            command: vec![KernelPath(b"perl".to_vec()), KernelPath(vec![0xff, 1])],
        };
        let snapshot = SnapshotV1 {
            job: job.clone(),
            ..SnapshotV1::default()
        };
        let bytes = Image::encode_snapshot(&snapshot).expect("encodes");
        assert_eq!(decode_snapshot(&bytes).expect("decodes").job, job);
        // As images were before there was such a label.
        let old = bincode::serde::encode_to_vec(&snapshot, config()).expect("encodes");
        let found = decode_snapshot(&old).expect("decodes");
        assert_eq!(found.job, JobLabel::default());
        let mut long = bytes;
        long.push(0);
        let refused = decode_snapshot(&long);
        assert!(matches!(refused, Err(MetaError::Trailing { .. })));
    }
}
