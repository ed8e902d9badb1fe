//! Lists that are written into strings: `"a, b"`.

use super::Call;
use crate::eval::Evaluated;
use crate::number::{read_prefix, truncate};
use crate::pcre::Pattern;
use crate::text::Text;
use crate::value::Value;

/// What separates items where nothing is said.
const SEPARATORS: &[u8] = b", ";

/// The items of a string: what is between separators, without blanks round it, but nothing empty.
fn items<'t>(text: &'t [u8], separators: &'t [u8]) -> impl Iterator<Item = &'t [u8]> + Clone {
    let parts = text.split(|byte| separators.contains(byte));
    parts
        .map(<[u8]>::trim_ascii)
        .filter(|item| !item.is_empty())
}

/// An argument as a string; what is missing or undefined is none of it.
fn text_or(value: Option<&Value>, without: &[u8]) -> Option<Vec<u8>> {
    match value {
        Some(Value::String(text)) => Some(text.as_bytes().to_vec()),
        None => Some(without.to_vec()),
        _ => None,
    }
}

/// Separators; the blanks and commas that are meant where nothing is said.
fn separators(value: Option<&Value>) -> Option<Vec<u8>> {
    text_or(value, SEPARATORS)
}

pub(super) fn size(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    Ok(match (&values[0], separators(values.get(1))) {
        (Value::String(text), Some(separators)) => {
            let count = items(text.as_bytes(), &separators).count();
            Value::Integer(i64::try_from(count).unwrap_or(i64::MAX))
        }
        _ => Value::Error,
    })
}

/// Numbers of a list, and whether one of them is not whole.
fn numbers(call: &mut Call<'_, '_>) -> Result<Option<(Vec<f64>, bool)>, crate::EvalError> {
    let values = call.values()?;
    let (Value::String(text), Some(separators)) = (&values[0], separators(values.get(1))) else {
        return Ok(None);
    };
    let mut numbers = vec![];
    let mut real = false;
    for item in items(text.as_bytes(), &separators) {
        let Some((number, _)) = read_prefix(item) else {
            return Ok(None);
        };
        real |= !item
            .iter()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-'));
        numbers.push(number);
    }
    Ok(Some((numbers, real)))
}

fn number(number: f64, real: bool) -> Value {
    if real {
        Value::Real(number)
    } else {
        Value::Integer(truncate(number))
    }
}

pub(super) fn sum(call: &mut Call<'_, '_>) -> Evaluated {
    Ok(match numbers(call)? {
        Some((numbers, _)) if numbers.is_empty() => Value::Real(0.0),
        Some((numbers, real)) => number(numbers.iter().sum(), real),
        None => Value::Error,
    })
}

pub(super) fn avg(call: &mut Call<'_, '_>) -> Evaluated {
    Ok(match numbers(call)? {
        Some((numbers, _)) if numbers.is_empty() => Value::Real(0.0),
        Some((numbers, real)) => number(numbers.iter().sum::<f64>() / numbers.len() as f64, real),
        None => Value::Error,
    })
}

pub(super) fn min(call: &mut Call<'_, '_>) -> Evaluated {
    // The original begins with the largest that a float can be.
    extreme(call, f32::MAX, |item, best| item < best)
}

pub(super) fn max(call: &mut Call<'_, '_>) -> Evaluated {
    // And here with the smallest above zero: the largest of numbers below zero is wrong.
    extreme(call, f32::MIN_POSITIVE, |item, best| item > best)
}

fn extreme(call: &mut Call<'_, '_>, first: f32, better: fn(f64, f64) -> bool) -> Evaluated {
    Ok(match numbers(call)? {
        Some((numbers, _)) if numbers.is_empty() => Value::Undefined,
        Some((numbers, real)) => {
            let best = numbers.iter().fold(f64::from(first), |best, item| {
                if better(*item, best) { *item } else { best }
            });
            number(best, real)
        }
        None => Value::Error,
    })
}

