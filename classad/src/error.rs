//! What can go wrong. Values of the language ([`crate::Value::Error`]) are no errors here.

use thiserror::Error;

/// A text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// Something else was to come here.
    #[error("at byte {offset}: found {found}, expected {expected}")]
    Unexpected {
        /// Where.
        offset: usize,
        /// What is there.
        found: String,
        /// What could be.
        expected: &'static str,
    },
    /// No token begins like this.
    #[error("at byte {offset}: {what}")]
    Malformed {
        /// Where.
        offset: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Nested beyond [`crate::Limits`].
    #[error("at byte {offset}: nested more than {limit} deep")]
    TooDeep {
        /// Where.
        offset: usize,
        /// The limit.
        limit: usize,
    },
    /// Longer than [`crate::Limits`] allow.
    #[error("{len} bytes are more than the {limit} that may be parsed")]
    TooLong {
        /// How long it is.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// A line of the old syntax is no attribute.
    #[error("line {line}: {what}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The expression of a line of the old syntax is none.
    #[error("line {line} is no attribute")]
    Attribute {
        /// Which, from 1.
        line: usize,
        /// Why.
        #[source]
        reason: Box<ParseError>,
    },
}

/// An evaluation was given up: there is no value, not even ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EvalError {
    /// Expressions refer to each other beyond [`crate::Limits`].
    #[error("evaluation goes more than {limit} levels deep")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// It takes longer than [`crate::Limits`] allow.
    #[error("evaluation takes more than {limit} steps")]
    TooLong {
        /// The limit.
        limit: u64,
    },
    /// A string became longer than [`crate::Limits`] allow.
    #[error("a string of {len} bytes is longer than the {limit} that an evaluation may make")]
    TooLarge {
        /// How long it would be.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// `random(0)`, `random(-5)`: there is no such number.
    #[error("random() was asked for a number below what is not above 0: there is none")]
    NoRandom,
    /// A time zone of -1 seconds, which the original takes for no time zone.
    #[error("the time zone of -1 seconds is none")]
    NoTimeZone,
    /// References are asked for through what is no ad.
    #[error("an attribute is selected from what is no ad")]
    NoAd,
}
