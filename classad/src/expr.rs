//! Expressions, as they are written.

use crate::ad::ClassAd;
use crate::name::Name;
use crate::text::Text;
use crate::value::AbsTime;
use std::sync::Arc;

/// An expression.
///
/// Parentheses are kept, so that an expression is printed as it was written, but for blanks.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A value that is written out.
    Literal(Literal),
    /// `name`, `.name` or `from.name`.
    Reference {
        /// What the attribute is selected from; none: the scope.
        from: Option<Arc<Expr>>,
        /// With a dot in front: looked for in the outermost ad only.
        absolute: bool,
        /// The attribute.
        name: Name,
    },
    /// An operator before its operand.
    Unary(UnaryOp, Arc<Expr>),
    /// An operator between its operands.
    Binary(BinaryOp, Arc<Expr>, Arc<Expr>),
    /// `condition ? then : otherwise`.
    Conditional(Arc<Expr>, Arc<Expr>, Arc<Expr>),
    /// `value ?: otherwise`, for what may be undefined.
    Default(Arc<Expr>, Arc<Expr>),
    /// `list[index]`, `ad["name"]`.
    Subscript(Arc<Expr>, Arc<Expr>),
    /// `(expr)`.
    Parentheses(Arc<Expr>),
    /// `function(arguments)`.
    Call {
        /// The function; its letters' case does not count.
        name: Text,
        /// What it is given, not evaluated.
        arguments: Vec<Arc<Expr>>,
    },
    /// `{ a, b }`.
    List(Arc<[Arc<Expr>]>),
    /// `[ a = 1 ]`.
    Ad(Arc<ClassAd>),
}

/// A value that is written out.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is the value of its name")]
pub enum Literal {
    Undefined,
    Error,
    Boolean(bool),
    Integer(i64),
    Real(f64),
    String(Text),
    AbsTime(AbsTime),
    /// `relTime("…")`. Its value is a real, as in the original; `relTime(5)` is a call, and a relative time.
    RelTime(f64),
}

/// Operators before their operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as they are called")]
pub enum UnaryOp {
    Plus,
    Minus,
    Not,
    BitNot,
}

/// Operators between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as they are called")]
pub enum BinaryOp {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    NotEqual,
    /// `=?=`, `is`.
    Is,
    /// `=!=`, `isnt`.
    Isnt,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    ShiftLeft,
    ShiftRight,
    /// `>>>`: zeros come in.
    ShiftRightZero,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl BinaryOp {
    /// How tightly it binds: the larger, the tighter.
    pub(crate) fn precedence(self) -> u8 {
        use BinaryOp as Op;
        match self {
            Op::Or => 0,
            Op::And => 1,
            Op::BitOr => 2,
            Op::BitXor => 3,
            Op::BitAnd => 4,
            Op::Equal | Op::NotEqual | Op::Is | Op::Isnt => 5,
            Op::Less | Op::LessOrEqual | Op::Greater | Op::GreaterOrEqual => 6,
            Op::ShiftLeft | Op::ShiftRight | Op::ShiftRightZero => 7,
            Op::Add | Op::Subtract => 8,
            Op::Multiply | Op::Divide | Op::Modulo => 9,
        }
    }
}

impl Expr {
    /// A reference to an attribute of the scope.
    #[must_use]
    pub fn attribute(name: impl Into<Name>) -> Self {
        Self::Reference {
            from: None,
            absolute: false,
            name: name.into(),
        }
    }

    /// A string.
    #[must_use]
    pub fn string(text: impl Into<Text>) -> Self {
        Self::Literal(Literal::String(text.into()))
    }

    /// A list of expressions.
    #[must_use]
    pub fn list(items: impl IntoIterator<Item = Expr>) -> Self {
        Self::List(items.into_iter().map(Arc::new).collect())
    }
}
