//! What is to be stored, cut into batches for the workers as they ask for them.
//!
//! # What callers may rely on
//! No more of the ranges is kept than is being cut. Ranges are cut only where addresses are multiples of a batch: then so are those of
//! chunks, and the restart can fill whole huge pages.

use super::error::{ImageError, SpaceName};
use super::store::{Job, Part};
use loader::layout::{CHUNK, PAGE, Space};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Bytes of source that one worker handles at a time.
pub(super) const BATCH: u64 = 4 * CHUNK;

/// What one worker handles at a time: pieces of a part's ranges, one batch's length in all. Small ranges share one.
pub(super) struct Batch<'a> {
    pub(super) part: &'a Part<'a>,
    pub(super) ranges: Vec<Range<u64>>,
}

/// All batches of a job, one after another.
pub(super) struct Batches<'a> {
    parts: &'a [Part<'a>],
    image: &'a Path,
    at: Mutex<At>,
}

/// How far they have been handed out.
#[derive(Default)]
struct At {
    part: usize,
    /// What the part has been asked for up to here.
    from: u64,
    asked: VecDeque<Range<u64>>,
}

impl<'a> Batches<'a> {
    pub(super) fn of(job: &Job<'a>) -> Self {
        Self::of_parts(job.parts, &job.destination.path)
    }

    fn of_parts(parts: &'a [Part<'a>], image: &'a Path) -> Self {
        Batches {
            parts,
            image,
            at: Mutex::default(),
        }
    }

    /// The next one; none if there are no more.
    ///
    /// # Errors
    /// [`ImageError::Ranges`] if a part does not know what it is, [`ImageError::Unwritable`] if that is not made of pages.
    pub(super) fn next(&self) -> Result<Option<Batch<'a>>, ImageError> {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(part) = self.parts.get(at.part) {
            let mut ranges = vec![];
            let mut room = BATCH;
            while let Some(mut range) = self.front(part, &mut at)? {
                let end = range.end.min((range.start / BATCH + 1) * BATCH);
                // Every range takes whole pages of the buffer.
                let taken = (end - range.start).next_multiple_of(PAGE);
                if taken > room {
                    at.asked.push_front(range);
                    break;
                }
                room -= taken;
                ranges.push(range.start..end);
                range.start = end;
                if !range.is_empty() {
                    at.asked.push_front(range);
                }
            }
            if !ranges.is_empty() {
                return Ok(Some(Batch { part, ranges }));
            }
            *at = At {
                part: at.part + 1,
                ..At::default()
            };
        }
        Ok(None)
    }

    /// The next range of a part, taken.
    fn front(&self, part: &Part<'_>, at: &mut At) -> Result<Option<Range<u64>>, ImageError> {
        loop {
            if let Some(range) = at.asked.pop_front() {
                if range.start == range.end {
                    continue;
                }
                self.check(part, &range)?;
                return Ok(Some(range));
            }
            let more = part
                .ranges
                .some(at.from)
                .map_err(|source| ImageError::Ranges {
                    space: SpaceName(part.space),
                    at: at.from,
                    source,
                })?;
            let Some(told) = more else {
                return Ok(None);
            };
            at.from = told.up_to;
            at.asked.extend(told.ranges);
        }
    }

    fn check(&self, part: &Part<'_>, range: &Range<u64>) -> Result<(), ImageError> {
        let whole_pages = matches!(part.space, Space::Inode(_)) || range.end.is_multiple_of(PAGE);
        if range.start < range.end && range.start.is_multiple_of(PAGE) && whole_pages {
            return Ok(());
        }
        let space = SpaceName(part.space);
        Err(ImageError::Unwritable {
            image: self.image.to_owned(),
            what: format!(
                "{space}: range {:#x}-{:#x} is not made of pages",
                range.start, range.end
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Zeros;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn batches_cover_all_ranges_and_cut_them_only_at_multiples(
            gaps in prop_oneof![
                prop::collection::vec((1u64..2000, 1u64..3000), 1..20),
                // More than are told at once.
                prop::collection::vec((1u64..4, 1u64..9), 1..1600),
            ]
        ) {
            let mut at = 0;
            let ranges: Vec<Range<u64>> = gaps
                .iter()
                .map(|(gap, pages)| {
                    let start = at + gap * PAGE;
                    at = start + pages * PAGE;
                    start..at
                })
                .collect();
            let source = Vec::<u8>::new();
            let part = Part {
                space: Space::Process(0),
                ranges: &ranges,
                bytes: 0,
                source: &source,
                zeros: Zeros::Dropped,
            };
            let parts = [part];
            let all = Batches::of_parts(&parts, Path::new("image"));
            let mut batches = vec![];
            while let Some(batch) = all.next().expect("whole pages") {
                batches.push(batch.ranges);
            }
            let mut left = ranges.iter().cloned();
            let mut range = left.next().expect("one at least");
            for batch in &batches {
                let len: u64 = batch.iter().map(|part| part.end - part.start).sum();
                prop_assert!(0 < len && len <= BATCH);
                for part in batch {
                    prop_assert_eq!(part.start, range.start);
                    prop_assert!(part.end == range.end || part.end % BATCH == 0);
                    range.start = part.end;
                    if range.is_empty() {
                        range = left.next().unwrap_or(0..0);
                    }
                }
            }
            prop_assert_eq!(range, 0..0);
        }
    }
}
