//! `isUndefined` and its like.

use super::Call;
use crate::eval::Evaluated;
use crate::value::Value;

macro_rules! tests {
    ($($name:ident => $pattern:pat),*) => { $(
        pub(super) fn $name(call: &mut Call<'_, '_>) -> Evaluated {
            Ok(Value::Boolean(matches!(call.value(0)?, $pattern)))
        }
    )* };
}

tests! {
    is_undefined => Value::Undefined,
    is_error => Value::Error,
    is_string => Value::String(_),
    is_integer => Value::Integer(_),
    is_real => Value::Real(_),
    is_list => Value::List(_),
    is_ad => Value::Ad(_),
    is_boolean => Value::Boolean(_),
    is_abs_time => Value::AbsTime(_),
    is_rel_time => Value::RelTime(_)
}
