//! `wayfarer reattach`: hands our input and output over to a starter whose line broke. `submit` begins it; it is not for people.

use crate::args::Reattach;
use crate::report::{Exit, Explain, Outcome};
use crate::rights::{Executes, keep_those_about_files};
use std::io;
use std::os::fd::AsFd;

/// Ends when the starter does not need them any more; with status 5 if there is no starter, and so no job.
pub(crate) fn reattach(arguments: &Reattach) -> Outcome {
    keep_those_about_files(&[], Executes::Nothing)?;
    let place = &arguments.place;
    starter::hand_over(place, io::stdin().as_fd(), io::stdout().as_fd())
        .context(|| format!("no job waits behind {}", crate::raw::shown_path(place)))
        .exit(Exit::Lost)?;
    Ok(Exit::Done)
}
