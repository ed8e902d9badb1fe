//! What can be wrong with a configuration.

use super::origin::Origin;
use crate::error::ParseError;
use std::fmt;
use std::io;
use thiserror::Error;

/// A configuration, or a value in it, is of no use.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A line is no statement.
    #[error("{at}: {what}: {text}")]
    Statement {
        /// Where.
        at: Origin,
        /// What is wrong.
        what: &'static str,
        /// The statement, or its beginning.
        text: String,
    },
    /// A name has other characters than letters, digits and `_./`.
    #[error("{at}: {name:?} is no name: letters, digits, _, . and / make one")]
    Name {
        /// Where.
        at: Origin,
        /// What is there.
        name: String,
    },
    /// What is behind `if` or `elif` is no condition.
    #[error("{at}: {condition:?} is no condition: {what}")]
    Condition {
        /// Where.
        at: Origin,
        /// What is there.
        condition: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A file ends within an `if`, or within a value of several lines.
    #[error("{at}: {what} does not end before its file does")]
    Unclosed {
        /// Where it begins.
        at: Origin,
        /// What.
        what: String,
    },
    /// The configuration says itself that it is of no use.
    #[error("{at}: {message}")]
    Stopped {
        /// Where.
        at: Origin,
        /// The number behind `error`, -1 without one.
        code: i32,
        /// The text behind it.
        message: String,
    },
    /// A file, a directory or a command that is to be read cannot be.
    #[error("{at}: {what} cannot be read")]
    Unreadable {
        /// Who wants it.
        at: Origin,
        /// A path, or a command.
        what: String,
        /// Why.
        #[source]
        reason: io::Error,
    },
    /// The file that all begins with cannot be read.
    #[error("{path} cannot be read")]
    NoFile {
        /// Which.
        path: String,
        /// Why.
        #[source]
        reason: io::Error,
    },
    /// Files or templates bring in each other beyond [`super::ConfigLimits`].
    #[error("{at}: files and templates are nested more than {limit} deep")]
    TooDeep {
        /// Where.
        at: Origin,
        /// The limit.
        limit: usize,
    },
    /// More than [`super::ConfigLimits`] allow.
    #[error("{at}: {what} has more than the {limit} bytes that it may have")]
    TooLarge {
        /// Where.
        at: Origin,
        /// What.
        what: String,
        /// The limit.
        limit: usize,
    },
    /// There is no such template.
    #[error("{at}: there is no template {category}:{name}")]
    Template {
        /// Where.
        at: Origin,
        /// Its category.
        category: String,
        /// Its name.
        name: String,
    },
    /// A value refers to itself over others.
    #[error("{at}: {name} refers to itself: {}", circle.join(" -> "))]
    Circle {
        /// Where it is defined.
        at: Origin,
        /// Whose value.
        name: String,
        /// The names, from the one that is referred to twice.
        circle: Vec<String>,
    },
    /// A macro function cannot be carried out.
    #[error("{at}: {name}: {function}: {what}")]
    Function {
        /// Where it is defined.
        at: Origin,
        /// Whose value.
        name: String,
        /// `$INT(…)`, say.
        function: String,
        /// What is wrong.
        what: String,
    },
    /// A value is no expression, and has to be one.
    #[error("{at}: {name} is no expression: {text}")]
    Expression {
        /// Where it is defined.
        at: Origin,
        /// Whose value.
        name: String,
        /// The value, with its macros expanded.
        text: String,
        /// Why.
        #[source]
        reason: Box<ParseError>,
    },
    /// A value is of another kind, or out of its range.
    #[error("{at}: {name} = {value}")]
    Value {
        /// Where it is defined.
        at: Origin,
        /// Whose value.
        name: String,
        /// What it is, and what it has to be.
        value: Box<WrongValue>,
    },
    /// A transform, or a requirement, of jobs that are handed in is of no use.
    #[error("{at}: {name}: {text}: {what}")]
    Submit {
        /// Where it is defined.
        at: Origin,
        /// The name that is of no use.
        name: String,
        /// The rule.
        text: String,
        /// What is wrong.
        what: String,
        /// Why.
        #[source]
        reason: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// A value that is of another kind than its name's, or out of its range.
#[derive(Debug)]
pub struct WrongValue {
    /// As it is written.
    pub text: String,
    /// What it is.
    pub found: String,
    /// What it has to be.
    pub expected: String,
}

impl fmt::Display for WrongValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongValue {
            text,
            found,
            expected,
        } = self;
        write!(f, "{text}: its value is {found}, expected {expected}")
    }
}

