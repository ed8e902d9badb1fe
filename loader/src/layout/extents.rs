//! The rows of the extents section: which bytes of memory and files lie where in which image.
//!
//! ```text
//! ExtentsHeader | Extent ... | Chunk ... | Base ...
//!                 `-first_chunk-^          ^-image-'
//! ```

use super::{CHUNK, HASH_LEN, Hash, hash_at, u32_at, u64_at};

/// What an extent fills: the memory of a process, or the bytes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// The address space of process `n` of the snapshot; `at` is an address.
    Process(u32),
    /// The contents of inode `n` of the snapshot; `at` is a file offset.
    Inode(u32),
}

impl Space {
    /// As stored: kind in the upper half, index in the lower.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Space::Process(index) => 1 << 32 | u64::from(index),
            Space::Inode(index) => 2 << 32 | u64::from(index),
        }
    }

    /// The space with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        let index = number as u32;
        match number >> 32 {
            1 => Some(Space::Process(index)),
            2 => Some(Space::Inode(index)),
            _ => None,
        }
    }
}

/// How the bytes of a chunk are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Encoding {
    /// As they are.
    Raw = 1,
    /// One zstd frame per chunk.
    Zstd = 2,
}

/// Head of the extents section; the three tables follow it without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentsHeader {
    /// Number of [`Extent`]s, sorted by space, then `at`; they do not overlap.
    pub extents: u64,
    /// Number of [`Chunk`]s.
    pub chunks: u64,
    /// Number of [`Base`]s. Image 0 is the file itself, image n is base n-1.
    pub bases: u64,
}

/// A run of bytes that has contents in some image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// [`Space::number`].
    pub space: u64,
    /// Address or file offset, a multiple of [`PAGE`].
    pub at: u64,
    /// Length; a multiple of [`PAGE`] for memory.
    pub len: u64,
    /// 0: this file; n: base n-1.
    pub image: u32,
    /// [`Encoding`] as number.
    pub encoding: u32,
    /// Index of the first of its chunks. Every chunk but the last is [`CHUNK`] long.
    pub first_chunk: u64,
}

/// Where the bytes of one chunk lie in their image file, and their checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// File offset in the image.
    pub offset: u64,
    /// Bytes in the file.
    pub stored_len: u32,
    /// Bytes in memory.
    pub raw_len: u32,
    /// BLAKE3 of the stored bytes.
    pub hash: Hash,
}

/// An earlier image that this one takes contents from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// [`Header::id`] of that image.
    pub id: Hash,
    /// Its file name in the same directory, NUL padded.
    pub name: [u8; 224],
}

/// Bytes of an encoded [`ExtentsHeader`].
pub const EXTENTS_HEADER_BYTES: usize = 32;
/// Bytes of an encoded [`Extent`].
pub const EXTENT_BYTES: usize = 40;
/// Bytes of an encoded [`Chunk`].
pub const CHUNK_BYTES: usize = 16 + HASH_LEN;
/// Bytes of an encoded [`Base`].
pub const BASE_BYTES: usize = 256;

impl ExtentsHeader {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> [u8; EXTENTS_HEADER_BYTES] {
        let mut bytes = [0; EXTENTS_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.extents.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.chunks.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.bases.to_le_bytes());
        bytes
    }

    /// As stored.
    #[must_use]
    pub fn decode(bytes: &[u8; EXTENTS_HEADER_BYTES]) -> Self {
        ExtentsHeader {
            extents: u64_at(bytes, 0),
            chunks: u64_at(bytes, 8),
            bases: u64_at(bytes, 16),
        }
    }
}

impl Extent {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> [u8; EXTENT_BYTES] {
        let mut bytes = [0; EXTENT_BYTES];
        bytes[0..8].copy_from_slice(&self.space.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.image.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.encoding.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_chunk.to_le_bytes());
        bytes
    }

    /// As stored.
    #[must_use]
    pub fn decode(bytes: &[u8; EXTENT_BYTES]) -> Self {
        Extent {
            space: u64_at(bytes, 0),
            at: u64_at(bytes, 8),
            len: u64_at(bytes, 16),
            image: u32_at(bytes, 24),
            encoding: u32_at(bytes, 28),
            first_chunk: u64_at(bytes, 32),
        }
    }

    /// Number of chunks that hold it.
    #[must_use]
    pub fn chunk_count(&self) -> u64 {
        self.len.div_ceil(CHUNK)
    }
}

impl Chunk {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> [u8; CHUNK_BYTES] {
        let mut bytes = [0; CHUNK_BYTES];
        bytes[0..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.hash);
        bytes
    }

    /// As stored.
    #[must_use]
    pub fn decode(bytes: &[u8; CHUNK_BYTES]) -> Self {
        Chunk {
            offset: u64_at(bytes, 0),
            stored_len: u32_at(bytes, 8),
            raw_len: u32_at(bytes, 12),
            hash: hash_at(bytes, 16),
        }
    }
}

impl Base {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> [u8; BASE_BYTES] {
        let mut bytes = [0; BASE_BYTES];
        bytes[..HASH_LEN].copy_from_slice(&self.id);
        bytes[HASH_LEN..].copy_from_slice(&self.name);
        bytes
    }

    /// As stored.
    #[must_use]
    pub fn decode(bytes: &[u8; BASE_BYTES]) -> Self {
        let mut name = [0; 224];
        name.copy_from_slice(&bytes[HASH_LEN..]);
        Base {
            id: hash_at(bytes, 0),
            name,
        }
    }
}
