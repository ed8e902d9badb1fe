//! Entries of a listing, packed into the data of an answer ([`Packer`](crate::Packer)) with nothing behind them.

use crate::packed::split_body;
use crate::{Attributes, WireError, decode};
use bincode::{BorrowDecode, Encode};

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Entry<'a> {
    /// Where the listing goes on behind this entry (`d_off`).
    pub next: u64,
    /// `d_ino`.
    pub inode: u64,
    /// `d_type`.
    pub kind: u8,
    /// Without the folder.
    pub name: &'a [u8],
    /// Of the entry itself, links not followed; none if they were not asked for or could not be had.
    pub attributes: Option<Attributes>,
}

/// Reads entries; ends after an error.
#[derive(Clone, Debug)]
pub struct Entries<'a>(&'a [u8]);

impl<'a> Entries<'a> {
    /// From the data of an answer.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        Entries(data)
    }

    fn take(&mut self) -> Option<Entry<'a>> {
        let (body, rest) = split_body(self.0)?;
        self.0 = rest;
        decode(0, body).ok()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.take().ok_or(WireError::Entries);
        if entry.is_err() {
            self.0 = &[];
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packer;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_read_back_as_written(
            names in prop::collection::vec((prop::collection::vec(1u8..=255, 1..256), any::<u64>(), any::<bool>()), 0..20)
        ) {
            let mut room = vec![0; 20_000];
            let mut writer = Packer::new(&mut room);
            let mut entries = vec![];
            for (name, inode, with) in &names {
                let attributes = with.then(|| Attributes { inode: *inode, size: u64::MAX, ..Attributes::default() });
                entries.push(Entry { next: inode ^ 5, inode: *inode, kind: 8, name, attributes });
            }
            for entry in &entries {
                writer.push(entry, &[]).expect("room");
            }
            let len = writer.len();
            let read: Result<Vec<_>, _> = Entries::new(&room[..len]).collect();
            prop_assert_eq!(read, Ok(entries));
        }

        #[test]
        fn any_bytes_end_or_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Entries::new(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn what_does_not_fit_is_not_begun() {
        let entry = Entry {
            next: 1,
            inode: 2,
            kind: 4,
            name: b"name",
            attributes: None,
        };
        let mut room = [0; 12];
        let mut writer = Packer::new(&mut room);
        assert_eq!(writer.push(&entry, &[]), Ok(()));
        assert_eq!(writer.push(&entry, &[]), Err(WireError::NoRoom));
        assert_eq!(writer.len(), 11);
    }
}
