//! A policy at work on a day that was recorded, or is only thought of: the real [`Machine`](crate::machine::Machine), in virtual time.
//!
//! ```text
//!   Trace: keys, load, jobs, commands ──┐
//!                                       v            orders
//!   next moment that matters ──> Machine::step ──────────────> jobs: work, images, lost work
//!        ^                                  <── events ─────────┘
//!        `── end ──> Report: timeline, time at each place, goodput, badput
//! ```
//! # What callers may rely on
//! No clock and no chance of its own: the same trace gives the same report. The machine is looked at when it wants to be
//! (`POLLING_INTERVAL`, `UPDATE_INTERVAL`), as a real one is, not at the moment when a key is pressed.
//!
//! # What it does not do
//! It is no model of a pool: jobs come in their order, whoever fits gets a slot once a minute (`NEGOTIATOR_INTERVAL`), and a better one by
//! RANK preempts. A job uses one processor wholly while it runs.

mod home;
mod report;
mod run;
#[cfg(test)]
mod tests;
mod trace;

pub use report::{JobReport, Report, Step};
pub use run::{Fault, Setting, simulate};
pub use trace::{Command, Keys, Row, Trace, TraceError, civil, moment};
