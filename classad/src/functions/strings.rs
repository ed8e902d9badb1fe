//! Functions of strings.

use super::Call;
use super::conversions::to_text;
use crate::eval::Evaluated;
use crate::expr::Expr;
use crate::number::low_half;
use crate::text::{is_blank, order_ignoring_case};
use crate::value::Value;
use std::cmp::Ordering;

pub(super) fn strcat(call: &mut Call<'_, '_>) -> Evaluated {
    let mut whole = vec![];
    for at in 0..call.count() {
        let value = call.value(at)?;
        match to_text(&value) {
            Ok(text) => whole.extend_from_slice(text.as_bytes()),
            Err(other) => return Ok(other),
        }
        call.run.room(whole.len())?;
    }
    Ok(whole.into())
}

/// The first is what comes between the others; a list may stand for them. What is UNDEFINED is left out.
pub(super) fn join(call: &mut Call<'_, '_>) -> Evaluated {
    let count = call.count();
    let mut parts = match count {
        1 | 2 => match call.value(count - 1)? {
            Value::List(list) => {
                let separator = if count == 2 {
                    call.value(0)?
                } else {
                    "".into()
                };
                let mut parts = vec![separator];
                parts.extend(call.items(&list)?);
                parts
            }
            _ => call.values()?,
        },
        _ => call.values()?,
    }
    .into_iter();
    let mut undefined = false;
    let separator = match parts.next().map(|value| to_text(&value)) {
        None => return Ok("".into()),
        Some(Ok(text)) => text.into_bytes(),
        Some(Err(Value::Undefined)) => {
            undefined = true;
            vec![]
        }
        Some(Err(other)) => return Ok(other),
    };
    let mut whole: Vec<u8> = vec![];
    let mut any = false;
    for part in parts {
        match to_text(&part) {
            Ok(text) => {
                any = true;
                if !whole.is_empty() {
                    whole.extend_from_slice(&separator);
                }
                whole.extend_from_slice(text.as_bytes());
            }
            Err(Value::Undefined) => undefined = true,
            Err(other) => return Ok(other),
        }
        call.run.room(whole.len())?;
    }
    Ok(if undefined && !any {
        Value::Undefined
    } else {
        whole.into()
    })
}

pub(super) fn to_upper(call: &mut Call<'_, '_>) -> Evaluated {
    change_case(call, <[u8]>::to_ascii_uppercase)
}

pub(super) fn to_lower(call: &mut Call<'_, '_>) -> Evaluated {
    change_case(call, <[u8]>::to_ascii_lowercase)
}

fn change_case(call: &mut Call<'_, '_>, change: fn(&[u8]) -> Vec<u8>) -> Evaluated {
    let value = call.value(0)?;
    Ok(match to_text(&value) {
        Ok(text) => change(text.as_bytes()).into(),
        Err(other) => other,
    })
}

/// Offsets and lengths below zero count from the end.
pub(super) fn substr(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    if values.iter().any(Value::is_undefined) {
        return Ok(Value::Undefined);
    }
    let (text, offset, len) = match values.as_slice() {
        [Value::String(text), Value::Integer(offset)] => (text, offset, None),
        [
            Value::String(text),
            Value::Integer(offset),
            Value::Integer(len),
        ] => (text, offset, Some(low_half(*len))),
        _ => return Ok(Value::Error),
    };
    let bytes = text.as_bytes();
    let whole = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    let offset = i64::from(low_half(*offset));
    let begin = if offset < 0 {
        (whole + offset).max(0)
    } else {
        offset.min(whole)
    };
    let end = match len.map(i64::from) {
        None => whole,
        Some(len) if len < 0 => whole + len,
        Some(len) => begin + len,
    };
    let end = end.clamp(begin, whole);
    let place = |at: i64| usize::try_from(at).unwrap_or(0);
    Ok(bytes[place(begin)..place(end)].to_vec().into())
}

pub(super) fn strcmp(call: &mut Call<'_, '_>) -> Evaluated {
    compare(call, <[u8]>::cmp)
}

pub(super) fn stricmp(call: &mut Call<'_, '_>) -> Evaluated {
    compare(call, order_ignoring_case)
}

fn compare(call: &mut Call<'_, '_>, order: fn(&[u8], &[u8]) -> Ordering) -> Evaluated {
    let values = call.values()?;
    if values.iter().any(Value::is_undefined) {
        return Ok(Value::Undefined);
    }
    Ok(match (to_text(&values[0]), to_text(&values[1])) {
        (Ok(left), Ok(right)) => Value::Integer(order(left.as_bytes(), right.as_bytes()) as i64),
        _ => Value::Error,
    })
}

/// At each of the separators; two of them that are no blanks, and the same, have an empty string between them.
pub(super) fn split(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    let (text, separators) = match values.as_slice() {
        [Value::String(text)] => (text, b", \t".as_slice()),
        [Value::String(text), Value::String(separators)] => (text, separators.as_bytes()),
        _ => return Ok(Value::Error),
    };
    let mut items = vec![];
    let mut item = vec![];
    let mut last = None;
    for &byte in text.as_bytes() {
        if !separators.contains(&byte) {
            item.push(byte);
            continue;
        }
        if !item.is_empty() || last == Some(byte) {
            items.push(Expr::string(std::mem::take(&mut item)));
        }
        if !is_blank(byte) {
            last = Some(byte);
        }
    }
    if !item.is_empty() {
        items.push(Expr::string(item));
    }
    Ok(Value::list(items))
}

pub(super) fn split_user_name(call: &mut Call<'_, '_>) -> Evaluated {
    split_at(call, false)
}

pub(super) fn split_slot_name(call: &mut Call<'_, '_>) -> Evaluated {
    split_at(call, true)
}

/// Before and behind the first `@`.
fn split_at(call: &mut Call<'_, '_>, whole_is_behind: bool) -> Evaluated {
    let Value::String(text) = call.value(0)? else {
        return Ok(Value::Error);
    };
    let bytes = text.as_bytes();
    let (before, behind) = match bytes.iter().position(|byte| *byte == b'@') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None if whole_is_behind => (&bytes[..0], bytes),
        None => (bytes, &bytes[..0]),
    };
    Ok(Value::list([Expr::string(before), Expr::string(behind)]))
}
