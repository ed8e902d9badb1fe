//! The policies that the manuals print run as printed: each is cut out of the manual's text, and a simulated day of it is held against the
//! manual's words.
//!
//! The manuals are looked for in `WAYFARER_MANUAL`, or in `../shared/manual` beside the project; where they are not, that is said, and
//! counted as not tested.

mod current;
mod cut;
mod day;
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod v6_1;
mod v6_8;

pub(crate) use cut::{Manual, manual};
pub(crate) use day::Day;
