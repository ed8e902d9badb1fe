//! `wayfarer flatten IMAGE -o FILE`.

use crate::args::Flatten;
use crate::output;
use crate::progress;
use crate::report::{Exit, Outcome};
use crate::verbs::{image_failure, open_image};
use ckpt_lib::image::{WriteOptions, flatten as write_flat};

/// Writes one whole image from a chain of them.
pub(crate) fn flatten(arguments: &Flatten) -> Outcome {
    let image = open_image(&arguments.image)?;
    let mut display = progress::display();
    let options = WriteOptions::default();
    let written = write_flat(&image, &arguments.output, options, display.as_mut());
    let written = written.map_err(image_failure)?;
    let size = output::bytes(written.len);
    output::print(&format!("{} ({size})\n", written.path.display()))?;
    Ok(Exit::Done)
}
