//! Arguments and environments of jobs, in the old (V1) and the new (V2) way to write them.

use super::Call;
use crate::error::EvalError;
use crate::eval::Evaluated;
use crate::expr::Expr;
use crate::number::low_half;
use crate::text::is_blank;
use crate::value::Value;
use std::collections::BTreeMap;

/// Words between blanks, as V2 has them: in single quotes blanks are none, and two quotes are one.
fn words(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = vec![];
    let mut word: Option<Vec<u8>> = None;
    let mut quoted = false;
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        match byte {
            b'\'' if quoted && rest.next_if_eq(&b'\'').is_some() => {
                word.get_or_insert_default().push(b'\'')
            }
            b'\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            _ if !quoted && is_blank(byte) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    (!quoted).then_some(words)
}

/// A word as V2 has it, behind those that are there.
fn append(line: &mut Vec<u8>, word: &[u8]) {
    if !line.is_empty() {
        line.push(b' ');
    }
    let begin = line.len();
    if word.is_empty() {
        line.extend_from_slice(b"''");
    }
    for &byte in word {
        if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\'') {
            line.push(byte);
            continue;
        }
        // Quoted bytes in a row are in one pair of quotes.
        if line.len() > begin && line.last() == Some(&b'\'') {
            line.pop();
        } else {
            line.push(b'\'');
        }
        if byte == b'\'' {
            line.push(b'\'');
        }
        line.extend([byte, b'\'']);
    }
}

/// What may separate the entries of a V1 environment, if it begins with it.
const SEPARATORS: &[u8] = b"|<>-,$/%+@:#!&*?^~`;";

type Environment = BTreeMap<Vec<u8>, Vec<u8>>;

/// `name=value`
fn set(environment: &mut Environment, entry: &[u8]) -> Option<()> {
    let at = entry
        .iter()
        .position(|byte| *byte == b'=')
        .filter(|at| *at > 0)?;
    environment.insert(entry[..at].to_vec(), entry[at + 1..].to_vec());
    Some(())
}

fn print(environment: &Environment) -> Value {
    let mut line = vec![];
    for (name, value) in environment {
        append(&mut line, &[name.as_slice(), b"=", value].concat());
    }
    line.into()
}

pub(super) fn env_v1_to_v2(call: &mut Call<'_, '_>) -> Evaluated {
    let text = match call.value(0)? {
        Value::String(text) => text,
        Value::Undefined => return Ok(Value::Undefined),
        _ => return Ok(Value::Error),
    };
    let mut environment = Environment::new();
    // What the text begins with separates its entries, if no name can begin with it; and so does an end of line.
    let bytes = text.as_bytes();
    let separator = bytes
        .first()
        .copied()
        .filter(|first| SEPARATORS.contains(first))
        .unwrap_or(b';');
    let entries = bytes
        .split(|byte| *byte == separator || *byte == b'\n')
        .map(<[u8]>::trim_ascii_start);
    for entry in entries.filter(|entry| !entry.is_empty()) {
        if set(&mut environment, entry).is_none() {
            return Ok(Value::Error);
        }
    }
    Ok(print(&environment))
}

pub(super) fn merge_environment(call: &mut Call<'_, '_>) -> Evaluated {
    let mut environment = Environment::new();
    for value in call.values()? {
        let text = match value {
            Value::String(text) => text,
            Value::Undefined => continue,
            _ => return Ok(Value::Error),
        };
        let Some(entries) = words(text.as_bytes()) else {
            return Ok(Value::Error);
        };
        if entries
            .iter()
            .any(|entry| set(&mut environment, entry).is_none())
        {
            return Ok(Value::Error);
        }
    }
    Ok(print(&environment))
}

/// Which of both ways is meant: V2 where nothing is said.
fn is_v1(call: &mut Call<'_, '_>) -> Result<Option<bool>, EvalError> {
    if call.count() < 2 {
        return Ok(Some(false));
    }
    Ok(match call.value(1)? {
        Value::Integer(version) => match low_half(version) {
            1 => Some(true),
            2 => Some(false),
            _ => None,
        },
        _ => None,
    })
}

pub(super) fn list_to_args(call: &mut Call<'_, '_>) -> Evaluated {
    let Some(v1) = is_v1(call)? else {
        return Ok(Value::Error);
    };
    let Value::List(list) = call.value(0)? else {
        return Ok(Value::Error);
    };
    let mut line = vec![];
    for item in call.items(&list)? {
        let Value::String(word) = item else {
            return Ok(Value::Error);
        };
        let word = word.as_bytes();
        if !v1 {
            append(&mut line, word);
        } else if word.iter().any(|byte| is_blank(*byte)) {
            return Ok(Value::Error);
        } else {
            if !line.is_empty() {
                line.push(b' ');
            }
            line.extend_from_slice(word);
        }
        call.run.room(line.len())?;
    }
    Ok(line.into())
}

pub(super) fn args_to_list(call: &mut Call<'_, '_>) -> Evaluated {
    let Some(v1) = is_v1(call)? else {
        return Ok(Value::Error);
    };
    let Value::String(text) = call.value(0)? else {
        return Ok(Value::Error);
    };
    let words = if v1 {
        let words = text.as_bytes().split(|byte| is_blank(*byte));
        Some(
            words
                .filter(|word| !word.is_empty())
                .map(<[u8]>::to_vec)
                .collect(),
        )
    } else {
        words(text.as_bytes())
    };
    Ok(words.map_or(Value::Error, |words| {
        Value::list(words.into_iter().map(Expr::string))
    }))
}
