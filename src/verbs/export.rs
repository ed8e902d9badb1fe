//! `wayfarer export --core IMAGE FILE`.

use crate::args::Export;
use crate::output;
use crate::progress;
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::verbs::open_image;
use ckpt_lib::export::{ExportError, core_of_image};
use serde::Serialize;
use std::path::PathBuf;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    #[serde(with = "raw::path")]
    core: PathBuf,
    bytes: u64,
}

/// Writes a core file.
pub(crate) fn export(arguments: &Export) -> Outcome {
    let file = &arguments.output;
    if file.symlink_metadata().is_ok() {
        let message = format!("{} exists already", raw::shown_path(file));
        return Err(Failure::new(Exit::Failed, message).advise("another name"));
    }
    let image = open_image(&arguments.image)?;
    let mut display = progress::display();
    let written = core_of_image(&image, arguments.pid, file, display.as_mut());
    drop(display);
    let exit = match &written {
        Err(ExportError::NoProcess { .. }) => Exit::Usage,
        Err(ExportError::Contents { .. } | ExportError::Snapshot(_)) => Exit::Image,
        _ => Exit::Failed,
    };
    let shown_image = || format!("image {}", raw::shown_path(&arguments.image));
    written.exit(exit).context(shown_image)?;
    let len = std::fs::metadata(file).map_or(0, |found| found.len());
    if arguments.json {
        let report = Report {
            core: file.clone(),
            bytes: len,
        };
        output::print_json(SCHEMA_VERSION, &report)?;
        return Ok(Exit::Done);
    }
    let shown = raw::shown_path(file);
    output::print(&format!("{shown} ({})\n", output::bytes(len)))?;
    Ok(Exit::Done)
}
