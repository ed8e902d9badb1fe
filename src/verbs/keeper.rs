//! `wayfarer keeper`: sends what a job with remote files has written. `run` and `restart` begin it; it is not for people.

use crate::args::Keeper;
use crate::remote::keeper;
use crate::report::Outcome;
use crate::rights::{Executes, keep_those_about_files};
use caps::Capability;

/// See the module.
pub(crate) fn keeper(arguments: &Keeper) -> Outcome {
    keep_those_about_files(&[Capability::CAP_SYS_PTRACE], Executes::Nothing)?;
    keeper::keep(arguments.restarted)
}
