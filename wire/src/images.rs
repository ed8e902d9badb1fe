//! Images that are kept where the job's files are. Each of these requests has a stream of its own, which ends with what it is about.
//!
//! ```text
//! checkpoint                                        shadow
//!    | 68 KeepImage   generation; name                |
//!    |----------------------------------------------->|  it will be taken
//!    |<---- Done --------------------------------------|
//!    |<==== what is there, pieces, words ============>|  no messages from here on (src/away/chunks)
//! ```

use bincode::{BorrowDecode, Encode};

/// An image of the job of this session is to be kept; the data are the job's name. The answer is [`crate::Reply::Done`], or
/// [`crate::Reply::Refused`] with why not. Behind it come no messages any more: what is there already is said, and the image comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct KeepImage {
    /// Which checkpoint of the job it is.
    pub generation: u64,
    /// So many images are kept, with it.
    pub keep: u32,
    /// So many bytes may they have together; 0: any number.
    pub most: u64,
    /// So many bytes are to be free on that disk with it; 0: it does not matter.
    pub least_free: u64,
    /// About as many bytes as it has.
    pub expected: u64,
}

/// Which images there are of the job whose name the data are. The answer is [`crate::Reply::Done`]; its data are [`KeptImage`]s, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct KeptImages {}

/// One that is kept: its bytes are [`KeptImage::LEN`], numbers little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptImage {
    /// Which checkpoint.
    pub generation: u64,
    /// Bytes.
    pub len: u64,
    /// By which it is known from others; zeros, if it cannot be read.
    pub id: [u8; 32],
}

impl KeptImage {
    /// Bytes of each.
    pub const LEN: usize = 48;

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let fields: [(usize, &[u8]); 3] = [
            (0, &self.generation.to_le_bytes()),
            (8, &self.len.to_le_bytes()),
            (16, &self.id),
        ];
        for (at, field) in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
        }
        bytes
    }

    /// What these say.
    #[must_use]
    pub fn read(bytes: &[u8; Self::LEN]) -> Self {
        let (mut generation, mut len, mut id) = ([0; 8], [0; 8], [0; 32]);
        generation.copy_from_slice(&bytes[..8]);
        len.copy_from_slice(&bytes[8..16]);
        id.copy_from_slice(&bytes[16..]);
        KeptImage {
            generation: u64::from_le_bytes(generation),
            len: u64::from_le_bytes(len),
            id,
        }
    }
}

/// One of these, of the job whose name the data are. The answer is [`crate::Reply::Number`], its bytes, which come behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct FetchImage {
    /// Which checkpoint.
    pub generation: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_reads_back() {
        let kept = KeptImage {
            generation: 3,
            len: u64::MAX,
            id: core::array::from_fn(|at| at as u8),
        };
        assert_eq!(KeptImage::read(&kept.to_bytes()), kept);
    }
}
