//! What an earlier image has: a chunk that is as it was need not be stored again.
//!
//! # What callers may rely on
//! A chunk is taken for the same only if it stands for the same bytes of the same space, is stored in the same way and has the same
//! checksum. No contents are read for that.

use super::error::ImageError;
use super::extents::Piece;
use super::reader::{self, Image};
use super::table_file::TableFile;
use loader::layout::{CHUNK, Chunk, Encoding, Extent, SectionKind, Space};
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::path::Path;

/// An earlier image as far as its tables.
#[derive(Debug)]
pub(super) struct Earlier {
    tables: TableFile,
    /// For each of its image numbers, that in the image that is being made.
    numbers: Vec<u32>,
}

impl Earlier {
    /// The tables of this one, which stays open; what else it has in memory is let go.
    pub(super) fn new(image: Image, numbers: Vec<u32>) -> Self {
        Earlier {
            tables: image.into_tables(),
            numbers,
        }
    }

    /// Chunk `number` of an extent, if it begins before `end`.
    fn piece(&self, extent: &Extent, number: u64, end: u64) -> Result<Option<Piece>, ImageError> {
        let at = extent.at + number * CHUNK;
        let image = self.numbers.get(extent.image as usize).copied();
        let Some(image) = image.filter(|_| number < extent.chunk_count() && at < end) else {
            return Ok(None);
        };
        let chunk = self.tables.tables().chunk(extent.first_chunk + number)?;
        Ok(chunk.map(|chunk| Piece {
            space: extent.space,
            at,
            image,
            encoding: extent.encoding,
            chunk,
        }))
    }

    /// The chunks of an extent that begin in a range.
    fn pieces(
        &self,
        extent: Extent,
        within: Range<u64>,
    ) -> impl Iterator<Item = Result<Piece, ImageError>> {
        let first = within.start.saturating_sub(extent.at).div_ceil(CHUNK);
        (first..).map_while(move |number| self.piece(&extent, number, within.end).transpose())
    }

    /// The earlier chunk that is this one, whose offset does not matter.
    ///
    /// # Errors
    /// [`ImageError`] when its tables cannot be read any more.
    pub(super) fn same(
        &self,
        space: Space,
        at: u64,
        encoding: Encoding,
        chunk: &Chunk,
    ) -> Result<Option<Piece>, ImageError> {
        let mut extents = self.tables.tables().extents_within(space, at, at + 1);
        let Some(extent) = extents.next().transpose()? else {
            return Ok(None);
        };
        let known = self.pieces(extent, at..at + 1).next().transpose()?;
        let is_same = |known: &Piece| {
            known.encoding == encoding as u32
                && known.chunk.stored_len == chunk.stored_len
                && known.chunk.raw_len == chunk.raw_len
                && known.chunk.hash == chunk.hash
        };
        Ok(known.filter(is_same))
    }

    /// Takes out of `ranges` what this has and nobody has written to since: that need not be read, and `take` is given it.
    /// `unwritten` is in order. What is left.
    ///
    /// # Errors
    /// As [`Earlier::same`], and what `take` gave.
    pub(super) fn spare(
        &self,
        space: Space,
        ranges: &[Range<u64>],
        unwritten: &[Range<u64>],
        mut take: impl FnMut(Piece) -> Result<(), ImageError>,
    ) -> Result<Vec<Range<u64>>, ImageError> {
        let mut left = vec![];
        let is_unwritten = |piece: &Piece| {
            let behind = unwritten.partition_point(|range| range.start <= piece.at);
            let range = behind.checked_sub(1).and_then(|index| unwritten.get(index));
            range.is_some_and(|range| piece.end() <= range.end)
        };
        for range in ranges {
            let mut at = range.start;
            let tables = self.tables.tables();
            for extent in tables.extents_within(space, range.start, range.end) {
                for piece in self.pieces(extent?, range.clone()) {
                    let piece = piece?;
                    if piece.end() > range.end || !is_unwritten(&piece) {
                        continue;
                    }
                    if at < piece.at {
                        left.push(at..piece.at);
                    }
                    at = piece.end();
                    take(piece)?;
                }
            }
            if at < range.end {
                left.push(at..range.end);
            }
        }
        Ok(left)
    }
}

/// Gives back the disk that an image's contents take (`fallocate(2)`, `FALLOC_FL_PUNCH_HOLE`). Its tables stay, by which
/// [`super::ImageWriter::build_on`] knows what it had; nothing can be restarted from it any more.
///
/// # Errors
/// [`ImageError::Io`]: the file system may not be able to. What it is no image for: as [`super::Image::open`].
pub fn leave_tables(path: &Path) -> Result<(), ImageError> {
    let (_, header) = reader::open_header(path)?;
    let pages = header.section(SectionKind::Pages);
    let failed = |source: io::Error| ImageError::Io {
        image: path.to_owned(),
        what: "give back the disk of its contents",
        source,
    };
    let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let wrong = |_| failed(io::ErrorKind::FileTooLarge.into());
    let offset = i64::try_from(pages.offset).map_err(wrong)?;
    let len = i64::try_from(pages.len).map_err(wrong)?;
    match len {
        0 => Ok(()),
        len => fallocate(&file, flags, offset, len).map_err(|errno| failed(errno.into())),
    }
}
