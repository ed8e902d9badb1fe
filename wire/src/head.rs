//! The fixed prefix of every message.
//!
//! ```text
//! byte  0   4   8   16  18  20   24
//!       body data number kind flags 0
//!       u32  u32  u64   u16  u16   u32     little-endian
//! ```

use crate::WireError;

/// Bytes of a head.
pub const HEAD_LEN: usize = 24;
/// Most bytes of a body: two names of 4096 bytes and change.
pub const MOST_BODY: usize = 16 << 10;
/// Most bytes of data behind a body: what one stream may make the other side keep.
pub const MOST_DATA: usize = 1 << 20;

/// What comes, before anything else of it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the body.
    pub body_len: u32,
    /// Bytes of data behind it.
    pub data_len: u32,
    /// Number of the request that this is, or answers; unique in its session.
    pub number: u64,
    /// Kind of message ([`crate::Request`], [`crate::Reply`]).
    pub kind: u16,
    /// None are known yet; unknown ones are ignored.
    pub flags: u16,
}

impl Head {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        let fields: [&[u8]; 5] = [
            &self.body_len.to_le_bytes(),
            &self.data_len.to_le_bytes(),
            &self.number.to_le_bytes(),
            &self.kind.to_le_bytes(),
            &self.flags.to_le_bytes(),
        ];
        let mut at = 0;
        for field in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }
        bytes
    }

    /// Writes a head and its body into `room`; the length of both. Data are to follow.
    ///
    /// # Errors
    /// What `body` says; [`WireError::NoRoom`].
    pub(crate) fn frame(
        kind: u16,
        number: u64,
        data_len: usize,
        room: &mut [u8],
        body: impl FnOnce(&mut [u8]) -> Result<usize, WireError>,
    ) -> Result<usize, WireError> {
        let (place, rest) = room
            .split_first_chunk_mut::<HEAD_LEN>()
            .ok_or(WireError::NoRoom)?;
        let rest_len = rest.len().min(MOST_BODY);
        let body_len = body(&mut rest[..rest_len])?;
        *place = Head {
            body_len: body_len as u32,
            data_len: data_len as u32,
            number,
            kind,
            flags: 0,
        }
        .to_bytes();
        Ok(HEAD_LEN + body_len)
    }

    /// Reads the head at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`WireError::ShortHead`], [`WireError::LongBody`], [`WireError::LongData`].
    pub fn read(bytes: &[u8]) -> Result<Head, WireError> {
        let Some(bytes) = bytes.first_chunk::<HEAD_LEN>() else {
            return Err(WireError::ShortHead { found: bytes.len() });
        };
        let part = |at: usize, len: usize| {
            let mut value = [0; 8];
            value[..len].copy_from_slice(&bytes[at..at + len]);
            u64::from_le_bytes(value)
        };
        let head = Head {
            body_len: part(0, 4) as u32,
            data_len: part(4, 4) as u32,
            number: part(8, 8),
            kind: part(16, 2) as u16,
            flags: part(18, 2) as u16,
        };
        if head.body_len as usize > MOST_BODY {
            return Err(WireError::LongBody {
                found: head.body_len,
            });
        }
        if head.data_len as usize > MOST_DATA {
            return Err(WireError::LongData {
                found: head.data_len,
            });
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_reads_back_as_written(
            body_len in 0..=MOST_BODY as u32, data_len in 0..=MOST_DATA as u32,
            number: u64, kind: u16, flags: u16,
        ) {
            let head = Head { body_len, data_len, number, kind, flags };
            prop_assert_eq!(Head::read(&head.to_bytes()), Ok(head));
        }

        #[test]
        fn any_bytes_are_a_head_within_limits_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(head) = Head::read(&bytes) {
                prop_assert!(head.body_len as usize <= MOST_BODY && head.data_len as usize <= MOST_DATA);
            }
        }
    }

    #[test]
    fn what_is_too_long_is_said_with_its_length() {
        let mut bytes = [0; HEAD_LEN];
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(
            Head::read(&bytes),
            Err(WireError::LongBody { found: u32::MAX })
        );
        bytes[..4].fill(0);
        bytes[4..8].copy_from_slice(&(MOST_DATA as u32 + 1).to_le_bytes());
        assert_eq!(
            Head::read(&bytes),
            Err(WireError::LongData {
                found: MOST_DATA as u32 + 1
            })
        );
        assert_eq!(
            Head::read(&bytes[..23]),
            Err(WireError::ShortHead { found: 23 })
        );
    }
}
