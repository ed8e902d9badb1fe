//! Whether the chunks of an image fill its pages section: each byte once.
//!
//! ```text
//! tables, in any order --> room for some places --sort--> those that follow one another from the front on: looked at, gone
//!                                               `------> no room, and they do not follow: the nearer half is kept, and
//!                                                        the others are for the next pass
//! ```
//! # What callers may rely on
//! It takes the room that it is given, and one pass over the tables of an image whose chunks are about in their order, as
//! those of a writer with several threads are; one more for each part of the file that is elsewhere in the tables.
//!
//! # What it does not do
//! It does not look at chunks of earlier images.

use super::{MeaningError, Unfit, wrong};
use crate::layout::{Chunk, ExtentTables, Header, PAGE, Rows, SectionKind, Unsound};
use core::ops::Range;

/// File offset and end of a chunk.
pub type Place = [u64; 2];

/// Places that are looked at in one go: what [`check_places`] is given room for, if there are so many.
pub const PLACES: usize = 512 << 10;
/// No image that was written in some order needs as many passes.
const PASSES: u64 = 64;

const SECTION: SectionKind = SectionKind::Extents;
const TWICE: &str = "bytes of the file that belong to two chunks, from";

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
/// `room` is for the places of [`PLACES`] chunks, or of [`own_chunks`] if they are less, and of two at least.
///
/// # Errors
/// When a chunk lies outside the pages section or shares bytes with another, when a page or more
/// belongs to no chunk, or when they lie in such disorder that it takes more than 64 passes; those of reading the tables; what `gap` gave.
pub fn check_places<R: Rows + Copy, E: From<Unfit<R::Error>>>(
    header: &Header,
    tables: &ExtentTables<R>,
    room: &mut [Place],
    gap: impl FnMut(Range<u64>) -> Result<(), E>,
) -> Result<(), E> {
    let pages = header.section(SectionKind::Pages);
    let end_of_pages = pages.offset.saturating_add(pages.len);
    let pages = pages.offset..end_of_pages;
    let mut front = Front {
        end: pages.start,
        last: None,
        gap,
    };
    for _ in 0..PASSES {
        if !pass(&pages, tables, room, &mut front)? {
            return front.step([pages.end; 2]);
        }
    }
    let what = "chunks out of order; passes to go through them";
    Err(Unfit::from(wrong(SECTION, what, PASSES + 1, PASSES)).into())
}

/// How far the file has been looked at.
struct Front<G> {
    /// All before is right.
    end: u64,
    /// The last place before.
    last: Option<Place>,
    gap: G,
}

impl<G> Front<G> {
    /// The next place.
    fn step<I, E: From<Unfit<I>>>(&mut self, place: Place) -> Result<(), E>
    where
        G: FnMut(Range<u64>) -> Result<(), E>,
    {
        let [start, end] = place;
        check_next(self.end..start).map_err(Unfit::from)?;
        if self.end < start {
            (self.gap)(self.end..start)?;
        }
        self.end = end;
        self.last = Some(place);
        Ok(())
    }

    /// Whether nothing can come before this.
    fn joins(&self, [start, _]: Place) -> bool {
        start < self.end.saturating_add(PAGE)
    }
}

/// Bytes from the end of a chunk to the next.
fn check_next(between: Range<u64>) -> Result<(), MeaningError> {
    if between.start > between.end {
        return Err(wrong(SECTION, TWICE, between.end, between.start));
    }
    if between.end - between.start >= PAGE {
        let what = "bytes of .wf.pages that belong to no chunk, from";
        return Err(wrong(SECTION, what, between.start, between.end));
    }
    Ok(())
}

/// Goes through all chunks once, and on from the front as far as there is room: whether there are others.
fn pass<R: Rows + Copy, E: From<Unfit<R::Error>>>(
    pages: &Range<u64>,
    tables: &ExtentTables<R>,
    room: &mut [Place],
    front: &mut Front<impl FnMut(Range<u64>) -> Result<(), E>>,
) -> Result<bool, E> {
    let unread = |error| E::from(Unsound::Unread(error));
    let wrong = |error: MeaningError| E::from(Unfit::from(error));
    let before = front.last;
    let (mut count, mut most) = (0, None);
    let mut chunks = tables.chunks();
    for extent in tables.extents() {
        let extent = extent.map_err(unread)?;
        if extent.image != 0 {
            continue;
        }
        let numbers = extent.first_chunk..extent.first_chunk.saturating_add(extent.chunk_count());
        for number in numbers {
            let chunk = chunks.get(number).map_err(unread)?;
            let place = place_of(pages, &chunk.unwrap_or_default()).map_err(wrong)?;
            // None is less than any.
            if Some(place) <= before {
                continue;
            }
            if count == room.len() {
                (count, most) = make_room(room, most, front)?;
            }
            if most.is_some_and(|most| place > most) {
                continue;
            }
            let free = room.get_mut(count);
            *free.ok_or_else(|| wrong(no_room()))? = place;
            count += 1;
        }
    }
    room[..count].sort_unstable();
    for place in &room[..count] {
        front.step(*place)?;
    }
    Ok(most.is_some())
}

/// Looks at those of a full room that follow one another from the front on. If too few do, the farther half is let go: how
/// many are left, and the farthest place of this pass.
fn make_room<I, E: From<Unfit<I>>>(
    room: &mut [Place],
    most: Option<Place>,
    front: &mut Front<impl FnMut(Range<u64>) -> Result<(), E>>,
) -> Result<(usize, Option<Place>), E> {
    room.sort_unstable();
    let mut done = 0;
    while let Some(place) = room.get(done).filter(|place| front.joins(**place)) {
        front.step(*place)?;
        done += 1;
    }
    let left = room.len() - done;
    room.copy_within(done.., 0);
    if left < 2 || left <= room.len() / 4 * 3 {
        return Ok((left, most));
    }
    let kept = left / 2;
    let (Some(last), Some(next)) = (
        kept.checked_sub(1).and_then(|at| room.get(at)),
        room.get(kept),
    ) else {
        return Err(Unfit::from(no_room()).into());
    };
    // Of two that are the same, one would not be seen again.
    if next[0] < last[1] {
        check_next(last[1]..next[0]).map_err(Unfit::from)?;
    }
    Ok((kept, Some(*last)))
}

fn no_room() -> MeaningError {
    wrong(SECTION, "places that there is room for", 0, 2)
}

/// Where a chunk of the image itself lies.
fn place_of(pages: &Range<u64>, chunk: &Chunk) -> Result<Place, MeaningError> {
    let end = chunk.offset.saturating_add(u64::from(chunk.stored_len));
    if chunk.offset < pages.start {
        let what = "chunk outside .wf.pages: begin";
        return Err(wrong(SECTION, what, chunk.offset, pages.start));
    }
    if end > pages.end {
        let what = "chunk outside .wf.pages: end";
        return Err(wrong(SECTION, what, end, pages.end));
    }
    Ok([chunk.offset, end])
}
