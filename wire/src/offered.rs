//! Files that the shadow has opened in advance, packed into the data of an answer ([`Packer`](crate::Packer)) with their contents behind them.

use crate::packed::split_body;
use crate::{Attributes, Place, decode};
use bincode::{BorrowDecode, Encode};

/// Files that will be wanted next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Offer<'a> {
    /// The folder.
    pub folder: Place<'a>,
    /// A file of it that was opened; empty: not known.
    pub before: &'a [u8],
    /// The one that was opened after that. The shadow knows by these two how the program goes on: as the folder is listed, or sorted.
    pub after: &'a [u8],
    /// Most files, and perhaps [`Offer::FOLDERS`].
    pub files: u32,
    /// Most bytes of the answer's data.
    pub bytes: u32,
}

impl Offer<'_> {
    /// Folders come next: they are open to be listed, and what is behind each are its first entries, as with an open.
    pub const FOLDERS: u32 = 1 << 31;
}

/// A file that is open for reading, with all of its contents behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Offered<'a> {
    /// What it is called in requests.
    pub handle: u64,
    /// As it was opened.
    pub attributes: Attributes,
    /// Without the folder.
    pub name: &'a [u8],
    /// Bytes of its contents.
    pub len: u32,
}

/// Reads files and their contents; ends where the bytes are none.
#[derive(Clone, Debug)]
pub struct OfferedFiles<'a>(&'a [u8]);

impl<'a> OfferedFiles<'a> {
    /// From the data of an answer.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        OfferedFiles(data)
    }
}

impl<'a> Iterator for OfferedFiles<'a> {
    type Item = (Offered<'a>, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (body, rest) = split_body(self.0)?;
        let file: Offered<'a> = decode(0, body).ok()?;
        let (contents, rest) = rest.split_at_checked(file.len as usize)?;
        self.0 = rest;
        Some((file, contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packer;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn files_read_back_as_written(
            files in prop::collection::vec((prop::collection::vec(1u8..=255, 1..256), any::<u64>(), prop::collection::vec(any::<u8>(), 0..500)), 0..20)
        ) {
            let mut room = vec![0; 30_000];
            let mut writer = Packer::new(&mut room);
            let all: Vec<_> = files.iter().map(|(name, number, contents)| {
                let attributes = Attributes { inode: *number, size: contents.len() as u64, ..Attributes::default() };
                (Offered { handle: number ^ 1, attributes, name, len: contents.len() as u32 }, &contents[..])
            }).collect();
            for (file, contents) in &all {
                writer.push(file, contents).expect("room");
            }
            let len = writer.len();
            prop_assert_eq!(OfferedFiles::new(&room[..len]).collect::<Vec<_>>(), all);
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(OfferedFiles::new(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn what_does_not_fit_is_not_begun() {
        let file = Offered {
            handle: 1,
            attributes: Attributes::default(),
            name: b"name",
            len: 5,
        };
        let mut room = [0; 100];
        let mut writer = Packer::new(&mut room);
        assert_eq!(writer.push(&file, b"12345"), Ok(()));
        let len = writer.len();
        while writer.push(&file, b"12345").is_ok() {}
        assert_eq!(writer.len() % len, 0);
        assert!(
            OfferedFiles::new(&room)
                .next()
                .is_some_and(|(_, contents)| contents == b"12345")
        );
    }
}
