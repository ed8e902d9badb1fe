//! What a program is likely to ask about as it begins: learnt from programs before it, and told all at once
//! (docs/adr/0030-how-programs-begin.md).
//!
//! ```text
//! Began    data: Sought, Sought ...                     packed one behind another (Packer)
//! Foresee  answer's data: Foreseen, bytes, Foreseen ... each with first bytes or entries behind it, if it was opened
//! ```

use crate::packed::split_body;
use crate::{Attributes, decode};
use bincode::{BorrowDecode, Encode};

/// Most names of a program that are kept.
pub const MOST_FORESEEN: usize = 128;
/// Most bytes of such a name.
pub const FORESEEN_NAME: usize = 255;

/// What a program will ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Foresee {
    /// The program, open.
    pub program: u64,
    /// Most bytes of the answer's data.
    pub bytes: u32,
}

/// What a program has asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Began {
    /// The program, open.
    pub program: u64,
}

/// How a name was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, BorrowDecode)]
pub enum Manner {
    /// open(2), to read a file.
    File,
    /// open(2) with `O_DIRECTORY`.
    Folder,
    /// stat(2), access(2).
    Target,
    /// lstat(2).
    Itself,
    /// readlink(2).
    Link,
}

/// What a program has asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Sought<'a> {
    /// How.
    pub manner: Manner,
    /// An absolute name.
    pub name: &'a [u8],
}

/// What is at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub enum Finding<'a> {
    /// Nothing: ENOENT.
    Absent,
    /// This.
    There(Attributes),
    /// This, and it is open.
    Open {
        /// What it is called in requests.
        handle: u64,
        /// As it was opened.
        attributes: Attributes,
        /// Bytes behind the record: its first ones, or its first entries.
        len: u32,
    },
    /// A link with this target.
    Link(&'a [u8]),
}

/// What a program will ask about, perhaps, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Foreseen<'a> {
    /// Of what.
    pub sought: Sought<'a>,
    /// The answer.
    pub finding: Finding<'a>,
}

/// Reads what was sought; ends where the bytes are none.
#[derive(Clone, Debug)]
pub struct AllSought<'a>(&'a [u8]);

impl<'a> AllSought<'a> {
    /// From the data of a request.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        AllSought(data)
    }
}

impl<'a> Iterator for AllSought<'a> {
    type Item = Sought<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (body, rest) = split_body(self.0)?;
        self.0 = rest;
        decode(0, body).ok()
    }
}

/// Reads what is foreseen, and the bytes behind each; ends where the bytes are none.
#[derive(Clone, Debug)]
pub struct AllForeseen<'a>(&'a [u8]);

impl<'a> AllForeseen<'a> {
    /// From the data of an answer.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        AllForeseen(data)
    }
}

impl<'a> Iterator for AllForeseen<'a> {
    type Item = (Foreseen<'a>, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (body, rest) = split_body(self.0)?;
        let foreseen: Foreseen<'a> = decode(0, body).ok()?;
        let len = match foreseen.finding {
            Finding::Open { len, .. } => len as usize,
            _ => 0,
        };
        let (behind, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((foreseen, behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packer;
    use proptest::prelude::*;

    fn finding<'a>(which: u8, number: u64, text: &'a [u8]) -> Finding<'a> {
        let attributes = Attributes {
            inode: number,
            ..Attributes::default()
        };
        match which % 4 {
            0 => Finding::Absent,
            1 => Finding::There(attributes),
            2 => Finding::Link(text),
            _ => Finding::Open {
                handle: number,
                attributes,
                len: text.len() as u32,
            },
        }
    }

    proptest! {
        #[test]
        fn what_is_foreseen_reads_back_as_written(
            all in prop::collection::vec((any::<u8>(), any::<u64>(), prop::collection::vec(1u8..=255, 1..256)), 0..20)
        ) {
            let mut room = vec![0; 30_000];
            let mut writer = Packer::new(&mut room);
            let all: Vec<_> = all.iter().map(|(which, number, text)| {
                let manner = [Manner::File, Manner::Folder, Manner::Target, Manner::Itself, Manner::Link][usize::from(which / 4 % 5)];
                let finding = finding(*which, *number, text);
                let behind = if matches!(finding, Finding::Open { .. }) { &text[..] } else { &[] };
                (Foreseen { sought: Sought { manner, name: text }, finding }, behind)
            }).collect();
            for (foreseen, behind) in &all {
                writer.push(foreseen, behind).expect("room");
            }
            let len = writer.len();
            prop_assert_eq!(AllForeseen::new(&room[..len]).collect::<Vec<_>>(), all.clone());
            let mut writer = Packer::new(&mut room);
            for (foreseen, _) in &all {
                writer.push(&foreseen.sought, &[]).expect("room");
            }
            let len = writer.len();
            let sought: Vec<_> = all.iter().map(|(foreseen, _)| foreseen.sought).collect();
            prop_assert_eq!(AllSought::new(&room[..len]).collect::<Vec<_>>(), sought);
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(AllForeseen::new(&bytes).count() <= bytes.len());
            prop_assert!(AllSought::new(&bytes).count() <= bytes.len());
        }
    }
}
