//! Fault points: the shadow dies on purpose at a named step, so that tests can show that it harms no job.
//!
//! `WAYFARER_FAULT=shadow:NAME:K` kills the process at its K-th step of that name (`shadow:any:K`: the K-th of all). Without it a step is a
//! load.

use journal::fault::Fatal;

/// All names, in the order in which a session comes by them.
pub const POINTS: [&str; 18] = [
    "session",
    "begun",
    "done",
    "renamed",
    "noted",
    "opened",
    "opened-noted",
    "closing",
    "closed",
    "locked",
    "locks-noted",
    "whole-written",
    "whole-renamed",
    "adopting",
    "settled",
    "adopted",
    "ending",
    "ended",
];

static FATAL: Fatal = Fatal::of("shadow");

/// A step: before or after something is done or noted.
pub(crate) fn at(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is in the list");
    FATAL.step(name);
}
