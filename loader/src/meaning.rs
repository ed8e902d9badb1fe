//! Whether the parts of an image fit together: what no checksum can know. The loader asks before it makes
//! anything, `wayfarer verify` asks the same.
//!
//! ```text
//! operations   a Prepare stream, a process to start; each process with contents is filled
//! mappings     none over the hole; contents of memory lie in those before `Fill`, which are in order,
//!              or in the old vDSO
//! unread       what lay unread in pipes and sockets is there, in one file
//! hole         room for everything the loader puts there
//! pages        each byte in one chunk, or in a gap of less than a page (which must be zero)
//! ```
//! # What callers may rely on
//! An image that passes has no contents that would be written over the loader or to where nothing is mapped.
//!
//! # What it does not do
//! It does not look at chunks of earlier images, nor at contents.

use crate::hole::{HoleInput, HoleLayout};
use crate::layout::{ExtentTables, Header, Rows, SectionKind, Space, Unsound};
use crate::ops::tails::VdsoTail;
use crate::ops::{AnyOp, OpsList, StreamEntry, StreamKind};
use core::fmt;
use core::ops::Range;

mod places;

pub use places::{PLACES, Place, check_places, own_chunks};

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
    check_unread(ops)?;
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

/// Bytes that lay unread: in which slot, from where on, how many.
fn unread_of(op: &AnyOp) -> Option<(u64, u64, u64)> {
    match op {
        AnyOp::Send(op) if op.len > 0 => Some((op.from, op.at, op.len)),
        AnyOp::Refill(op) => Some((op.from, op.at, op.len)),
        AnyOp::Feed(op) => Some((op.from, op.at, op.len)),
        _ => None,
    }
}

/// They are all in one file, which is filled before anything else is done.
fn check_unread(ops: &OpsList<'_>) -> Result<(), MeaningError> {
    let section = SectionKind::Ops;
    let all = || {
        let streams = (0..ops.header().streams).filter_map(|index| ops.stream(index));
        let records = streams.flat_map(|entry| operations(ops, &entry));
        records.filter_map(|(op, _)| unread_of(&op))
    };
    let Some((slot, ..)) = all().next() else {
        return Ok(());
    };
    let prepare = ops.stream(0).into_iter();
    let mut prepared = prepare.flat_map(|entry| operations(ops, &entry));
    let size = prepared.find_map(|(op, _)| match op {
        AnyOp::FillInode(op) if op.slot == slot => Some(op.size),
        _ => None,
    });
    for (from, at, len) in all() {
        let Some(size) = size.filter(|_| from == slot) else {
            let what = "slot of unread bytes that nothing fills";
            return Err(wrong(section, what, from, slot));
        };
        let end = at.saturating_add(len);
        if len == 0 || end > size {
            let what = "end of unread bytes, or none";
            return Err(wrong(section, what, end, size));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
