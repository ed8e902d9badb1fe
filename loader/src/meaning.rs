//! Whether the parts of an image fit together: what no checksum can know. The loader asks before it makes
//! anything, `wayfarer verify` asks the same.
//!
//! ```text
//! operations   a Prepare stream, a process to start; each process with contents is filled
//! mappings     none over the hole; contents of memory lie in those before `Fill`, which are in order,
//!              or in the old vDSO
//! hole         room for everything the loader puts there
//! pages        each byte in one chunk, or in a gap of less than a page (which must be zero)
//! ```
//! # What callers may rely on
//! An image that passes has no contents that would be written over the loader or to where nothing is mapped.
//!
//! # What it does not do
//! It does not look at chunks of earlier images, nor at contents.

use crate::hole::{HoleInput, HoleLayout};
use crate::layout::{Chunk, ExtentTables, Header, PAGE, Rows, SectionKind, Space, Unsound};
use crate::ops::tails::VdsoTail;
use crate::ops::{AnyOp, OpsList, StreamEntry, StreamKind};
use core::fmt;
use core::ops::Range;

/// `mmap(2)`.
const SYS_MMAP: u64 = 9;
const MAP_FIXED: u64 = 0x10;

/// What does not fit, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeaningError {
    /// The section that is wrong, as far as one can say.
    pub section: SectionKind,
    /// Which number.
    pub what: &'static str,
    /// The number.
    pub found: u64,
    /// What it must be, or the bound that it breaks.
    pub expected: u64,
}

impl fmt::Display for MeaningError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, found, expected) = (self.what, self.found, self.expected);
        write!(to, "{what}: found {found:#x}, expected {expected:#x}")
    }
}

/// What does not fit, or why that could not be found out.
pub type Unfit<E> = Unsound<MeaningError, E>;

impl<E> From<MeaningError> for Unfit<E> {
    fn from(error: MeaningError) -> Self {
        Unsound::Wrong(error)
    }
}

fn wrong(section: SectionKind, what: &'static str, found: u64, expected: u64) -> MeaningError {
    MeaningError {
        section,
        what,
        found,
        expected,
    }
}

/// Whether the operations, the hole and the contents of memory go together; the places in the hole.
///
/// `span`: bytes of the loader's own segments.
///
/// # Errors
/// The first thing that does not fit.
pub fn check<R: Rows + Copy>(
    header: &Header,
    span: u64,
    ops: &OpsList<'_>,
    extents: &ExtentTables<R>,
) -> Result<HoleLayout, Unfit<R::Error>> {
    check_streams(ops)?;
    let layout = HoleLayout::new(HoleInput {
        span,
        ops_len: header.section(SectionKind::Ops).len,
        extents_len: header.section(SectionKind::Extents).len,
        streams: ops.header().streams,
        slots: ops.header().slot_count,
    });
    let end = header.hole_base.checked_add(header.hole_len);
    let hole = header.hole_base..end.unwrap_or(u64::MAX);
    if layout.needed > header.hole_len || end.is_none() {
        let (found, expected) = (header.hole_len, layout.needed);
        let what = "bytes of the loader's hole";
        return Err(wrong(SectionKind::Header, what, found, expected).into());
    }
    let streams = (0..ops.header().streams).filter_map(|index| ops.stream(index));
    for entry in streams.filter(|entry| entry.kind == StreamKind::Process as u64) {
        check_memory(ops, &entry, extents, &hole)?;
    }
    check_all_filled(ops, extents)?;
    Ok(layout)
}

/// There must be something to start.
fn check_streams(ops: &OpsList<'_>) -> Result<(), MeaningError> {
    let kind = ops.stream(0).map_or(0, |entry| entry.kind);
    let prepare = StreamKind::Prepare as u64;
    if kind != prepare {
        let what = "kind of the first stream";
        return Err(wrong(SectionKind::Ops, what, kind, prepare));
    }
    let has_root = (1..ops.header().streams)
        .filter_map(|index| ops.stream(index))
        .any(|entry| entry.kind == StreamKind::Process as u64 && entry.parent == 0);
    if !has_root {
        let what = "no process to start; processes";
        return Err(wrong(SectionKind::Ops, what, 0, 1));
    }
    Ok(())
}

