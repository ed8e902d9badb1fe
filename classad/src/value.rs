//! What expressions evaluate to.

use crate::expr::{Expr, Literal};
use crate::number::truncate_short;
use crate::scope::Scope;
use crate::text::Text;
use std::sync::Arc;

/// A moment, and the time zone it is told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbsTime {
    /// Seconds since 1970 began in Greenwich.
    pub seconds: i64,
    /// Seconds by which clocks are ahead of Greenwich's.
    pub offset_seconds: i32,
}

/// A list that was evaluated: its items are not, yet.
#[derive(Clone, Debug)]
pub struct List {
    /// The items.
    pub items: Arc<[Arc<Expr>]>,
    /// Where the list is written; none for one that was made.
    pub(crate) scope: Option<Scope>,
    /// A function has made it: that is another type of lists to `=?=`.
    pub(crate) is_of_function: bool,
}

/// A value.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "named as they are called")]
pub enum Value {
    Undefined,
    Error,
    Boolean(bool),
    Integer(i64),
    Real(f64),
    String(Text),
    AbsTime(AbsTime),
    /// Seconds.
    RelTime(f64),
    List(List),
    /// An ad and what is around it.
    Ad(Scope),
}

impl Value {
    /// Whether a condition takes it for true or false: booleans and numbers only.
    ///
    /// ```
    /// use classad::Value;
    /// assert_eq!(Value::Real(0.5).truth(), Some(true));
    /// assert_eq!(Value::from("true").truth(), None);
    /// ```
    #[must_use]
    pub fn truth(&self) -> Option<bool> {
        match self {
            Self::Boolean(truth) => Some(*truth),
            Self::Integer(number) => Some(*number != 0),
            Self::Real(number) => Some(*number != 0.0),
            _ => None,
        }
    }

    /// An expression that evaluates to it. An ad leaves what is around it behind.
    #[must_use]
    pub fn to_expr(&self) -> Expr {
        let literal = match self {
            Self::List(list) => return Expr::List(Arc::clone(&list.items)),
            Self::Ad(scope) => return Expr::Ad(Arc::clone(scope.ad())),
            Self::Undefined => Literal::Undefined,
            Self::Error => Literal::Error,
            Self::Boolean(truth) => Literal::Boolean(*truth),
            Self::Integer(number) => Literal::Integer(*number),
            Self::Real(number) => Literal::Real(*number),
            Self::String(text) => Literal::String(text.clone()),
            Self::AbsTime(time) => Literal::AbsTime(*time),
            // Whole seconds: so is what the original makes of a span.
            Self::RelTime(seconds) => Literal::RelTime(truncate_short(*seconds).into()),
        };
        Expr::Literal(literal)
    }

    /// A list that a function makes.
    pub(crate) fn list(items: impl IntoIterator<Item = Expr>) -> Self {
        Self::List(List {
            items: items.into_iter().map(Arc::new).collect(),
            scope: None,
            is_of_function: true,
        })
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined)
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Self::Error)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Boolean(truth)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::String(bytes.into())
    }
}

impl From<&Literal> for Value {
    fn from(literal: &Literal) -> Self {
        match literal {
            Literal::Undefined => Self::Undefined,
            Literal::Error => Self::Error,
            Literal::Boolean(truth) => Self::Boolean(*truth),
            Literal::Integer(number) => Self::Integer(*number),
            Literal::Real(number) | Literal::RelTime(number) => Self::Real(*number),
            Literal::String(text) => Self::String(text.clone()),
            Literal::AbsTime(time) => Self::AbsTime(*time),
        }
    }
}
