//! What this machine is and how busy it is: the machine ad (docs/MACHINE_AD.md).
//!
//! ```text
//!   kernel, /etc, terminals ──Source──> read/ (pure) ──> Facts     what it is
//!                                                   └─> Look      how busy it is at a moment; Watch remembers between moments
//!   state machine ── Slot, Claim, Job ──┐
//!   configuration ── Settings, Custom ──┼─> Machine::ads ──> a ClassAd for each slot ──> Offer::publish (START, Requirements)
//!   benchmarks ───── Benchmarks ────────┘
//! ```
//! # What callers may rely on
//! Everything that is asked of the machine goes through [`Source`], of which [`Here`] is the real one: a test or a simulator brings its own.
//! No bytes that a source gives make anything panic. Which attribute exists in which era of Condor is data ([`Dialect`]).
//!
//! # What it does not do
//! It decides nothing: states, activities and jobs come in as plain records, and go out as attributes.

mod ad;
mod bench;
mod busy;
mod custom;
mod dialect;
mod facts;
#[cfg(test)]
mod fake;
mod here;
mod idle;
mod look;
mod offer;
mod read;
mod settings;
mod shares;
mod slot;
mod source;
#[cfg(test)]
mod tests;
mod usage;

pub use ad::Machine;
pub use bench::{Benchmarks, Score, dhrystone_mips, linpack_kflops};
pub use busy::{Busy, BusyTime};
pub use classad::config::Dialect;
pub use custom::{Custom, CustomError, share};
pub use dialect::{ATTRIBUTES, Era};
pub use facts::{Facts, OperatingSystem};
pub use here::Here;
pub use idle::{Idle, NEVER, Watch, Watched};
pub use look::{Look, Observation};
pub use offer::Offer;
pub use read::{Distribution, Processors};
pub use settings::{Connected, Settings};
pub use shares::{Share, idle_shares, owner_loads};
pub use slot::{Activity, Claim, Job, Kind, Preempting, Slot, State};
pub use source::{Document, LocalTime, MeasureError, Source, System};
pub use usage::{JobUse, Minute};
