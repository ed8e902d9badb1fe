//! The extents section as it is written: the rows of all its tables, one after another, from chunks that have been put aside.
//!
//! # What callers may rely on
//! The tables are in the order that [`loader::layout::ExtentTables`] demands, whatever the order in which
//! chunks came; overlaps are refused, and so is more than a reader takes. Earlier images of which nothing was taken are forgotten.

use super::destination::Destination;
use super::error::{ImageError, SpaceName};
use super::extents;
use super::pieces::Pieces;
use super::section::SectionFile;
use super::store::PUT_ASIDE;
use loader::layout::{
    BASE_BYTES, Base, CHUNK_BYTES, EXTENT_BYTES, EXTENTS_HEADER_BYTES, Extent, ExtentsHeader,
    Space, limits,
};
use std::io;

/// What is known of them before they are written.
pub(super) struct Tables<'a> {
    pieces: &'a mut Pieces,
    destination: &'a Destination,
    /// Those that are used, and for each image of the pieces its number among them.
    bases: Vec<Base>,
    numbers: Vec<u32>,
    extents: u64,
}

/// An upper bound of the section's length.
pub(super) fn len_bound(pieces: usize, bases: usize) -> u64 {
    (EXTENTS_HEADER_BYTES + pieces * (EXTENT_BYTES + CHUNK_BYTES) + bases * BASE_BYTES) as u64
}

impl<'a> Tables<'a> {
    /// Goes through all pieces once.
    ///
    /// # Errors
    /// [`ImageError::Unwritable`] if two of them stand for the same bytes, or if they are too many; [`ImageError::Io`].
    pub(super) fn of(
        pieces: &'a mut Pieces,
        bases: &[Base],
        destination: &'a Destination,
    ) -> Result<Self, ImageError> {
        let unwritable = |what| ImageError::Unwritable {
            image: destination.path.clone(),
            what,
        };
        let mut used = vec![];
        let mut numbers = vec![0; bases.len() + 1];
        let mut before: Option<(u64, u64)> = None;
        let looked_at = pieces.in_order().inspect(|piece| {
            let Ok(piece) = piece else { return };
            let Some(base) = (piece.image as usize).checked_sub(1) else {
                return;
            };
            if numbers[base + 1] == 0 {
                used.push(bases[base]);
                numbers[base + 1] = used.len() as u32;
            }
        });
        let mut extents = 0;
        for extent in extents::joined(looked_at) {
            let extent = extent.map_err(destination.failed(PUT_ASIDE))?;
            extents += 1;
            if before.is_some_and(|(space, end)| space == extent.space && end > extent.at) {
                let space = Space::from_number(extent.space).unwrap_or(Space::Process(0));
                let (space, at) = (SpaceName(space), extent.at);
                return Err(unwritable(format!("{space} at {at:#x} was stored twice")));
            }
            before = Some((extent.space, extent.at + extent.len));
        }
        let tables = Tables {
            pieces,
            destination,
            bases: used,
            numbers,
            extents,
        };
        match tables.len() {
            _ if tables.bases.len() as u64 > limits::BASES => Err(unwritable(format!(
                "its contents are in {} earlier images, {} at most",
                tables.bases.len(),
                limits::BASES
            ))),
            len if len > limits::EXTENTS_LEN => Err(unwritable(format!(
                "its contents are in {extents} parts: {len} bytes of tables, {} at most",
                limits::EXTENTS_LEN
            ))),
            _ => Ok(tables),
        }
    }

    /// Bytes of the section.
    pub(super) fn len(&self) -> u64 {
        (EXTENTS_HEADER_BYTES + self.pieces.len() * CHUNK_BYTES + self.bases.len() * BASE_BYTES)
            as u64
            + self.extents * EXTENT_BYTES as u64
    }

    /// Writes them.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub(super) fn write(&mut self, file: &mut SectionFile<'_>) -> Result<(), ImageError> {
        let head = ExtentsHeader {
            extents: self.extents,
            chunks: self.pieces.len() as u64,
            bases: self.bases.len() as u64,
        };
        file.put(&head.encode())?;
        let failed = |error: io::Error| self.destination.failed(PUT_ASIDE)(error);
        for extent in extents::joined(self.pieces.in_order()) {
            let extent = extent.map_err(failed)?;
            let image = self.numbers[extent.image as usize];
            file.put(&Extent { image, ..extent }.encode())?;
        }
        for piece in self.pieces.in_order() {
            file.put(&piece.map_err(failed)?.chunk.encode())?;
        }
        for base in &self.bases {
            file.put(&base.encode())?;
        }
        Ok(())
    }
}
