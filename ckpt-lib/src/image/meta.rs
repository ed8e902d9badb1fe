//! The snapshot as bytes: the section `.wf.meta`.
//!
//! # What callers may rely on
//! Decoding arbitrary bytes returns an error or a snapshot, and allocates no more than a small
//! multiple of the bytes given.

use super::error::{ImageError, in_full};
use super::reader::Image;
use super::{limits, meaning};
use crate::snapshot::{KernelPath, ProcessSettings, SnapshotV1, SocketSettings, ThreadSettings};
use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::de::DeserializeOwned;
use std::io::Write;
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
    snapshot.job = next(bytes, &mut used)?;
    snapshot.enforcement = next(bytes, &mut used)?;
    let keys: Vec<u16> = next(bytes, &mut used)?;
    for (process, keys) in snapshot.processes.iter_mut().zip(keys) {
        process.memory.protection_keys = keys;
    }
    let settings: Vec<(ProcessSettings, Vec<ThreadSettings>)> = next(bytes, &mut used)?;
    for (process, (own, threads)) in snapshot.processes.iter_mut().zip(settings) {
        process.settings = own;
        for (thread, own) in process.threads.iter_mut().zip(threads) {
            thread.settings = own;
        }
    }
    let settings: Vec<SocketSettings> = next(bytes, &mut used)?;
    for (socket, own) in snapshot.sockets.iter_mut().zip(settings) {
        socket.settings = own;
    }
    snapshot.confined = next(bytes, &mut used)?;
    let ended: Vec<Option<KernelPath>> = next(bytes, &mut used)?;
    for (process, name) in snapshot.processes.iter_mut().zip(ended) {
        process.ended_first = name;
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

/// What follows the snapshot, and nothing of it in images that are older.
fn next<T: Default + DeserializeOwned>(bytes: &[u8], used: &mut usize) -> Result<T, MetaError> {
    if *used >= bytes.len() {
        return Ok(T::default());
    }
    let decoded = bincode::serde::decode_from_slice(&bytes[*used..], config());
    let (value, more) = decoded.map_err(MetaError::Decode)?;
    *used += more;
    Ok(value)
}

impl Image {
    /// The snapshot.
    ///
    /// # Errors
    /// [`ImageError::Meta`].
    pub fn snapshot(&self) -> Result<SnapshotV1, ImageError> {
        decode_snapshot(&self.meta_bytes()?).map_err(|error| ImageError::Meta {
            image: self.path().to_owned(),
            what: in_full(&error),
        })
    }

    /// The bytes of a snapshot as [`Image::snapshot`] reads them.
    ///
    /// # Errors
    /// [`ImageError::Unwritable`].
    pub fn encode_snapshot(snapshot: &SnapshotV1) -> Result<Vec<u8>, ImageError> {
        let mut bytes = vec![];
        Self::write_snapshot(snapshot, &mut bytes)?;
        Ok(bytes)
    }

    /// As [`Image::encode_snapshot`], to there.
    ///
    /// # Errors
    /// [`ImageError::Unwritable`].
    pub(crate) fn write_snapshot(
        snapshot: &SnapshotV1,
        to: &mut impl Write,
    ) -> Result<(), ImageError> {
        let processes = snapshot.processes.iter();
        let keys: Vec<u16> = processes
            .map(|process| process.memory.protection_keys)
            .collect();
        let processes = snapshot.processes.iter();
        let settings: Vec<(&ProcessSettings, Vec<&ThreadSettings>)> = processes
            .map(|process| {
                let threads = process.threads.iter();
                let threads = threads.map(|thread| &thread.settings).collect();
                (&process.settings, threads)
            })
            .collect();
        let sockets = snapshot.sockets.iter();
        let sockets: Vec<&SocketSettings> = sockets.map(|socket| &socket.settings).collect();
        let processes = snapshot.processes.iter();
        let ended: Vec<&Option<KernelPath>> =
            processes.map(|process| &process.ended_first).collect();
        let later = (keys, settings, sockets, snapshot.confined, ended);
        let all = (snapshot, &snapshot.job, &snapshot.enforcement, later);
        let written = bincode::serde::encode_into_std_write(all, to, config());
        written.map(|_| ()).map_err(|error| ImageError::Unwritable {
            image: PathBuf::new(),
            what: format!("its description: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{JobLabel, Process, Thread};

    #[test]
    fn what_the_job_was_called_reads_back_and_may_be_absent() {
        let job = JobLabel {
            name: "night".to_owned(),
            command: vec![KernelPath(b"perl".to_vec()), KernelPath(vec![0xff, 1])],
        };
        let mut process = Process::default();
        process.memory.protection_keys = 6;
        process.threads.push(Thread::default());
        process.settings.merges_memory = true;
        process.ended_first = Some(KernelPath(b"main".to_vec()));
        process.threads[0].settings.speculation = [4, 0, 2];
        let snapshot = SnapshotV1 {
            job: job.clone(),
            processes: vec![process],
            confined: true,
            ..SnapshotV1::default()
        };
        let bytes = Image::encode_snapshot(&snapshot).expect("encodes");
        let found = decode_snapshot(&bytes).expect("decodes");
        let process = &found.processes[0];
        let keys = process.memory.protection_keys;
        assert_eq!(process, &snapshot.processes[0]);
        assert_eq!((found.job, keys, found.confined), (job, 6, true));
        // As images were before there was such a label.
        let old = bincode::serde::encode_to_vec(&snapshot, config()).expect("encodes");
        let found = decode_snapshot(&old).expect("decodes");
        assert_eq!((found.job, found.confined), (JobLabel::default(), false));
        let mut long = bytes;
        long.push(0);
        let refused = decode_snapshot(&long);
        assert!(matches!(refused, Err(MetaError::Trailing { .. })));
    }
}
