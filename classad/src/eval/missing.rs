//! What is not there where an expression asks for it.

use super::Run;
use crate::expr::Expr;
use crate::functions;
use crate::name::Name;
use crate::scope::Scope;
use crate::text::Text;
use crate::value::Value;
use std::fmt;

/// What is not there, so that an expression is UNDEFINED or ERROR.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// A name that neither MY nor TARGET has.
    Neither {
        /// The name.
        name: String,
    },
    /// A name that MY does not have, where there is no TARGET.
    Alone {
        /// The name.
        name: String,
    },
    /// A name that one ad does not have, where only that is asked.
    From {
        /// The name.
        name: String,
        /// The ad, as it is written.
        ad: String,
    },
    /// TARGET, where there is none.
    Target,
    /// What a name is selected from is no ad.
    NoAd {
        /// As it is written.
        expression: String,
    },
    /// A function that the language does not have.
    Function {
        /// Its name.
        name: String,
    },
    /// Arguments: a function has fewer than it needs, or more than it may have.
    Arguments {
        /// Its name.
        name: String,
        /// How many it has.
        found: usize,
        /// How many it has to have.
        least: usize,
        /// How many it may have.
        most: usize,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Neither { name } => write!(f, "{name} is in neither ad"),
            Self::Alone { name } => write!(f, "{name} is not in MY, and there is no TARGET"),
            Self::From { name, ad } => write!(f, "{name} is not in {ad}"),
            Self::Target => f.write_str("there is no TARGET"),
            Self::NoAd { expression } => write!(f, "{expression} is no ad"),
            Self::Function { name } => write!(f, "there is no function {name}"),
            Self::Arguments {
                name,
                found,
                least,
                most,
            } => {
                write!(f, "{name} has {found} of ")?;
                match *most {
                    usize::MAX => write!(f, "{least} or more"),
                    most if most == *least => write!(f, "{least}"),
                    most => write!(f, "{least} to {most}"),
                }?;
                f.write_str(" arguments")
            }
        }
    }
}

impl Run<'_> {
    /// Why a reference leads to nothing.
    pub(super) fn missing(
        &mut self,
        from: Option<&Expr>,
        absolute: bool,
        name: &Name,
        scope: &Scope,
    ) -> Option<Missing> {
        let name = name.text().to_string();
        let is_target = |name: &str| name.eq_ignore_ascii_case("TARGET");
        let Some(from) = from else {
            return Some(match self.sides {
                _ if absolute => Missing::From {
                    name,
                    ad: "the outermost ad".to_owned(),
                },
                None if is_target(&name) => Missing::Target,
                None => Missing::Alone { name },
                Some(_) => Missing::Neither { name },
            });
        };
        let written = from.to_string();
        match self.eval(from, scope).ok()? {
            Value::Ad(_) => Some(Missing::From { name, ad: written }),
            // Why that is so is said of it.
            Value::Undefined if is_target(&written) => Some(Missing::Target),
            Value::Undefined | Value::Error | Value::List(_) => None,
            _ => Some(Missing::NoAd {
                expression: written,
            }),
        }
    }
}

/// Why a call cannot be carried out, whatever its arguments are.
pub(super) fn missing_function(name: &Text, found: usize) -> Option<Missing> {
    let name = name.to_string();
    let Some(counts) = functions::argument_counts(&name) else {
        return Some(Missing::Function { name });
    };
    (!counts.contains(&found)).then(|| Missing::Arguments {
        name,
        found,
        least: *counts.start(),
        most: *counts.end(),
    })
}

#[cfg(test)]
mod tests {
    use crate::{Context, Nowhere, parse_ad, parse_expression};

    fn missing(text: &str, has_target: bool) -> Option<String> {
        let my = parse_ad("[ a = 1; inner = [ x = 1 ] ]").expect("an ad");
        let mut context = Context::new(&Nowhere).with_my(my);
        if has_target {
            context = context.with_target(parse_ad("[ b = 2 ]").expect("an ad"));
        }
        let why = context.explain(&parse_expression(text).expect("an expression"));
        let first = why.parts.first().and_then(|part| part.missing.clone());
        why.missing.or(first).map(|missing| missing.to_string())
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (text, has_target, expected) in [
            ("Foo", true, "Foo is in neither ad"),
            ("(Foo)", true, "Foo is in neither ad"),
            ("Foo", false, "Foo is not in MY, and there is no TARGET"),
            ("MY.Foo", true, "Foo is not in MY"),
            ("TARGET.a", true, "a is not in TARGET"),
            ("TARGET.a", false, "there is no TARGET"),
            ("Target", false, "there is no TARGET"),
            ("inner.y", true, "y is not in inner"),
            ("Foo.y", true, "Foo is in neither ad"),
            ("a.y", true, "a is no ad"),
            (".Foo", false, "Foo is not in the outermost ad"),
            ("foo(3)", true, "there is no function foo"),
            ("size()", true, "size has 0 of 1 arguments"),
            ("substr(\"a\")", true, "substr has 1 of 2 to 3 arguments"),
        ] {
            let found = missing(text, has_target);
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
        for text in [
            "a",
            "b",
            "MY.a",
            "TARGET.b",
            "inner.x",
            "size({1})",
            "strcat()",
        ] {
            assert_eq!(missing(text, true), None, "{text}");
        }
    }
}
