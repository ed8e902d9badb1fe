//! Functions of regular expressions.

use super::Call;
use crate::eval::Evaluated;
use crate::pcre::{Pattern, bytes, characters};
use crate::text::Text;
use crate::value::Value;

pub(super) fn regexp(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    if let Some(value) = exceptional(&values) {
        return Ok(value);
    }
    let texts = strings(&values);
    let (pattern, text, options) = match texts.as_deref() {
        Some([pattern, text]) => (pattern, text, String::new()),
        Some([pattern, text, options]) => (pattern, text, options.to_string()),
        _ => return Ok(Value::Error),
    };
    let pattern = Pattern::compile(pattern.as_bytes(), &options);
    let matched = pattern.and_then(|pattern| pattern.is_match(text.as_bytes()));
    Ok(matched.map_or(Value::Error, Value::Boolean))
}

pub(super) fn regexp_member(call: &mut Call<'_, '_>) -> Evaluated {
    let mut values = call.values()?;
    if let Some(value) = exceptional(&values) {
        return Ok(value);
    }
    let list = values.remove(1);
    let texts = strings(&values);
    let (Value::List(list), Some([pattern, rest @ ..])) = (list, texts.as_deref()) else {
        return Ok(Value::Error);
    };
    let options = rest.first().map(ToString::to_string).unwrap_or_default();
    let pattern = Pattern::compile(pattern.as_bytes(), &options);
    let mut without = Value::Boolean(false);
    for item in list.items.iter() {
        match call.run.item(&list, item, call.scope)? {
            Value::String(text) => {
                let pattern = pattern.as_ref();
                let matched = pattern.and_then(|pattern| pattern.is_match(text.as_bytes()));
                // A malformed pattern matches nothing.
                if matched == Some(true) {
                    return Ok(Value::Boolean(true));
                }
            }
            Value::Undefined => without = Value::Undefined,
            _ => return Ok(Value::Error),
        }
    }
    Ok(without)
}

pub(super) fn regexps(call: &mut Call<'_, '_>) -> Evaluated {
    substitute(call, "")
}

pub(super) fn replace(call: &mut Call<'_, '_>) -> Evaluated {
    substitute(call, "f")
}

pub(super) fn replace_all(call: &mut Call<'_, '_>) -> Evaluated {
    substitute(call, "fg")
}

fn substitute(call: &mut Call<'_, '_>, always: &str) -> Evaluated {
    let values = call.values()?;
    if let Some(value) = exceptional(&values) {
        return Ok(value);
    }
    let texts = strings(&values);
    let (pattern, text, replacement, options) = match texts.as_deref() {
        Some([pattern, text, replacement]) => (pattern, text, replacement, always.to_owned()),
        Some([pattern, text, replacement, options]) => {
            (pattern, text, replacement, format!("{options}{always}"))
        }
        _ => return Ok(Value::Error),
    };
    let Some(pattern) = Pattern::compile(pattern.as_bytes(), &options) else {
        return Ok(Value::Error);
    };
    let replaced = replaced(
        &pattern,
        &characters(text.as_bytes()),
        replacement.as_bytes(),
        options.contains('f'),
        options.contains('g'),
    );
    if let Some(text) = &replaced {
        call.run.room(text.len())?;
    }
    Ok(replaced.map_or(Value::Error, Value::from))
}

/// The text with what matches replaced (`keep`), or only what it is replaced with.
fn replaced(
    pattern: &Pattern,
    text: &str,
    replacement: &[u8],
    keep: bool,
    all: bool,
) -> Option<Vec<u8>> {
    let mut output = vec![];
    let mut at = 0;
    while let Some(groups) = pattern.groups(text, at)? {
        let (begin, end) = (*groups.first()?)?;
        if keep {
            output.extend(bytes(&text[at..begin]));
        }
        // Groups behind the last that took part are not there.
        let count = groups.iter().rposition(Option::is_some)? + 1;
        let mut rest = replacement.iter().copied().peekable();
        while let Some(byte) = rest.next() {
            match rest.next_if(|next| byte == b'\\' && next.is_ascii_digit()) {
                Some(digit) => {
                    let group = usize::from(digit - b'0');
                    if group >= count {
                        return None;
                    }
                    if let Some((begin, end)) = groups[group] {
                        output.extend(bytes(&text[begin..end]));
                    }
                }
                None => output.push(byte),
            }
        }
        at = end;
        if !all {
            break;
        }
        if begin == end {
            // An empty match: go on behind the next byte. At the end there is none, and the original fails.
            let next = text[at..].chars().next()?;
            at += next.len_utf8();
            output.push(u8::try_from(next).ok()?);
        }
    }
    if keep {
        output.extend(bytes(&text[at..]));
    }
    Some(output)
}

/// ERROR if one is, else UNDEFINED if one is.
fn exceptional(values: &[Value]) -> Option<Value> {
    if values.iter().any(Value::is_error) {
        return Some(Value::Error);
    }
    values
        .iter()
        .any(Value::is_undefined)
        .then_some(Value::Undefined)
}

fn strings(values: &[Value]) -> Option<Vec<&Text>> {
    values.iter().map(text_of).collect()
}

fn text_of(value: &Value) -> Option<&Text> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}
