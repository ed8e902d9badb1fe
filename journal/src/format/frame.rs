//! One record in a segment: a head, a body, data, zeros up to a multiple of 8.
//!
//! ```text
//! byte  0     4    8    12   14   16        24       32        64
//!       "WFjr" body data kind zero position  durable  checksum  body data 0..
//!       u32   u32  u32  u16  u16  u64       u64      32 bytes  little-endian
//! ```
//! The checksum is BLAKE3, keyed with the segment's key, of bytes 0 to 31, the body and the data. So a record of another journal, of
//! another segment or of another place is none.

use super::encoding::{u32_at, u64_at};

/// Bytes of a head.
pub(crate) const HEAD_LEN: usize = 64;
/// Most bytes of a body.
pub(crate) const MOST_BODY: u32 = 8 << 20;
/// Most bytes of data.
pub(crate) const MOST_DATA: u32 = 1 << 20;

const MAGIC: [u8; 4] = *b"WFjr";
const ALIGN: usize = 8;

/// What a segment's records are signed with.
pub type Key = [u8; 32];

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// It ends too early.
    #[error("{found} bytes of a record of {expected}")]
    Short {
        /// Bytes there are.
        found: u64,
        /// Bytes it should have, as far as is known.
        expected: u64,
    },
    /// No record begins here.
    #[error("no record begins here")]
    Magic,
    /// Longer than any record may be.
    #[error("a record of {body} and {data} bytes")]
    Long {
        /// Bytes of the body.
        body: u32,
        /// Bytes of data.
        data: u32,
    },
    /// The bytes are not those that were written.
    #[error("a wrong checksum")]
    Checksum,
}

/// A record's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the body.
    pub body_len: u32,
    /// Bytes of data.
    pub data_len: u32,
    /// Kind of record, never 0.
    pub kind: u16,
    /// Where in its segment it lies.
    pub position: u64,
    /// So many bytes of the segment were durable when it was written.
    pub durable: u64,
    checksum: [u8; 32],
}

impl Head {
    /// Reads a head; the checksum is not looked at yet.
    ///
    /// # Errors
    /// [`FrameError`]
    pub fn read(bytes: &[u8]) -> Result<Head, FrameError> {
        let Some(bytes) = bytes.first_chunk::<HEAD_LEN>() else {
            let (found, expected) = (bytes.len() as u64, HEAD_LEN as u64);
            return Err(FrameError::Short { found, expected });
        };
        if bytes[..4] != MAGIC {
            return Err(FrameError::Magic);
        }
        let (body, data) = (u32_at(bytes, 4), u32_at(bytes, 8));
        if body > MOST_BODY || data > MOST_DATA {
            return Err(FrameError::Long { body, data });
        }
        let kind = u32_at(bytes, 12);
        let mut checksum = [0; 32];
        checksum.copy_from_slice(&bytes[32..]);
        Ok(Head {
            body_len: body,
            data_len: data,
            // Two bytes that must be zero follow.
            kind: u16::try_from(kind).map_err(|_| FrameError::Magic)?,
            position: u64_at(bytes, 16),
            durable: u64_at(bytes, 24),
            checksum,
        })
    }

    /// Bytes from this record to the next.
    #[must_use]
    pub fn len(&self) -> u64 {
        let len = HEAD_LEN as u64 + u64::from(self.body_len) + u64::from(self.data_len);
        len.next_multiple_of(ALIGN as u64)
    }

    /// Never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// A whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its head.
    pub head: Head,
    /// Its body.
    pub body: &'a [u8],
    /// Its data.
    pub data: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the record that begins with `bytes` and lies at `position`.
    ///
    /// # Errors
    /// [`FrameError`]
    pub fn read(key: &Key, position: u64, bytes: &'a [u8]) -> Result<Self, FrameError> {
        let head = Head::read(bytes)?;
        if (bytes.len() as u64) < head.len() {
            return Err(FrameError::Short {
                found: bytes.len() as u64,
                expected: head.len(),
            });
        }
        let (body_len, data_len) = (head.body_len as usize, head.data_len as usize);
        let rest = &bytes[HEAD_LEN..];
        let (body, rest) = rest.split_at(body_len);
        let (data, rest) = rest.split_at(data_len);
        let filled = head.len() as usize - HEAD_LEN - body_len - data_len;
        let sum = checksum(key, &bytes[..32], body, data);
        let zeros = rest[..filled].iter().all(|byte| *byte == 0);
        if sum != head.checksum || head.position != position || !zeros {
            return Err(FrameError::Checksum);
        }
        Ok(Frame { head, body, data })
    }
}

/// Appends a record that is to lie at `position`.
pub(crate) fn push(
    key: &Key,
    (position, durable): (u64, u64),
    kind: u16,
    (body, data): (&[u8], &[u8]),
    out: &mut Vec<u8>,
) {
    let begin = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&(data.len() as u32).to_le_bytes());
    out.extend_from_slice(&u32::from(kind).to_le_bytes());
    out.extend_from_slice(&position.to_le_bytes());
    out.extend_from_slice(&durable.to_le_bytes());
    let sum = checksum(key, &out[begin..], body, data);
    out.extend_from_slice(&sum);
    out.extend_from_slice(body);
    out.extend_from_slice(data);
    let len = (out.len() - begin).next_multiple_of(ALIGN);
    out.resize(begin + len, 0);
}

fn checksum(key: &Key, head: &[u8], body: &[u8], data: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(head).update(body).update(data);
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = [7; 32];

    proptest! {
        #[test]
        fn a_record_reads_back_and_no_bit_of_it_may_change(
            body in proptest::collection::vec(any::<u8>(), 0..50),
            data in proptest::collection::vec(any::<u8>(), 0..50),
            position in any::<u64>(),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut bytes = vec![];
            push(&KEY, (position, 5), 3, (&body, &data), &mut bytes);
            let frame = Frame::read(&KEY, position, &bytes).expect("is whole");
            prop_assert_eq!((frame.body, frame.data), (&body[..], &data[..]));
            prop_assert_eq!((frame.head.kind, frame.head.durable), (3, 5));
            prop_assert_eq!(frame.head.len(), bytes.len() as u64);
            prop_assert!(Frame::read(&[8; 32], position, &bytes).is_err());
            prop_assert!(Frame::read(&KEY, position ^ 8, &bytes).is_err());
            let short = &bytes[..bit.index(bytes.len())];
            prop_assert!(Frame::read(&KEY, position, short).is_err());
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Frame::read(&KEY, position, &bytes).is_err());
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut bytes = bytes;
            let _ = Frame::read(&KEY, 0, &bytes);
            let magic = bytes.len().min(4);
            bytes[..magic].copy_from_slice(&MAGIC[..magic]);
            let _ = Frame::read(&KEY, 0, &bytes);
        }
    }
}
