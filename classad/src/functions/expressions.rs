//! Functions of expressions rather than of values.

use super::Call;
use super::conversions::to_text;
use crate::error::EvalError;
use crate::eval::Evaluated;
use crate::eval::reference::Found;
use crate::expr::Expr;
use crate::name::Name;
use crate::parser::parse_expression;
use crate::pcre::Pattern;
use crate::references::external_in;
use crate::value::Value;
use std::collections::BTreeSet;

pub(super) fn if_then_else(call: &mut Call<'_, '_>) -> Evaluated {
    let condition = call.value(0)?;
    match condition.truth() {
        Some(true) => call.value(1),
        Some(false) => call.value(2),
        None if condition.is_undefined() => Ok(Value::Undefined),
        None => Ok(Value::Error),
    }
}

pub(super) fn eval(call: &mut Call<'_, '_>) -> Evaluated {
    let value = call.value(0)?;
    let parsed = to_text(&value)
        .ok()
        .and_then(|text| parse_expression(text.as_bytes()).ok());
    match parsed {
        Some(expr) => call.run.eval(&expr, call.scope),
        None => Ok(Value::Error),
    }
}

/// What an attribute is bound to, as text; empty if it is bound to nothing.
pub(super) fn unparse(call: &mut Call<'_, '_>) -> Evaluated {
    let reference @ Expr::Reference { .. } = call.arguments[0].as_ref() else {
        return Ok(Value::Error);
    };
    let found = call.scope.ad().get(reference.to_string());
    Ok(Value::String(
        found
            .map(|expr| expr.to_indented())
            .unwrap_or_default()
            .into(),
    ))
}

/// The names that an attribute refers to and that nothing is bound to; or whether a pattern matches one of them.
pub(super) fn unresolved(call: &mut Call<'_, '_>) -> Evaluated {
    let Expr::Reference {
        from,
        absolute,
        name,
    } = call.arguments[0].as_ref()
    else {
        return Ok(Value::Error);
    };
    let found = call
        .run
        .find(from.as_deref(), *absolute, name, call.scope)?;
    let names = match found {
        Found::Attribute(expr, home) => match external_in(call.run, &expr, &home) {
            Ok(names) => names,
            Err(error @ EvalError::TooLong { .. }) => return Err(error),
            // It refers to itself: the original has found nothing then.
            Err(_) => vec![],
        },
        Found::Value(Value::List(_)) => vec![],
        Found::Value(_) | Found::Ad(_) => return Ok(Value::Undefined),
    };
    let names: BTreeSet<Name> = names.iter().map(|name| Name::from(bare(name))).collect();
    if call.count() == 1 {
        let mut names: Vec<String> = names.iter().map(Name::to_string).collect();
        names.sort_by_key(|name| name.to_ascii_lowercase());
        return Ok(names.join(",").as_str().into());
    }
    let Value::String(pattern) = call.value(1)? else {
        return Ok(Value::Error);
    };
    let Some(pattern) = Pattern::compile(pattern.as_bytes(), "i") else {
        return Ok(Value::Error);
    };
    Ok(Value::Boolean(names.iter().any(|name| {
        let name = name.to_string();
        pattern.is_match(name.as_bytes()).unwrap_or(false)
    })))
}

/// A name without the side of the match in front.
fn bare(name: &str) -> &str {
    let sides = ["target.", "other.", ".left.", ".right."];
    let side = sides.iter().find(|side| {
        name.get(..side.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(side))
    });
    side.map_or(name, |side| &name[side.len()..])
}

/// The value; what it is the value of is told as well.
pub(super) fn debug(call: &mut Call<'_, '_>) -> Evaluated {
    let value = call.value(0)?;
    let message = format!("Classad debug: {} --> {value}", call.arguments[0]);
    call.run.context.surroundings().debug(&message);
    Ok(value)
}
