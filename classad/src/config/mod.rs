//! The configuration language of Condor 6 to `HTCondor` 25.
//!
//! ```text
//! files --Lines--> statements --Reader--> names and raw values --Expander--> Config
//!                     include, use, if          macros, once all is read
//! ```
//! # What callers may rely on
//! No I/O of its own: files, commands, the environment, clock and chance come in by [`Sources`]. Any bytes are a
//! [`Config`] or a [`ConfigError`], within [`ConfigLimits`]; nothing panics.
//!
//! # What it does not do
//! It knows what is built in of machines and their policies ([`Dialect`]), not all of the thousand names of a whole pool.
//! docs/CONFIG.md of the project enumerates what differs from the original.

mod command;
mod condition;
#[expect(clippy::module_inception, reason = "the type that all is about")]
mod config;
mod dialect;
mod doubts;
mod error;
mod expand;
mod files;
mod format;
mod functions;
mod kinds;
mod limits;
mod lines;
mod macros;
mod origin;
mod path;
mod policy;
mod reader;
mod sources;
mod statement;
mod submit;
mod table;
mod templates;
mod user_maps;

pub use config::{Config, ConfigOptions, Setting};
pub use dialect::{Dialect, NoDialect};
pub use doubts::niceness;
pub use error::{ConfigError, Warning, WarningKind, WrongValue};
pub use limits::ConfigLimits;
pub use origin::{Origin, TemplateUse};
pub use sources::Sources;
pub use submit::{Opinion, SubmitPolicy, SubmitRequirement, Transformed, Verdict};
pub use user_maps::{UserMapError, UserMaps};
