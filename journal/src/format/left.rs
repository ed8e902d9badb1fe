//! What the job left: a slot for each object, written over in place, that says how it looked after the job's last change.
//!
//! It is only for the comparison before an undo, so it is not made durable: after a power loss a slot may be old or
//! torn, and then what has not changed since the machine came up is believed.
//!
//! ```text
//! slot 0   "WAYFJLFT" version  clean  boot id   segment  durable  ..  checksum
//!          8          u32      u32    16 bytes  u64      u64          8 bytes at 88
//! slot n   object  flags  mode uid gid 0   size  modified  changed   conflict  ..  checksum
//!          u64     u32    u32 each         u64   i64 u32   i64 u32   u64           8 bytes at 88
//! ```

use super::VERSION;
use super::encoding::{u32_at, u64_at};
use super::record::ObjectId;
use crate::inode::{Fingerprint, Seen, Stamp};
use crate::{JournalError, fault};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &str = "left";
const MAGIC: [u8; 8] = *b"WAYFJLFT";
const SLOT: usize = 96;
const SUM: usize = 88;

/// An object's slot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Left {
    /// A change is being made right now.
    pub(crate) in_flight: bool,
    /// How it looked after the job's last change; none before that.
    pub(crate) print: Option<Fingerprint>,
    /// Going back to this epoch or one before loses what somebody else wrote; 0: to none.
    pub(crate) conflict: u64,
}

impl Left {
    /// As it is now.
    pub(crate) fn of(seen: &Seen) -> Self {
        Left {
            print: Some(seen.print),
            ..Left::default()
        }
    }
}

/// Slot 0.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct LeftHead {
    /// The journal was closed.
    pub(crate) clean: bool,
    /// The boot of the machine in which it was written.
    pub(crate) boot: [u8; 16],
    /// So many bytes of this segment are durable.
    pub(crate) segment: u64,
    pub(crate) durable: u64,
}

/// The file of slots.
#[derive(Debug)]
pub(crate) struct LeftTable {
    file: File,
    path: PathBuf,
    /// Up to here there is room on the disk.
    room_to: AtomicU64,
}

impl LeftTable {
    pub(crate) fn open(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join(NAME);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        match options.open(&path) {
            Ok(file) => Ok(LeftTable {
                file,
                path,
                room_to: AtomicU64::new(0),
            }),
            Err(error) => Err(JournalError::io("open", path, error)),
        }
    }

    /// Slot 0, if it is whole. A damaged one is as none: as after a power loss.
    pub(crate) fn head(&self) -> Result<Option<LeftHead>, JournalError> {
        let Some(slot) = self.slot(0)? else {
            return Ok(None);
        };
        if slot[..8] != MAGIC {
            return Ok(None);
        }
        let found = u32_at(&slot, 8);
        if found != VERSION {
            return Err(JournalError::Version {
                path: self.path.clone(),
                found,
                expected: VERSION,
            });
        }
        let mut boot = [0; 16];
        boot.copy_from_slice(&slot[16..32]);
        Ok(Some(LeftHead {
            clean: u32_at(&slot, 12) == 1,
            boot,
            segment: u64_at(&slot, 32),
            durable: u64_at(&slot, 40),
        }))
    }

    pub(crate) fn set_head(&self, head: &LeftHead) -> Result<(), JournalError> {
        let mut slot = [0; SLOT];
        slot[..8].copy_from_slice(&MAGIC);
        slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
        slot[12] = head.clean.into();
        slot[16..32].copy_from_slice(&head.boot);
        slot[32..40].copy_from_slice(&head.segment.to_le_bytes());
        slot[40..48].copy_from_slice(&head.durable.to_le_bytes());
        self.write(0, slot)
    }

    /// An object's slot; none if there is none that is whole.
    pub(crate) fn get(&self, object: ObjectId) -> Result<Option<Left>, JournalError> {
        let Some(slot) = self.slot(object.0)? else {
            return Ok(None);
        };
        if u64_at(&slot, 0) != object.0 {
            return Ok(None);
        }
        let flags = u32_at(&slot, 8);
        let stamp = |at| Stamp {
            seconds: u64_at(&slot, at).cast_signed(),
            nanoseconds: u32_at(&slot, at + 8),
        };
        let print = Fingerprint {
            mode: u32_at(&slot, 12),
            uid: u32_at(&slot, 16),
            gid: u32_at(&slot, 20),
            size: u64_at(&slot, 24),
            modified: stamp(32),
            changed: stamp(44),
        };
        Ok(Some(Left {
            in_flight: flags & 1 != 0,
            print: (flags & 2 != 0).then_some(print),
            conflict: u64_at(&slot, 56),
        }))
    }

