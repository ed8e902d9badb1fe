//! One whole image from an image and those it builds on, without the job.

use super::error::ImageError;
use super::reader::Image;
use super::writer::{Committed, ImageParts, ImageWriter, WriteOptions};
use crate::progress::Progress;
use std::path::Path;

/// Writes `image`, with everything it takes from earlier images, as one whole image.
///
/// Chunks are checked on the way and copied as they are stored, compressed or not
/// (`options.compression` does not matter). Operations, snapshot and loader stay; the id is new.
///
/// # Errors
/// What reading any of the images or writing the new one gave; then nothing is under `output`.
pub fn flatten(
    image: &Image,
    output: &Path,
    options: WriteOptions,
    progress: &mut dyn Progress,
) -> Result<Committed, ImageError> {
    let loader = image.loader()?;
    let mut writer = ImageWriter::create_for(output, options, &loader)?;
    progress.begin("writing image", Some(image.stored_bytes()?));
    let mut stored = vec![];
    for extent in image.tables().extents() {
        let extent = extent?;
        for number in 0..extent.chunk_count() {
            let index = extent.first_chunk + number;
            let (chunk, bytes) = image.read_stored(&extent, index, &mut stored)?;
            writer.copy_chunk(&extent, number, chunk, bytes)?;
            progress.advance(u64::from(chunk.stored_len));
        }
    }
    let header = image.header();
    let (ops, meta) = (image.ops()?, image.meta_bytes()?);
    // The tables cannot have grown, so the loader's room in the job is still enough.
    writer.commit(&ImageParts {
        platform: image.platform(),
        ops: ops.as_slice().into(),
        meta: meta.as_slice().into(),
        loader: &loader,
        hole: header.hole_base..header.hole_base.saturating_add(header.hole_len),
    })
}
