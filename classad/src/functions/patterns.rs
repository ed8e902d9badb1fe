//! Regular expressions.
//!
//! HTCondor has those of PCRE, on bytes; here they are those of `fancy-regex`, on characters: they have look-around
//! and backreferences, too. docs/CLASSADS.md says what differs.

use super::Call;
use crate::eval::Evaluated;
use crate::value::Value;
use fancy_regex::{Regex, RegexBuilder};

/// A pattern with its options; none where it is malformed.
pub(crate) fn compile(pattern: &str, options: &str) -> Option<Regex> {
    let mut flags = String::new();
    for flag in ['i', 'm', 's', 'x'] {
        if options.contains(flag) {
            flags.push(flag);
        }
    }
    let pattern = match flags.is_empty() {
        true => pattern.to_owned(),
        false => format!("(?{flags}){pattern}"),
    };
    RegexBuilder::new(&pattern)
        .backtrack_limit(100_000)
        .delegate_size_limit(1 << 20)
        .build()
        .ok()
}

pub(super) fn regexp(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    if let Some(value) = exceptional(&values) {
        return Ok(value);
    }
    let texts = strings(&values);
    let (pattern, text, options) = match texts.as_deref() {
        Some([pattern, text]) => (pattern, text, ""),
        Some([pattern, text, options]) => (pattern, text, *options),
        _ => return Ok(Value::Error),
    };
    let matched = compile(pattern, options).and_then(|regex| regex.is_match(text).ok());
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
    let regex = compile(pattern, rest.first().unwrap_or(&""));
    let mut without = Value::Boolean(false);
    for item in list.items.iter() {
        match call.run.item(&list, item, call.scope)? {
            Value::String(text) => {
                let text = text.to_str();
                let matched = regex
                    .as_ref()
                    .zip(text)
                    .and_then(|(regex, text)| regex.is_match(text).ok());
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
    let Some(regex) = compile(pattern, &options) else {
        return Ok(Value::Error);
    };
    let replaced = replaced(
        &regex,
        text,
        replacement,
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
    regex: &Regex,
    text: &str,
    replacement: &str,
    keep: bool,
    all: bool,
) -> Option<Vec<u8>> {
    let mut output = vec![];
    let mut at = 0;
    while let Some(captures) = regex.captures_from_pos(text, at).ok()? {
        let whole = captures.get(0)?;
        if keep {
            output.extend_from_slice(&text.as_bytes()[at..whole.start()]);
        }
        // Groups behind the last that took part are not there.
        let groups = (0..captures.len())
            .rev()
            .find(|group| captures.get(*group).is_some())?
            + 1;
        let mut rest = replacement.bytes().peekable();
        while let Some(byte) = rest.next() {
            match rest.next_if(|next| byte == b'\\' && next.is_ascii_digit()) {
                Some(digit) => {
                    let group = usize::from(digit - b'0');
                    if group >= groups {
                        return None;
                    }
                    output.extend_from_slice(
                        captures
                            .get(group)
                            .map_or("", |found| found.as_str())
                            .as_bytes(),
                    );
                }
                None => output.push(byte),
            }
        }
        at = whole.end();
        if !all {
            break;
        }
        if whole.start() == whole.end() {
            // An empty match: go on behind the next character. At the end there is none, and the original fails.
            let next = text[at..].chars().next()?;
            let mut room = [0; 4];
            output.extend_from_slice(next.encode_utf8(&mut room).as_bytes());
            at += next.len_utf8();
        }
    }
    if keep {
        output.extend_from_slice(&text.as_bytes()[at..]);
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

fn strings(values: &[Value]) -> Option<Vec<&str>> {
    values.iter().map(text_of).collect()
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => text.to_str(),
        _ => None,
    }
}