/// The records of a stream that are sound: [`OpsList::read`] has seen them all.
fn operations<'a>(
    ops: &OpsList<'a>,
    entry: &StreamEntry,
) -> impl Iterator<Item = (AnyOp, &'a [u8])> + use<'a> {
    ops.records(entry)
        .filter_map(Result::ok)
        .map(|record| (record.op, record.tail))
}

/// The number of the process whose memory a stream fills.
fn filled_by(ops: &OpsList<'_>, entry: &StreamEntry) -> Option<u32> {
    operations(ops, entry).find_map(|(op, _)| match op {
        AnyOp::Fill(fill) => u32::try_from(fill.process).ok(),
        _ => None,
    })
}

/// Where the old `[vdso]` was.
fn vdso_of(ops: &OpsList<'_>, entry: &StreamEntry) -> Range<u64> {
    let found = operations(ops, entry).find_map(|(op, tail)| match op {
        AnyOp::Vdso(op) => VdsoTail::read(&op, tail).ok()?.text(),
        _ => None,
    });
    found.unwrap_or(0..0)
}

/// One pass over the mappings and the contents of a process, both in order of their addresses.
fn check_memory<R: Rows + Copy>(
    ops: &OpsList<'_>,
    entry: &StreamEntry,
    extents: &ExtentTables<R>,
    hole: &Range<u64>,
) -> Result<(), Unfit<R::Error>> {
    let section = SectionKind::Extents;
    let over_hole = |range: &Range<u64>| range.start < hole.end && hole.start < range.end;
    let vdso = vdso_of(ops, entry);
    if over_hole(&vdso) {
        let what = "vDSO over the loader's hole";
        return Err(wrong(SectionKind::Ops, what, vdso.start, hole.end).into());
    }
    let mapped = |op: &AnyOp| match op {
        AnyOp::Call(call) if call.nr == SYS_MMAP && call.a3 & MAP_FIXED != 0 => {
            Some(call.a0..call.a0.saturating_add(call.a1))
        }
        _ => None,
    };
    let mut all = operations(ops, entry).filter_map(|(op, _)| mapped(&op));
    if let Some(over) = all.find(over_hole) {
        let what = "mapping over the loader's hole";
        return Err(wrong(SectionKind::Ops, what, over.start, hole.end).into());
    }
    let mut mappings = operations(ops, entry)
        .take_while(|(op, _)| !matches!(op, AnyOp::Fill(_)))
        .filter_map(|(op, _)| mapped(&op));
    let mut mapping = 0..0;
    if let Some(process) = filled_by(ops, entry) {
        for extent in extents.extents_of(Space::Process(process)) {
            let extent = extent.map_err(Unsound::Unread)?;
            let (mut at, end) = (extent.at, extent.at.saturating_add(extent.len));
            while at < end {
                if vdso.contains(&at) {
                    at = vdso.end;
                } else if mapping.contains(&at) {
                    at = mapping.end;
                } else if mapping.start > at {
                    let what = "contents where nothing is mapped";
                    return Err(wrong(section, what, at, mapping.start).into());
                } else {
                    let what = "contents behind the last mapping";
                    let next = mappings
                        .next()
                        .ok_or(wrong(section, what, at, mapping.end))?;
                    if next.start < mapping.end {
                        let what = "mapping out of order";
                        let (found, expected) = (next.start, mapping.end);
                        return Err(wrong(SectionKind::Ops, what, found, expected).into());
                    }
                    mapping = next;
                }
            }
        }
    }
    Ok(())
}

/// Contents of memory that no process of the list is given would be dropped.
fn check_all_filled<R: Rows + Copy>(
    ops: &OpsList<'_>,
    extents: &ExtentTables<R>,
) -> Result<(), Unfit<R::Error>> {
    let mut space = 0;
    for extent in extents.extents() {
        let extent = extent.map_err(Unsound::Unread)?;
        // In order: each process once, then files.
        if extent.space == space || extent.space >> 32 != 1 {
            continue;
        }
        space = extent.space;
        let filled = (0..ops.header().streams)
            .filter_map(|index| ops.stream(index))
            .any(|entry| filled_by(ops, &entry) == Some(space as u32));
        if !filled {
            let what = "contents of a process that no stream fills";
            return Err(wrong(SectionKind::Extents, what, space & 0xffff_ffff, 0).into());
        }
    }
    Ok(())
}

/// File offset and end of a chunk.
pub type Place = [u64; 2];

/// Places that are looked at in one go: what [`check_places`] is given room for, if there are so many.
pub const PLACES: usize = 512 << 10;

/// Number of chunks that lie in the image itself.
///
/// # Errors
/// Those of reading the tables.
pub fn own_chunks<R: Rows + Copy>(tables: &ExtentTables<R>) -> Result<u64, R::Error> {
    let mut count: u64 = 0;
    for extent in tables.extents() {
        let extent = extent?;
        if extent.image == 0 {
            count = count.saturating_add(extent.chunk_count());
        }
    }
    Ok(count)
}

/// Whether each byte of the pages section is in one of the image's own chunks, or in a gap of less than a page, which
/// `gap` is told: nothing but zeros may be there.
///
/// Chunks may lie in any order. `room` is for the places of [`PLACES`] of them, or of [`own_chunks`]: the tables are gone
/// through once for each half of it that they fill. In less than two there is no room.
///
/// # Errors
/// When a chunk lies outside the pages section or shares bytes with another, or when a page or more
/// belongs to no chunk; those of reading the tables; what `gap` gave.
pub fn check_places<R: Rows + Copy, E: From<Unfit<R::Error>>>(
    header: &Header,
    tables: &ExtentTables<R>,
    room: &mut [Place],
    mut gap: impl FnMut(Range<u64>) -> Result<(), E>,
) -> Result<(), E> {
    let pages = header.section(SectionKind::Pages);
    let end_of_pages = pages.offset.saturating_add(pages.len);
    let mut end = pages.offset;
    let mut step = |[start, next]: Place| {
        check_next(end..start).map_err(Unfit::from)?;
        if end < start {
            gap(end..start)?;
        }
        end = next;
        Ok::<(), E>(())
    };
    let mut behind = None;
    loop {
        let (count, are_more) = next_places(header, tables, room, behind)?;
        for place in &room[..count] {
            step(*place)?;
            behind = Some(*place);
        }
        if !are_more {
            return step([end_of_pages; 2]);
        }
    }
}

/// Bytes from the end of a chunk to the next.
fn check_next(between: Range<u64>) -> Result<(), MeaningError> {
    let section = SectionKind::Extents;
    if between.start > between.end {
        let what = "bytes of the file that belong to two chunks, from";
        return Err(wrong(section, what, between.end, between.start));
    }
    if between.end - between.start >= PAGE {
        let what = "bytes of .wf.pages that belong to no chunk, from";
        return Err(wrong(section, what, between.start, between.end));
    }
    Ok(())
}

/// Puts the first places behind `behind` into `room`, in order: how many, and whether there are others.
fn next_places<R: Rows + Copy>(
    header: &Header,
    tables: &ExtentTables<R>,
    room: &mut [Place],
    behind: Option<Place>,
) -> Result<(usize, bool), Unfit<R::Error>> {
    let mut count = 0;
    let mut last: Option<Place> = None;
    let mut chunks = tables.chunks();
    for extent in tables.extents() {
        let extent = extent.map_err(Unsound::Unread)?;
        if extent.image != 0 {
            continue;
        }
        let numbers = extent.first_chunk..extent.first_chunk.saturating_add(extent.chunk_count());
        for number in numbers {
            let chunk = chunks.get(number).map_err(Unsound::Unread)?;
            let place = place_of(header, &chunk.unwrap_or_default())?;
            // None is less than any.
            if Some(place) <= behind || last.is_some_and(|last| place > last) {
                continue;
            }
            if count == room.len() {
                room.sort_unstable();
                count /= 2;
                let (Some(before), Some(next)) = (count.checked_sub(1), room.get(count)) else {
                    let what = "places that there is room for";
                    return Err(wrong(SectionKind::Extents, what, 0, 2).into());
                };
                let before = room[before];
                // Of two that are the same, one would not be seen again.
                if next[0] < before[1] {
                    check_next(before[1]..next[0])?;
                }
                last = Some(before);
                if place > before {
                    continue;
                }
            }
            room[count] = place;
            count += 1;
        }
    }
    room[..count].sort_unstable();
    Ok((count, last.is_some()))
}

/// Where a chunk of the image itself lies.
fn place_of(header: &Header, chunk: &Chunk) -> Result<Place, MeaningError> {
    let pages = header.section(SectionKind::Pages);
    let section = SectionKind::Extents;
    let end_of_pages = pages.offset.saturating_add(pages.len);
    let end = chunk.offset.saturating_add(u64::from(chunk.stored_len));
    if chunk.offset < pages.offset {
        let what = "chunk outside .wf.pages: begin";
        return Err(wrong(section, what, chunk.offset, pages.offset));
    }
    if end > end_of_pages {
        let what = "chunk outside .wf.pages: end";
        return Err(wrong(section, what, end, end_of_pages));
    }
    Ok([chunk.offset, end])
}

#[cfg(test)]
mod tests;
