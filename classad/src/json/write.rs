//! Ads to JSON.

use crate::ad::ClassAd;
use crate::expr::{Expr, Literal};
use crate::print::{real, real_call};
use crate::text::Text;
use crate::value::Value;

struct Writer {
    text: Vec<u8>,
    /// Columns; none: everything on one line.
    indent: Option<usize>,
}

impl ClassAd {
    /// The ad as JSON, over lines, as the original's tools print it.
    ///
    /// ```
    /// let ad = classad::parse_ad("[ a = 1; b = a + 1 ]")?;
    /// assert_eq!(ad.to_json().to_string(), "{\n  \"a\": 1,\n  \"b\": \"\\/Expr(a + 1)\\/\"\n}");
    /// # Ok::<(), classad::ParseError>(())
    /// ```
    #[must_use]
    pub fn to_json(&self) -> Text {
        let mut writer = Writer {
            text: vec![],
            indent: Some(0),
        };
        writer.ad(self);
        writer.text.into()
    }
}

impl Expr {
    /// The expression as JSON, on one line.
    #[must_use]
    pub fn to_json(&self) -> Text {
        let mut writer = Writer {
            text: vec![],
            indent: None,
        };
        writer.expr(self);
        writer.text.into()
    }
}

impl Value {
    /// The value as JSON, on one line.
    ///
    /// ```
    /// assert_eq!(classad::Value::Undefined.to_json().to_string(), "null");
    /// assert_eq!(classad::Value::Error.to_json().to_string(), r#""\/Expr(error)\/""#);
    /// ```
    #[must_use]
    pub fn to_json(&self) -> Text {
        self.to_expr().to_json()
    }
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Literal(literal) => self.literal(literal),
            Expr::List(items) => {
                self.put("[");
                self.members(items.iter(), |writer, item| writer.expr(item));
                self.put("]");
            }
            Expr::Ad(ad) => self.ad(ad),
            other => self.quoted(&other.to_string()),
        }
    }

    fn ad(&mut self, ad: &ClassAd) {
        self.put("{");
        self.members(ad.iter(), |writer, (name, expr)| {
            writer.string(name.text().as_bytes());
            writer.put(": ");
            writer.expr(expr);
        });
        self.put("}");
    }

    fn members<T>(&mut self, members: impl Iterator<Item = T>, write: impl Fn(&mut Self, T)) {
        self.indent = self.indent.map(|indent| indent + 2);
        for (at, member) in members.enumerate() {
            if at > 0 {
                self.put(",");
            }
            self.line();
            write(self, member);
        }
        self.indent = self.indent.map(|indent| indent - 2);
        self.line();
    }

    fn line(&mut self) {
        if let Some(indent) = self.indent {
            self.put("\n");
            self.text.extend(std::iter::repeat_n(b' ', indent));
        }
    }

    fn literal(&mut self, literal: &Literal) {
        match literal {
            Literal::Undefined => self.put("null"),
            Literal::Boolean(truth) => self.put(if *truth { "true" } else { "false" }),
            Literal::Integer(number) => self.put(&number.to_string()),
            Literal::Real(number) | Literal::RelTime(number) if number.is_finite() => {
                self.put(&real(*number, true))
            }
            Literal::Real(number) | Literal::RelTime(number) => self.quoted(real_call(*number)),
            Literal::String(text) => self.string(text.as_bytes()),
            Literal::Error | Literal::AbsTime(_) => {
                self.quoted(&Expr::Literal(literal.clone()).to_string())
            }
        }
    }

    fn quoted(&mut self, expr: &str) {
        self.put("\"\\/Expr(");
        self.escaped(expr.as_bytes());
        self.put(")\\/\"");
    }

    fn string(&mut self, bytes: &[u8]) {
        self.put("\"");
        self.escaped(bytes);
        self.put("\"");
    }

    fn escaped(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'"' => self.put("\\\""),
                b'\\' => self.put("\\\\"),
                8 => self.put("\\b"),
                12 => self.put("\\f"),
                b'\n' => self.put("\\n"),
                b'\r' => self.put("\\r"),
                b'\t' => self.put("\\t"),
                1..=31 => self.put(&format!("\\u{byte:04X}")),
                _ => self.text.push(byte),
            }
        }
    }
}