    pub(crate) fn set(&self, object: ObjectId, left: &Left) -> Result<(), JournalError> {
        let mut slot = [0; SLOT];
        let flags = u32::from(left.in_flight) | u32::from(left.print.is_some()) << 1;
        let print = left.print.unwrap_or_default();
        let mut put = |at: usize, bytes: &[u8]| slot[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &object.0.to_le_bytes());
        put(8, &flags.to_le_bytes());
        put(12, &print.mode.to_le_bytes());
        put(16, &print.uid.to_le_bytes());
        put(20, &print.gid.to_le_bytes());
        put(24, &print.size.to_le_bytes());
        for (at, stamp) in [(32, print.modified), (44, print.changed)] {
            put(at, &stamp.seconds.to_le_bytes());
            put(at + 8, &stamp.nanoseconds.to_le_bytes());
        }
        put(56, &left.conflict.to_le_bytes());
        self.write(object.0, slot)
    }

    /// Has the disk keep room for the slots of all objects below this one.
    pub(crate) fn keep_room(&self, objects: u64) -> Result<(), JournalError> {
        let (from, to) = (self.room_to.load(Ordering::Relaxed), objects * SLOT as u64);
        if to > from {
            let kept = super::keep_room(&self.file, from, to);
            let kept = kept.map_err(|error| JournalError::io("write", &self.path, error))?;
            self.room_to.store(kept, Ordering::Relaxed);
        }
        Ok(())
    }

    /// So many slots there are at most.
    pub(crate) fn slots(&self) -> Result<u64, JournalError> {
        match self.file.metadata() {
            Ok(metadata) => Ok(metadata.len().div_ceil(SLOT as u64)),
            Err(error) => Err(JournalError::io("read", &self.path, error)),
        }
    }

    fn slot(&self, number: u64) -> Result<Option<[u8; SLOT]>, JournalError> {
        let mut slot = [0; SLOT];
        let Some(at) = number.checked_mul(SLOT as u64) else {
            return Ok(None);
        };
        match self.file.read_exact_at(&mut slot, at) {
            Ok(()) if slot[SUM..] == sum(&slot[..SUM]) => Ok(Some(slot)),
            Ok(()) => Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(JournalError::io("read", &self.path, error)),
        }
    }

    fn write(&self, number: u64, mut slot: [u8; SLOT]) -> Result<(), JournalError> {
        fault::at("left")?;
        let sum = sum(&slot[..SUM]);
        slot[SUM..].copy_from_slice(&sum);
        let written = self.file.write_all_at(&slot, number * SLOT as u64);
        written.map_err(|error| JournalError::io("write", &self.path, error))
    }
}

fn sum(bytes: &[u8]) -> [u8; SLOT - SUM] {
    let hash = blake3::hash(bytes);
    let mut sum = [0; SLOT - SUM];
    sum.copy_from_slice(&hash.as_bytes()[..SLOT - SUM]);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_read_back_and_damaged_ones_are_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let table = LeftTable::open(dir.path()).expect("opens");
        assert_eq!(table.head().expect("reads"), None);
        let head = LeftHead {
            clean: true,
            boot: [3; 16],
            segment: 4,
            durable: 5,
        };
        table.set_head(&head).expect("writes");
        let left = Left {
            in_flight: true,
            print: Some(Fingerprint {
                size: 1,
                modified: Stamp {
                    seconds: -2,
                    nanoseconds: 3,
                },
                changed: Stamp {
                    seconds: 4,
                    nanoseconds: 5,
                },
                mode: 6,
                uid: 7,
                gid: 8,
            }),
            conflict: 9,
        };
        table.set(ObjectId(7), &left).expect("writes");
        assert_eq!(table.head().expect("reads"), Some(head));
        assert_eq!(table.get(ObjectId(7)).expect("reads"), Some(left));
        assert_eq!(table.get(ObjectId(6)).expect("reads"), None);
        assert_eq!(table.get(ObjectId(8)).expect("reads"), None);
        let path = dir.path().join(NAME);
        let mut bytes = std::fs::read(&path).expect("reads");
        bytes[7 * SLOT + 30] ^= 1;
        std::fs::write(&path, bytes).expect("writes");
        assert_eq!(table.get(ObjectId(7)).expect("reads"), None);
    }
}
