//! From chunks as they were written to the tables of the extents section.
//!
//! # What callers may rely on
//! The tables are in the order that [`loader::layout::ExtentTables`] demands, whatever the order in which
//! chunks came; overlaps are refused.

use loader::layout::{
    BASE_BYTES, Base, CHUNK, CHUNK_BYTES, Chunk, EXTENT_BYTES, EXTENTS_HEADER_BYTES, Encoding,
    Extent, ExtentsHeader, Space,
};

/// A chunk that lies in some image file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) space: u64,
    pub(super) at: u64,
    pub(super) image: u32,
    pub(super) encoding: u32,
    pub(super) chunk: Chunk,
}

impl Piece {
    pub(super) fn new(space: Space, at: u64, encoding: Encoding, chunk: Chunk) -> Self {
        Piece {
            space: space.number(),
            at,
            image: 0,
            encoding: encoding as u32,
            chunk,
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.at + u64::from(self.chunk.raw_len)
    }

    /// Whether the next one belongs to the same extent.
    fn is_continued_by(&self, next: &Piece) -> bool {
        u64::from(self.chunk.raw_len) == CHUNK
            && self.end() == next.at
            && (self.space, self.image, self.encoding) == (next.space, next.image, next.encoding)
    }
}

/// Two chunks for the same bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overlap {
    pub(super) space: u64,
    pub(super) at: u64,
}

/// An upper bound of the section's length.
pub(super) fn len_bound(pieces: usize, bases: usize) -> u64 {
    (EXTENTS_HEADER_BYTES + pieces * (EXTENT_BYTES + CHUNK_BYTES) + bases * BASE_BYTES) as u64
}

/// The bytes of the section.
pub(super) fn encode(pieces: &mut [Piece], bases: &[Base]) -> Result<Vec<u8>, Overlap> {
    pieces.sort_unstable_by_key(|piece| (piece.space, piece.at));
    for pair in pieces.windows(2) {
        let [before, piece] = pair else { continue };
        if before.space == piece.space && before.end() > piece.at {
            return Err(Overlap {
                space: piece.space,
                at: piece.at,
            });
        }
    }
    let extents = || pieces.chunk_by(|before, piece| before.is_continued_by(piece));
    let count = extents().count();
    let head = ExtentsHeader {
        extents: count as u64,
        chunks: pieces.len() as u64,
        bases: bases.len() as u64,
    };
    let len = EXTENTS_HEADER_BYTES
        + count * EXTENT_BYTES
        + pieces.len() * CHUNK_BYTES
        + bases.len() * BASE_BYTES;
    let mut bytes = Vec::with_capacity(len.next_multiple_of(4096));
    bytes.extend_from_slice(&head.encode());
    let mut first_chunk = 0;
    for chunks in extents() {
        let extent = Extent {
            space: chunks[0].space,
            at: chunks[0].at,
            len: chunks
                .iter()
                .map(|piece| u64::from(piece.chunk.raw_len))
                .sum(),
            image: chunks[0].image,
            encoding: chunks[0].encoding,
            first_chunk,
        };
        bytes.extend_from_slice(&extent.encode());
        first_chunk += chunks.len() as u64;
    }
    for piece in pieces.iter() {
        bytes.extend_from_slice(&piece.chunk.encode());
    }
    for base in bases {
        bytes.extend_from_slice(&base.encode());
    }
    Ok(bytes)
}
