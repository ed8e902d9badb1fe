//! Bytes that lay unread in a pipe or socket.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes that lay unread, until they are written into an image's operations. Its description has their number alone.
#[derive(Clone, Debug, Default)]
pub struct Unread {
    len: u64,
    place: Place,
}

#[derive(Clone, Debug, Default)]
enum Place {
    /// In the operations of the image that the description is of.
    #[default]
    Elsewhere,
    Memory(Vec<u8>),
    File {
        file: Arc<File>,
        at: u64,
    },
}

impl Unread {
    /// How many they are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    ///
    /// # Errors
    /// If they are elsewhere, or cannot be read again.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        match &self.place {
            Place::Elsewhere if self.len == 0 => Ok(vec![]),
            Place::Elsewhere => {
                let what = "a description has the number of unread bytes, not the bytes";
                Err(io::Error::other(what))
            }
            Place::Memory(bytes) => Ok(bytes.clone()),
            Place::File { file, at } => {
                let mut bytes = vec![0; usize::try_from(self.len).map_err(io::Error::other)?];
                file.read_exact_at(&mut bytes, *at)?;
                Ok(bytes)
            }
        }
    }
}

impl From<Vec<u8>> for Unread {
    fn from(bytes: Vec<u8>) -> Self {
        Unread {
            len: bytes.len() as u64,
            place: Place::Memory(bytes),
        }
    }
}

/// As descriptions compare them: by their number.
impl PartialEq for Unread {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
    }
}

impl Eq for Unread {}

impl Serialize for Unread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.len.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Unread {
            len: u64::deserialize(deserializer)?,
            place: Place::Elsewhere,
        })
    }
}

/// Keeps unread bytes: a few in memory, more in a file without a name, so that wayfarer's own memory does not grow with what
/// lies in a job's pipes. Where there can be no such file they are all in memory.
#[derive(Debug, Default)]
pub struct UnreadStore(RefCell<Kept>);

#[derive(Debug, Default)]
struct Kept {
    in_memory: u64,
    file: Option<(Arc<File>, u64)>,
}

/// Bytes that are kept in memory.
const MOST_IN_MEMORY: u64 = 1 << 20;

impl UnreadStore {
    /// Keeps these.
    pub fn keep(&self, bytes: Vec<u8>) -> Unread {
        let mut kept = self.0.borrow_mut();
        let len = bytes.len() as u64;
        if kept.in_memory + len > MOST_IN_MEMORY
            && let Ok(place) = kept.put(&bytes)
        {
            return Unread { len, place };
        }
        kept.in_memory += len;
        bytes.into()
    }
}

impl Kept {
    fn put(&mut self, bytes: &[u8]) -> io::Result<Place> {
        let (file, end) = match &mut self.file {
            Some(kept) => kept,
            none => none.insert((Arc::new(tempfile::tempfile()?), 0)),
        };
        file.write_all_at(bytes, *end)?;
        let at = *end;
        *end += bytes.len() as u64;
        let file = Arc::clone(file);
        Ok(Place::File { file, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_in_memory_and_many_in_a_file_and_all_are_the_same() {
        let store = UnreadStore::default();
        let part = |index: u8| vec![index; 300_000 + usize::from(index)];
        let kept: Vec<Unread> = (0..8).map(|index| store.keep(part(index))).collect();
        let in_file = |unread: &&Unread| matches!(unread.place, Place::File { .. });
        assert_eq!(kept.iter().filter(in_file).count(), 5);
        for (index, unread) in (0..8).zip(&kept) {
            assert_eq!(unread.len(), 300_000 + u64::from(index));
            assert_eq!(unread.bytes().expect("reads"), part(index));
        }
    }

    #[test]
    fn a_description_has_their_number() {
        let config = bincode::config::standard();
        let bytes = bincode::serde::encode_to_vec(Unread::from(vec![1; 70_000]), config);
        let bytes = bytes.expect("encodes");
        assert!(bytes.len() < 10);
        let (read, _): (Unread, _) =
            bincode::serde::decode_from_slice(&bytes, config).expect("decodes");
        assert_eq!(read.len(), 70_000);
        read.bytes().expect_err("they are elsewhere");
        assert_eq!(Unread::default().bytes().expect("none"), b"");
    }
}
