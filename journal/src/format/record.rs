//! What records hold.

use super::encoding;
use crate::inode::{Identity, Kind, Stamp};
use bincode::{Decode, Encode};

/// A number that the journal has given to something in a file system. 1 is the root folder.
#[derive(Clone, Copy, Debug, Decode, Encode, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct ObjectId(pub(crate) u64);

pub(crate) const ROOT: ObjectId = ObjectId(1);

/// How something without a name is kept.
#[derive(Clone, Copy, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct Kept {
    /// In which side folder.
    pub(crate) reserve: u32,
    /// It is a copy: no second name could be given.
    pub(crate) copied: bool,
}

/// Which inode a number means, and where it is. A later record for the same number counts instead.
#[derive(Clone, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct ObjectRecord {
    pub(crate) id: ObjectId,
    pub(crate) identity: Identity,
    pub(crate) kind: Kind,
    /// Where it is; none if it has no name.
    pub(crate) place: Option<(ObjectId, Vec<u8>)>,
    /// The epoch in which the job made it; 0 if it was there before.
    pub(crate) made_in: u64,
    pub(crate) kept: Option<Kept>,
    /// The inode is gone.
    pub(crate) gone: bool,
    /// An undo has made it anew: the inode is another than older segments say.
    pub(crate) remade: bool,
}

/// What has a name, as far as is known.
#[derive(Clone, Copy, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) enum Holder {
    Nothing,
    Object(ObjectId),
    /// What the job is making there.
    New,
}

/// A name is about to be changed.
#[derive(Clone, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct BindRecord {
    /// All records of one change have the same number.
    pub(crate) operation: u64,
    pub(crate) folder: ObjectId,
    pub(crate) name: Vec<u8>,
    pub(crate) before: Holder,
    pub(crate) after: Holder,
}

/// How an object looked before its first change of an epoch.
#[derive(Clone, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct AttributesRecord {
    pub(crate) object: ObjectId,
    /// All of `st_mode`.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) accessed: Stamp,
    pub(crate) modified: Stamp,
    pub(crate) size: u64,
    /// Names without their NUL, and values.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The old bytes of a piece of a file, before its first change of an epoch. The data of the runs follow one another; the rest is holes.
#[derive(Clone, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct BlocksRecord {
    pub(crate) object: ObjectId,
    /// A multiple of [`BLOCK`].
    pub(crate) offset: u64,
    /// Up to the end of a block, or of the file.
    pub(crate) len: u64,
    /// Offset in the file, and bytes.
    pub(crate) runs: Vec<(u64, u64)>,
}

/// Bytes of a block: what is saved at once.
pub(crate) const BLOCK: u64 = 64 << 10;
/// Most bytes of a piece.
pub(crate) const PIECE: u64 = super::frame::MOST_DATA as u64;

/// A request has been answered; the answer is the data.
#[derive(Clone, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct AnswerRecord {
    pub(crate) request: u64,
    /// It was remembered before the mark, and is only repeated here.
    pub(crate) at_mark: bool,
}

/// The peer has all answers below.
#[derive(Clone, Debug, Decode, Encode, Eq, PartialEq)]
pub(crate) struct ForgottenRecord {
    pub(crate) below: u64,
}

/// A record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Record {
    Object(ObjectRecord),
    Bind(BindRecord),
    Attributes(AttributesRecord),
    Blocks(BlocksRecord),
    Answer(AnswerRecord),
    Forgotten(ForgottenRecord),
}

