//! One whole image from a chain of them.

use super::error::ImageError;
use super::reader::Image;
use super::writer::{Committed, ImageParts, ImageWriter, WriteOptions};
use crate::loader_code;
use crate::plan::find_hole;
use crate::progress::Progress;
use loader::hole::hole_needed;
use loader::layout::Space;
use loader::ops::OpsList;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

/// Writes `image`, with everything it takes from earlier images, as one whole image.
///
/// Its generation, operations and snapshot stay; its id is new.
///
/// # Errors
/// What reading any of the images or writing the new one gave; then nothing is under `output`.
pub fn flatten(
    image: &Image,
    output: &Path,
    options: WriteOptions,
    progress: &mut dyn Progress,
) -> Result<Committed, ImageError> {
    let mut spaces: BTreeMap<u64, Vec<Range<u64>>> = BTreeMap::new();
    for extent in image.tables().extents() {
        let range = extent.at..extent.at + extent.len;
        spaces.entry(extent.space).or_default().push(range);
    }
    let total = spaces
        .values()
        .flatten()
        .map(|range| range.end - range.start)
        .sum();
    progress.begin("writing image", Some(total));
    let mut writer = ImageWriter::create(output, options)?;
    let told = Mutex::new(progress);
    let tell = |bytes| {
        if let Ok(mut progress) = told.lock() {
            progress.advance(bytes);
        }
    };
    for (number, ranges) in &spaces {
        if let Some(space) = Space::from_number(*number) {
            writer.store(space, ranges, &(image, space), &tell)?;
        }
    }
    let wrong = |what: &'static str, source: io::Error| ImageError::Io {
        image: image.path().to_owned(),
        what,
        source,
    };
    let list = OpsList::read(image.ops())
        .map_err(|error| wrong("read its operations", io::Error::other(error.what)))?;
    let snapshot = image.snapshot()?;
    let carried = |error| wrong("link the carried loader", io::Error::other(error));
    let needed = hole_needed(
        loader_code::span().map_err(carried)?,
        image.ops().len() as u64,
        writer.extents_len(),
        list.header().streams,
        list.header().slot_count,
    );
    let header = image.header();
    let mut hole = header.hole_base..header.hole_base + header.hole_len;
    if needed > header.hole_len {
        hole = find_hole(&snapshot, needed)
            .map_err(|error| wrong("find room for the loader", io::Error::other(error)))?;
    }
    writer.commit(&ImageParts {
        platform: image.platform(),
        ops: image.ops(),
        meta: &Image::encode_snapshot(&snapshot)?,
        loader: &loader_code::link(hole.start).map_err(carried)?,
        hole,
    })
}
