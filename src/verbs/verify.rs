//! `wayfarer verify IMAGE`.

use crate::args::Verify;
use crate::output;
use crate::progress;
use crate::raw;
use crate::report::{Exit, Outcome};
use crate::verbs::{image_failure, open_image};
use serde::Serialize;
use std::path::PathBuf;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    #[serde(with = "raw::path")]
    image: PathBuf,
    good: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    chunks: u64,
    contents_bytes: u64,
    stored_bytes: u64,
}

/// Checks every byte; status 4 if one is wrong.
pub(crate) fn verify(arguments: &Verify) -> Outcome {
    let checked = check(arguments);
    if !arguments.json {
        let report = checked?;
        let contents = output::bytes(report.contents_bytes);
        let image = raw::shown_path(&report.image);
        output::print(&format!("{image}: good ({contents} of contents checked)\n"))?;
        return Ok(Exit::Done);
    }
    let (report, failure) = match checked {
        Ok(report) => (report, None),
        Err(failure) => {
            let report = Report {
                image: arguments.image.clone(),
                good: false,
                error: Some(failure.to_string()),
                chunks: 0,
                contents_bytes: 0,
                stored_bytes: 0,
            };
            (report, Some(failure))
        }
    };
    output::print_json(SCHEMA_VERSION, &report)?;
    failure.map_or(Ok(Exit::Done), Err)
}

fn check(arguments: &Verify) -> Outcome<Report> {
    let image = open_image(&arguments.image)?;
    let total = image.contents_bytes();
    let total = total.map_err(|error| image_failure(&arguments.image, error))?;
    let mut display = progress::display();
    display.begin("checking", Some(total));
    let found = image
        .verify(&mut |bytes| display.advance(bytes))
        .map_err(|error| image_failure(&arguments.image, error))?;
    Ok(Report {
        image: arguments.image.clone(),
        good: true,
        error: None,
        chunks: found.chunks,
        contents_bytes: found.raw_bytes,
        stored_bytes: found.stored_bytes,
    })
}
