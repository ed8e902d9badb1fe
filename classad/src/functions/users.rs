//! Functions of users: what they answer comes from the [`Surroundings`](crate::Surroundings).

use super::Call;
use crate::eval::Evaluated;
use crate::value::Value;

/// A user's home; else the second argument, if that is a string and not empty.
pub(super) fn home(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    let found = match &values[0] {
        Value::String(user) => {
            let home = user
                .to_str()
                .and_then(|user| call.run.context.surroundings().home(user));
            home.map_or(Value::Undefined, |home| Value::String(home.into()))
        }
        Value::Undefined => Value::Undefined,
        _ => Value::Error,
    };
    Ok(match (found, values.get(1)) {
        (found @ Value::String(_), _) => found,
        (_, Some(Value::String(default))) if !default.as_bytes().is_empty() => {
            Value::String(default.clone())
        }
        (found, _) => found,
    })
}

/// What a map has for a user; the third argument if that is one of the names in it, else the first of them. The
/// fourth if there is nothing.
pub(super) fn map(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    if values[0].is_error() || values[1].is_error() {
        return Ok(Value::Error);
    }
    let default = || values.get(3).cloned().unwrap_or(Value::Undefined);
    let (Value::String(map), Value::String(user)) = (&values[0], &values[1]) else {
        return Ok(default());
    };
    let surroundings = call.run.context.surroundings();
    let found = map
        .to_str()
        .zip(user.to_str())
        .and_then(|(map, user)| surroundings.map_user(map, user));
    let (Some(found), preferred) = (found, values.get(2)) else {
        return Ok(default());
    };
    let Some(preferred) = preferred else {
        return Ok(Value::String(found.into()));
    };
    let mut names = found.split([',', ' ']).filter(|name| !name.is_empty());
    let wanted = match preferred {
        Value::String(preferred) => names.clone().find(|name| preferred.is_like(name)),
        _ => None,
    };
    Ok(wanted
        .or_else(|| names.next())
        .map_or_else(default, Value::from))
}
