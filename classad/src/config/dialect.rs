//! Which Condor a configuration is for.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A generation of Condor: what it has built in, and which version it says it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Condor 6.1.
    V6_1,
    /// Condor 6.8.
    V6_8,
    /// `HTCondor` 25.
    #[default]
    V25,
}

/// There is no such dialect.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{found:?} is no dialect: 6.1, 6.8 and 25 are")]
pub struct NoDialect {
    /// What was asked for.
    pub found: String,
}

impl Dialect {
    /// All of them, from old to new.
    pub const ALL: [Self; 3] = [Self::V6_1, Self::V6_8, Self::V25];

    /// What `if version` compares with: the last one of the generation that is known.
    #[must_use]
    pub fn version(self) -> [u32; 3] {
        match self {
            Self::V6_1 => [6, 1, 17],
            Self::V6_8 => [6, 8, 9],
            Self::V25 => [25, 14, 1],
        }
    }

    /// What is built in, as a configuration.
    pub(super) fn defaults(self) -> &'static str {
        match self {
            Self::V6_1 => include_str!("defaults/v6_1.conf"),
            Self::V6_8 => include_str!("defaults/v6_8.conf"),
            Self::V25 => include_str!("defaults/v25.conf"),
        }
    }

    /// Whether `NAME : value` is obsolete.
    pub(super) fn warns_of_colons(self) -> bool {
        self == Self::V25
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V6_1 => "6.1",
            Self::V6_8 => "6.8",
            Self::V25 => "25",
        })
    }
}

impl FromStr for Dialect {
    type Err = NoDialect;

    fn from_str(text: &str) -> Result<Self, NoDialect> {
        let named = |dialect: &&Self| dialect.to_string() == text;
        let found = || NoDialect {
            found: text.to_owned(),
        };
        Self::ALL.iter().find(named).copied().ok_or_else(found)
    }
}
