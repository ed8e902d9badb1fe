//! `wayfarer keeper`: sends what a job with remote files has written. `run` and `restart` begin it; it is not for people.

use crate::args::Keeper;
use crate::remote::keeper;
use crate::report::Outcome;

/// See the module.
pub(crate) fn keeper(arguments: &Keeper) -> Outcome {
    keeper::keep(arguments.restarted)
}
