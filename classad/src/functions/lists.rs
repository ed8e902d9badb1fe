//! Functions of lists.

use super::Call;
use crate::error::EvalError;
use crate::eval::Evaluated;
use crate::eval::operators::{binary, promoted};
use crate::expr::BinaryOp;
use crate::value::{List, Value};

impl Call<'_, '_> {
    /// An argument that is to be a list; else what the function's value is.
    pub(super) fn list(&mut self, at: usize) -> Result<Result<List, Value>, EvalError> {
        Ok(match self.value(at)? {
            Value::List(list) => Ok(list),
            Value::Undefined => Err(Value::Undefined),
            _ => Err(Value::Error),
        })
    }

    /// The values of a list's items.
    pub(super) fn items(&mut self, list: &List) -> Result<Vec<Value>, EvalError> {
        list.items
            .iter()
            .map(|item| self.run.item(list, item, self.scope))
            .collect()
    }
}

pub(super) fn member(call: &mut Call<'_, '_>) -> Evaluated {
    contains(call, BinaryOp::Equal)
}

pub(super) fn identical_member(call: &mut Call<'_, '_>) -> Evaluated {
    contains(call, BinaryOp::Is)
}

fn contains(call: &mut Call<'_, '_>, op: BinaryOp) -> Evaluated {
    let wanted = call.value(0)?;
    let list = call.value(1)?;
    let strict = op == BinaryOp::Equal;
    if list.is_undefined() || (strict && wanted.is_undefined()) {
        return Ok(Value::Undefined);
    }
    let Value::List(list) = list else {
        return Ok(Value::Error);
    };
    if matches!(wanted, Value::List(_) | Value::Ad(_)) || (strict && wanted.is_error()) {
        return Ok(Value::Error);
    }
    for item in list.items.iter() {
        let item = call.run.item(&list, item, call.scope)?;
        if matches!(binary(op, item, wanted.clone()), Value::Boolean(true)) {
            return Ok(Value::Boolean(true));
        }
    }
    Ok(Value::Boolean(false))
}

pub(super) fn size(call: &mut Call<'_, '_>) -> Evaluated {
    let len = match call.value(0)? {
        Value::List(list) => list.items.len(),
        Value::Ad(scope) => scope.ad().len(),
        Value::String(text) => text.as_bytes().len(),
        Value::Undefined => return Ok(Value::Undefined),
        _ => return Ok(Value::Error),
    };
    Ok(Value::Integer(i64::try_from(len).unwrap_or(i64::MAX)))
}

/// The numbers of a list; UNDEFINED items do not count, others are ERROR.
fn numbers(call: &mut Call<'_, '_>) -> Result<Result<Vec<Value>, Value>, EvalError> {
    let list = match call.list(0)? {
        Ok(list) => list,
        Err(value) => return Ok(Err(value)),
    };
    let mut items = call.items(&list)?;
    items.retain(|item| !item.is_undefined());
    if items.iter().any(|item| item.truth().is_none()) {
        return Ok(Err(Value::Error));
    }
    Ok(Ok(items))
}

fn total(items: Vec<Value>) -> Value {
    let added = items
        .into_iter()
        .reduce(|total, item| binary(BinaryOp::Add, total, item));
    added.unwrap_or(Value::Integer(0))
}

pub(super) fn sum(call: &mut Call<'_, '_>) -> Evaluated {
    Ok(match numbers(call)? {
        Ok(items) => total(items),
        Err(value) => value,
    })
}

pub(super) fn avg(call: &mut Call<'_, '_>) -> Evaluated {
    Ok(match numbers(call)? {
        Ok(items) if items.is_empty() => Value::Integer(0),
        Ok(items) => {
            let count = Value::Real(items.len() as f64);
            binary(BinaryOp::Divide, total(items), count)
        }
        Err(value) => value,
    })
}

pub(super) fn min(call: &mut Call<'_, '_>) -> Evaluated {
    extreme(call, BinaryOp::Less)
}

pub(super) fn max(call: &mut Call<'_, '_>) -> Evaluated {
    extreme(call, BinaryOp::Greater)
}

/// Whoever is compared stays promoted: `min({ 1, 2.5 })` is 1.0.
fn extreme(call: &mut Call<'_, '_>, better: BinaryOp) -> Evaluated {
    let items = match numbers(call)? {
        Ok(items) => items,
        Err(value) => return Ok(value),
    };
    let best = items.into_iter().reduce(|best, item| {
        let (item, best) = promoted(item, best);
        match binary(better, item.clone(), best.clone()) {
            Value::Boolean(true) => item,
            _ => best,
        }
    });
    Ok(best.unwrap_or(Value::Undefined))
}

pub(super) fn any_compare(call: &mut Call<'_, '_>) -> Evaluated {
    compare(call, false)
}

pub(super) fn all_compare(call: &mut Call<'_, '_>) -> Evaluated {
    compare(call, true)
}

fn compare(call: &mut Call<'_, '_>, all: bool) -> Evaluated {
    let op = match call.value(0)? {
        Value::String(text) => match text.as_bytes() {
            b"<" => BinaryOp::Less,
            b"<=" => BinaryOp::LessOrEqual,
            b"!=" => BinaryOp::NotEqual,
            b"==" => BinaryOp::Equal,
            b">" => BinaryOp::Greater,
            b">=" => BinaryOp::GreaterOrEqual,
            b"is" => BinaryOp::Is,
            b"isnt" => BinaryOp::Isnt,
            _ => return Ok(Value::Error),
        },
        Value::Undefined => return Ok(Value::Undefined),
        _ => return Ok(Value::Error),
    };
    let list = match call.list(1)? {
        Ok(list) => list,
        Err(value) => return Ok(value),
    };
    let against = call.value(2)?;
    for item in list.items.iter() {
        let item = call.run.item(&list, item, call.scope)?;
        match binary(op, item, against.clone()) {
            Value::Boolean(truth) if truth == all => {}
            Value::Boolean(truth) => return Ok(Value::Boolean(truth)),
            // What an undefined item ends with is false either way, as in the original.
            Value::Undefined => return Ok(Value::Boolean(false)),
            _ => return Ok(Value::Error),
        }
    }
    Ok(Value::Boolean(all))
}
