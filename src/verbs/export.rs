//! `wayfarer export --core IMAGE FILE`.

use crate::args::Export;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::verbs::{image_failure, open_image};
use ckpt_lib::export::{Contents, ContentsError, ExportError};
use ckpt_lib::image::Image;
use ckpt_lib::snapshot::SnapshotV1;
use loader::layout::Space;
use std::ops::Range;

struct ImageContents {
    image: Image,
    snapshot: SnapshotV1,
}

impl Contents for ImageContents {
    fn snapshot(&self) -> &SnapshotV1 {
        &self.snapshot
    }

    fn ranges(&self, space: Space) -> Vec<Range<u64>> {
        let extents = self.image.tables().extents_of(space);
        extents
            .map(|extent| extent.at..extent.at + extent.len)
            .collect()
    }

    fn read(&self, space: Space, at: u64, buf: &mut [u8]) -> Result<(), ContentsError> {
        Ok(self.image.read_space(space, at, buf)?)
    }
}

/// Writes a core file.
pub(crate) fn export(arguments: &Export) -> Outcome {
    let output = &arguments.output;
    if output.symlink_metadata().is_ok() {
        let message = format!("{} exists already", output.display());
        return Err(Failure::new(Exit::Failed, message).advise("another name"));
    }
    let image = open_image(&arguments.image)?;
    let snapshot = image.snapshot().map_err(image_failure)?;
    let contents = ImageContents { image, snapshot };
    let written = ckpt_lib::export::core(&contents, arguments.pid, output);
    let exit = match &written {
        Err(ExportError::NoProcess { .. }) => Exit::Usage,
        Err(ExportError::Contents { .. }) => Exit::Image,
        _ => Exit::Failed,
    };
    written.exit(exit)?;
    Ok(Exit::Done)
}