impl Record {
    pub(crate) fn kind(&self) -> u16 {
        match self {
            Record::Object(_) => 1,
            Record::Bind(_) => 2,
            Record::Attributes(_) => 3,
            Record::Blocks(_) => 4,
            Record::Answer(_) => 5,
            Record::Forgotten(_) => 6,
        }
    }

    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        match self {
            Record::Object(record) => encoding::encode(record),
            Record::Bind(record) => encoding::encode(record),
            Record::Attributes(record) => encoding::encode(record),
            Record::Blocks(record) => encoding::encode(record),
            Record::Answer(record) => encoding::encode(record),
            Record::Forgotten(record) => encoding::encode(record),
        }
    }

    /// The record with this body and so many bytes of data; or what is wrong with it.
    pub(crate) fn decode(kind: u16, body: &[u8], data_len: u64) -> Result<Self, &'static str> {
        let record = match kind {
            1 => encoding::decode(body).map(Record::Object),
            2 => encoding::decode(body).map(Record::Bind),
            3 => encoding::decode(body).map(Record::Attributes),
            4 => encoding::decode(body).map(Record::Blocks),
            5 => encoding::decode(body).map(Record::Answer),
            6 => encoding::decode(body).map(Record::Forgotten),
            _ => return Err("an unknown kind"),
        };
        let record = record.ok_or("a body that is none of its kind")?;
        record.check(data_len)?;
        Ok(record)
    }

    /// Whether it means something.
    fn check(&self, data_len: u64) -> Result<(), &'static str> {
        let needs_data = matches!(self, Record::Blocks(_) | Record::Answer(_));
        if !needs_data && data_len != 0 {
            return Err("data where none belong");
        }
        match self {
            Record::Object(object) => match &object.place {
                Some((_, name)) if object.id != ROOT => plain(name),
                _ => Ok(()),
            },
            Record::Bind(bind) => plain(&bind.name),
            Record::Blocks(blocks) => blocks.check(data_len),
            Record::Attributes(attributes) => {
                let named = |(name, _): &(Vec<u8>, _)| !name.is_empty() && !name.contains(&0);
                if attributes.xattrs.iter().all(named) {
                    Ok(())
                } else {
                    Err("an attribute without a name")
                }
            }
            Record::Answer(_) | Record::Forgotten(_) => Ok(()),
        }
    }
}

impl BlocksRecord {
    fn check(&self, data_len: u64) -> Result<(), &'static str> {
        let end = self.offset.checked_add(self.len);
        let end = end.filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or("a piece behind the end of all files")?;
        if !self.offset.is_multiple_of(BLOCK) || self.len == 0 {
            return Err("a piece that does not begin with a block");
        }
        let (mut at, mut sum) = (self.offset, 0);
        for (offset, len) in &self.runs {
            let run_end = offset.checked_add(*len).filter(|run_end| *run_end <= end);
            if *offset < at || *len == 0 {
                return Err("runs that overlap");
            }
            at = run_end.ok_or("a run behind the end of its piece")?;
            sum += len;
        }
        if sum == data_len {
            Ok(())
        } else {
            Err("runs that are not as long as their data")
        }
    }
}

/// A name that leads out of no folder.
fn plain(name: &[u8]) -> Result<(), &'static str> {
    let bad = name.is_empty() || name == b"." || name == b"..";
    if bad || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err("a name that is none");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_back(record: &Record, data_len: u64) -> Result<Record, &'static str> {
        Record::decode(record.kind(), &record.encode().expect("encodes"), data_len)
    }

    #[test]
    fn what_a_record_means_is_checked() {
        let blocks = |offset, len, runs: &[(u64, u64)]| {
            Record::Blocks(BlocksRecord {
                object: ObjectId(4),
                offset,
                len,
                runs: runs.to_vec(),
            })
        };
        let good = blocks(BLOCK, 100, &[(BLOCK, 10), (BLOCK + 90, 10)]);
        assert_eq!(read_back(&good, 20), Ok(good.clone()));
        assert!(read_back(&good, 19).is_err());
        assert!(read_back(&blocks(1, 100, &[]), 0).is_err());
        assert!(read_back(&blocks(BLOCK, 0, &[]), 0).is_err());
        assert!(read_back(&blocks(0, 10, &[(5, 6)]), 6).is_err());
        assert!(read_back(&blocks(0, 10, &[(5, u64::MAX)]), 4).is_err());
        assert!(read_back(&blocks(0, 10, &[(5, 2), (6, 2)]), 4).is_err());
        assert!(read_back(&blocks(BLOCK << 40, u64::MAX, &[]), 0).is_err());
        for name in ["", ".", "..", "a/b", "a\0b"] {
            let bind = Record::Bind(BindRecord {
                operation: 1,
                folder: ROOT,
                name: name.into(),
                before: Holder::Nothing,
                after: Holder::New,
            });
            assert!(read_back(&bind, 0).is_err(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn any_body_is_a_record_or_an_error(
            kind in 0u16..9,
            body in proptest::collection::vec(any::<u8>(), 0..80),
            data_len in 0u64..20,
        ) {
            if let Ok(record) = Record::decode(kind, &body, data_len) {
                prop_assert_eq!(read_back(&record, data_len), Ok(record));
            }
        }
    }
}
