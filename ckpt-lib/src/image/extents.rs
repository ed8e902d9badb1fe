//! From chunks as they were written to the rows of the table of extents.
//!
//! # What callers may rely on
//! Extents are as long as [`loader::layout::ExtentTables`] allows. Nothing is kept but the row that is being made.

use loader::layout::{CHUNK, CHUNK_BYTES, Chunk, Encoding, Extent, Space};
use std::io;

/// Bytes of a [`Piece`] that is put aside.
pub(super) const PIECE_BYTES: usize = 24 + CHUNK_BYTES;

/// A chunk that lies in some image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// By which pieces are in order.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.space, self.at)
    }

    /// As [`super::pieces`] puts it aside.
    pub(super) fn encode(&self) -> [u8; PIECE_BYTES] {
        let mut bytes = [0; PIECE_BYTES];
        bytes[0..8].copy_from_slice(&self.space.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.image.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.encoding.to_le_bytes());
        bytes[24..].copy_from_slice(&self.chunk.encode());
        bytes
    }

    /// What [`Piece::encode`] has made.
    pub(super) fn decode(bytes: &[u8; PIECE_BYTES]) -> Self {
        let (words, _) = bytes[..24].as_chunks::<8>();
        let [space, at, rest] = [words[0], words[1], words[2]].map(u64::from_le_bytes);
        Piece {
            space,
            at,
            image: rest as u32,
            encoding: (rest >> 32) as u32,
            chunk: Chunk::decode(bytes[24..].first_chunk().unwrap_or(&[0; CHUNK_BYTES])),
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

/// The rows of the table of extents for pieces in order.
pub(super) fn joined(
    pieces: impl Iterator<Item = io::Result<Piece>>,
) -> impl Iterator<Item = io::Result<Extent>> {
    let mut pieces = pieces.peekable();
    let mut first_chunk = 0;
    std::iter::from_fn(move || {
        let mut last = match pieces.next()? {
            Ok(piece) => piece,
            Err(error) => return Some(Err(error)),
        };
        let mut extent = Extent {
            space: last.space,
            at: last.at,
            len: u64::from(last.chunk.raw_len),
            image: last.image,
            encoding: last.encoding,
            first_chunk,
        };
        first_chunk += 1;
        let continues = |last: &Piece, next: &io::Result<Piece>| {
            let next = next.as_ref();
            next.is_ok_and(|next| last.is_continued_by(next))
        };
        while let Some(Ok(next)) = pieces.next_if(|next| continues(&last, next)) {
            extent.len += u64::from(next.chunk.raw_len);
            first_chunk += 1;
            last = next;
        }
        Some(Ok(extent))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(at: u64, raw_len: u64, image: u32) -> Piece {
        let chunk = Chunk {
            offset: at,
            stored_len: raw_len as u32,
            raw_len: raw_len as u32,
            hash: [7; 32],
        };
        Piece {
            image,
            ..Piece::new(Space::Inode(1), at, Encoding::Raw, chunk)
        }
    }

    #[test]
    fn whole_chunks_side_by_side_are_one_extent() {
        let pieces = [
            piece(0, CHUNK, 0),
            piece(CHUNK, CHUNK, 0),
            piece(2 * CHUNK, 4096, 0),
            // Behind a shorter one, behind a gap, and of another image.
            piece(2 * CHUNK + 4096, CHUNK, 0),
            piece(5 * CHUNK, CHUNK, 0),
            piece(6 * CHUNK, CHUNK, 1),
        ];
        let found: Result<Vec<Extent>, _> = joined(pieces.into_iter().map(Ok)).collect();
        let found: Vec<_> = found
            .expect("no error")
            .iter()
            .map(|e| (e.at, e.len, e.first_chunk))
            .collect();
        let expected = [
            (0, 2 * CHUNK + 4096, 0),
            (2 * CHUNK + 4096, CHUNK, 3),
            (5 * CHUNK, CHUNK, 4),
            (6 * CHUNK, CHUNK, 5),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_error_stays_one() {
        let pieces = [
            Ok(piece(0, CHUNK, 0)),
            Err(io::ErrorKind::UnexpectedEof.into()),
        ];
        let found: Result<Vec<Extent>, _> = joined(pieces.into_iter()).collect();
        assert!(found.is_err());
    }

    #[test]
    fn a_piece_reads_back_as_put_aside() {
        let piece = Piece {
            encoding: Encoding::Zstd as u32,
            ..piece(1 << 40, CHUNK, 0x0102_0304)
        };
        assert_eq!(Piece::decode(&piece.encode()), piece);
    }
}
