//! `wayfarer completions SHELL`.

use crate::args::{Arguments, Completions};
use crate::output;
use crate::report::{Exit, Outcome};
use clap::CommandFactory;

/// Prints the completion script.
pub(crate) fn completions(arguments: &Completions) -> Outcome {
    let mut script = vec![];
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "wayfarer",
        &mut script,
    );
    output::print_bytes(&script)?;
    Ok(Exit::Done)
}
