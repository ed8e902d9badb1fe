//! Where a value comes from.

use std::fmt;
use std::sync::Arc;

/// A place in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A line of a file, or of what a command has printed (then the path is the command, with a `|` behind it).
    Line {
        /// Which file.
        path: Arc<str>,
        /// Which line, from 1.
        line: usize,
    },
    /// A line of a template.
    Template {
        /// Which template, and who uses it.
        template: Arc<TemplateUse>,
        /// Which line of it, from 1.
        line: usize,
    },
    /// Built in.
    Default,
    /// Found out about the machine by whoever reads the configuration.
    Detected,
    /// A variable of the environment.
    Environment,
}

/// A template that a configuration uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateUse {
    /// `POLICY`, `FEATURE`, …
    pub category: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Where it is used.
    pub used: Origin,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { path, line } => write!(f, "{path}, line {line}"),
            Self::Template { template, line } => {
                let TemplateUse {
                    category,
                    name,
                    used,
                } = &**template;
                write!(f, "{used}, use {category}:{name} line {line}")
            }
            Self::Default => f.write_str("built in"),
            Self::Detected => f.write_str("detected"),
            Self::Environment => f.write_str("environment"),
        }
    }
}
