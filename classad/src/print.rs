//! Expressions, ads and values as text.

use crate::ad::ClassAd;
use crate::expr::{BinaryOp, Expr, Literal, UnaryOp};
use crate::name::Name;
use crate::number::{general, scientific};
use crate::text::Text;
use crate::time::{print_abs, print_rel};
use crate::value::Value;
use std::fmt;
use std::sync::Arc;

/// Names that are something else unless they are quoted.
const RESERVED: [&str; 7] = [
    "error",
    "false",
    "is",
    "isnt",
    "parent",
    "true",
    "undefined",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// The new syntax on one line.
    New,
    /// The new syntax, lists and ads over lines.
    Indented,
    /// The old syntax.
    Old,
}

struct Printer {
    text: Vec<u8>,
    style: Style,
    indent: usize,
}

fn print(style: Style, with: impl FnOnce(&mut Printer)) -> Vec<u8> {
    let mut printer = Printer {
        text: vec![],
        style,
        indent: 0,
    };
    with(&mut printer);
    printer.text
}

impl Expr {
    /// The expression in the old syntax: strings are not escaped but for quotes, reals are short.
    ///
    /// ```
    /// let expr = classad::parse_expression(r#"a is "C:\\tmp""#)?;
    /// assert_eq!(expr.to_old().to_string(), r#"a =?= "C:\tmp""#);
    /// # Ok::<(), classad::ParseError>(())
    /// ```
    #[must_use]
    pub fn to_old(&self) -> Text {
        print(Style::Old, |printer| printer.expr(self)).into()
    }

    /// The expression in the new syntax, lists and ads spread over lines as the original's pretty printer does it.
    #[must_use]
    pub fn to_indented(&self) -> String {
        String::from_utf8_lossy(&print(Style::Indented, |printer| printer.expr(self))).into_owned()
    }
}

impl ClassAd {
    /// The ad in the old syntax: a line `name = expr` for each attribute.
    ///
    /// The old syntax has no way to write a line break in a string: such an ad does not read back.
    #[must_use]
    pub fn to_old(&self) -> Text {
        let lines = print(Style::Old, |printer| {
            for (name, expr) in self.iter() {
                printer.name(name);
                printer.put(" = ");
                printer.expr(expr);
                printer.put("\n");
            }
        });
        lines.into()
    }
}

impl fmt::Display for Expr {
    /// The new syntax, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&print(Style::New, |printer| {
            printer.expr(self)
        })))
    }
}

impl fmt::Display for ClassAd {
    /// The new syntax, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&print(Style::New, |printer| {
            printer.ad(self)
        })))
    }
}

impl fmt::Display for Value {
    /// The new syntax, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_expr().fmt(f)
    }
}