impl ConfigError {
    /// Where.
    #[must_use]
    pub fn at(&self) -> Option<&Origin> {
        match self {
            Self::NoFile { .. } => None,
            Self::Statement { at, .. }
            | Self::Name { at, .. }
            | Self::Condition { at, .. }
            | Self::Unclosed { at, .. }
            | Self::Stopped { at, .. }
            | Self::Unreadable { at, .. }
            | Self::TooDeep { at, .. }
            | Self::TooLarge { at, .. }
            | Self::Template { at, .. }
            | Self::Circle { at, .. }
            | Self::Function { at, .. }
            | Self::Expression { at, .. }
            | Self::Value { at, .. }
            | Self::Submit { at, .. } => Some(at),
        }
    }

    /// The name whose value is of no use, if it is one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Circle { name, .. }
            | Self::Function { name, .. }
            | Self::Expression { name, .. }
            | Self::Value { name, .. }
            | Self::Submit { name, .. } => Some(name),
            _ => None,
        }
    }
}

/// Something that is probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where.
    pub at: Origin,
    /// What.
    pub kind: WarningKind,
}

/// What is probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WarningKind {
    /// A value refers to a macro that is not defined: it is empty.
    Undefined {
        /// Whose value.
        name: String,
        /// The macro.
        macro_name: String,
    },
    /// A number of seconds is a name, and nothing else.
    LoneName {
        /// Whose value.
        name: String,
        /// The name.
        reference: String,
    },
    /// A list has a name that nothing defines.
    Nowhere {
        /// The list.
        name: String,
        /// The name in it.
        listed: String,
    },
    /// A value is out of its range, or no number, and counts as another one.
    Cut {
        /// Whose value.
        name: String,
        /// What it is.
        found: String,
        /// The number.
        counts_as: i64,
    },
    /// It is about a type of slots that is not read.
    BeyondTypes {
        /// The name.
        name: String,
        /// The last type that is.
        limit: i64,
    },
    /// It is about a type of slots that no slot is of.
    NoSuchSlot {
        /// The name.
        name: String,
        /// The setting that says how many there are.
        count: String,
    },
    /// `name : value`, which is `name = value`.
    Colon {
        /// The name.
        name: String,
    },
    /// The configuration says it itself.
    Said {
        /// What.
        message: String,
    },
    /// A comment between continued lines does not end in `\`: the statement ends there.
    CommentEnds,
    /// What is neither blank nor an operator stands before `=`, and does not count.
    Stray {
        /// What.
        words: String,
    },
    /// A command ended with another status than 0.
    Status {
        /// Which.
        command: String,
        /// Its status.
        status: i32,
    },
    /// A directory of files is not there.
    NoDirectory {
        /// Which.
        path: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.at)?;
        match &self.kind {
            WarningKind::Undefined { name, macro_name } => {
                write!(f, "{name}: {macro_name} is not defined")
            }
            WarningKind::LoneName { name, reference } => write!(
                f,
                "{name}: it has no value unless a job or the machine has an attribute {reference}"
            ),
            WarningKind::Nowhere { name, listed } => {
                write!(f, "{name}: {listed} is defined nowhere")
            }
            WarningKind::Cut {
                name,
                found,
                counts_as,
            } => write!(f, "{name}: {found} counts as {counts_as}"),
            WarningKind::BeyondTypes { name, limit } => write!(
                f,
                "{name}: there are slot types 1 to {limit} (MAX_SLOT_TYPES), others are not read"
            ),
            WarningKind::NoSuchSlot { name, count } => {
                write!(f, "{name}: no slot is of this type without {count}")
            }
            WarningKind::Colon { name } => {
                write!(f, "{name}: an assignment with : is obsolete, = makes one")
            }
            WarningKind::Said { message } => f.write_str(message),
            WarningKind::CommentEnds => f.write_str(
                "a comment between continued lines does not end in \\: the statement ends there",
            ),
            WarningKind::Stray { words } => write!(f, "{words:?} before = does not count"),
            WarningKind::Status { command, status } => {
                write!(f, "{command} ended with status {status}")
            }
            WarningKind::NoDirectory { path } => write!(f, "{path} is no directory"),
        }
    }
}
