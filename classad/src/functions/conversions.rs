//! `int`, `real`, `string`, `bool`, and what other functions convert with.

use super::Call;
use crate::eval::Evaluated;
use crate::number::{read_prefix, truncate, truncate_short};
use crate::text::Text;
use crate::time::{print_abs, print_rel};
use crate::value::Value;

pub(super) fn int(call: &mut Call<'_, '_>) -> Evaluated {
    let value = call.value(0)?;
    Ok(to_integer(&value))
}

pub(super) fn real(call: &mut Call<'_, '_>) -> Evaluated {
    let value = call.value(0)?;
    Ok(to_real(&value))
}

pub(super) fn string(call: &mut Call<'_, '_>) -> Evaluated {
    let value = call.value(0)?;
    Ok(match to_text(&value) {
        Ok(text) => Value::String(text),
        Err(other) => other,
    })
}

pub(super) fn bool(call: &mut Call<'_, '_>) -> Evaluated {
    let value = call.value(0)?;
    Ok(match &value {
        Value::Undefined => Value::Undefined,
        Value::String(text) if text.is_like("true") => Value::Boolean(true),
        Value::String(text) if text.is_like("false") => Value::Boolean(false),
        Value::String(_) => Value::Undefined,
        Value::RelTime(seconds) => Value::Boolean(truncate_short(*seconds) != 0),
        other => other.truth().map_or(Value::Error, Value::Boolean),
    })
}

/// The value as an integer; UNDEFINED of UNDEFINED, ERROR of what is none.
pub(super) fn to_integer(value: &Value) -> Value {
    match value {
        Value::Integer(number) => Value::Integer(*number),
        Value::Boolean(truth) => Value::Integer(i64::from(*truth)),
        Value::Real(number) => Value::Integer(truncate(*number)),
        Value::String(text) => read_prefix(text.as_bytes())
            .map_or(Value::Error, |(number, _)| Value::Integer(truncate(number))),
        Value::AbsTime(time) => Value::Integer(time.seconds),
        Value::RelTime(seconds) => Value::Integer(truncate_short(*seconds).into()),
        Value::Undefined => Value::Undefined,
        Value::Error | Value::List(_) | Value::Ad(_) => Value::Error,
    }
}

/// The value as a real; UNDEFINED of UNDEFINED, ERROR of what is none.
pub(super) fn to_real(value: &Value) -> Value {
    match value {
        Value::Real(number) => Value::Real(*number),
        Value::Integer(number) => Value::Real(*number as f64),
        Value::Boolean(truth) => Value::Real(f64::from(u8::from(*truth))),
        Value::String(text) => {
            read_prefix(text.as_bytes()).map_or(Value::Error, |(number, _)| Value::Real(number))
        }
        Value::AbsTime(time) => Value::Real(time.seconds as f64),
        Value::RelTime(seconds) => Value::Real(truncate_short(*seconds).into()),
        Value::Undefined => Value::Undefined,
        Value::Error | Value::List(_) | Value::Ad(_) => Value::Error,
    }
}

/// The value as text, or what it is if it has none: UNDEFINED or ERROR.
pub(super) fn to_text(value: &Value) -> Result<Text, Value> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::AbsTime(time) => print_abs(*time).into(),
        Value::RelTime(seconds) => print_rel(truncate_short(*seconds).into()).into(),
        Value::Undefined => return Err(Value::Undefined),
        Value::Error => return Err(Value::Error),
        other => other.to_string().into(),
    })
}
