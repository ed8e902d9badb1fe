//! Records packed one behind another into the data of an answer.
//!
//! ```text
//! [length of body u16][body, bincode][bytes behind it]   one after another
//! ```

use crate::{WireError, encode};
use bincode::Encode;

/// Appends records to a buffer.
#[derive(Debug)]
pub struct Packer<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Packer<'a> {
    /// Into `room`.
    pub fn new(room: &'a mut [u8]) -> Self {
        Packer { room, len: 0 }
    }

    /// Appends a record, and these bytes behind it.
    ///
    /// # Errors
    /// [`WireError::NoRoom`]: nothing was appended.
    pub fn push(&mut self, record: &impl Encode, behind: &[u8]) -> Result<(), WireError> {
        let rest = &mut self.room[self.len..];
        let (prefix, body) = rest.split_first_chunk_mut::<2>().ok_or(WireError::NoRoom)?;
        let len = encode(record, body)?;
        let place = body.get_mut(len..len + behind.len());
        place.ok_or(WireError::NoRoom)?.copy_from_slice(behind);
        *prefix = u16::try_from(len)
            .map_err(|_| WireError::NoRoom)?
            .to_le_bytes();
        self.len += 2 + len + behind.len();
        Ok(())
    }

    /// Bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The body of the first record, and all that is behind it.
pub(crate) fn split_body(packed: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = packed.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_le_bytes(*len).into())
}
