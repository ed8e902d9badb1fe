//! `wayfarer man DIR`.

use crate::args::{Arguments, Man};
use crate::report::{Exit, Explain, Outcome};
use clap::CommandFactory;
use std::fs;

/// Writes `wayfarer.1` and a page for each verb.
pub(crate) fn man(arguments: &Man) -> Outcome {
    let dir = &arguments.output;
    fs::create_dir_all(dir).context(|| format!("cannot make {}", crate::raw::shown_path(dir)))?;
    clap_mangen::generate_to(Arguments::command(), dir).context(|| {
        format!(
            "cannot write man pages into {}",
            crate::raw::shown_path(dir)
        )
    })?;
    Ok(Exit::Done)
}
