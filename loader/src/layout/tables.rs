//! The extents section as a whole, wherever its rows lie: checked, searched, gone through.

use super::extents::{
    BASE_BYTES, Base, CHUNK_BYTES, Chunk, EXTENT_BYTES, EXTENTS_HEADER_BYTES, Extent,
    ExtentsHeader, Space,
};
use super::rows::{InOrder, Rows, Unsound};
use super::{CHUNK, LayoutError, PAGE, TableError};

/// A view of a checked extents section, wherever its rows lie.
#[derive(Clone, Copy, Debug)]
pub struct ExtentTables<R> {
    head: ExtentsHeader,
    rows: R,
}

/// What is wrong with tables, or why they could not be read.
pub type UnsoundTables<E> = Unsound<LayoutError, E>;

impl<E> From<TableError> for UnsoundTables<E> {
    fn from(error: TableError) -> Self {
        Unsound::Wrong(LayoutError::Table(error))
    }
}

/// Where the extents begin.
const EXTENTS_AT: u64 = EXTENTS_HEADER_BYTES as u64;

/// The chunks of tables, which are asked for in order: some are read at a time.
#[derive(Clone, Debug)]
pub struct Chunks<R> {
    tables: ExtentTables<R>,
    rows: InOrder<CHUNK_BYTES>,
}

impl<R: Rows + Copy> Chunks<R> {
    /// Chunk `index`.
    ///
    /// # Errors
    /// As [`ExtentTables::extent`].
    pub fn get(&mut self, index: u64) -> Result<Option<Chunk>, R::Error> {
        let (at, total) = (self.tables.chunks_at(), self.tables.head.chunks);
        let row = self.rows.row(&self.tables.rows, at, index, total)?;
        Ok(row.map(Chunk::decode))
    }
}

impl<R: Rows + Copy> ExtentTables<R> {
    /// Splits the section's used bytes into its tables, and looks at every row.
    ///
    /// # Errors
    /// [`LayoutError::Short`] or [`LayoutError::Table`] when the counts do not fit the length exactly, an
    /// extent names bases that are not there, or chunks that do not follow those of the extent before.
    pub fn read(rows: R) -> Result<Self, UnsoundTables<R::Error>> {
        let tables = Self::split(rows)?;
        tables.check()?;
        Ok(tables)
    }

    /// Those that [`ExtentTables::read`] has accepted before: their head, and their rows.
    #[must_use]
    pub fn of(head: ExtentsHeader, rows: R) -> Self {
        ExtentTables { head, rows }
    }

    fn split(rows: R) -> Result<Self, UnsoundTables<R::Error>> {
        let found = rows.used();
        let Some(room) = found.checked_sub(EXTENTS_HEADER_BYTES as u64) else {
            return Err(Unsound::Wrong(LayoutError::Short {
                found,
                expected: EXTENTS_HEADER_BYTES as u64,
            }));
        };
        let mut head = [0; EXTENTS_HEADER_BYTES];
        rows.read(0, &mut head).map_err(Unsound::Unread)?;
        let head = ExtentsHeader::decode(&head);
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
        let extents_len = len_of("extent", head.extents, EXTENT_BYTES)?;
        let chunks_len = len_of("chunk", head.chunks, CHUNK_BYTES)?;
        let bases_len = len_of("base", head.bases, BASE_BYTES)?;
        let len = extents_len + chunks_len + bases_len;
        if len != room {
            return Err(wrong("extent", "bytes of all tables", room, len).into());
        }
        Ok(ExtentTables { head, rows })
    }

