//! An image as [`Contents`].

use super::{Contents, ContentsError, ExportError, core};
use crate::image::Image;
use crate::progress::Progress;
use crate::snapshot::SnapshotV1;
use loader::layout::Space;
use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;

/// An image and its snapshot.
struct ImageContents<'a> {
    image: &'a Image,
    snapshot: SnapshotV1,
    progress: RefCell<&'a mut dyn Progress>,
}

impl Contents for ImageContents<'_> {
    fn snapshot(&self) -> &SnapshotV1 {
        &self.snapshot
    }

    fn ranges(&self, space: Space) -> Result<Vec<Range<u64>>, ContentsError> {
        let mut ranges: Vec<Range<u64>> = vec![];
        for extent in self.image.tables().extents_of(space) {
            let extent = extent?;
            let range = extent.at..extent.at + extent.len;
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        Ok(ranges)
    }

    fn read(&self, space: Space, at: u64, buf: &mut [u8]) -> Result<(), ContentsError> {
        self.image.read_space(space, at, buf)?;
        self.progress.borrow_mut().advance(buf.len() as u64);
        Ok(())
    }
}

/// As [`core`], of an image.
///
/// # Errors
/// [`ExportError`]; nothing is left under the name `out` that was not there before.
pub fn core_of_image(
    image: &Image,
    pid: Option<u32>,
    out: &Path,
    progress: &mut dyn Progress,
) -> Result<(), ExportError> {
    let snapshot = image.snapshot().map_err(ExportError::Snapshot)?;
    progress.begin("writing the core", None);
    let contents = ImageContents {
        image,
        snapshot,
        progress: RefCell::new(progress),
    };
    core(&contents, pid, out)
}