impl Printer {
    fn put(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Literal(literal) => self.literal(literal),
            Expr::Reference {
                from,
                absolute,
                name,
            } => {
                if let Some(from) = from {
                    self.expr(from);
                    self.put(".");
                    // Behind a dot `parent` is a name like others.
                    return self.name_or(name.text(), name.text().is_like("parent"));
                }
                if *absolute {
                    self.put(".");
                }
                self.name(name);
            }
            Expr::Unary(op, operand) => {
                self.put(match op {
                    UnaryOp::Plus => " +",
                    UnaryOp::Minus => " -",
                    UnaryOp::Not => " !",
                    UnaryOp::BitNot => " ~",
                });
                self.expr(operand);
            }
            Expr::Binary(op, left, right) => {
                self.expr(left);
                self.binary(*op);
                self.expr(right);
            }
            Expr::Conditional(condition, then, otherwise) => {
                self.expr(condition);
                self.put(" ? ");
                self.expr(then);
                self.put(" : ");
                self.expr(otherwise);
            }
            Expr::Default(value, otherwise) => {
                self.expr(value);
                self.put(" ?: ");
                self.expr(otherwise);
            }
            Expr::Subscript(whole, index) => {
                self.expr(whole);
                self.put("[");
                self.expr(index);
                self.put("]");
            }
            Expr::Parentheses(inner) => {
                self.put("(");
                self.expr(inner);
                self.put(")");
            }
            Expr::Call { name, arguments } => {
                self.name_or(name, false);
                self.put("(");
                self.items(arguments, false);
                self.put(")");
            }
            Expr::List(items) => self.list(items),
            Expr::Ad(ad) => self.ad(ad),
        }
    }

    fn binary(&mut self, op: BinaryOp) {
        let old = self.style == Style::Old;
        self.put(match op {
            BinaryOp::Or => " || ",
            BinaryOp::And => " && ",
            BinaryOp::BitOr => " | ",
            BinaryOp::BitXor => " ^ ",
            BinaryOp::BitAnd => " & ",
            BinaryOp::Equal => " == ",
            BinaryOp::NotEqual => " != ",
            BinaryOp::Is if old => " =?= ",
            BinaryOp::Is => " is ",
            BinaryOp::Isnt if old => " =!= ",
            BinaryOp::Isnt => " isnt ",
            BinaryOp::Less => " < ",
            BinaryOp::LessOrEqual => " <= ",
            BinaryOp::Greater => " > ",
            BinaryOp::GreaterOrEqual => " >= ",
            BinaryOp::ShiftLeft => " << ",
            BinaryOp::ShiftRight => " >> ",
            BinaryOp::ShiftRightZero => " >>> ",
            BinaryOp::Add => " + ",
            BinaryOp::Subtract => " - ",
            BinaryOp::Multiply => " * ",
            BinaryOp::Divide => " / ",
            BinaryOp::Modulo => " % ",
        });
    }

    fn literal(&mut self, literal: &Literal) {
        match literal {
            Literal::Undefined => self.put("undefined"),
            Literal::Error => self.put("error"),
            Literal::Boolean(truth) => self.put(if *truth { "true" } else { "false" }),
            Literal::Integer(number) => self.put(&number.to_string()),
            Literal::Real(number) => self.put(&real(*number, self.style == Style::Old)),
            Literal::String(text) => {
                self.put("\"");
                self.escaped(text.as_bytes(), b'"');
                self.put("\"");
            }
            Literal::AbsTime(time) => self.put(&format!("absTime(\"{}\")", print_abs(*time))),
            Literal::RelTime(seconds) => self.put(&format!("relTime(\"{}\")", print_rel(*seconds))),
        }
    }

    fn escaped(&mut self, bytes: &[u8], quote: u8) {
        for &byte in bytes {
            match byte {
                _ if byte == quote => self.text.extend([b'\\', quote]),
                _ if self.style == Style::Old => self.text.push(byte),
                7 => self.put("\\a"),
                8 => self.put("\\b"),
                12 => self.put("\\f"),
                b'\n' => self.put("\\n"),
                b'\r' => self.put("\\r"),
                b'\t' => self.put("\\t"),
                11 => self.put("\\v"),
                b'\\' => self.put("\\\\"),
                b' '..=b'~' => self.text.push(byte),
                _ => self.put(&format!("\\{byte:03o}")),
            }
        }
    }

    fn name(&mut self, name: &Name) {
        self.name_or(name.text(), false);
    }

    fn name_or(&mut self, name: &Text, is_plain: bool) {
        let bytes = name.as_bytes();
        let plain = bytes
            .first()
            .is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_')
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            && !RESERVED.iter().any(|word| name.is_like(word));
        if plain || is_plain {
            self.text.extend_from_slice(bytes);
        } else {
            self.put("'");
            self.escaped(bytes, b'\'');
            self.put("'");
        }
    }

    /// Begins a new line where lines are indented.
    fn line(&mut self) {
        self.put("\n");
        self.text.extend(std::iter::repeat_n(b' ', self.indent));
    }

    fn open(&mut self, bracket: &str, indent: usize) {
        if self.style == Style::Indented {
            self.indent += indent;
            self.line();
            self.put(bracket);
            self.indent += indent;
        } else {
            self.put(bracket);
            self.put(" ");
        }
    }

    fn close(&mut self, bracket: &str, indent: usize) {
        if self.style == Style::Indented {
            self.indent -= indent;
            self.line();
            self.put(bracket);
            self.indent -= indent;
        } else {
            self.put(" ");
            self.put(bracket);
        }
    }

    fn items(&mut self, items: &[Arc<Expr>], lines: bool) {
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.put(",");
            }
            if lines {
                self.line();
            }
            self.expr(item);
        }
    }

    fn list(&mut self, items: &[Arc<Expr>]) {
        self.open("{", 3);
        self.items(items, self.style == Style::Indented);
        self.close("}", 3);
    }

    fn ad(&mut self, ad: &ClassAd) {
        self.open("[", 4);
        for (at, (name, expr)) in ad.iter().enumerate() {
            if at > 0 {
                self.put("; ");
            }
            if self.style == Style::Indented {
                self.line();
            }
            self.name(name);
            self.put(" = ");
            self.expr(expr);
        }
        self.close("]", 4);
    }
}

/// A real: with all its digits, or short as the old syntax and JSON have it.
pub(crate) fn real(number: f64, short: bool) -> String {
    if number == 0.0 {
        return format!("{number:.1}");
    }
    if !number.is_finite() {
        return real_call(number).to_owned();
    }
    if !short {
        return scientific(number, 15);
    }
    let text = general(number, 16);
    if text.contains(['.', 'E']) {
        text
    } else {
        text + ".0"
    }
}

/// The call that makes a number that cannot be written out.
pub(crate) fn real_call(number: f64) -> &'static str {
    if number.is_nan() {
        "real(\"NaN\")"
    } else if number > 0.0 {
        "real(\"INF\")"
    } else {
        "real(\"-INF\")"
    }
}
