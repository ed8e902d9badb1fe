//! The verbs of the command, one file each.

pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod kill;
pub(crate) mod man;
pub(crate) mod ps;

use crate::jobs::JobError;
use crate::report::Failure;

/// Says what to do when a job cannot be registered.
fn registration_advice(error: JobError) -> Failure {
    let advice = match &error {
        JobError::Taken { .. } => vec!["another --name, or none".to_owned()],
        JobError::HasImages { name, .. } => vec![
            format!("wayfarer restart {name}: goes on with it"),
            format!("wayfarer ps --prune {name}: removes it"),
        ],
        _ => vec!["--dir DIR with a directory that you may write".to_owned()],
    };
    advice
        .into_iter()
        .fold(Failure::from(error), Failure::advise)
}
