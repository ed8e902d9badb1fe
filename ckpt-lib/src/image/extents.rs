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
    let mut extents: Vec<Extent> = vec![];
    let mut before: Option<&Piece> = None;
    for (index, piece) in pieces.iter().enumerate() {
        if let Some(before) = before
            && before.space == piece.space
            && before.end() > piece.at
        {
            return Err(Overlap {
                space: piece.space,
                at: piece.at,
            });
        }
        let joins = before.is_some_and(|before| {
            u64::from(before.chunk.raw_len) == CHUNK
                && before.end() == piece.at
                && (before.space, before.image, before.encoding)
                    == (piece.space, piece.image, piece.encoding)
        });
        match extents.last_mut() {
            Some(extent) if joins => extent.len += u64::from(piece.chunk.raw_len),
            _ => extents.push(Extent {
                space: piece.space,
                at: piece.at,
                len: u64::from(piece.chunk.raw_len),
                image: piece.image,
                encoding: piece.encoding,
                first_chunk: index as u64,
            }),
        }
        before = Some(piece);
    }
    let head = ExtentsHeader {
        extents: extents.len() as u64,
        chunks: pieces.len() as u64,
        bases: bases.len() as u64,
    };
    let len = EXTENTS_HEADER_BYTES
        + extents.len() * EXTENT_BYTES
        + pieces.len() * CHUNK_BYTES
        + bases.len() * BASE_BYTES;
    let mut bytes = Vec::with_capacity(len.next_multiple_of(4096));
    bytes.extend_from_slice(&head.encode());
    for extent in &extents {
        bytes.extend_from_slice(&extent.encode());
    }
    for piece in pieces.iter() {
        bytes.extend_from_slice(&piece.chunk.encode());
    }
    for base in bases {
        bytes.extend_from_slice(&base.encode());
    }
    Ok(bytes)
}
