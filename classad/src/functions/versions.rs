//! Versions: numbers in strings are compared as numbers.

use super::Call;
use super::conversions::to_text;
use crate::error::EvalError;
use crate::eval::Evaluated;
use crate::value::Value;

/// How two strings are ordered: below zero, zero, above zero.
///
/// Where digits meet digits, the longer number is the larger; a number with zeros in front is a fraction, and the
/// more zeros, the smaller.
fn natural_order(left: &[u8], right: &[u8]) -> i64 {
    let equal = left
        .iter()
        .zip(right)
        .take_while(|(left, right)| left == right)
        .count();
    let byte = |text: &[u8], at: usize| text.get(at).copied().unwrap_or(0);
    let difference = i64::from(byte(left, equal)) - i64::from(byte(right, equal));
    // The numbers that the difference is in.
    let digits_before = left[..equal]
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let begin = equal - digits_before;
    let number = |text: &[u8]| -> (i64, i64) {
        let digits = text[begin..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit());
        let count = digits.clone().count();
        // The last digit of a number is no zero in front of it.
        let zeros = digits
            .take(count.saturating_sub(1))
            .take_while(|byte| **byte == b'0')
            .count();
        let len = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        (len(zeros), len(count))
    };
    let (left_zeros, left_len) = number(left);
    let (right_zeros, right_len) = number(right);
    if difference == 0 || left_len == 0 || right_len == 0 {
        difference
    } else if left_zeros != right_zeros {
        right_zeros - left_zeros
    } else if left_zeros > 0 || left_len == right_len {
        difference
    } else {
        left_len - right_len
    }
}

fn order(call: &mut Call<'_, '_>) -> Result<Result<i64, Value>, EvalError> {
    let values = call.values()?;
    if values.iter().any(Value::is_undefined) {
        return Ok(Err(Value::Undefined));
    }
    Ok(match (to_text(&values[0]), to_text(&values[1])) {
        (Ok(left), Ok(right)) => Ok(natural_order(left.as_bytes(), right.as_bytes())),
        _ => Err(Value::Error),
    })
}

macro_rules! comparisons {
    ($($name:ident => $make:expr),*) => { $(
        pub(super) fn $name(call: &mut Call<'_, '_>) -> Evaluated {
            Ok(order(call)?.map_or_else(|value| value, $make))
        }
    )* };
}

comparisons! {
    compare => Value::Integer,
    le => |order| Value::Boolean(order <= 0),
    lt => |order| Value::Boolean(order < 0),
    ge => |order| Value::Boolean(order >= 0),
    gt => |order| Value::Boolean(order > 0),
    eq => |order| Value::Boolean(order == 0)
}

pub(super) fn in_range(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    if values[1].is_undefined() || values[2].is_undefined() {
        return Ok(Value::Undefined);
    }
    Ok(
        match (
            to_text(&values[0]),
            to_text(&values[1]),
            to_text(&values[2]),
        ) {
            (Ok(version), Ok(least), Ok(most)) => {
                let version = version.as_bytes();
                Value::Boolean(
                    natural_order(least.as_bytes(), version) <= 0
                        && natural_order(version, most.as_bytes()) <= 0,
                )
            }
            _ => Value::Error,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::natural_order;

    /// As the original's `versioncmp` answers.
    #[test]
    fn versions_are_in_their_natural_order() {
        let cases = [
            ("1.2", "1.10", -1),
            ("1.2.0", "1.2", 46),
            ("1.05", "1.5", -1),
            ("1.050", "1.05", 48),
            ("1.a", "1.1", 48),
            ("", "1", -49),
            ("001", "01", -1),
            ("foo-08", "foo-8", -1),
            ("00", "0", -1),
            ("0", "00", 1),
            ("1.010", "1.09", -8),
            ("a1b02", "a1b1", -1),
            ("1", "12", -1),
            ("8.9.11-rc1", "8.9.11", 45),
            ("1.500000000000000E+00", "1.5", 14),
            ("1", "a", -48),
            ("0.0", "100", -2),
            ("a", "a", 0),
        ];
        for (left, right, order) in cases {
            assert_eq!(
                natural_order(left.as_bytes(), right.as_bytes()),
                order,
                "{left} {right}"
            );
        }
    }
}
