//! `wayfarer flatten IMAGE -o FILE`.

use crate::args::Flatten;
use crate::output;
use crate::progress;
use crate::raw;
use crate::report::{Exit, Failure, Outcome};
use crate::verbs::{image_failure, open_image, output_failure};
use ckpt_lib::image::{ImageError, WriteOptions, flatten as write_flat};
use serde::Serialize;
use std::path::PathBuf;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    #[serde(with = "raw::path")]
    image: PathBuf,
    bytes: u64,
}

/// Writes one whole image from a chain of them.
pub(crate) fn flatten(arguments: &Flatten) -> Outcome {
    let image = open_image(&arguments.image)?;
    crate::leftovers::remove_when_ended();
    let mut display = progress::display();
    let options = WriteOptions::default();
    let written = write_flat(&image, &arguments.output, options, display.as_mut());
    let written = written.map_err(|error| written_failure(arguments, error))?;
    if arguments.json {
        let report = Report {
            image: written.path,
            bytes: written.len,
        };
        output::print_json(SCHEMA_VERSION, &report)?;
        return Ok(Exit::Done);
    }
    let size = output::bytes(written.len);
    output::print(&format!("{} ({size})\n", raw::shown_path(&written.path)))?;
    Ok(Exit::Done)
}

/// What was read may be damaged, what is written may be in a wrong place.
fn written_failure(arguments: &Flatten, error: ImageError) -> Failure {
    match &error {
        ImageError::Exists { .. } | ImageError::NotAFile { .. } => output_failure(error),
        ImageError::Io { image, .. } if *image != arguments.image => output_failure(error),
        _ => image_failure(&arguments.image, error),
    }
}
