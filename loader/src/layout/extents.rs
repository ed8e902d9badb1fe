//! The extents section: which bytes of memory and files lie where in which image.
//!
//! ```text
//! ExtentsHeader | Extent ... | Chunk ... | Base ...
//!                 `-first_chunk-^          ^-image-'
//! ```

use super::{CHUNK, HASH_LEN, Hash, LayoutError, PAGE, TableError, hash_at, u32_at, u64_at};

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
}

/// A view of a checked extents section.
#[derive(Clone, Copy, Debug)]
pub struct ExtentTables<'a> {
    extents: &'a [u8],
    chunks: &'a [u8],
    bases: &'a [u8],
}

impl<'a> ExtentTables<'a> {
    /// Those of no contents.
    pub const NONE: ExtentTables<'static> = ExtentTables {
        extents: &[],
        chunks: &[],
        bases: &[],
    };

    /// Splits the section's used bytes into its tables.
    ///
    /// # Errors
    /// [`LayoutError::Short`] or [`LayoutError::Table`] when the counts do not fit the length exactly, an
    /// extent names bases that are not there, or chunks that do not follow those of the extent before.
    pub fn read(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let tables = Self::split(bytes)?;
        tables.check()?;
        Ok(tables)
    }

    /// Splits bytes that [`ExtentTables::read`] has accepted before, without looking at every row.
    ///
    /// # Errors
    /// As [`ExtentTables::read`], for the lengths only.
    pub fn split(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let found = bytes.len() as u64;
        if bytes.len() < EXTENTS_HEADER_BYTES {
            return Err(LayoutError::Short {
                found,
                expected: EXTENTS_HEADER_BYTES as u64,
            });
        }
        let (head, rest) = bytes.split_at(EXTENTS_HEADER_BYTES);
        let room = rest.len() as u64;
        let wrong =
            |table: &'static str, what: &'static str, found: u64, expected: u64| TableError {
                table,
                row: 0,
                what,
                found,
                expected,
            };
        let len_of = |table: &'static str, count: u64, size: usize| {
            count
                .checked_mul(size as u64)
                .filter(|len| *len <= room)
                .ok_or(wrong(table, "number of rows", count, room / size as u64))
        };
        let extents_len = len_of("extent", u64_at(head, 0), EXTENT_BYTES)?;
        let chunks_len = len_of("chunk", u64_at(head, 8), CHUNK_BYTES)?;
        let bases_len = len_of("base", u64_at(head, 16), BASE_BYTES)?;
        let len = extents_len + chunks_len + bases_len;
        if len != room {
            return Err(wrong("extent", "bytes of all tables", room, len).into());
        }
        let (extents, rest) = rest.split_at(extents_len as usize);
        let (chunks, bases) = rest.split_at(chunks_len as usize);
        Ok(ExtentTables {
            extents,
            chunks,
            bases,
        })
    }

    /// Every row once: chunks belong to one extent each, in order.
    fn check(&self) -> Result<(), LayoutError> {
        let mut before: Option<Extent> = None;
        let mut next_chunk = 0;
        for (row, extent) in (0u64..).zip(self.extents()) {
            self.check_extent(row, &extent, before.as_ref(), next_chunk)?;
            let mut left = extent.len;
            for index in 0..extent.chunk_count() {
                let raw = left.min(CHUNK);
                self.check_chunk(next_chunk + index, &extent, raw)?;
                left -= raw;
            }
            next_chunk += extent.chunk_count();
            before = Some(extent);
        }
        if next_chunk != self.chunk_count() {
            return Err(LayoutError::Table(TableError {
                table: "chunk",
                row: next_chunk,
                what: "belongs to no extent; number of chunks",
                found: self.chunk_count(),
                expected: next_chunk,
            }));
        }
        Ok(())
    }

    fn check_extent(
        &self,
        row: u64,
        extent: &Extent,
        before: Option<&Extent>,
        next_chunk: u64,
    ) -> Result<(), TableError> {
        let wrong = |what: &'static str, found: u64, expected: u64| TableError {
            table: "extent",
            row,
            what,
            found,
            expected,
        };
        let space = Space::from_number(extent.space);
        let space = space.ok_or(wrong("space", extent.space, 1 << 32))?;
        let end = extent.at.checked_add(extent.len);
        end.filter(|_| extent.len > 0)
            .ok_or(wrong("length", extent.len, u64::MAX - extent.at))?;
        if !extent.at.is_multiple_of(PAGE) {
            let down = extent.at / PAGE * PAGE;
            return Err(wrong("place, not on a page", extent.at, down));
        }
        if matches!(space, Space::Process(_)) && !extent.len.is_multiple_of(PAGE) {
            let down = extent.len / PAGE * PAGE;
            return Err(wrong("length, not of pages", extent.len, down));
        }
        if u64::from(extent.image) > self.base_count() {
            let image = u64::from(extent.image);
            return Err(wrong("image, of which there are", image, self.base_count()));
        }
        if !matches!(extent.encoding, 1 | 2) {
            return Err(wrong("encoding", u64::from(extent.encoding), 1));
        }
        if extent.first_chunk != next_chunk {
            return Err(wrong("first chunk", extent.first_chunk, next_chunk));
        }
        let left = self.chunk_count() - next_chunk;
        if extent.chunk_count() > left {
            return Err(wrong("number of chunks", extent.chunk_count(), left));
        }
        match before {
            Some(before) if before.space > extent.space => {
                Err(wrong("space, out of order", extent.space, before.space))
            }
            Some(before) if before.space == extent.space && before.at + before.len > extent.at => {
                let end = before.at + before.len;
                Err(wrong("place, out of order", extent.at, end))
            }
            _ => Ok(()),
        }
    }

    /// Chunk `row`, which stands for `raw` bytes of `extent`.
    fn check_chunk(&self, row: u64, extent: &Extent, raw: u64) -> Result<(), TableError> {
        let wrong = |what: &'static str, found: u64, expected: u64| TableError {
            table: "chunk",
            row,
            what,
            found,
            expected,
        };
        let chunk = self
            .chunk(row)
            .ok_or(wrong("row", row, self.chunk_count()))?;
        let stored = u64::from(chunk.stored_len);
        if u64::from(chunk.raw_len) != raw {
            return Err(wrong("bytes in memory", u64::from(chunk.raw_len), raw));
        }
        match extent.encoding {
            1 if stored != raw => Err(wrong("bytes in the file", stored, raw)),
            1 if !chunk.offset.is_multiple_of(PAGE) => {
                let down = chunk.offset / PAGE * PAGE;
                Err(wrong("place, not on a page", chunk.offset, down))
            }
            2 if stored == 0 || stored > 2 * CHUNK => {
                Err(wrong("bytes in the file", stored, 2 * CHUNK))
            }
            _ => Ok(()),
        }
    }

    /// Number of extents.
    #[must_use]
    pub fn extent_count(&self) -> u64 {
        (self.extents.len() / EXTENT_BYTES) as u64
    }

    /// Number of chunks.
    #[must_use]
    pub fn chunk_count(&self) -> u64 {
        (self.chunks.len() / CHUNK_BYTES) as u64
    }

    /// Number of bases.
    #[must_use]
    pub fn base_count(&self) -> u64 {
        (self.bases.len() / BASE_BYTES) as u64
    }

    /// Extent `index`.
    #[must_use]
    pub fn extent(&self, index: u64) -> Option<Extent> {
        let at = usize::try_from(index).ok()?.checked_mul(EXTENT_BYTES)?;
        let bytes = self.extents.get(at..at.checked_add(EXTENT_BYTES)?)?;
        Some(Extent {
            space: u64_at(bytes, 0),
            at: u64_at(bytes, 8),
            len: u64_at(bytes, 16),
            image: u32_at(bytes, 24),
            encoding: u32_at(bytes, 28),
            first_chunk: u64_at(bytes, 32),
        })
    }

    /// Chunk `index`.
    #[must_use]
    pub fn chunk(&self, index: u64) -> Option<Chunk> {
        let at = usize::try_from(index).ok()?.checked_mul(CHUNK_BYTES)?;
        self.chunks.get(at..)?.first_chunk().map(Chunk::decode)
    }

    /// Base `index` (image number `index + 1`).
    #[must_use]
    pub fn base(&self, index: u64) -> Option<Base> {
        let at = usize::try_from(index).ok()?.checked_mul(BASE_BYTES)?;
        let bytes = self.bases.get(at..at.checked_add(BASE_BYTES)?)?;
        let mut name = [0; 224];
        name.copy_from_slice(&bytes[HASH_LEN..]);
        Some(Base {
            id: hash_at(bytes, 0),
            name,
        })
    }

    /// All extents in order.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + use<'a> {
        let tables = *self;
        (0..self.extent_count()).filter_map(move |index| tables.extent(index))
    }

    /// The extents of one space, in order of `at`.
    pub fn extents_of(&self, space: Space) -> impl Iterator<Item = Extent> + use<'a> {
        self.extents_within(space, 0, u64::MAX)
    }

    /// The extents of a space that overlap `from..to`, in order.
    pub fn extents_within(
        &self,
        space: Space,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = Extent> + use<'a> {
        let tables = *self;
        let number = space.number();
        let lies_before =
            |extent: Extent| (extent.space, extent.at.saturating_add(extent.len)) <= (number, from);
        let (mut low, mut high) = (0, self.extent_count());
        while low < high {
            let middle = low + (high - low) / 2;
            if tables.extent(middle).is_some_and(lies_before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low..self.extent_count())
            .map_while(move |index| tables.extent(index))
            .take_while(move |extent| extent.space == number && extent.at < to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_of_a_space_are_found() {
        let mut bytes = vec![];
        let head = ExtentsHeader {
            extents: 3,
            chunks: 3,
            bases: 0,
        };
        bytes.extend(head.encode());
        for (index, space) in [Space::Process(0), Space::Process(1), Space::Inode(0)]
            .into_iter()
            .enumerate()
        {
            let extent = Extent {
                space: space.number(),
                at: PAGE,
                len: PAGE,
                image: 0,
                encoding: 1,
                first_chunk: index as u64,
            };
            bytes.extend(extent.encode());
        }
        for index in 0..3u64 {
            let chunk = Chunk {
                offset: index * PAGE,
                stored_len: 4096,
                raw_len: 4096,
                hash: [0; 32],
            };
            bytes.extend(chunk.encode());
        }
        let tables = ExtentTables::read(&bytes).expect("reads");
        let found: Vec<_> = tables.extents_of(Space::Process(1)).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].first_chunk, 1);
        let within = |from, to| tables.extents_within(Space::Process(1), from, to).count();
        assert_eq!((within(0, PAGE), within(0, PAGE + 1)), (0, 1));
        assert_eq!(
            (within(2 * PAGE - 1, u64::MAX), within(2 * PAGE, u64::MAX)),
            (1, 0)
        );
        assert!(ExtentTables::read(&bytes[..bytes.len() - 1]).is_err());
    }
}