/// The first two arguments and the separators. What is undefined is an empty string.
fn two_texts(values: &[Value]) -> Result<[Vec<u8>; 3], Value> {
    let text = |value: &Value| match value {
        Value::Undefined => Some(vec![]),
        other => text_or(Some(other), b""),
    };
    let separators = separators(values.get(2).filter(|value| !value.is_undefined()));
    match (text(&values[0]), text(&values[1]), separators) {
        (Some(_), Some(_), Some(_)) if values[0].is_undefined() && values[1].is_undefined() => {
            Err(Value::Undefined)
        }
        (Some(first), Some(second), Some(separators)) => Ok([first, second, separators]),
        _ => Err(Value::Error),
    }
}

pub(super) fn member(call: &mut Call<'_, '_>) -> Evaluated {
    contains(call, <[u8]>::eq)
}

pub(super) fn member_any_case(call: &mut Call<'_, '_>) -> Evaluated {
    contains(call, <[u8]>::eq_ignore_ascii_case)
}

type Same = fn(&[u8], &[u8]) -> bool;

fn contains(call: &mut Call<'_, '_>, same: Same) -> Evaluated {
    let values = call.values()?;
    let [wanted, list, separators] = match two_texts(&values) {
        Ok(texts) => texts,
        Err(value) => return Ok(value),
    };
    Ok(Value::Boolean(
        items(&list, &separators).any(|item| same(item, &wanted)),
    ))
}

pub(super) fn subset(call: &mut Call<'_, '_>) -> Evaluated {
    is_subset(call, <[u8]>::eq)
}

pub(super) fn subset_any_case(call: &mut Call<'_, '_>) -> Evaluated {
    is_subset(call, <[u8]>::eq_ignore_ascii_case)
}

fn is_subset(call: &mut Call<'_, '_>, same: Same) -> Evaluated {
    let values = call.values()?;
    let [part, whole, separators] = match two_texts(&values) {
        Ok(texts) => texts,
        Err(value) => return Ok(value),
    };
    let whole = items(&whole, &separators);
    let mut wanted = items(&part, &separators).peekable();
    // Of separators alone the original makes an item that no list has.
    let is_nothing = !part.is_empty() && wanted.peek().is_none();
    let all = wanted.all(|wanted| whole.clone().any(|item| same(item, wanted)));
    Ok(Value::Boolean(all && !is_nothing))
}

/// Whether two lists have an item in common; here blanks round items belong to them.
pub(super) fn intersect(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    if values.iter().any(Value::is_error) {
        return Ok(Value::Error);
    }
    if values.iter().any(Value::is_undefined) {
        return Ok(Value::Undefined);
    }
    let (Value::String(left), Value::String(right), Some(mut separators)) =
        (&values[0], &values[1], separators(values.get(2)))
    else {
        return Ok(Value::Error);
    };
    if separators.is_empty() {
        separators = SEPARATORS.to_vec();
    }
    let parts = |text: &Text| -> Vec<Vec<u8>> {
        let parts = text.as_bytes().split(|byte| separators.contains(byte));
        parts
            .filter(|part| !part.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    };
    let right: std::collections::BTreeSet<_> = parts(right).into_iter().collect();
    Ok(Value::Boolean(
        parts(left).iter().any(|part| right.contains(part)),
    ))
}

pub(super) fn regexp_member(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    let options = match values.get(3) {
        None => String::new(),
        Some(Value::String(options)) => options.to_string().to_ascii_lowercase(),
        Some(_) => return Ok(Value::Error),
    };
    let (Value::String(pattern), Value::String(list), Some(separators)) =
        (&values[0], &values[1], separators(values.get(2)))
    else {
        return Ok(Value::Error);
    };
    let mut items = items(list.as_bytes(), &separators).peekable();
    if items.peek().is_none() {
        return Ok(Value::Undefined);
    }
    let Some(pattern) = Pattern::compile(pattern.as_bytes(), &options) else {
        return Ok(Value::Error);
    };
    let matches = |item: &[u8]| pattern.is_match(item).unwrap_or(false);
    Ok(Value::Boolean(items.any(matches)))
}
