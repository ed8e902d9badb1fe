//! The `ClassAd` language, as HTCondor 25 implements it.
//!
//! Ads bind names to expressions; an expression sees the attributes of its ad and of the ad it is matched against, and
//! goes on where something is not known: its value is then [`Value::Undefined`].
//!
//! ```text
//! text --parse_expression--> Expr --Context::eval--> Value
//!      --parse_ad, …-------> ClassAd --Match::of---> Match
//! Expr, ClassAd, Value --to_string, to_old, to_json--> text
//! ```
//! ```
//! use classad::{Context, Nowhere, parse_old_ad, parse_expression};
//!
//! let machine = parse_old_ad("
//!     KeyboardIdle = 1200
//!     LoadAvg = 0.1
//!     Start = LoadAvg <= 0.3 && KeyboardIdle > 15 * 60
//! ")?;
//! let context = Context::new(&Nowhere).with_my(machine);
//! assert_eq!(context.eval_attribute("Start")?.to_string(), "true");
//! let expr = parse_expression("Start && target.Owner == \"ann\"")?;
//! assert_eq!(context.eval(&expr)?.to_string(), "undefined");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What callers may rely on
//! No I/O; clock, chance and system come in by [`Surroundings`]. Any bytes parse or are a [`ParseError`], any
//! expression evaluates or is an [`EvalError`], within [`Limits`]; nothing panics.
//!
//! # What it does not do
//! It does not imitate the original's slips where they lose something: docs/CLASSADS.md of the project enumerates what
//! differs. XML is not read or written.

/// The examples of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod ad;
mod any;
pub mod config;
mod error;
mod eval;
mod expr;
mod flatten;
mod functions;
mod json;
mod lexer;
mod limits;
mod matching;
mod name;
mod number;
mod old;
mod parser;
mod pcre;
mod print;
mod references;
mod scope;
mod surroundings;
mod text;
mod time;
mod value;

pub use ad::ClassAd;
pub use any::parse_any_ads;
pub use error::{EvalError, ParseError};
pub use eval::{Context, Explanation, FoundIn, Missing};
pub use expr::{BinaryOp, Expr, Literal, UnaryOp};
pub use flatten::Flat;
pub use functions::is_function;
pub use json::{parse_json_ad, parse_json_ads};
pub use limits::Limits;
pub use matching::Match;
pub use name::Name;
pub use old::{parse_old_ad, parse_old_ads};
pub use parser::{parse_ad, parse_ads, parse_expression, parse_whole_old_expression};
pub use scope::Scope;
pub use surroundings::{Nowhere, Surroundings};
pub use text::Text;
pub use value::{AbsTime, List, Value};