    /// Every row once: chunks belong to one extent each, in order.
    fn check(&self) -> Result<(), UnsoundTables<R::Error>> {
        let mut before: Option<Extent> = None;
        let (mut next_chunk, mut chunks) = (0, self.chunks());
        for (row, extent) in (0u64..).zip(self.extents()) {
            let extent = extent.map_err(Unsound::Unread)?;
            self.check_extent(row, &extent, before.as_ref(), next_chunk)?;
            let mut left = extent.len;
            for index in 0..extent.chunk_count() {
                let raw = left.min(CHUNK);
                let row = next_chunk + index;
                let chunk = chunks.get(row).map_err(Unsound::Unread)?;
                self.check_chunk(row, chunk, &extent, raw)?;
                left -= raw;
            }
            next_chunk += extent.chunk_count();
            before = Some(extent);
        }
        if next_chunk != self.chunk_count() {
            return Err(Unsound::from(TableError {
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
    fn check_chunk(
        &self,
        row: u64,
        chunk: Option<Chunk>,
        extent: &Extent,
        raw: u64,
    ) -> Result<(), TableError> {
        let wrong = |what: &'static str, found: u64, expected: u64| TableError {
            table: "chunk",
            row,
            what,
            found,
            expected,
        };
        let chunk = chunk.ok_or(wrong("row", row, self.chunk_count()))?;
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

    /// How many rows there are.
    #[must_use]
    pub fn head(&self) -> ExtentsHeader {
        self.head
    }

    /// Where they lie.
    #[must_use]
    pub fn rows(&self) -> R {
        self.rows
    }

    /// Number of extents.
    #[must_use]
    pub fn extent_count(&self) -> u64 {
        self.head.extents
    }

    /// Number of chunks.
    #[must_use]
    pub fn chunk_count(&self) -> u64 {
        self.head.chunks
    }

    /// Number of bases.
    #[must_use]
    pub fn base_count(&self) -> u64 {
        self.head.bases
    }

    /// Row `index` of `count` that begin at `at`.
    fn row<const BYTES: usize>(
        &self,
        at: u64,
        index: u64,
        count: u64,
    ) -> Result<Option<[u8; BYTES]>, R::Error> {
        if index >= count {
            return Ok(None);
        }
        let mut row = [0; BYTES];
        self.rows.read(at + index * BYTES as u64, &mut row)?;
        Ok(Some(row))
    }

    fn chunks_at(&self) -> u64 {
        EXTENTS_AT + self.head.extents * EXTENT_BYTES as u64
    }

    /// Extent `index`.
    ///
    /// # Errors
    /// Those of reading its row.
    pub fn extent(&self, index: u64) -> Result<Option<Extent>, R::Error> {
        let row = self.row(EXTENTS_AT, index, self.head.extents)?;
        Ok(row.as_ref().map(Extent::decode))
    }

    /// Chunk `index`.
    ///
    /// # Errors
    /// As [`ExtentTables::extent`].
    pub fn chunk(&self, index: u64) -> Result<Option<Chunk>, R::Error> {
        let row = self.row(self.chunks_at(), index, self.head.chunks)?;
        Ok(row.as_ref().map(Chunk::decode))
    }

    /// Base `index` (image number `index + 1`).
    ///
    /// # Errors
    /// As [`ExtentTables::extent`].
    pub fn base(&self, index: u64) -> Result<Option<Base>, R::Error> {
        let at = self.chunks_at() + self.head.chunks * CHUNK_BYTES as u64;
        let row = self.row(at, index, self.head.bases)?;
        Ok(row.as_ref().map(Base::decode))
    }

    /// All extents in order. Behind one that cannot be read there is no other.
    pub fn extents(&self) -> impl Iterator<Item = Result<Extent, R::Error>> + use<R> {
        self.extents_from(0)
    }

    /// The extents from number `first` on, as [`ExtentTables::extents`].
    pub fn extents_from(
        &self,
        first: u64,
    ) -> impl Iterator<Item = Result<Extent, R::Error>> + use<R> {
        let tables = *self;
        let (mut next, mut rows) = (first, InOrder::NONE);
        core::iter::from_fn(move || {
            let row = rows.row(&tables.rows, EXTENTS_AT, next, tables.head.extents);
            let extent = row.transpose()?.map(Extent::decode);
            next = match extent {
                Ok(_) => next + 1,
                Err(_) => u64::MAX,
            };
            Some(extent)
        })
    }

    /// The chunks, for who asks for them in order.
    #[must_use]
    pub fn chunks(&self) -> Chunks<R> {
        Chunks {
            tables: *self,
            rows: InOrder::NONE,
        }
    }

    /// The extents of one space, in order of `at`, as [`ExtentTables::extents`].
    pub fn extents_of(
        &self,
        space: Space,
    ) -> impl Iterator<Item = Result<Extent, R::Error>> + use<R> {
        self.extents_within(space, 0, u64::MAX)
    }

    /// The extents of a space that overlap `from..to`, in order, as [`ExtentTables::extents`].
    pub fn extents_within(
        &self,
        space: Space,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = Result<Extent, R::Error>> + use<R> {
        let tables = *self;
        let is_within = move |extent: &Extent| extent.space == space.number() && extent.at < to;
        // The search may fail, too.
        let found = core::iter::once_with(move || tables.first_behind(space, from));
        let all = found.flat_map(move |first| {
            let (first, failed) = match first {
                Ok(first) => (first, None),
                Err(error) => (u64::MAX, Some(Err(error))),
            };
            failed.into_iter().chain(tables.extents_from(first))
        });
        all.take_while(move |extent| extent.as_ref().map_or(true, is_within))
    }

    /// The index of the first extent that does not lie before `from` of a space.
    fn first_behind(&self, space: Space, from: u64) -> Result<u64, R::Error> {
        let lies_before = |extent: Extent| {
            (extent.space, extent.at.saturating_add(extent.len)) <= (space.number(), from)
        };
        let (mut low, mut high) = (0, self.extent_count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.extent(middle)?.is_some_and(lies_before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
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
        let tables = ExtentTables::read(&bytes[..]).expect("reads");
        let found: Vec<_> = tables.extents_of(Space::Process(1)).collect();
        let Ok(found) = found.into_iter().collect::<Result<Vec<_>, _>>();
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
