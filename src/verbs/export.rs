//! `wayfarer export --core IMAGE FILE`.

use crate::args::Export;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::verbs::open_image;
use ckpt_lib::export::{ExportError, core_of_image};

/// Writes a core file.
pub(crate) fn export(arguments: &Export) -> Outcome {
    let output = &arguments.output;
    if output.symlink_metadata().is_ok() {
        let message = format!("{} exists already", output.display());
        return Err(Failure::new(Exit::Failed, message).advise("another name"));
    }
    let image = open_image(&arguments.image)?;
    let written = core_of_image(&image, arguments.pid, output);
    let exit = match &written {
        Err(ExportError::NoProcess { .. }) => Exit::Usage,
        Err(ExportError::Contents { .. } | ExportError::Snapshot(_)) => Exit::Image,
        _ => Exit::Failed,
    };
    written.exit(exit)?;
    Ok(Exit::Done)
}
