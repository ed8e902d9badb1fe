//! Expressions evaluated in each ad of a list.

use super::Call;
use crate::error::EvalError;
use crate::eval::Evaluated;
use crate::eval::reference::Found;
use crate::expr::Expr;
use crate::value::Value;
use std::sync::Arc;

/// What is evaluated: where the argument is a name that is bound here, what it is bound to.
fn meant(call: &mut Call<'_, '_>) -> Result<Arc<Expr>, EvalError> {
    let argument = Arc::clone(&call.arguments[0]);
    if let Expr::Reference {
        from,
        absolute,
        name,
    } = argument.as_ref()
        && let Found::Attribute(expr, _) =
            call.run
                .find(from.as_deref(), *absolute, name, call.scope)?
    {
        return Ok(expr);
    }
    Ok(argument)
}

/// The values in each ad; UNDEFINED for what is undefined, ERROR for what is no ad.
fn values(call: &mut Call<'_, '_>) -> Result<Result<Vec<Value>, Value>, EvalError> {
    let expr = meant(call)?;
    let list = match call.list(1)? {
        Ok(list) => list,
        Err(value) => return Ok(Err(value)),
    };
    let mut values = vec![];
    for item in call.items(&list)? {
        values.push(match item {
            Value::Ad(ad) => call.run.eval(&expr, &ad)?,
            Value::Undefined => Value::Undefined,
            _ => Value::Error,
        });
    }
    Ok(Ok(values))
}

pub(super) fn eval_in_each(call: &mut Call<'_, '_>) -> Evaluated {
    Ok(match values(call)? {
        Ok(values) => Value::list(values.iter().map(Value::to_expr)),
        Err(value) => value,
    })
}

pub(super) fn count_matches(call: &mut Call<'_, '_>) -> Evaluated {
    Ok(match values(call)? {
        Ok(values) => {
            let count = values
                .iter()
                .filter(|value| value.truth() == Some(true))
                .count();
            Value::Integer(i64::try_from(count).unwrap_or(i64::MAX))
        }
        Err(Value::Undefined) => Value::Integer(0),
        Err(value) => value,
    })
}
